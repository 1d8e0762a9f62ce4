//! Conflicts of new indexes with existing ones (`index_catalog_impl.cpp`,
//! `_doesSpecConflictWithExisting`).

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::Indexes;
use super::key_pattern::{is_clustered, is_id_key, key, name, same_index};
use super::options::{PARTIAL, collation, same};
use super::ttl_marker::EXPIRE_AFTER;
use crate::command::document::{as_whole_number, get, put};

/// The most indexes of a collection.
const MAX_INDEXES: usize = 64;

/// The reason why an index cannot be created.
#[derive(Clone, Debug, PartialEq)]
pub enum Conflict {
    /// Another index of the command is identical.
    Identical(String),
    /// An index with the same key exists under this name.
    OtherName(String),
    /// Another index with this name exists: the requested specification, the existing one.
    OtherKey(Box<[RawDocumentBuf; 2]>),
    /// An equivalent index exists, under the same name or another one, with another `expireAfterSeconds`,
    /// `bits`, `min` or `max`: the requested specification, the existing one.
    OtherOptions(Box<[RawDocumentBuf; 2]>),
    /// The collection is clustered by an index with this name: the requested specification, the
    /// existing one.
    Clustered(Box<[RawDocumentBuf; 2]>),
    /// An index with this name exists that is not the application's.
    Taken(String),
    /// The collection would have more indexes than mongod allows.
    TooMany,
}

/// The first conflict of `wanted` with an existing index, else with an earlier index of the
/// command. mongod checks in this order.
#[must_use]
pub fn conflict(there: &Indexes, wanted: &[&RawDocument]) -> Option<Conflict> {
    let wanted = wanted.iter().copied();
    let wanted: Vec<&RawDocument> = wanted
        .filter(|spec| !is_id_key(key(spec)) && !is_clustered(spec))
        .collect();
    let with_there = wanted.iter().find_map(|spec| {
        if there.others.iter().any(|other| other == name(spec)) {
            return Some(Conflict::Taken(name(spec).to_owned()));
        }
        with_any(there.known.iter().map(|known| &**known), spec)
    });
    with_there.or_else(|| {
        let free = MAX_INDEXES.saturating_sub(there.known.len());
        let mut made: Vec<&RawDocument> = Vec::new();
        for spec in wanted {
            if there.named(name(spec)).is_some() {
                continue;
            }
            let is_twin = |other: &&RawDocument| {
                name(other) == name(spec) && same_index(other, spec) && same_settings(other, spec)
            };
            if made.iter().any(is_twin) {
                return Some(Conflict::Identical(name(spec).to_owned()));
            }
            if let Some(conflict) = with_any(made.iter().copied(), spec) {
                return Some(conflict);
            }
            // mongod stops here, too. Each specification is compared with all earlier ones.
            if made.len() >= free {
                return Some(Conflict::TooMany);
            }
            made.push(spec);
        }
        None
    })
}

fn with_any<'a>(others: impl Iterator<Item = &'a RawDocument> + Clone, spec: &RawDocument) -> Option<Conflict> {
    if let Some(other) = others.clone().find(|other| name(other) == name(spec)) {
        if is_clustered(other) {
            return Some(Conflict::Clustered(Box::new([spec.to_owned(), other.to_owned()])));
        }
        let specs = Box::new([normal(spec), normal(other)]);
        return if !same_index(other, spec) {
            Some(Conflict::OtherKey(specs))
        } else if !same_settings(other, spec) {
            Some(Conflict::OtherOptions(specs))
        } else {
            None
        };
    }
    let mut others = others;
    let same = others.find(|other| same_index(other, spec));
    same.map(|other| {
        if same_settings(other, spec) {
            Conflict::OtherName(name(other).to_owned())
        } else {
            Conflict::OtherOptions(Box::new([normal(spec), normal(other)]))
        }
    })
}

/// Whether two specifications of equivalent indexes are the same index to mongod: the options that do not
/// distinguish indexes are the same, too.
fn same_settings(one: &RawDocument, other: &RawDocument) -> bool {
    let seconds = |spec| get(spec, EXPIRE_AFTER).map(as_whole_number);
    let is_same = |option: &&str| same(get(one, option), get(other, option));
    seconds(one) == seconds(other) && ["bits", "min", "max"].iter().all(is_same)
}

/// A specification with its fields in mongod's order.
pub(super) fn normal(spec: &RawDocument) -> RawDocumentBuf {
    let mut normal = RawDocumentBuf::new();
    match get(spec, "v") {
        Some(version) => normal.append(cstr!("v"), version),
        None => normal.append(cstr!("v"), 2),
    }
    let fields = ["hidden", "unique", "key", "name", "background", "sparse", PARTIAL];
    let others = [
        EXPIRE_AFTER,
        "wildcardProjection",
        "2dsphereIndexVersion",
        "bits",
        "min",
        "max",
    ];
    for field in fields.into_iter().chain(others) {
        if let Some(value) = get(spec, field) {
            put(&mut normal, field, value);
        }
    }
    if let Some(collation) = collation(spec) {
        put(&mut normal, "collation", collation);
    }
    normal
}
