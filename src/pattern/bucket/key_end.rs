//! The first or last items of one key in the order of time, for a `$lookup`.
//!
//! The sub-pipeline `[{$sort: {at: -1}}, {$limit: n}]` of a `$lookup` by key needs the last pages of a key.
//! A first `$lookup` reads them in the order of page numbers. If they show that the items of the key are in
//! the order of time, and if they contain enough items, the client's stages run on their items. Otherwise a
//! second `$lookup` reads all pages of the key. One reading of the last pages decides and returns their
//! items, so writers change nothing in between.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::expression::{call, choice, field, shows_time_order};
use super::layout::path;
use super::predicate_pushdown::{BucketPredicate, is_page};
use super::unwind::{FieldOrder, single_sort, unpack};
use crate::command::document::{array_of, as_whole_number, first_field, put, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::{behind, only_match};

/// The most pages that are read before all pages of a key are. More than that would mostly exceed
/// [`MAX_BYTES`].
const MAX_PAGES: u64 = 64;
/// The most bytes of pages that are kept for the client's stages. mongod refuses more than 100 MB in the
/// array of a `$lookup`, or what `internalLookupStageIntermediateDocumentMaxSizeBytes` allows: at least this
/// much.
const MAX_BYTES: u64 = 16 << 20;
/// A number above that of every page.
const NO_PAGE: i64 = 1 << 31;
/// A value of a key that is looked up with [`NO_PAGE`] as the first page. mongod uses an index for a number
/// under any collation.
const ANY_KEY: i32 = 0;

/// The value that a `$lookup` compares with the key.
#[derive(Clone, Copy, Debug)]
pub enum WantedKey<'a> {
    /// The `localField`.
    LocalField {
        /// The variable that contains the first field of the path.
        variable: &'a str,
        /// The rest of the path, with its leading dot.
        rest: &'a str,
    },
    /// The variable that the `$expr` in the first `$match` compares with the key, with its `$$`.
    Variable(&'a str),
}

/// A `$lookup` of items of one key.
#[derive(Clone, Copy, Debug)]
pub struct KeyLookup<'a> {
    /// The shape of the collection that is read.
    pub shape: &'a BucketShape,
    /// Its name.
    pub collection: &'a str,
    /// The name of its only key field.
    pub key: &'a str,
    /// The value that the key must have.
    pub wanted: WantedKey<'a>,
    /// The prefix of variables that the stage does not name.
    pub prefix: &'a str,
}

/// The items that a pipeline needs of a key.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct End {
    /// Whether they are the first in the order of time.
    is_first: bool,
    /// How many.
    items: u64,
}

impl End {
    /// The items that stages need: a sort by time alone, then a limit, perhaps with skipped items before it.
    fn of_stages(time: &str, stages: &[impl AsRef<RawDocument>]) -> Option<Self> {
        let mut stages = stages.iter().map(|stage| first_field(stage.as_ref()));
        let ("$sort", RawBsonRef::Document(sort)) = stages.next()?? else {
            return None;
        };
        let (_, is_first) = single_sort(sort).filter(|(name, _)| *name == time)?;
        let mut skipped: u64 = 0;
        for stage in stages {
            let (name, number) = stage?;
            let number = u64::try_from(as_whole_number(number)?).ok()?;
            match name {
                "$skip" => skipped = skipped.checked_add(number)?,
                "$limit" if number > 0 => {
                    let items = skipped.checked_add(number)?;
                    return Some(Self { is_first, items });
                }
                _ => return None,
            }
        }
        None
    }

    /// How many pages contain these items, if no page but the highest has room.
    fn pages(self, max_items: u32) -> Option<u64> {
        let max_items = u64::from(max_items.max(1));
        let pages = if self.is_first {
            self.items.div_ceil(max_items)
        } else {
            // The highest page may have a single item.
            self.items.saturating_sub(1).div_ceil(max_items).saturating_add(1)
        };
        (pages <= MAX_PAGES).then_some(pages)
    }
}

impl KeyLookup<'_> {
    /// The sub-pipeline that reads as few pages as the client's stages need. `None` if they need all items of
    /// a key. The stages begin with `$documents`, so the `$lookup` has no `from`.
    #[must_use]
    pub fn of_end(&self, client: &[impl AsRef<RawDocument>]) -> Option<Vec<RawDocumentBuf>> {
        let sorted = match self.wanted {
            WantedKey::LocalField { .. } => client,
            WantedKey::Variable(_) => client.get(1..)?,
        };
        let end = End::of_stages(self.shape.time()?, sorted)?;
        let pages = end.pages(self.shape.max_items())?;
        let filter = client.first().and_then(|stage| only_match(stage.as_ref()));
        let all_pages = BucketPredicate::of(self.shape, filter);
        let first = choice(&suffices(self.shape, end, pages), NO_PAGE, 0);
        let mut unwind = single("path", "$page");
        unwind.append(cstr!("preserveNullAndEmptyArrays"), true);
        let page = choice(&call("$eq", "$first", 0), "$page", "$pages");
        let mut stages = vec![
            single("$documents", array_of(&[self.document()])),
            single("$lookup", self.last_pages(end, pages)),
            single("$set", single("first", first)),
            // With the `$unwind` behind it, mongod collects no array.
            single("$lookup", self.lookup(all_pages.clauses(), &[], "page")),
            single("$unwind", &unwind),
            single("$project", single("page", page)),
            single("$unwind", "$page"),
            single("$replaceRoot", single("newRoot", "$page")),
        ];
        stages.extend(unpack(self.shape, FieldOrder::of_stages(client)));
        stages.extend(behind(client));
        Some(stages)
    }

    /// The document that the stages begin with. `first` is the number of the first page that the next
    /// `$lookup` reads: 0, or [`NO_PAGE`] if the wanted value may have several keys, or if only items show
    /// which match.
    fn document(&self) -> RawDocumentBuf {
        let mut conditions = vec![is_simple_collation()];
        let local = match self.wanted {
            WantedKey::LocalField { variable, rest } => {
                conditions.push(is_no_array(&format!("$${variable}{rest}")));
                RawBson::String(format!("$${variable}"))
            }
            WantedKey::Variable(variable) => {
                // Items with a missing key and with null are on the same pages, and only one of them matches.
                conditions.extend([call("$gt", variable, RawBson::Null), is_no_array(variable)]);
                let is_one_key = single("$and", array_of(&conditions));
                // mongod uses no index for an `$expr` with an array.
                choice(&is_one_key, variable, ANY_KEY).into()
            }
        };
        let mut document = single("local", local);
        let is_one_key = single("$and", array_of(&conditions));
        document.append(cstr!("first"), choice(&is_one_key, 0, NO_PAGE));
        document
    }

    /// The `$lookup` of the first or last pages of a key. A page that does not show the order of time, or
    /// that is too large, becomes an empty document.
    fn last_pages(&self, end: End, pages: u64) -> RawDocumentBuf {
        let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
        let mut conditions = shows_time_order().to_vec();
        let max_bytes = number(MAX_BYTES.checked_div(pages).unwrap_or_default());
        conditions.push(call("$lte", single("$bsonSize", "$$ROOT"), max_bytes));
        let mut page = RawDocumentBuf::new();
        for name in [self.key, self.shape.count(), self.shape.items()] {
            put(&mut page, name, field(name));
        }
        let page = choice(&single("$and", array_of(&conditions)), page, RawDocumentBuf::new());
        let stages = [
            single("$sort", single(path::PAGE, if end.is_first { 1 } else { -1 })),
            single("$limit", number(pages)),
            single("$replaceRoot", single("newRoot", page)),
        ];
        let key = match self.wanted {
            WantedKey::LocalField { .. } => None,
            WantedKey::Variable(_) => {
                let is_equal = call("$eq", field(self.key), format!("$${}", self.key_variable()));
                Some(single("$expr", is_equal))
            }
        };
        self.lookup(key.as_slice(), &stages, "pages")
    }

    /// A `$lookup` of the pages of the key whose numbers are not below `first`.
    fn lookup(&self, clauses: &[RawDocumentBuf], stages: &[RawDocumentBuf], name: &str) -> RawDocumentBuf {
        let first_variable = format!("{}_first", self.prefix);
        let mut lookup = single("from", self.collection);
        let mut variables = single(&first_variable, "$first");
        match self.wanted {
            WantedKey::LocalField { rest, .. } => {
                lookup.append(cstr!("localField"), format!("local{rest}"));
                lookup.append(cstr!("foreignField"), self.key);
            }
            WantedKey::Variable(_) => put(&mut variables, &self.key_variable(), "$local"),
        }
        lookup.append(cstr!("let"), &variables);
        // Together with the key this is a range of the page index: with `NO_PAGE` no page is read.
        let is_from_first = call("$gte", field(path::PAGE), format!("$${first_variable}"));
        let mut conditions = vec![is_page()];
        conditions.extend_from_slice(clauses);
        conditions.push(single("$expr", is_from_first));
        let mut pipeline = vec![single("$match", single("$and", array_of(&conditions)))];
        pipeline.extend_from_slice(stages);
        lookup.append(cstr!("pipeline"), array_of(&pipeline));
        lookup.append(cstr!("as"), name);
        lookup
    }

    fn key_variable(&self) -> String {
        format!("{}_key", self.prefix)
    }
}

/// Whether the first or last pages are all that the client's stages need: all of them show the order of time,
/// and they are all pages of the key or contain enough items.
fn suffices(shape: &BucketShape, end: End, pages: u64) -> RawDocumentBuf {
    let number = |number: u64| i64::try_from(number).unwrap_or(i64::MAX);
    let counts = format!("$pages.{}", shape.count());
    let size = || single("$size", "$pages");
    let is_enough = [
        call("$lt", size(), number(pages)),
        call("$gte", single("$sum", counts.as_str()), number(end.items)),
    ];
    let conditions = [
        call("$eq", "$first", 0),
        call("$eq", size(), single("$size", counts.as_str())),
        single("$or", array_of(&is_enough)),
    ];
    single("$and", array_of(&conditions))
}

fn is_no_array(expression: &str) -> RawDocumentBuf {
    let negated: RawArrayBuf = [single("$isArray", expression)].into_iter().collect();
    single("$not", negated)
}

/// Whether strings are compared by their bytes. Under any other collation several keys may be equal to one
/// value. A plain collection's own collation applies to its pipelines, and the proxy does not know it. Every
/// other collation treats a letter with an accent as equal to the letter followed by that accent.
fn is_simple_collation() -> RawDocumentBuf {
    call("$ne", "\u{e9}", "e\u{301}")
}

#[cfg(test)]
mod tests;
