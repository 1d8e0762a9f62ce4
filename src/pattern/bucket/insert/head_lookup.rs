//! Looks up the head pages of keys.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, get, put, single};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::key::{Key, is_value_under_in};
use crate::pattern::bucket::layout::{PageHeader, SIZE, path};
use crate::pattern::shapes::BucketShape;

/// The most keys in one query.
const MAX_KEYS: usize = 10_000;

/// The fields of a page header that a lookup reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum HeaderFields {
    /// Those that are stored.
    Stored,
    /// Also the size of the page. mongod computes it.
    WithSize,
}

/// The queries that look up the head pages of several keys.
#[derive(Clone, Debug)]
pub enum HeadLookup {
    /// With one `aggregate` of this pipeline, in which a key costs a fraction of a query.
    Together(RawArrayBuf),
    /// With one `find` for each key.
    Apart,
}

impl HeadLookup {
    /// The lookup for the keys of these items.
    #[must_use]
    pub fn of<'a>(shape: &BucketShape, items: impl Iterator<Item = &'a Item>, fields: HeaderFields) -> Self {
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
        Self::Together(head_pages(shape, field, &keys, fields))
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

/// The pipeline that returns the head page of each of these keys, without items, as the field `page`.
/// `field` is the key's only field. mongod skips from key to key in the page index (`DISTINCT_SCAN`).
#[must_use]
pub fn head_pages(shape: &BucketShape, field: &str, keys: &RawArrayBuf, fields: HeaderFields) -> RawArrayBuf {
    let mut order = single(field, -1);
    put(&mut order, path::PAGE, -1);
    let mut page = RawDocumentBuf::new();
    for stored in ["_id", field, shape.count()] {
        put(&mut page, stored, format!("${stored}").as_str());
    }
    put(&mut page, BucketShape::CONTROL, control(fields));
    let mut group = single("_id", format!("${field}").as_str());
    group.append(cstr!("page"), single("$first", &page));
    array_of(&[
        single("$match", single(field, single("$in", keys))),
        single("$sort", &order),
        single("$group", &group),
    ])
}

/// The expression for the page header's fields in `control`.
fn control(fields: HeaderFields) -> RawDocumentBuf {
    let mut control = RawDocumentBuf::new();
    for name in PageHeader::FIELDS {
        put(&mut control, name, format!("${}.{name}", BucketShape::CONTROL));
    }
    if fields == HeaderFields::WithSize {
        put(&mut control, SIZE, single("$bsonSize", "$$ROOT"));
    }
    control
}

/// Appends the query for the head page of the item's key: the arguments of a `find`, without the
/// collection.
pub fn append_facts_query(shape: &BucketShape, item: &Item, fields: HeaderFields, find: &mut RawDocumentBuf) {
    let mut filter = RawDocumentBuf::new();
    item.key().append_filter(shape, &mut filter);
    find.append(cstr!("filter"), &filter);
    find.append(cstr!("sort"), single(path::PAGE, -1));
    let projection = match fields {
        HeaderFields::Stored => {
            let mut left_out = single(shape.items(), 0);
            put(&mut left_out, path::PUSHES, 0);
            left_out
        }
        HeaderFields::WithSize => {
            let mut header = single(shape.count(), 1);
            put(&mut header, BucketShape::CONTROL, control(fields));
            header
        }
    };
    find.append(cstr!("projection"), projection);
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
}
