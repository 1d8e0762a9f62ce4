//! The items that a `2dsphere` index accepts on one page.
//!
//! mongod ignores null, `undefined`, `[]` and `{}` as a location if a document has no other value at the
//! path, and refuses them beside another one (`ExpressionKeysPrivate::getS2Keys`). A document of mongod is a
//! page. An insert learns of the index by mongod's error ([`location_error`](super::location_error)). A copy
//! of a collection is packed by these rules, because its index is built after its pages.

use bson::raw::{RawBsonRef, RawDocument};

use super::geo_index::GeoKind;
use super::key_pattern::key;
use super::stored_path::in_items;
use crate::command::document::get;
use crate::pattern::shapes::BucketShape;

/// A value at the path of a location.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum LocationValue {
    Null,
    Undefined,
    EmptyArray,
    EmptyDocument,
    /// Any other value, which the index contains or refuses.
    Location,
}

/// The values at one path.
#[derive(Clone, Debug, PartialEq)]
struct LocationPath {
    /// Its path in stored items.
    path: String,
    /// What the items of the page have there. `None` if no item has the field.
    value: Option<LocationValue>,
}

/// The locations of the items of a page, in all `2dsphere` indexes of the collection.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct SphereLocations(Vec<LocationPath>);

impl SphereLocations {
    /// The locations of an empty page. `specs` are the stored specifications of the collection's indexes.
    #[must_use]
    pub fn of(shape: &BucketShape, specs: impl IntoIterator<Item: AsRef<RawDocument>>) -> Self {
        let mut places: Vec<LocationPath> = Vec::new();
        for spec in specs {
            for (stored, kind) in key(spec.as_ref()).iter().flatten() {
                let path = in_items(shape, stored.as_str()).filter(|_| GeoKind::of(kind) == Some(GeoKind::Sphere));
                if let Some(path) = path
                    && !places.iter().any(|place| place.path == path)
                {
                    places.push(LocationPath {
                        path: path.to_owned(),
                        value: None,
                    });
                }
            }
        }
        Self(places)
    }

    /// Whether the indexes accept a stored item beside those of the page.
    #[must_use]
    pub fn accept(&self, item: &RawDocument) -> bool {
        self.0.iter().all(|place| {
            let value = value_at(item, &place.path);
            place.value.is_none() || value.is_none() || place.value == value
        })
    }

    /// Adds a stored item to the page.
    pub fn add(&mut self, item: &RawDocument) {
        for place in &mut self.0 {
            place.value = place.value.or_else(|| value_at(item, &place.path));
        }
    }

    /// Begins an empty page.
    pub fn clear(&mut self) {
        for place in &mut self.0 {
            place.value = None;
        }
    }
}

/// The first value at a path. One value suffices: an index refuses an item with several values if one of them
/// is empty.
fn value_at(document: &RawDocument, path: &str) -> Option<LocationValue> {
    let Some((root, rest)) = path.split_once('.') else {
        return get(document, path).map(value_of);
    };
    match get(document, root)? {
        RawBsonRef::Document(inner) => value_at(inner, rest),
        RawBsonRef::Array(array) => {
            let position = rest.split('.').next().unwrap_or_default();
            if position.bytes().all(|byte| byte.is_ascii_digit()) {
                return value_at(RawDocument::from_bytes(array.as_bytes()).ok()?, rest);
            }
            array.into_iter().flatten().find_map(|element| match element {
                RawBsonRef::Document(inner) => value_at(inner, rest),
                RawBsonRef::Array(inner) => value_at(RawDocument::from_bytes(inner.as_bytes()).ok()?, rest),
                _ => None,
            })
        }
        _ => None,
    }
}

fn value_of(value: RawBsonRef<'_>) -> LocationValue {
    match value {
        RawBsonRef::Null => LocationValue::Null,
        RawBsonRef::Undefined => LocationValue::Undefined,
        RawBsonRef::Array(array) if array.is_empty() => LocationValue::EmptyArray,
        RawBsonRef::Document(document) if document.is_empty() => LocationValue::EmptyDocument,
        _ => LocationValue::Location,
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn locations(key: bson::raw::RawDocumentBuf) -> SphereLocations {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        SphereLocations::of(&shape, [rawdoc! { "name": "x", "key": key }])
    }

    #[test]
    fn empty_locations_of_one_kind_are_accepted_together() {
        let null = rawdoc! { "at": null };
        let point = rawdoc! { "at": [1, 2] };
        let items = [
            null.clone(),
            rawdoc! { "at": bson::RawBson::Undefined },
            rawdoc! { "at": [] },
            rawdoc! { "at": {} },
            point.clone(),
        ];
        for (number, first) in items.iter().enumerate() {
            let mut page = locations(rawdoc! { "history.at": "2dsphere", "n": 1 });
            page.add(&rawdoc! { "n": 1 });
            page.add(first);
            for (other, item) in items.iter().enumerate() {
                assert_eq!(page.accept(item), number == other, "{first:?} {item:?}");
            }
            assert!(page.accept(&rawdoc! { "n": 2 }));
            page.clear();
            assert!(page.accept(&null) && page.accept(&point));
        }
    }

    #[test]
    fn only_2dsphere_indexes_on_items_matter() {
        for key in [
            rawdoc! { "history.at": "2d" },
            rawdoc! { "history.at": 1 },
            rawdoc! { "at": "2dsphere" },
        ] {
            assert_eq!(locations(key), SphereLocations::default());
        }
    }

    #[test]
    fn paths_continue_in_arrays() {
        let mut page = locations(rawdoc! { "history.a.at": "2dsphere", "history.b.0.at": "2dsphere" });
        page.add(&rawdoc! { "a": [{ "n": 1 }, { "at": null }], "b": [{ "at": null }, { "at": 1 }] });
        assert!(page.accept(&rawdoc! { "a": { "at": null }, "b": [{ "at": null }] }));
        assert!(!page.accept(&rawdoc! { "a": { "at": [1, 2] } }));
        assert!(!page.accept(&rawdoc! { "a": [{}, { "at": [1, 2] }] }));
        assert!(!page.accept(&rawdoc! { "b": [{ "at": {} }] }));
        assert!(page.accept(&rawdoc! { "b": [{}, { "at": {} }], "a": 1 }));
    }
}
