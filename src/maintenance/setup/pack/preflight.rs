//! Checks whether a collection's options, indexes and documents can be packed. All obstacles are
//! reported before anything is changed.

use std::time::Instant;

use bson::Document;
use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use super::copy::REPORT_EVERY;
use crate::command::document::{get, single};
use crate::command::value_text::id_text;
use crate::maintenance::check::collection;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{FieldCensus, MissingFields, is_frozen};
use crate::maintenance::swap::{Halt, options_of};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::fence::is_fence;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_index::{self, EXPIRE_AFTER, ID, is_clustered, is_own, name};
use crate::pattern::bucket::unique_index::{NoKeys, UniqueIndex};
use crate::pattern::bucket::{index, pack};
use crate::pattern::shapes::BucketShape;

/// Documents named in a report. Further ones are counted.
const MAX_EXAMPLES: u64 = 5;

/// The indexes of a plain collection, and those of its pages.
pub(in crate::maintenance) struct TakenOver {
    /// As listed.
    pub(super) there: Vec<RawDocumentBuf>,
    /// As they are created on pages, together with those of the shape.
    pub(super) stored: Vec<RawDocumentBuf>,
}

/// The obstacles found so far.
pub(in crate::maintenance) struct Fitness<'a> {
    target: &'a ShapedCollection,
    shape: &'a BucketShape,
    missing: MissingFields,
    unfit: Vec<Finding>,
    indexes: TakenOver,
}

impl<'a> Fitness<'a> {
    /// Checks options and indexes.
    pub(super) async fn of(
        target: &'a ShapedCollection,
        shape: &'a BucketShape,
        missing: MissingFields,
        described: &Document,
    ) -> Result<Self, Error> {
        let mut described = described.clone();
        if is_frozen(&described) {
            described.insert("options", options_of(&described));
        }
        let mut unfit = collection::unfit(target, &described);
        let there = raw_indexes(target).await?;
        let mut stored = index::specs(shape);
        let shapes_own = collection::wanted_indexes(shape);
        for spec in &there {
            match taken_over(shape, &shapes_own, spec) {
                Ok(spec) => stored.extend(spec),
                Err(what) => {
                    let text = format!("index {} {what}; drop it, then run again", name(spec));
                    unfit.push(Finding::error(target.namespace(), text));
                }
            }
        }
        Ok(Self {
            target,
            shape,
            missing,
            unfit,
            indexes: TakenOver { there, stored },
        })
    }

    /// Checks documents only. `stored`: the indexes that the pages will have.
    pub(in crate::maintenance) fn of_documents(
        target: &'a ShapedCollection,
        shape: &'a BucketShape,
        missing: MissingFields,
        stored: Vec<RawDocumentBuf>,
    ) -> Self {
        Self {
            target,
            shape,
            missing,
            unfit: Vec::new(),
            indexes: TakenOver {
                there: Vec::new(),
                stored,
            },
        }
    }

    /// Checks all documents, too. Returns the indexes. `None`: something cannot be packed, and
    /// findings have been reported.
    pub(in crate::maintenance) async fn look_at_documents(
        mut self,
        stop: &CancellationToken,
        findings: &mut Findings,
    ) -> Result<Option<TakenOver>, Halt> {
        let namespace = self.target.namespace();
        let mut find = single("find", self.target.collection.as_str());
        find.append(cstr!("hint"), single("$natural", 1));
        let found = self.target.database.run_raw_cursor_command(find).await?;
        let mut documents = found.with_type::<RawDocumentBuf>();
        let mut census = FieldCensus::of_plain(self.shape);
        let unique = UniqueIndex::all(self.shape, &self.indexes.stored);
        let (mut read, mut misfits, mut reported) = (0_u64, 0_u64, Instant::now());
        while let Some(document) = documents.try_next().await? {
            if stop.is_cancelled() {
                return Err(Halt::Stopped);
            }
            read += 1;
            census.add(&document);
            let unfit = match pack::item(self.shape, &document) {
                Ok(item) => without_key(self.shape, &unique, &item),
                Err(error) => Some(error.message),
            };
            if let Some(reason) = unfit {
                misfits += 1;
                if misfits <= MAX_EXAMPLES {
                    let text = format!("document with _id {}: {reason}", id_text(&document));
                    self.unfit.push(Finding::error(&namespace, text));
                }
            }
            if reported.elapsed() >= REPORT_EVERY {
                reported = Instant::now();
                findings.add(&Finding::note(&namespace, format!("inspected {read} documents so far")));
            }
        }
        if misfits > 0 {
            let text = format!("{misfits} of {read} documents cannot be items of this shape; nothing was changed");
            self.unfit.push(Finding::error(&namespace, text));
        }
        self.unfit.extend(census.findings(&namespace, self.missing));
        let is_fit = !self.unfit.iter().any(Finding::is_error);
        findings.extend(self.unfit);
        if is_fit {
            let text = format!("inspected {read} documents: all can be packed");
            findings.add(&Finding::note(&namespace, text));
            return Ok(Some(self.indexes));
        }
        Ok(None)
    }
}

/// The reason why an item has no key in one of the unique indexes.
fn without_key(shape: &BucketShape, unique: &[UniqueIndex], item: &Item) -> Option<String> {
    let mut reasons = unique
        .iter()
        .map(|index| (index.name(), index.keys_of(shape, item).err()));
    let (name, reason) = reasons.find_map(|(name, reason)| Some((name, reason?)))?;
    Some(match reason {
        NoKeys::ThroughArray => format!("it has an array of documents inside a field of the unique index {name}"),
        NoKeys::ParallelArrays { .. } => format!("it has arrays in two fields of the unique index {name}"),
        NoKeys::TooLarge => format!("its keys in the unique index {name} are too large"),
    })
}

/// The index on pages for an index on documents. `None`: none is needed. `Err`: the reason why it
/// cannot be converted.
fn taken_over(
    shape: &BucketShape,
    shapes_own: &[Document],
    spec: &RawDocument,
) -> Result<Option<RawDocumentBuf>, String> {
    if name(spec) == ID || is_clustered(spec) {
        return Ok(None);
    }
    if is_own(name(spec)) {
        let parsed = Document::try_from(spec).unwrap_or_default();
        // Created by an earlier `setup` or by a proxy while the collection was empty.
        return if shapes_own.iter().any(|own| collection::serves_as(shape, own, &parsed)) {
            Ok(None)
        } else {
            Err("has a name that is reserved for the shape's own indexes".to_owned())
        };
    }
    if get(spec, EXPIRE_AFTER).is_some() {
        let reason = "an index with expireAfterSeconds, by which the server would delete documents while they are copied; create it again \
                      through mongoshape after packing";
        return Err(format!("cannot be kept: it is {reason}"));
    }
    let stored = item_index::stored(shape, spec);
    stored.map(Some).map_err(|what| format!("cannot be kept: it is {what}"))
}

/// The indexes of a collection as listed, without fences.
pub(super) async fn raw_indexes(target: &ShapedCollection) -> Result<Vec<RawDocumentBuf>, Error> {
    let command = single("listIndexes", target.collection.as_str());
    let found = target.database.run_raw_cursor_command(command).await?;
    let found: Vec<RawDocumentBuf> = found.with_type().try_collect().await?;
    Ok(found.into_iter().filter(|spec| !is_fence(name(spec))).collect())
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn indexes_become_those_of_items_or_are_refused() {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let own = collection::wanted_indexes(&shape);
        let stored = |spec: RawDocumentBuf| taken_over(&shape, &own, &spec);
        assert_eq!(
            stored(rawdoc! { "v": 2, "key": { "_id": 1 }, "name": "_id_" }),
            Ok(None)
        );
        assert_eq!(
            stored(rawdoc! { "v": 2, "key": { "k": 1, "n": -1 }, "name": "x" }),
            Ok(Some(
                rawdoc! { "v": 2, "key": { "k": 1, "history.n": -1 }, "name": "x" }
            ))
        );
        assert_eq!(stored(index::specs(&shape).remove(0)), Ok(None));
        assert!(stored(rawdoc! { "v": 2, "key": { "n": 1 }, "name": "mongoshape_n" }).is_err());
        let unique = stored(rawdoc! { "v": 2, "key": { "n": 1 }, "name": "x", "unique": true });
        assert!(unique.unwrap().is_some_and(|spec| spec.get_bool("unique").unwrap()));
        let sparse = stored(rawdoc! { "v": 2, "key": { "n": 1 }, "name": "x", "sparse": true });
        assert!(
            sparse
                .unwrap()
                .is_some_and(|spec| spec.get_document("partialFilterExpression").is_ok())
        );
        let sparse = stored(rawdoc! { "v": 2, "key": { "n": 1 }, "name": "x", "unique": true, "sparse": true });
        let words = "cannot be kept: it is a sparse unique index (it would omit whole pages, not items)";
        assert_eq!(sparse.unwrap_err(), words);
    }
}
