//! Caches which indexed fields have too many values to be read one by one. The attempt costs a round trip for
//! each value.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use bson::Binary;

use super::bounded_cache::{Bounded, Weighed};

/// How long a field is taken to have many values. Deletes, also through other proxies, may leave fewer.
const MANY_FOR: Duration = Duration::from_mins(5);

/// Bytes of an entry beside its path.
const AROUND_PATH: usize = 200;

/// The fields that had many values when they were last read one by one.
#[derive(Debug, Default)]
pub(super) struct ManyValues {
    fields: Mutex<Bounded<CollectionField, Instant>>,
}

/// A field of a collection.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct CollectionField {
    /// The collection's UUID.
    collection: Vec<u8>,
    path: String,
}

impl CollectionField {
    /// `None` for a collection that the client's transaction creates: it has no UUID yet.
    fn new(collection: &Binary, path: &str) -> Option<Self> {
        (!collection.bytes.is_empty()).then(|| Self {
            collection: collection.bytes.clone(),
            path: path.to_owned(),
        })
    }
}

impl Weighed for CollectionField {
    fn bytes(&self) -> usize {
        self.path.len().saturating_add(AROUND_PATH)
    }
}

impl ManyValues {
    pub(super) fn contains(&self, collection: &Binary, path: &str) -> bool {
        CollectionField::new(collection, path).is_some_and(|field| {
            let mut fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
            fields.get(&field).is_some_and(|seen| seen.elapsed() < MANY_FOR)
        })
    }

    pub(super) fn learn(&self, collection: &Binary, path: &str) {
        if let Some(field) = CollectionField::new(collection, path) {
            let mut fields = self.fields.lock().unwrap_or_else(PoisonError::into_inner);
            fields.put(field, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;

    use super::*;

    #[test]
    fn fields_of_different_collections_are_different() {
        let collection = |bytes: &[u8]| Binary {
            subtype: BinarySubtype::Uuid,
            bytes: bytes.to_vec(),
        };
        let (one, other, none) = (collection(&[1]), collection(&[2]), collection(&[]));
        let fields = ManyValues::default();
        fields.learn(&one, "a");
        fields.learn(&none, "a");
        assert!(fields.contains(&one, "a"));
        for (collection, path) in [(&one, "b"), (&other, "a"), (&none, "a")] {
            assert!(!fields.contains(collection, path), "{path} of {collection:?}");
        }
    }
}
