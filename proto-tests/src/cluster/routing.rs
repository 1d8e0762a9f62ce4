//! Which shard has which documents.

use std::collections::BTreeMap;

use bson::{Bson, Document, Timestamp};

use super::refusal::Refusal;
use super::value_order::append_canonical;

/// The slots of a collection.
pub const SLOTS: usize = 64;
/// The shard of all collections that are not sharded.
pub(super) const FIRST_SHARD: usize = 0;

/// The kind of a shard key. Both have slots by a hash here.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// `{ field: 1 }`.
    Ranged,
    /// `{ field: "hashed" }`, of the first field.
    Hashed,
}

impl Kind {
    /// The pattern of a key of this kind.
    pub(super) fn pattern(self, key: &Document) -> Document {
        let mut pattern: Document = key.keys().map(|name| (name.clone(), Bson::Int32(1))).collect();
        if let (Self::Hashed, Some(first)) = (self, key.keys().next()) {
            pattern.insert(first, "hashed");
        }
        pattern
    }
}

/// A sharded collection.
#[derive(Clone, Debug)]
pub(super) struct Sharded {
    pub(super) namespace: String,
    /// The shard key's pattern.
    pub(super) pattern: Document,
    pub(super) uuid: Bson,
    pub(super) timestamp: Timestamp,
    /// The shard of each slot.
    pub(super) owners: Vec<usize>,
}

impl Sharded {
    /// All shards that own a slot, in ascending order.
    pub(super) fn all_owners(&self) -> Vec<usize> {
        let mut owners = self.owners.clone();
        owners.sort_unstable();
        owners.dedup();
        owners
    }

    /// The shard of a slot.
    pub(super) fn owner_of_slot(&self, slot: usize) -> usize {
        self.owners.get(slot).copied().unwrap_or(FIRST_SHARD)
    }

    /// The shard of a document.
    pub(super) fn owner_of_document(&self, document: &Document) -> Result<usize, Refusal> {
        Ok(self.owner_of_slot(self.slot_of_document(document)?))
    }

    /// The slot of a document.
    pub(super) fn slot_of_document(&self, document: &Document) -> Result<usize, Refusal> {
        Ok(slot_of(&self.values_of(document)?))
    }

    /// The values of the shard key in a document. A missing one is null.
    fn values_of(&self, document: &Document) -> Result<Vec<Bson>, Refusal> {
        let values = self.pattern.keys().map(|path| value_at(document, path));
        let values: Option<Vec<Bson>> = values.collect();
        values.ok_or_else(|| {
            let message = "Shard key cannot contain array values or array descendants.";
            Refusal::new(61, "ShardKeyNotFound", message)
        })
    }
}

/// The value at a path, or null. `None`: there is an array at it or before it.
fn value_at(document: &Document, path: &str) -> Option<Bson> {
    let (name, rest) = match path.split_once('.') {
        Some((name, rest)) => (name, Some(rest)),
        None => (path, None),
    };
    match (document.get(name), rest) {
        (Some(Bson::Array(_)), _) => None,
        (Some(Bson::Document(inner)), Some(rest)) => value_at(inner, rest),
        (Some(value), None) => Some(value.clone()),
        _ => Some(Bson::Null),
    }
}

/// The slot of the values, by FNV-1a with a last mixing step: the lowest bits alone depend on few bits of the
/// input.
pub(super) fn slot_of(values: &[Bson]) -> usize {
    let mut bytes = Vec::new();
    for value in values {
        append_canonical(&mut bytes, value);
    }
    let step = |sum: u64, byte: &u8| (sum ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3);
    let sum = bytes.iter().fold(0xcbf2_9ce4_8422_2325, step);
    let mixed = (sum ^ (sum >> 29)).wrapping_mul(0xbf58_476d_1ce4_e5b9) >> 32;
    usize::try_from(mixed).unwrap_or(0) % SLOTS
}

/// All sharded collections.
#[derive(Debug, Default)]
pub(super) struct Routing {
    pub(super) collections: BTreeMap<String, Sharded>,
    pub(super) version: u64,
}

impl Routing {
    /// The collection, if it is sharded.
    pub(super) fn collection(&self, namespace: &str) -> Option<&Sharded> {
        self.collections.get(namespace)
    }

    /// Adds or replaces a collection.
    pub(super) fn insert(&mut self, sharded: Sharded) {
        self.version += 1;
        self.collections.insert(sharded.namespace.clone(), sharded);
    }

    /// Forgets a collection.
    pub(super) fn remove(&mut self, namespace: &str) {
        self.version += 1;
        self.collections.remove(namespace);
    }

    /// Forgets all collections of a database.
    pub(super) fn remove_database(&mut self, database: &str) {
        self.version += 1;
        let prefix = format!("{database}.");
        self.collections.retain(|namespace, _| !namespace.starts_with(&prefix));
    }

    /// Makes a shard the owner of a slot.
    pub(super) fn give(&mut self, namespace: &str, slot: usize, shard: usize) {
        self.version += 1;
        let sharded = self.collections.get_mut(namespace);
        if let Some(owner) = sharded.and_then(|sharded| sharded.owners.get_mut(slot)) {
            *owner = shard;
        }
    }
}
