//! Checks whether a collection can store what its shape requires, and whether its content fits.

use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{Document, doc};
use mongodb::error::Error;
use tokio::time::timeout;

use super::invalid_items;
use super::server::is_mongos;
use crate::command::collection::{CLUSTERED, IMAGES};
use crate::maintenance::direct_writes;
use crate::maintenance::finding::Finding;
use crate::maintenance::inspect::{
    self, ContentsCheck, FieldCensus, MissingFields, Plain, SCAN_TIMEOUT, Survey, first_foreign,
};
use crate::maintenance::upstream::{
    ShapedCollection, described_validator, description, explain, indexes, is_same_index, is_same_key, raw_specs,
};
use crate::pattern::bucket::index::{ITEM_ID, is_item_id_without_prefix, specs};
use crate::pattern::bucket::unique_index::{ClauseOfIndex, UniqueIndex};
use crate::pattern::bucket::validator::PageValidator;
use crate::pattern::bucket::{compact, item_index};
use crate::pattern::shape_marker;
use crate::pattern::shapes::{BucketShape, ItemIds};

/// The findings for one collection, at least one.
pub(super) async fn check(target: &ShapedCollection) -> Vec<Finding> {
    let looked = match target.outlier() {
        Some(shape) => super::outlier::check(target, shape).await,
        None => look(target).await,
    };
    match looked {
        Ok(findings) if findings.is_empty() => {
            vec![Finding::fine(
                target.namespace(),
                "contains buckets, and has their indexes",
            )]
        }
        Ok(findings) => findings,
        Err(error) => vec![unreadable(target, &error)],
    }
}

async fn look(target: &ShapedCollection) -> Result<Vec<Finding>, Error> {
    if let Some(shape) = target.bucket()
        && let Some(plain) = inspect::look_shortly(target, shape).await?
        && let Some(finding) = plain.finding(target)
    {
        let described = description(&target.database, &target.collection).await?;
        let mut findings = match (&described, plain) {
            (Some(described), Plain::Documents(_)) => unfit(target, described),
            _ => Vec::new(),
        };
        if let Plain::Documents(_) = plain {
            findings.extend(missing_fields(target, shape).await?);
        }
        findings.push(finding);
        return Ok(findings);
    }
    let Some(described) = description(&target.database, &target.collection).await? else {
        let text = "does not exist yet: the first write creates it and its indexes, or `mongoshape setup` does now";
        return Ok(vec![Finding::note(target.namespace(), text)]);
    };
    let mut unfit = unfit(target, &described);
    if let Some(shape) = target.bucket() {
        unfit.extend(sharded_with_unique_ids(target, shape).await?);
    }
    if !unfit.is_empty() {
        return Ok(unfit);
    }
    let Some(shape) = target.bucket() else {
        return Ok(Vec::new());
    };
    let mut findings = strange_documents(target, shape).await?;
    findings.extend(items_without_key(target, shape).await?);
    let there = indexes(target).await?;
    findings.extend(index_findings(target, shape, &there));
    findings.extend(earlier_item_id(target, shape, &there));
    findings.extend(earlier_forms(target, shape, &there));
    findings.extend(uniqueness_findings(target, shape, &described, &there));
    findings.extend(invalid_items::check(target, shape, &described).await?);
    findings.extend(direct_writes::check(target, shape, &described).await?);
    if shape.change_streams() && !has_images(&described) {
        let text = "stores no pre- and post-images of pages, which change streams require: run `mongoshape setup`";
        findings.push(Finding::error(target.namespace(), text));
    }
    Ok(findings)
}

/// An error for each field that the shape names and no plain document of a sample has.
pub(crate) async fn missing_fields(target: &ShapedCollection, shape: &BucketShape) -> Result<Vec<Finding>, Error> {
    let census = inspect::sample(target, FieldCensus::of_plain(shape)).await?;
    Ok(census.findings(&target.namespace(), MissingFields::Refused))
}

/// An error if the collection is sharded and its shape has unique `_id`s.
pub(crate) async fn sharded_with_unique_ids(
    target: &ShapedCollection,
    shape: &BucketShape,
) -> Result<Option<Finding>, Error> {
    // A mongod is not asked: `collStats` requires a privilege.
    if shape.item_ids() != ItemIds::Unique || !is_mongos(&target.database.run_command(doc! { "hello": 1 }).await?) {
        return Ok(None);
    }
    let command = doc! { "collStats": &target.collection };
    let statistics = target.database.run_command(command).await?;
    let is_sharded = statistics.get_bool("sharded").unwrap_or(false);
    Ok(is_sharded.then(|| {
        let text =
            "is sharded: set `item_ids` to \"unique_in_key\", because a mongos has no unique index on `_id` alone";
        Finding::error(target.namespace(), text)
    }))
}

/// Whether mongod stores the images of changed documents.
pub(crate) fn has_images(described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let images = options.and_then(|options| options.get_document(IMAGES).ok());
    images.is_some_and(|images| images.get_bool("enabled").unwrap_or_default())
}

/// Findings about a kind or options of the collection that rule out buckets.
pub(crate) fn unfit(target: &ShapedCollection, described: &Document) -> Vec<Finding> {
    if is_frozen(described) {
        let text = "refuses writes because `mongoshape compact` is replacing it; if no `mongoshape compact` runs, run it again";
        return vec![Finding::error(target.namespace(), text)];
    }
    if inspect::is_frozen(described) {
        return Plain::Frozen.finding(target).into_iter().collect();
    }
    let finding = |option| {
        Finding::error(
            target.namespace(),
            format!("is {option}, which the bucket pattern does not support"),
        )
    };
    let are_ids_unique = target.bucket().is_none_or(|shape| shape.item_ids() == ItemIds::Unique);
    let unfit = unfit_options(described, are_ids_unique);
    unfit.into_iter().map(finding).collect()
}

/// Whether a compaction has frozen the collection.
pub(crate) fn is_frozen(described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let options = options.and_then(|options| RawDocumentBuf::try_from(options).ok());
    options.is_some_and(|options| compact::is_frozen(&options))
}

/// The finding for a collection that cannot be inspected.
pub(crate) fn unreadable(target: &ShapedCollection, error: &Error) -> Finding {
    Finding::error(target.namespace(), format!("cannot be inspected: {}", explain(error)))
}

/// Kinds and options of a collection that change stored documents, refuse them, or compare them
/// differently than items.
fn unfit_options(described: &Document, are_ids_unique: bool) -> Vec<&'static str> {
    match described.get_str("type") {
        Ok("view") => return vec!["a view"],
        Ok("timeseries") => return vec!["a time-series collection"],
        _ => {}
    }
    let empty = Document::new();
    let options = described.get_document("options").unwrap_or(&empty);
    let unfit = [
        ("capped", "capped"),
        ("collation", "created with a collation"),
        ("validator", "created with a validator"),
        ("encryptedFields", "encrypted"),
        ("expireAfterSeconds", "created with expireAfterSeconds"),
    ];
    // In a clustered collection, `_id`s are unique.
    let clustered = (CLUSTERED, "clustered, with item_ids that are not unique");
    let unfit = unfit.into_iter().chain((!are_ids_unique).then_some(clustered));
    let is_own = described_validator(described).is_some_and(|validator| PageValidator::parse(&validator).is_some());
    let given = unfit.filter(|(option, _)| options.contains_key(option) && !(*option == "validator" && is_own));
    given.map(|(_, words)| words).collect()
}

/// Findings about documents other than pages: buckets that can be adopted, and documents that
/// cannot.
async fn strange_documents(target: &ShapedCollection, shape: &BucketShape) -> Result<Vec<Finding>, Error> {
    let foreign = match first_foreign(target, shape, SCAN_TIMEOUT).await? {
        ContentsCheck::Pages => return Ok(Vec::new()),
        ContentsCheck::Unfinished(finding) => return Ok(vec![finding]),
        ContentsCheck::Foreign(id) => id,
    };
    let namespace = target.namespace();
    let mut survey = Survey::of(shape);
    let surveyed = timeout(SCAN_TIMEOUT, survey.go(target, shape)).await;
    let is_whole = surveyed.is_ok();
    surveyed.unwrap_or(Ok(()))?;
    let mut findings = survey.missing_fields(&namespace, MissingFields::Refused);
    findings.extend(survey.misfits(&namespace));
    if survey.by_hand() > 0 {
        let by_hand = survey.named_by_hand();
        let text =
            format!("contains {by_hand}; stop the programs that write them, then run `mongoshape setup` to adopt them");
        findings.push(Finding::error(&namespace, text));
    }
    if survey.is_disturbed() {
        let text = "its buckets are being adopted; run `mongoshape check` again after `mongoshape setup`";
        findings.push(Finding::error(&namespace, text));
    }
    if !is_whole {
        let seconds = SCAN_TIMEOUT.as_secs();
        let text = format!(
            "contains a document that is not a bucket of layout version 1, with _id {foreign}; the scan did not finish within {seconds} \
             s"
        );
        findings.push(Finding::error(&namespace, text));
    }
    Ok(findings)
}

/// A note if no item has the first key field: its name may be misspelt, and all items are then those of one key.
async fn items_without_key(target: &ShapedCollection, shape: &BucketShape) -> Result<Option<Finding>, Error> {
    let Some(key) = shape.key().first() else {
        return Ok(None);
    };
    let pages = target.database.collection::<RawDocumentBuf>(&target.collection);
    // The page index begins with this field.
    let with_key = pages
        .find_one(doc! { key: { "$ne": null } })
        .projection(doc! { "_id": 1 });
    if with_key.await?.is_some() || pages.find_one(doc! {}).projection(doc! { "_id": 1 }).await?.is_none() {
        return Ok(None);
    }
    let text = format!(
        "no document has the key field \"{key}\", so all are pages of the key null; if the name is wrong, correct `key` and insert \
         the documents again, or `mongoshape convert` to the right shape"
    );
    Ok(Some(Finding::note(target.namespace(), text)))
}

/// Findings about a collection's indexes.
pub(crate) fn index_findings(target: &ShapedCollection, shape: &BucketShape, there: &[Document]) -> Vec<Finding> {
    let mut wanted = wanted_indexes(shape);
    wanted.retain(|wanted| !there.iter().any(|found| serves_as(shape, wanted, found)));
    differing_indexes(&target.namespace(), &wanted, shape.stored_as(), there)
}

/// The finding about an index on the items' `_id` that an earlier version created, if any.
fn earlier_item_id(target: &ShapedCollection, shape: &BucketShape, there: &[Document]) -> Option<Finding> {
    there.iter().find(|found| is_earlier_item_id(shape, found))?;
    let text = format!(
        "index {ITEM_ID} was created by an earlier version: a read backward from an `_id` scans the collection; to replace it, stop all \
         proxies, drop it and run `mongoshape setup` (`mongoshape compact` also replaces it, if there are pages to pack)"
    );
    Some(Finding::note(target.namespace(), text))
}

/// The findings about the application's indexes in the form of an earlier version.
fn earlier_forms(target: &ShapedCollection, shape: &BucketShape, there: &[Document]) -> Vec<Finding> {
    let is_earlier = |found: &&Document| {
        let spec = RawDocumentBuf::try_from(*found).ok();
        let current = spec.as_ref().and_then(|spec| item_index::current_form(shape, spec));
        current != spec && current.is_some()
    };
    let finding = |found: &Document| {
        let name = found.get_str("name").unwrap_or_default();
        let text = format!(
            "index {name} has the form of an earlier version, which takes more space or answers fewer queries: to replace it, drop it \
             and create it again through mongoshape (`mongoshape compact` also replaces it, if there are pages to pack)"
        );
        Finding::note(target.namespace(), text)
    };
    there.iter().filter(is_earlier).map(finding).collect()
}

/// Findings about unique indexes without their clause in the validator, and clauses without an index.
fn uniqueness_findings(
    target: &ShapedCollection,
    shape: &BucketShape,
    described: &Document,
    there: &[Document],
) -> Vec<Finding> {
    let unique = UniqueIndex::all(shape, raw_specs(there));
    let validator = described_validator(described).and_then(|validator| PageValidator::parse(&validator));
    let clauses = validator.unwrap_or_default().indexes;
    let unenforced = unique
        .iter()
        .filter(|index| !clauses.contains(&ClauseOfIndex::of(shape, index)));
    let unenforced = unenforced.map(|index| {
        format!(
            "unique index {} does not keep items of one page apart: create it again through mongoshape, which adds the validator",
            index.name()
        )
    });
    let interrupted = clauses
        .iter()
        .filter(|clause| !unique.iter().any(|index| index.name() == clause.index));
    let interrupted = interrupted.map(|clause| {
        format!(
            "the creation of the unique index {} was interrupted, and writes of equal values fail: create the index again through \
             mongoshape, or drop it",
            clause.index
        )
    });
    let texts = unenforced.chain(interrupted);
    texts.map(|text| Finding::error(target.namespace(), text)).collect()
}

/// Whether an existing index serves as a wanted index of the shape.
pub(crate) fn serves_as(shape: &BucketShape, wanted: &Document, found: &Document) -> bool {
    is_same_index(wanted, found) || (is_named(wanted, ITEM_ID) && is_earlier_item_id(shape, found))
}

fn is_named(index: &Document, name: &str) -> bool {
    index.get_str("name").is_ok_and(|found| found == name)
}

/// Whether an index is that on the items' `_id`, created by an earlier version.
fn is_earlier_item_id(shape: &BucketShape, found: &Document) -> bool {
    let found = RawDocumentBuf::try_from(found);
    found.is_ok_and(|found| is_item_id_without_prefix(shape, &found))
}

/// Findings if the indexes differ from `wanted`, or if the shape marker differs from `stored_as`.
pub(super) fn differing_indexes(
    namespace: &str,
    wanted: &[Document],
    stored_as: &RawDocument,
    there: &[Document],
) -> Vec<Finding> {
    if let Some(differing) = other_shape(stored_as, there) {
        let text = format!("has the layout of another shape: {differing}; {}", shape_marker::REMEDY);
        return vec![Finding::error(namespace, text)];
    }
    let missing = |wanted: &Document| index_finding(namespace, wanted, there);
    wanted.iter().filter_map(missing).collect()
}

/// The differences between the shape marker and the shape, if any.
fn other_shape(stored_as: &RawDocument, there: &[Document]) -> Option<String> {
    let there: Vec<_> = there
        .iter()
        .filter_map(|index| RawDocumentBuf::try_from(index).ok())
        .collect();
    let said = shape_marker::among(there.iter().map(RawDocumentBuf::as_ref))?;
    let differing = shape_marker::differing(stored_as, said);
    (!differing.is_empty()).then(|| differing.join(", "))
}

/// The indexes of a shape as the driver's documents.
pub(crate) fn wanted_indexes(shape: &BucketShape) -> Vec<Document> {
    of_driver(&specs(shape))
}

/// Indexes as the driver's documents.
pub(super) fn of_driver(specs: &[RawDocumentBuf]) -> Vec<Document> {
    specs.iter().filter_map(|spec| Document::try_from(spec).ok()).collect()
}

/// The finding about a missing or conflicting index, if any.
fn index_finding(namespace: &str, wanted: &Document, there: &[Document]) -> Option<Finding> {
    if there.iter().any(|found| is_same_index(wanted, found)) {
        return None;
    }
    let name = |index: &Document| index.get_str("name").unwrap_or("without a name").to_owned();
    let is_conflicting = |found: &&Document| is_same_key(wanted, found) || name(wanted) == name(found);
    Some(match there.iter().find(is_conflicting) {
        Some(found) => {
            let (found, wanted) = (name(found), name(wanted));
            let relation = if found == wanted {
                "differs from the shape's index".to_owned()
            } else {
                format!("conflicts with {wanted}")
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
    use bson::doc;

    use super::*;

    #[test]
    fn kinds_and_options_that_cannot_hold_are_named() {
        let check = |described: Document, expected: &[&str]| assert_eq!(unfit_options(&described, true), expected);
        check(doc! { "type": "collection", "options": {} }, &[]);
        check(
            doc! { "type": "view", "options": { "viewOn": "a", "collation": {} } },
            &["a view"],
        );
        check(doc! { "type": "timeseries" }, &["a time-series collection"]);
        let options = doc! { "capped": true, "size": 1, "validator": { "x": 1 } };
        check(
            doc! { "type": "collection", "options": options },
            &["capped", "created with a validator"],
        );
        let clustered = doc! { "type": "collection", "options": { "clusteredIndex": {}, "expireAfterSeconds": 1 } };
        check(clustered.clone(), &["created with expireAfterSeconds"]);
        let expected = [
            "created with expireAfterSeconds",
            "clustered, with item_ids that are not unique",
        ];
        assert_eq!(unfit_options(&clustered, false), expected);
    }

    #[test]
    fn an_index_exists_is_missing_or_conflicts() {
        let wanted = doc! { "key": { "a": 1 }, "name": "wanted", "unique": true };
        let check = |there: Document, expected: Option<&str>| {
            let finding = index_finding("shop.trades", &wanted, &[there]).map(|finding| finding.to_string());
            assert_eq!(finding.as_deref(), expected);
        };
        check(doc! { "key": { "a": 1 }, "name": "other", "unique": true }, None);
        let missing = "note: shop.trades: index wanted is missing; run `mongoshape setup`";
        check(doc! { "key": { "b": 1 }, "name": "other" }, Some(missing));
        let conflicting = "error: shop.trades: index other conflicts with wanted; drop it, then run `mongoshape setup`";
        check(doc! { "key": { "a": 1 }, "name": "other" }, Some(conflicting));
    }
}
