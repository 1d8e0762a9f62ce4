//! Looks up the head pages of keys.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageHeader, path};
use crate::pattern::shapes::BucketShape;

/// Keys in one query.
const MAX_KEYS: usize = 10_000;

/// How the highest pages of some keys are looked up.
#[derive(Clone, Debug)]
pub enum HeadLookup {
    /// By one `aggregate`: its `pipeline`. mongod skips from key to key in the page index (`DISTINCT_SCAN`),
    /// which costs a fraction of a query each.
    Together(RawArrayBuf),
    /// By a `find` for each key.
    Apart,
}

impl HeadLookup {
    /// The way for these keys.
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

    /// A page of [`HeadLookup::Together`]'s answer, and the [`Key::identity`] of its key.
    #[must_use]
    pub fn parse(shape: &BucketShape, found: &RawDocument) -> Option<(Vec<u8>, PageHeader)> {
        let page = get(found, "page").and_then(RawBsonRef::as_document)?;
        let facts = PageHeader::parse(shape, page)?;
        Some((Key::of(shape, page).ok()?.identity(), facts))
    }
}

/// Whether `$in` takes the value as it is. A regular expression would be a pattern, and what reads like an
/// operator is refused.
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

/// The query for one key's highest page: its arguments of a `find`, without the collection.
pub fn append_facts_query(shape: &BucketShape, item: &Item, find: &mut RawDocumentBuf) {
    let mut filter = RawDocumentBuf::new();
    item.key().append_filter(shape, &mut filter);
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("sort"), single(path::PAGE, -1));
    find.append(cstr!("projection"), single(shape.items(), 0));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
}
