//! The invariants of the outlier layout, version 1, checked on stored base documents and pages.
//!
//! They hold when no writer runs and none was killed. The remains of a crash are reported separately:
//! orphans, the elements of a tail, and elements of a page that its base document does not count.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bson::doc;
use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{control, read_all, value, whole};
use crate::raw;
use crate::rest::at_rest;
use crate::shape::Outlier;

/// What there is to say of a collection.
#[derive(Debug, Default)]
pub struct Found {
    /// What must never be, as lines to read.
    pub broken: Vec<String>,
    /// Remains of a crash. The next write of the document or `setup` removes them.
    pub left_over: Vec<String>,
}

/// All there is to say of a collection and its pages.
pub fn look(mongod: &mut raw::Connection, database: &str, collection: &str, shape: &Outlier) -> Result<Found> {
    let find = |name: &str| doc! { "find": name, "hint": { "$natural": 1 }, "$db": database };
    // Pages are read first: a page exists before a base document references it.
    let pages = read_all(mongod, &find(&shape.pages_of(collection)))?;
    let bases = read_all(mongod, &find(collection))?;
    Ok(of_documents(&bases, &pages, shape))
}

/// Fails with all that is broken in a collection, or left over when it is at rest.
pub fn check(mongod: &mut raw::Connection, database: &str, collection: &str, shape: &Outlier) -> Result<()> {
    let look = || look(mongod, database, collection, shape);
    // A tail that was moved between the two queries makes a page look too short, once.
    let is_whole = |found: &Found| found.left_over.is_empty() && found.broken.is_empty();
    let Found { broken, left_over } = at_rest(look, is_whole)?;
    ensure!(
        broken.is_empty() && left_over.is_empty(),
        "{database}.{collection} breaks its layout:\n  {}\n  left over:\n  {}",
        broken.join("\n  "),
        left_over.join("\n  ")
    );
    Ok(())
}

/// All there is to say of base documents and their pages.
#[must_use]
pub fn of_documents(bases: &[RawDocumentBuf], pages: &[RawDocumentBuf], shape: &Outlier) -> Found {
    let mut found = Found::default();
    let mut generations: BTreeMap<ObjectId, Vec<&RawDocument>> = BTreeMap::new();
    for page in pages {
        check_page(page, shape, &mut found.broken);
        if let Some(generation) = control(page, "generation").and_then(RawBsonRef::as_object_id) {
            generations.entry(generation).or_default().push(page);
        }
    }
    for base in bases {
        let name = name(base);
        let Some(extras) = extras(base, shape, &mut found.broken) else {
            continue;
        };
        let mut pages = generations.remove(&extras.generation).unwrap_or_default();
        pages.sort_by_key(|page| whole(control(page, "from")));
        if extras.tail > 0 {
            found
                .left_over
                .push(format!("{name}: {} elements in the tail", extras.tail));
        }
        let end = check_order(base, &pages, shape, &mut found.broken);
        if end < extras.count {
            found
                .broken
                .push(format!("{name}: {} elements counted, {end} in pages", extras.count));
        }
        if end > extras.count {
            found
                .left_over
                .push(format!("{name}: {} elements counted, {end} in pages", extras.count));
        }
    }
    for page in generations.into_values().flatten() {
        found
            .left_over
            .push(format!("page {}: of no base document's generation", name(page)));
    }
    found
}

fn name(document: &RawDocument) -> String {
    format!("{:?}", value(document, "_id"))
}

/// The control data of a base document.
struct Extras {
    generation: ObjectId,
    count: usize,
    tail: usize,
}

/// That of a base document, which is checked; `None` where it has none.
fn extras(base: &RawDocument, shape: &Outlier, broken: &mut Vec<String>) -> Option<Extras> {
    let name = name(base);
    let array = value(base, &shape.array).and_then(RawBsonRef::as_array);
    let length = array.map(|array| array.into_iter().count());
    if length > Some(shape.threshold) {
        broken.push(format!("{name}: {length:?} elements in the base document"));
    }
    let flag = value(base, &shape.flag);
    let control = value(base, &shape.control());
    if flag.is_none() && control.is_none() {
        return None;
    }
    if flag != Some(RawBsonRef::Boolean(true)) || length.is_none() {
        broken.push(format!(
            "{name}: flag {flag:?}, control {control:?}, {length:?} elements"
        ));
    }
    let extras = control.and_then(RawBsonRef::as_document).and_then(|control| {
        let names: Vec<&str> = control.iter().flatten().map(|(name, _)| name.as_str()).collect();
        let is_known = names == ["v", "generation", "count", "tail"] && whole(value(control, "v")) == Some(1);
        is_known.then_some(())?;
        Some(Extras {
            generation: value(control, "generation")?.as_object_id()?,
            count: usize::try_from(whole(value(control, "count"))?).ok()?,
            tail: value(control, "tail")?.as_array()?.into_iter().count(),
        })
    });
    if extras.is_none() {
        broken.push(format!("{name}: it is flagged, and its control is {control:?}"));
    }
    extras
}

/// What a page is by itself.
fn check_page(page: &RawDocument, shape: &Outlier, broken: &mut Vec<String>) {
    let name = name(page);
    let array = value(page, &shape.extras).and_then(RawBsonRef::as_array);
    let length = array.map(|array| array.into_iter().count());
    let count = whole(value(page, "count")).and_then(|count| usize::try_from(count).ok());
    if length.is_none() || count != length {
        broken.push(format!(
            "page {name}: its count is {count:?}, and it has {length:?} elements"
        ));
    }
    if length > Some(shape.max_items) || length == Some(0) {
        broken.push(format!("page {name}: {length:?} elements"));
    }
    if whole(control(page, "v")) != Some(1) {
        broken.push(format!("page {name}: control.v is {:?}", control(page, "v")));
    }
    let generation = control(page, "generation").and_then(RawBsonRef::as_object_id);
    let from = whole(control(page, "from"));
    let expected = generation
        .zip(from)
        .map(|(generation, from)| format!("{generation}_{from}"));
    if expected.is_none() || value(page, "_id").and_then(RawBsonRef::as_str) != expected.as_deref() {
        broken.push(format!("page {name}: its name is not {expected:?}"));
    }
}

/// Whether values are the same. NaN is not equal to itself.
fn is_same(one: Option<RawBsonRef<'_>>, other: Option<RawBsonRef<'_>>) -> bool {
    match (one, other) {
        (Some(RawBsonRef::Double(one)), Some(RawBsonRef::Double(other))) => one.to_bits() == other.to_bits(),
        (one, other) => one == other,
    }
}

/// How the pages of a base document follow each other; the elements in them.
fn check_order(base: &RawDocument, pages: &[&RawDocument], shape: &Outlier, broken: &mut Vec<String>) -> usize {
    let mut end = 0;
    for page in pages {
        let (reference, id) = (value(page, &shape.reference), value(base, "_id"));
        if !is_same(reference, id) {
            broken.push(format!(
                "page {}: it refers to {reference:?}, not to {id:?}",
                name(page)
            ));
        }
        if whole(control(page, "from")) != i64::try_from(end).ok() {
            broken.push(format!("page {}: {end} elements are before it", name(page)));
        }
        let array = value(page, &shape.extras).and_then(RawBsonRef::as_array);
        end += array.map_or(0, |array| array.into_iter().count());
    }
    end
}
