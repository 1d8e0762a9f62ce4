//! Orphans, and missing pages. A crash may leave pages that no base document references, and
//! scratch collections. The name or generation of each contains a time, which shows when it is no
//! longer in use. No crash loses referenced pages.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::layout::{field, path};
use crate::command::document::{array_of, get, put, single};
use crate::pattern::shapes::OutlierShape;

/// The least age at which pages and collections are known to be unused. Far longer than any write
/// takes, and than clocks differ.
pub const MIN_AGE: Duration = Duration::from_hours(1);

/// The most pages that [`young_counted`] reads.
pub const MAX_YOUNG_PAGES: i64 = 10_000;

const HOUR: u64 = 3600;

fn seconds(time: SystemTime) -> u64 {
    time.duration_since(UNIX_EPOCH).map_or(0, |since| since.as_secs())
}

/// The first generation that is younger than [`MIN_AGE`]. Base documents may be about to reference it, and
/// later ones.
fn first_young(now: SystemTime) -> ObjectId {
    let before = seconds(now).saturating_sub(MIN_AGE.as_secs());
    let before = u32::try_from(before).unwrap_or(u32::MAX);
    let mut bytes = [0; 12];
    let (time, _) = bytes.split_at_mut(4);
    time.copy_from_slice(&before.to_be_bytes());
    ObjectId::from_bytes(bytes)
}

/// The stages that add, to each reference and generation of pages (`_id.of` and `_id.generation`), the base
/// document that has both (`base`).
fn with_base(shape: &OutlierShape, collection: &str) -> [RawDocumentBuf; 2] {
    let mut group = single("of", format!("${}", shape.reference()));
    put(&mut group, field::GENERATION, format!("${}", path::GENERATION));
    let mut equal = RawArrayBuf::new();
    equal.push(format!("${}.{}", shape.control(), field::GENERATION));
    equal.push("$$generation");
    let of_base = [
        single("$match", single("$expr", single("$eq", &equal))),
        single("$project", single("_id", 1)),
    ];
    let mut lookup = single("from", collection);
    lookup.append(cstr!("localField"), "_id.of");
    lookup.append(cstr!("foreignField"), "_id");
    lookup.append(cstr!("let"), single("generation", "$_id.generation"));
    lookup.append(cstr!("pipeline"), array_of(&of_base));
    lookup.append(cstr!("as"), "base");
    [single("$group", single("_id", group)), single("$lookup", &lookup)]
}

/// The stages that return, for the extras' collection, each reference and generation (as `_id.of`
/// and `_id.generation`) that no base document has. Only generations older than [`MIN_AGE`] are
/// returned, because a base document may be about to reference younger ones.
#[must_use]
pub fn uncounted(shape: &OutlierShape, collection: &str, now: SystemTime) -> Vec<RawDocumentBuf> {
    let is_old = single(path::GENERATION, single("$lt", first_young(now)));
    let [group, lookup] = with_base(shape, collection);
    vec![
        single("$match", is_old),
        group,
        lookup,
        single("$match", single("base", RawArrayBuf::new())),
    ]
}

/// The filter for pages that a base document may be about to reference.
#[must_use]
pub fn young(now: SystemTime) -> RawDocumentBuf {
    let first = first_young(now);
    // The `_id` of a page begins with its generation, so that mongod finds young pages by an index.
    let mut is_young = single("_id", single("$gte", first.to_hex()));
    put(&mut is_young, path::GENERATION, single("$gte", first));
    is_young
}

/// The stages that return, for the extras' collection before a drop, the young generations that base
/// documents reference (as `generation`). They read at most [`MAX_YOUNG_PAGES`] pages.
#[must_use]
pub fn young_counted(shape: &OutlierShape, collection: &str, now: SystemTime) -> Vec<RawDocumentBuf> {
    let [group, lookup] = with_base(shape, collection);
    let mut projection = single("_id", 0);
    put(
        &mut projection,
        field::GENERATION,
        format!("$_id.{}", field::GENERATION),
    );
    vec![
        single("$match", young(now)),
        single("$limit", MAX_YOUNG_PAGES),
        group,
        lookup,
        single("$match", single("base.0", single("$exists", true))),
        single("$project", projection),
    ]
}

/// The generation in a result of [`young_counted`].
#[must_use]
pub fn counted_generation(found: &RawDocument) -> Option<ObjectId> {
    get(found, field::GENERATION)?.as_object_id()
}

/// The element of `deletes` for the extras of a dropped collection: old pages, pages written by hand, and
/// those of `counted` generations, which documents of the dropped collection referenced. No document of a new
/// collection references any of these. Other young pages stay, because their base document may be stored in
/// the new collection.
#[must_use]
pub fn removal_after_drop(counted: &[ObjectId], now: SystemTime) -> RawDocumentBuf {
    let counted: RawArrayBuf = counted.iter().copied().collect();
    let conditions = [
        single(path::GENERATION, single("$lt", first_young(now))),
        single(path::GENERATION, single("$in", &counted)),
        single(field::CONTROL, single("$exists", false)),
    ];
    let mut statement = single("q", single("$or", array_of(&conditions)));
    put(&mut statement, "limit", 0);
    statement
}

/// The stages that return each reference of hand-written extras (as `_id.of`) whose base document
/// was adopted and no longer needs them.
#[must_use]
pub fn adopted(shape: &OutlierShape, collection: &str) -> Vec<RawDocumentBuf> {
    let by_hand = single(field::CONTROL, single("$exists", false));
    let has_control = single(shape.control(), single("$type", "object"));
    let of_base = [single("$match", has_control), single("$project", single("_id", 1))];
    let group = single("of", format!("${}", shape.reference()));
    let mut lookup = single("from", collection);
    lookup.append(cstr!("localField"), "_id.of");
    lookup.append(cstr!("foreignField"), "_id");
    lookup.append(cstr!("pipeline"), array_of(&of_base));
    lookup.append(cstr!("as"), "base");
    vec![
        single("$match", by_hand),
        single("$group", single("_id", group)),
        single("$lookup", &lookup),
        single("$match", single("base.0", single("$exists", true))),
    ]
}

/// The stages that return, for the base documents' collection, the `_id`s of documents that
/// reference more elements than their pages have.
#[must_use]
pub fn missing_pages(shape: &OutlierShape) -> Vec<RawDocumentBuf> {
    let generation = format!("${}.{}", shape.control(), field::GENERATION);
    let mut equal = RawArrayBuf::new();
    equal.push(format!("${}", path::GENERATION));
    equal.push("$$generation");
    let mut sum = single("_id", RawBsonRef::Null);
    put(&mut sum, "elements", single("$sum", format!("${}", field::COUNT)));
    let of_pages = [
        single("$match", single("$expr", single("$eq", &equal))),
        single("$group", sum),
    ];
    let mut lookup = single("from", shape.extras_collection());
    lookup.append(cstr!("localField"), "_id");
    lookup.append(cstr!("foreignField"), shape.reference());
    lookup.append(cstr!("let"), single("generation", generation));
    lookup.append(cstr!("pipeline"), array_of(&of_pages));
    lookup.append(cstr!("as"), "pages");
    // Elements beyond the referenced number are left over from a crash.
    let mut fewer = RawArrayBuf::new();
    fewer.push(single("$sum", "$pages.elements"));
    fewer.push(format!("${}.{}", shape.control(), field::COUNT));
    let mut needed = single(shape.control(), single("$type", "object"));
    put(
        &mut needed,
        &format!("{}.{}", shape.control(), field::COUNT),
        single("$gt", 0),
    );
    vec![
        single("$match", needed),
        single("$project", single(shape.control(), 1)),
        single("$lookup", &lookup),
        single("$match", single("$expr", single("$lt", &fewer))),
        single("$project", single("_id", 1)),
    ]
}

/// The filter for base documents with elements in their tails.
#[must_use]
pub fn with_tails(shape: &OutlierShape) -> RawDocumentBuf {
    let first = format!("{}.0", super::layout::tail(shape));
    single(&first, single("$exists", true))
}

/// The prefix of the names of scratch collections.
#[must_use]
pub fn scratch_prefix(shape: &OutlierShape) -> String {
    format!("{}_scratch_", shape.extras_collection())
}

/// The scratch collection that all proxies share at this time. It changes every hour, so documents
/// that a crashed proxy left there do not interfere for long.
#[must_use]
pub fn shared_scratch(shape: &OutlierShape, now: SystemTime) -> String {
    let hours = seconds(now).checked_div(HOUR).unwrap_or_default();
    format!("{}{hours:08x}", scratch_prefix(shape))
}

/// A scratch collection that is not shared.
#[must_use]
pub fn own_scratch(shape: &OutlierShape) -> String {
    format!("{}{}", scratch_prefix(shape), ObjectId::new())
}

/// Whether a collection is a scratch collection that is no longer in use.
#[must_use]
pub fn is_old_scratch(shape: &OutlierShape, name: &str, now: SystemTime) -> bool {
    let Some(of) = name.strip_prefix(&scratch_prefix(shape)) else {
        return false;
    };
    let last_used = match of.len() {
        8 => u64::from_str_radix(of, 16)
            .ok()
            .map(|hours| hours.saturating_add(1).saturating_mul(HOUR)),
        24 => ObjectId::parse_str(of)
            .ok()
            .and_then(|id| u64::try_from(id.timestamp().timestamp_millis()).ok())
            .and_then(|millis| millis.checked_div(1000)),
        _ => None,
    };
    last_used.is_some_and(|last_used| last_used.saturating_add(MIN_AGE.as_secs()) < seconds(now))
}

/// The reference in a result of [`uncounted`] or [`adopted`], and the generation in a result of
/// [`uncounted`].
#[must_use]
pub fn parse(found: &RawDocument) -> Option<(RawBsonRef<'_>, Option<ObjectId>)> {
    let id = get(found, "_id")?.as_document()?;
    let generation = get(id, field::GENERATION).and_then(RawBsonRef::as_object_id);
    Some((get(id, "of")?, generation))
}
