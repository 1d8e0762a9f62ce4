//! Looks up the head pages of keys.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageHeader, path};
use crate::pattern::shapes::BucketShape;

/// The most keys in one query.
const MAX_KEYS: usize = 10_000;

/// The queries that look up the head pages of several keys.
#[derive(Clone, Debug)]
pub enum HeadLookup {
    /// With one `aggregate` of this pipeline. mongod skips from key to key in the page index
    /// (`DISTINCT_SCAN`), so a key costs a fraction of a query.
    Together(RawArrayBuf),
    /// With one `find` for each key.
    Apart,
}

impl HeadLookup {
    /// The lookup for the keys of these items.
    #[must_use]
    pub fn of<'a>(shape: &BucketShape, items: impl Iterator<Item = &'a Item>) -> Self {
        let [field] = shape.key() else {
            return Self::Apart;
        };
        let mut keys = RawArrayBuf::new();
        let mut count = 0_usize;
        for item in items {
            count = count.saturating_add(1);
            match item.key().lifted() {
                [Some(value)] if !is_value_under_in(value.as_raw_bson_ref()) => return Self::Apart,
                [Some(value)] => keys.push(value.as_raw_bson_ref()),
                _ => keys.push(RawBsonRef::Null),
            }
        }
        if !(2..=MAX_KEYS).contains(&count) {
            return Self::Apart;
        }
        Self::Together(array_of(&together(shape, field, &keys)))
    }

    /// Reads a result document of [`HeadLookup::Together`]: the [`Key::identity`] of a key and its
    /// head page.
    #[must_use]
    pub fn parse(shape: &BucketShape, found: &RawDocument) -> Option<(Vec<u8>, PageHeader)> {
        let page = get(found, "page").and_then(RawBsonRef::as_document)?;
        let facts = PageHeader::parse(shape, page)?;
        Some((Key::of(shape, page).ok()?.identity(), facts))
    }
}

/// Whether `$in` compares with the value itself. A regular expression would match as a pattern, and
/// mongod refuses a document that begins like an operator.
fn is_value_under_in(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::RegularExpression(_) => false,
        RawBsonRef::Document(document) => match document.iter().next() {
            Some(Ok((name, _))) => !name.as_str().starts_with('$'),
            _ => true,
        },
        _ => true,
    }
}

fn together(shape: &BucketShape, field: &str, keys: &RawArrayBuf) -> [RawDocumentBuf; 3] {
    let mut order = single(field, -1);
    put(&mut order, path::PAGE, -1);
    let mut page = RawDocumentBuf::new();
    for stored in ["_id", field, shape.count(), BucketShape::CONTROL] {
        put(&mut page, stored, format!("${stored}").as_str());
    }
    let mut group = single("_id", format!("${field}").as_str());
    group.append(cstr!("page"), single("$first", &page));
    [
        single("$match", single(field, single("$in", keys))),
        single("$sort", &order),
        single("$group", &group),
    ]
}

/// Appends the query for the head page of the item's key: the arguments of a `find`, without the
/// collection.
pub fn append_facts_query(shape: &BucketShape, item: &Item, find: &mut RawDocumentBuf) {
    let mut filter = RawDocumentBuf::new();
    item.key().append_filter(shape, &mut filter);
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("sort"), single(path::PAGE, -1));
    find.append(cstr!("projection"), single(shape.items(), 0));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
}
