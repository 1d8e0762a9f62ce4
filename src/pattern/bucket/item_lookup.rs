//! Locates the items of a write that does not name one item by `_id`.
//!
//! mongod unwinds the buckets and runs the client's filter and sort on the items, as for a read.
//! The position of each item is in an additional field that the filter must not see. The item
//! itself is taken from the stored array.

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawbson;

use super::item_decoder::ItemDecoder;
use super::layout::{PageHeader, VERSION, path};
use super::predicate_pushdown::BucketPredicate;
use super::projection::Projection;
use super::unwind::{self, FieldOrder};
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::unused_name::unused_name;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::{self, has_where, match_documents, unsupported_operator, with_code_as_expression};

/// The additional field, with a number behind it if the client's command contains this name.
const PLACE: &str = "mongoshapePlace";

/// Selects the items of a write.
#[derive(Clone, Copy, Debug, Default)]
pub struct ItemSelector<'a> {
    /// The filter on items. `None`: all items.
    pub filter: Option<&'a RawDocument>,
    /// The order of the items. Items of one bucket that are equal in the sort, or any items without
    /// a sort, are in the order of their positions.
    pub sort: Option<&'a RawDocument>,
    /// The collation of filter and sort.
    pub collation: Option<&'a RawDocument>,
    /// The variables of the filter.
    pub let_variables: Option<&'a RawDocument>,
    /// The most items to return.
    pub limit: Option<u64>,
    /// An additional condition on buckets.
    pub of_bucket: Option<&'a RawDocument>,
    /// An additional condition on items.
    pub of_item: Option<&'a RawDocument>,
    /// Whether to return all items of their buckets.
    pub all_items: bool,
}

impl ItemSelector<'_> {
    /// Selects the first of the items.
    #[must_use]
    pub fn first(self) -> Self {
        Self { limit: Some(1), ..self }
    }
}

/// An item that was found, with its page and position.
#[derive(Clone, Debug)]
pub struct LocatedItem {
    /// The bucket's `_id`.
    pub bucket: RawBson,
    /// The bucket's page number.
    pub page: i32,
    /// The number of items in the bucket.
    pub count: u32,
    /// The item's position in the bucket, from 0.
    pub place: usize,
    /// The bucket's key fields.
    pub key: RawDocumentBuf,
    /// The bucket's `control`.
    pub control: RawDocumentBuf,
    /// The item's element in the bucket.
    pub stored: RawDocumentBuf,
    /// The item as the application knows it.
    pub item: RawDocumentBuf,
    /// All items of the bucket as stored, if they were requested.
    pub all_items: Option<RawArrayBuf>,
}

/// The part of a filter that does not work on items with an additional field, for an error message.
#[must_use]
pub fn unsupported(filter: &RawDocument) -> Option<String> {
    if let Some(operator) = unsupported_operator(filter) {
        return Some(format!("{operator} in a filter"));
    }
    ["$$ROOT", "$$CURRENT"]
        .into_iter()
        .find(|variable| names(filter, variable))
        .map(|variable| format!("{variable} in a write's filter"))
        .or_else(|| {
            counts_fields(RawBsonRef::Document(filter))
                .then(|| "$jsonSchema of all fields in a write's filter".to_owned())
        })
}

/// Whether a filter, or variables that it uses, can match other items later: they depend on the time or on chance.
#[must_use]
pub fn is_volatile(document: &RawDocument) -> bool {
    ["$$NOW", "$$CLUSTER_TIME", "$rand", "$sampleRate"]
        .iter()
        .any(|word| names(document, word))
}

/// Whether a filter contains a `$jsonSchema` with a condition on fields that it does not name.
fn counts_fields(value: RawBsonRef<'_>) -> bool {
    const OF_ALL: [&str; 4] = [
        "additionalProperties",
        "patternProperties",
        "minProperties",
        "maxProperties",
    ];
    match value {
        RawBsonRef::Document(document) => document.iter().flatten().any(|(name, value)| match value {
            RawBsonRef::Document(schema) if name.as_str() == "$jsonSchema" => {
                OF_ALL.iter().any(|word| names(schema, word))
            }
            value => counts_fields(value),
        }),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(counts_fields),
        _ => false,
    }
}

/// Whether the bytes of a document contain a word anywhere.
fn names(document: &RawDocument, word: &str) -> bool {
    let mut parts = document.as_bytes().windows(word.len());
    parts.any(|part| part == word.as_bytes())
}

/// The `aggregate` that finds the items, without inherited options. The caller has checked
/// [`unsupported`] before.
#[must_use]
pub fn command(shape: &BucketShape, collection: &str, wanted: ItemSelector<'_>) -> RawDocumentBuf {
    let narrowing = BucketPredicate::of(shape, wanted.filter);
    let mut stages: Vec<RawDocumentBuf> = Vec::new();
    stages.extend(wanted.of_bucket.map(|condition| single("$match", condition)));
    stages.push(narrowing.write_match());
    if narrowing.one_key().is_some() && wanted.sort.is_none() {
        stages.push(single("$sort", single(path::PAGE, 1)));
    }
    stages.extend(of_items(shape, wanted));
    // One more than the limit, so that the cursor is exhausted with the first batch.
    let batch_size = wanted.limit.map(|limit| limit.saturating_add(1));
    let mut command = unwound::aggregate(collection, &stages, batch_size);
    append_options(&mut command, wanted);
    command
}

/// The same `aggregate` on one given bucket image in place of the collection.
#[must_use]
pub fn command_in_image(shape: &BucketShape, image: &RawDocument, wanted: ItemSelector<'_>) -> RawDocumentBuf {
    let mut command = unwound::aggregate_document(image, &of_items(shape, wanted));
    append_options(&mut command, wanted);
    command
}

fn append_options(command: &mut RawDocumentBuf, wanted: ItemSelector<'_>) {
    for (name, value) in [("collation", wanted.collation), ("let", wanted.let_variables)] {
        if let Some(value) = value {
            put(command, name, value);
        }
    }
}

/// The stages from buckets to the documents that [`LocatedItem::parse`] reads.
fn of_items(shape: &BucketShape, wanted: ItemSelector<'_>) -> Vec<RawDocumentBuf> {
    let place = place_field(shape, wanted);
    let items = format!("${}", shape.items());
    let mut unwind = single("path", items.as_str());
    put(&mut unwind, "includeArrayIndex", place.as_str());
    let mut lies = single("bucket", "$_id");
    put(&mut lies, "page", format!("${}", path::PAGE));
    put(&mut lies, "count", format!("${}", shape.count()));
    put(&mut lies, "place", format!("${place}"));
    let mut key = RawDocumentBuf::new();
    for field in shape.key() {
        put(&mut key, field, format!("${field}"));
    }
    put(&mut lies, "key", &key);
    put(&mut lies, "control", format!("${}", BucketShape::CONTROL));
    let all = format!("{place}All");
    if wanted.all_items {
        // The item is one of them. A reply may not have space for a large page and one of its items.
        put(&mut lies, "all", format!("${all}"));
    } else {
        put(&mut lies, "stored", items.as_str());
    }
    let mut parts = RawArrayBuf::new();
    parts.push(unwind::item(shape, &items, FieldOrder::of_query(wanted.filter)));
    parts.push(single(&place, &lies));
    let root = single("newRoot", single("$mergeObjects", &parts));
    let mut stages = Vec::new();
    if wanted.all_items {
        stages.push(single("$addFields", single(&all, items.as_str())));
    }
    stages.extend([single("$unwind", &unwind), single("$replaceRoot", &root)]);
    if let Some(filter) = wanted.filter.filter(|filter| has_where(filter)) {
        // The code sees the document without the added field.
        let document = rawbson!({ "$unsetField": { "field": place.as_str(), "input": "$$ROOT" } });
        stages.push(match_documents(&with_code_as_expression(filter, &document)));
    } else {
        stages.extend(wanted.filter.map(match_documents));
    }
    stages.extend(wanted.of_item.map(match_documents));
    if let Some(sort) = wanted.sort.filter(|sort| !sort.is_empty()) {
        let mut sort = sort.to_owned();
        put(&mut sort, &format!("{place}.place"), 1);
        stages.push(single("$sort", &sort));
    }
    if let Some(limit) = wanted.limit {
        stages.push(single("$limit", i64::try_from(limit).unwrap_or(i64::MAX)));
    }
    stages.push(single("$replaceRoot", single("newRoot", format!("${place}"))));
    stages
}

/// A field name that occurs neither in the client's command nor as a field of the bucket.
fn place_field(shape: &BucketShape, wanted: ItemSelector<'_>) -> String {
    let of_client = [wanted.filter, wanted.sort, wanted.let_variables, wanted.of_item];
    let of_client = of_client.into_iter().flatten().map(RawDocument::as_bytes);
    let of_bucket = [shape.items(), shape.count(), BucketShape::CONTROL].into_iter();
    let of_bucket = of_bucket.chain(shape.key().iter().map(String::as_str));
    unused_name(PLACE, of_client.chain(of_bucket.map(str::as_bytes)))
}

impl LocatedItem {
    /// Reads a result document. `None` if its bucket is not of this layout version.
    #[must_use]
    pub fn parse(shape: &BucketShape, found: &RawDocument) -> Option<Self> {
        let number = |name| get(found, name).and_then(as_whole_number);
        let key = get(found, "key")?.as_document()?;
        let place = usize::try_from(number("place")?).ok()?;
        let all_items = get(found, "all").and_then(RawBsonRef::as_array);
        let stored = match all_items {
            Some(all) => all.into_iter().nth(place)?.ok()?.as_document()?,
            None => get(found, "stored")?.as_document()?,
        };
        let control = get(found, "control")?.as_document()?;
        if get(control, "v").and_then(as_whole_number)? != i64::from(VERSION) {
            return None;
        }
        let mut item = Vec::new();
        ItemDecoder::new(shape, &Projection::All, key).append(stored, &mut item);
        Some(Self {
            bucket: get(found, "bucket")?.into(),
            page: i32::try_from(number("page")?).ok()?,
            count: u32::try_from(number("count")?).ok()?,
            place,
            key: key.to_owned(),
            control: control.to_owned(),
            stored: stored.to_owned(),
            item: RawDocumentBuf::from_bytes(item).ok()?,
            all_items: all_items.map(RawArray::to_owned),
        })
    }

    /// The item that an earlier image of a bucket records as
    /// [claimed](crate::pattern::bucket::update_by_position::claim).
    #[must_use]
    pub fn claimed(shape: &BucketShape, image: &RawDocument) -> Option<Self> {
        let control = get(image, BucketShape::CONTROL)?.as_document()?;
        let (_, field) = path::CHANGED.split_once('.')?;
        let place = get(control, field).and_then(as_whole_number)?;
        let items = get(image, shape.items())?.as_array()?;
        let stored = items.into_iter().nth(usize::try_from(place).ok()?)?.ok()?;
        let mut key = RawDocumentBuf::new();
        for field in shape.key() {
            if let Some(value) = get(image, field) {
                put(&mut key, field, value);
            }
        }
        let number = |name: &str| {
            name.split_once('.')
                .and_then(|(_, field)| get(control, field))
                .and_then(as_whole_number)
        };
        let mut found = single("key", &key);
        put(&mut found, "stored", stored);
        put(&mut found, "bucket", get(image, "_id")?);
        put(&mut found, "page", number(path::PAGE)?);
        put(&mut found, "count", i64::try_from(items.into_iter().count()).ok()?);
        put(&mut found, "place", place);
        put(&mut found, "control", control);
        Self::parse(shape, &found)
    }

    /// The header of the item's page.
    #[must_use]
    pub fn page_facts(&self, shape: &BucketShape) -> Option<PageHeader> {
        let mut bucket = single("_id", &self.bucket);
        put(&mut bucket, shape.count(), i64::from(self.count));
        bucket.append(cstr!("control"), &self.control);
        PageHeader::parse(shape, &bucket)
    }

    /// The item's `_id`, if it has one.
    #[must_use]
    pub fn id(&self) -> Option<RawBsonRef<'_>> {
        get(&self.item, "_id")
    }

    /// The memory of the located item's documents, in bytes.
    #[must_use]
    pub fn bytes(&self) -> usize {
        let documents = [&self.key, &self.control, &self.stored, &self.item];
        documents
            .iter()
            .map(|document| document.as_bytes().len())
            .fold(0, usize::saturating_add)
    }
}

#[cfg(test)]
mod tests;
