//! A set of `_id`s.

use std::collections::BTreeMap;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument};

use crate::command::document::get;
use crate::pattern::bucket::key::value_identity;

/// `_id`s, each once, compared as MongoDB compares them.
#[derive(Clone, Debug, Default)]
pub(super) struct Ids(BTreeMap<Vec<u8>, RawBson>);

impl Ids {
    pub(super) fn add(&mut self, id: RawBsonRef<'_>) {
        self.0.insert(value_identity(id), id.into());
    }

    pub(super) fn add_of(&mut self, document: &RawDocument) {
        if let Some(id) = get(document, "_id") {
            self.add(id);
        }
    }

    pub(super) fn extend(&mut self, other: Self) {
        self.0.extend(other.0);
    }

    /// Removes those that another set contains.
    pub(super) fn remove(&mut self, other: &Self) {
        self.0.retain(|identity, _| !other.0.contains_key(identity));
    }

    pub(super) fn contains(&self, identity: &[u8]) -> bool {
        self.0.contains_key(identity)
    }

    pub(super) fn len(&self) -> usize {
        self.0.len()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The identities, which equal `_id`s share, with the `_id`s.
    pub(super) fn iter(&self) -> impl Iterator<Item = (&Vec<u8>, &RawBson)> {
        self.0.iter()
    }

    pub(super) fn values(&self) -> impl Iterator<Item = &RawBson> {
        self.0.values()
    }

    /// An array of all.
    pub(super) fn array(&self) -> RawArrayBuf {
        self.0.values().map(RawBson::as_raw_bson_ref).collect()
    }

    /// Takes at most this many.
    pub(super) fn split(&mut self, count: usize) -> Self {
        let Some(at) = self.0.keys().nth(count).cloned() else {
            return std::mem::take(self);
        };
        let rest = self.0.split_off(&at);
        Self(std::mem::replace(&mut self.0, rest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn equal_ids_are_one() {
        let mut ids = Ids::default();
        ids.add(RawBsonRef::Int32(1));
        ids.add(RawBsonRef::Double(1.0));
        ids.add(RawBsonRef::Int64(2));
        assert_eq!(ids.len(), 2);
        let first = ids.split(1);
        assert_eq!((first.len(), ids.len()), (1, 1));
        ids.remove(&first);
        assert_eq!(ids.len(), 1);
        assert_eq!(ids.split(5).len(), 1);
        assert!(ids.is_empty());
    }
}
