//! Whether a collection can hold what its shape keeps there, and does.

use std::time::Duration;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};

use crate::cli::finding::Finding;
use crate::cli::upstream::{Target, as_integer, description, explain, indexes, is_same_index, is_same_key};
use crate::pattern::bucket::index::specs;
use crate::pattern::shapes::BucketShape;

/// Strange documents are counted up to here.
const COUNT_LIMIT: i64 = 1000;
/// How long looking through a collection may take.
const SCAN_TIMEOUT: Duration = Duration::from_mins(1);
/// The server's code for that time being up.
const MAX_TIME_EXPIRED: i32 = 50;

/// Everything there is to say of one collection, one finding at least.
pub(super) async fn check(target: &Target) -> Vec<Finding> {
    match look(target).await {
        Ok(findings) if findings.is_empty() => {
            vec![Finding::fine(
                target.namespace(),
                "holds buckets, and has their indexes",
            )]
        }
        Ok(findings) => findings,
        Err(error) => vec![unreadable(target, &error)],
    }
}

async fn look(target: &Target) -> Result<Vec<Finding>, Error> {
    let Some(described) = description(&target.database, &target.collection).await? else {
        let text = "does not exist yet; run `mongoshape setup`";
        return Ok(vec![Finding::note(target.namespace(), text)]);
    };
    let unfit = unfit(target, &described);
    if !unfit.is_empty() {
        return Ok(unfit);
    }
    let mut findings: Vec<Finding> = strange_documents(target).await?.into_iter().collect();
    findings.extend(missing_indexes(target).await?);
    Ok(findings)
}

/// That a collection is of a kind, or has options, that buckets cannot be kept in.
pub(in crate::cli) fn unfit(target: &Target, described: &Document) -> Vec<Finding> {
    let finding = |option| {
        Finding::error(
            target.namespace(),
            format!("is {option}, which buckets cannot be kept in"),
        )
    };
    unfit_options(described).into_iter().map(finding).collect()
}

/// That it could not be looked at, and why.
pub(in crate::cli) fn unreadable(target: &Target, error: &Error) -> Finding {
    Finding::error(target.namespace(), format!("cannot be looked at: {}", explain(error)))
}

/// Kinds and options of a collection that change what is stored, refuse it, or compare otherwise than its items would.
fn unfit_options(described: &Document) -> Vec<&'static str> {
    match described.get_str("type") {
        Ok("view") => return vec!["a view"],
        Ok("timeseries") => return vec!["a time-series collection"],
        _ => {}
    }
    let empty = Document::new();
    let options = described.get_document("options").unwrap_or(&empty);
    let unfit = [
        ("capped", "capped"),
        ("collation", "made with a collation"),
        ("validator", "made with a validator"),
        ("clusteredIndex", "clustered"),
        ("encryptedFields", "encrypted"),
    ];
    let given = unfit.into_iter().filter(|(option, _)| options.contains_key(option));
    given.map(|(_, words)| words).collect()
}

/// Documents that are not buckets of layout version 1: an error with their number and one of their `_id`s.
pub(in crate::cli) async fn strange_documents(target: &Target) -> Result<Option<Finding>, Error> {
    let pipeline = [
        doc! { "$match": { "control.v": { "$ne": 1 } } },
        doc! { "$limit": COUNT_LIMIT },
        doc! { "$group": { "_id": null, "count": { "$sum": 1 }, "example": { "$first": "$_id" } } },
    ];
    let collection = target.database.collection::<Document>(&target.collection);
    let found = match collection.aggregate(pipeline).max_time(SCAN_TIMEOUT).await {
        Ok(cursor) => cursor.try_collect::<Vec<Document>>().await,
        Err(error) => Err(error),
    };
    match found {
        Ok(groups) => Ok(groups.first().map(|group| strange(target, group))),
        Err(error) if is_timeout(&error) => {
            let seconds = SCAN_TIMEOUT.as_secs();
            let text = format!("not all documents were looked at within {seconds} s; none before was strange");
            Ok(Some(Finding::note(target.namespace(), text)))
        }
        Err(error) => Err(error),
    }
}

fn is_timeout(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == MAX_TIME_EXPIRED)
}

fn strange(target: &Target, group: &Document) -> Finding {
    let count = group.get("count").and_then(as_integer).unwrap_or(0);
    let example = group.get("example").map_or("missing".to_owned(), ToString::to_string);
    let count = if count < COUNT_LIMIT {
        count.to_string()
    } else {
        format!("{COUNT_LIMIT} or more")
    };
    let text = format!(
        "{count} documents are not buckets of layout version 1, one with _id {example}; \
         move them to another collection and insert them through the proxy"
    );
    Finding::error(target.namespace(), text)
}

async fn missing_indexes(target: &Target) -> Result<Vec<Finding>, Error> {
    let Some(shape) = target.bucket() else {
        return Ok(Vec::new());
    };
    let there = indexes(target).await?;
    let missing = |wanted: &Document| index_finding(&target.namespace(), wanted, &there);
    Ok(wanted_indexes(shape).iter().filter_map(missing).collect())
}

/// The indexes of a shape, as the driver takes documents.
pub(in crate::cli) fn wanted_indexes(shape: &BucketShape) -> Vec<Document> {
    specs(shape)
        .iter()
        .filter_map(|spec| Document::try_from(spec).ok())
        .collect()
}

/// What is wrong with an index, if anything is.
fn index_finding(namespace: &str, wanted: &Document, there: &[Document]) -> Option<Finding> {
    if there.iter().any(|found| is_same_index(wanted, found)) {
        return None;
    }
    let name = |index: &Document| index.get_str("name").unwrap_or("without a name").to_owned();
    let is_in_the_way = |found: &&Document| is_same_key(wanted, found) || name(wanted) == name(found);
    Some(match there.iter().find(is_in_the_way) {
        Some(found) => {
            let (found, wanted) = (name(found), name(wanted));
            let relation = if found == wanted {
                "is another than asked for".to_owned()
            } else {
                format!("is in the way of {wanted}")
            };
            let text = format!("index {found} {relation}; drop it, then run `mongoshape setup`");
            Finding::error(namespace, text)
        }
        None => Finding::note(
            namespace,
            format!("index {} is missing; run `mongoshape setup`", name(wanted)),
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn kinds_and_options_that_cannot_hold_are_named() {
        let check = |described: Document, expected: &[&str]| assert_eq!(unfit_options(&described), expected);
        check(doc! { "type": "collection", "options": {} }, &[]);
        check(
            doc! { "type": "view", "options": { "viewOn": "a", "collation": {} } },
            &["a view"],
        );
        check(doc! { "type": "timeseries" }, &["a time-series collection"]);
        let options = doc! { "capped": true, "size": 1, "validator": {} };
        check(
            doc! { "type": "collection", "options": options },
            &["capped", "made with a validator"],
        );
    }

    #[test]
    fn an_index_is_there_missing_or_in_the_way() {
        let wanted = doc! { "key": { "a": 1 }, "name": "wanted", "unique": true };
        let check = |there: Document, expected: Option<&str>| {
            let finding = index_finding("shop.trades", &wanted, &[there]).map(|finding| finding.to_string());
            assert_eq!(finding.as_deref(), expected);
        };
        check(doc! { "key": { "a": 1 }, "name": "other", "unique": true }, None);
        let missing = "note: shop.trades: index wanted is missing; run `mongoshape setup`";
        check(doc! { "key": { "b": 1 }, "name": "other" }, Some(missing));
        let in_the_way =
            "error: shop.trades: index other is in the way of wanted; drop it, then run `mongoshape setup`";
        check(doc! { "key": { "a": 1 }, "name": "other" }, Some(in_the_way));
    }
}
