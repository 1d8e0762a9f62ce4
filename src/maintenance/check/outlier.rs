//! Checks the collection of an outlier shape and its extras.

use std::time::{Duration, SystemTime};

use bson::Document;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::Cursor;
use mongodb::error::Error;

use super::collection::{differing_indexes, of_driver};
use crate::command::document::{array_of, get, put, single};
use crate::command::value_text::id_text;
use crate::maintenance::finding::Finding;
use crate::maintenance::inspect::SCAN_TIMEOUT;
use crate::maintenance::upstream::{ShapedCollection, description, indexes_of};
use crate::pattern::outlier::index::specs;
use crate::pattern::outlier::layout::DocumentState;
use crate::pattern::outlier::{orphans, resplit, split_fence};
use crate::pattern::shapes::OutlierShape;
use crate::pattern::unwound;

/// A cursor of extras.
pub(crate) type ExtrasScan = Cursor<RawDocumentBuf>;

/// The state of a fenced collection.
const FENCED: &str = "contains plain documents, or is converted to them: `mongoshape convert --to plain` continues, `--back` splits \
                      long arrays again, and `--finish` ends it";

/// Maximum number of documents to inspect one by one. Findings count no more than these.
const MOST: usize = 10_000;

/// The findings for one collection, at least one.
pub(crate) async fn check(target: &ShapedCollection, shape: &OutlierShape) -> Result<Vec<Finding>, Error> {
    let namespace = target.namespace();
    let described = description(&target.database, &target.collection).await?;
    let mut findings = unfit(target, described.as_ref());
    if !findings.is_empty() {
        return Ok(findings);
    }
    findings.extend(index_findings(target, shape).await?);
    if findings.iter().any(Finding::is_error) {
        return Ok(findings);
    }
    let is_fenced = described.is_some_and(|described| is_fenced(shape, &described));
    findings.extend(is_fenced.then(|| Finding::note(&namespace, FENCED)));
    let mut documents = InvalidDocuments::look(target, shape).await?;
    if is_fenced {
        documents.overlong = 0;
    }
    findings.extend(documents.findings(&namespace));
    findings.extend(missing_pages(target, shape).await?);
    let mut left_over = Vec::new();
    let uncounted = orphans::uncounted(shape, &target.collection, SystemTime::now());
    if among_extras(target, shape, &uncounted)
        .await?
        .try_next()
        .await?
        .is_some()
    {
        left_over.push("orphans");
    }
    let names = target.database.list_collection_names().await?;
    if names
        .iter()
        .any(|name| orphans::is_old_scratch(shape, name, SystemTime::now()))
    {
        left_over.push("scratch collections");
    }
    if run(target, find(target, orphans::with_tails(shape), 1))
        .await?
        .try_next()
        .await?
        .is_some()
    {
        left_over.push("tails that were not spilled");
    }
    if !left_over.is_empty() {
        let text = format!(
            "crashes have left {}, which are harmless; run `mongoshape setup` to remove them",
            left_over.join(", ")
        );
        findings.push(Finding::note(&namespace, text));
    }
    if findings.is_empty() {
        findings.push(Finding::fine(
            namespace,
            "contains valid documents and outliers, and no orphans",
        ));
    }
    Ok(findings)
}

/// Whether mongod refuses that documents become outliers.
pub(crate) fn is_fenced(shape: &OutlierShape, described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let options = options.and_then(|options| RawDocumentBuf::try_from(options).ok());
    options.is_some_and(|options| split_fence::is_fenced(shape, &options))
}

/// Findings if the collection does not exist, or has a kind or options that rule out extras.
pub(crate) fn unfit(target: &ShapedCollection, described: Option<&Document>) -> Vec<Finding> {
    let Some(described) = described else {
        return vec![Finding::note(target.namespace(), "does not exist yet")];
    };
    let has = |option: &str| {
        described
            .get_document("options")
            .is_ok_and(|options| options.contains_key(option))
    };
    let text = match described.get_str("type") {
        Ok("view") => "is a view, whose documents cannot be split",
        Ok("timeseries") => "is a time-series collection, whose documents cannot be split",
        _ if has("capped") => "is capped, so its documents cannot be split",
        _ if has("collation") => "has a default collation, which updates of outliers would ignore",
        _ => return Vec::new(),
    };
    vec![Finding::error(target.namespace(), text)]
}

/// Findings about the indexes of the extras collection. An error finding means that this shape
/// cannot read the stored documents.
pub(crate) async fn index_findings(target: &ShapedCollection, shape: &OutlierShape) -> Result<Vec<Finding>, Error> {
    let collection = shape.extras_collection();
    let there = match description(&target.database, collection).await? {
        Some(_) => indexes_of(&target.database, collection).await?,
        None => Vec::new(),
    };
    let namespace = format!("{}.{collection}", target.database.name());
    let wanted = of_driver(&specs(shape));
    Ok(differing_indexes(&namespace, &wanted, shape.stored_as(), &there))
}

/// The finding about a document whose pages are missing, if any.
async fn missing_pages(target: &ShapedCollection, shape: &OutlierShape) -> Result<Option<Finding>, Error> {
    let stages = orphans::missing_pages(shape);
    let Some(first) = first_of(target, &stages).await? else {
        return Ok(None);
    };
    // While a document gets new pages, it can appear to have none, so it is checked twice.
    let id = get(&first, "_id").unwrap_or(RawBsonRef::Null);
    let again = [&[single("$match", single("_id", single("$eq", id)))], stages.as_slice()].concat();
    if first_of(target, &again).await?.is_none() {
        return Ok(None);
    }
    let text = format!(
        "extras are missing from {}, so their documents cannot be read; the first has _id {}. Restore them, or restore the former value \
         of extras.collection",
        shape.extras_collection(),
        id_text(&first)
    );
    Ok(Some(Finding::error(target.namespace(), text)))
}

/// The first document of the collection after these stages.
async fn first_of(target: &ShapedCollection, stages: &[RawDocumentBuf]) -> Result<Option<RawDocumentBuf>, Error> {
    let mut command = unwound::aggregate(&target.collection, stages, None);
    command.append(cstr!("maxTimeMS"), milliseconds(SCAN_TIMEOUT));
    run(target, command).await?.try_next().await
}

/// The extras after these stages.
pub(crate) async fn among_extras(
    target: &ShapedCollection,
    shape: &OutlierShape,
    stages: &[RawDocumentBuf],
) -> Result<ExtrasScan, Error> {
    let mut command = unwound::aggregate(shape.extras_collection(), stages, None);
    command.append(cstr!("allowDiskUse"), true);
    let found = target.database.run_raw_cursor_command(command).await?;
    Ok(found.with_type())
}

fn find(target: &ShapedCollection, filter: RawDocumentBuf, limit: usize) -> RawDocumentBuf {
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), filter);
    find.append(cstr!("limit"), i64::try_from(limit).unwrap_or(i64::MAX));
    find.append(cstr!("maxTimeMS"), milliseconds(SCAN_TIMEOUT));
    find
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

async fn run(target: &ShapedCollection, command: RawDocumentBuf) -> Result<ExtrasScan, Error> {
    Ok(target.database.run_raw_cursor_command(command).await?.with_type())
}

/// Documents that do not conform to the layout.
#[derive(Default)]
struct InvalidDocuments {
    overlong: usize,
    by_hand: usize,
    /// The `_id`s of documents whose extras cannot be read.
    misfits: Vec<String>,
}

impl InvalidDocuments {
    async fn look(target: &ShapedCollection, shape: &OutlierShape) -> Result<Self, Error> {
        let mut documents = Self::default();
        let has_control = single(shape.control(), single("$exists", true));
        let strange = [resplit::overlong(shape), resplit::flagged_by_hand(shape), has_control];
        let mut first = single(
            shape.array(),
            single("$slice", i64::from(shape.threshold()).saturating_add(1)),
        );
        put(&mut first, shape.flag(), 1);
        put(&mut first, shape.control(), 1);
        let mut find = find(target, single("$or", array_of(&strange)), MOST);
        find.append(cstr!("projection"), &first);
        let mut found = run(target, find).await?;
        while let Some(found) = found.try_next().await? {
            documents.add(shape, &found);
        }
        Ok(documents)
    }

    fn add(&mut self, shape: &OutlierShape, stored: &RawDocument) {
        match DocumentState::of(shape, stored) {
            DocumentState::Invalid => self.misfits.push(id_text(stored)),
            DocumentState::Unmanaged => self.by_hand += 1,
            DocumentState::Inline | DocumentState::Outlier(_) => {
                self.overlong += usize::from(resplit::is_overlong(shape, stored));
            }
        }
    }

    fn findings(&self, namespace: &str) -> Vec<Finding> {
        let mut findings = Vec::new();
        if let Some(first) = self.misfits.first() {
            let count = self.misfits.len();
            let text = format!("{count} documents have an invalid record of their extras; the first has _id {first}");
            findings.push(Finding::error(namespace, text));
        }
        if self.by_hand > 0 {
            let count = self.by_hand;
            let text = format!(
                "{count} documents were split by hand; stop the programs that write them, then run `mongoshape setup --split` to adopt \
                 them"
            );
            findings.push(Finding::error(namespace, text));
        }
        if self.overlong > 0 {
            let count = self.overlong;
            let text =
                format!("{count} documents have more elements than the threshold; run `mongoshape setup --split`");
            findings.push(Finding::note(namespace, text));
        }
        findings
    }
}
