//! Geospatial indexes: `2d` and `2dsphere`.
//!
//! mongod has an entry for the location of each item of a page, as for the elements of an array.

use bson::raw::{RawBsonRef, RawDocument};

use super::as_application_sees;
use super::key_pattern::key;
use super::stored_path::stored_path;
use crate::command::document::{as_flag, get};
use crate::pattern::shapes::BucketShape;

/// The kind of a geospatial index.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum GeoKind {
    /// Points on a plane.
    Flat,
    /// Geometries on a sphere.
    Sphere,
}

impl GeoKind {
    /// The kind in a field of a key pattern.
    pub(super) fn of(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::String("2d") => Some(Self::Flat),
            RawBsonRef::String("2dsphere") => Some(Self::Sphere),
            _ => None,
        }
    }
}

/// A field of a geospatial index with locations.
#[derive(Clone, Debug, PartialEq)]
pub struct GeoIndex {
    /// The path of the locations in items.
    pub path: String,
    /// Their stored path.
    pub stored: String,
    /// The kind of the index.
    pub kind: GeoKind,
}

impl GeoIndex {
    /// Reads a specification of `listIndexes`: the locations of the application's index. Empty for any other
    /// index, and if mongod does not use the index.
    #[must_use]
    pub fn all(shape: &BucketShape, spec: &RawDocument) -> Vec<Self> {
        let is_hidden = get(spec, "hidden").and_then(as_flag) == Some(true);
        let Some(application) = as_application_sees(shape, spec).filter(|_| !is_hidden) else {
            return Vec::new();
        };
        let fields = key(&application).iter().flatten();
        let locations = fields.filter_map(|(path, value)| {
            Some(Self {
                path: path.as_str().to_owned(),
                stored: stored_path(shape, path.as_str()),
                kind: GeoKind::of(value)?,
            })
        });
        locations.collect()
    }
}

/// Whether the index is geospatial.
#[must_use]
pub fn is_geo(spec: &RawDocument) -> bool {
    key(spec)
        .iter()
        .flatten()
        .any(|(_, value)| GeoKind::of(value).is_some())
}

/// Whether only geospatial indexes have the option.
pub(super) fn is_geo_option(name: &str) -> bool {
    matches!(name, "2dsphereIndexVersion" | "bits" | "min" | "max")
}
