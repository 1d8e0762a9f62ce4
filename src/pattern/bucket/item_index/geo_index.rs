//! Geospatial indexes: `2d` and `2dsphere`.
//!
//! mongod has an entry for the location of each item of a page, as for the elements of an array.

use bson::raw::{RawBsonRef, RawDocument};

use super::key_pattern::key;

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

/// mongod's error for a location that a geospatial index cannot contain.
#[derive(Clone, Debug, PartialEq)]
pub struct LocationError {
    /// mongod's message without the page.
    pub message: String,
    /// Whether the location may be null, an empty array or an empty document. An index on a sphere accepts
    /// these, but not beside the locations of other items of the page.
    pub may_be_empty: bool,
}

/// The error, if a message reports one.
#[must_use]
pub fn location_error(message: &str) -> Option<LocationError> {
    const ON_SPHERE: &str = "Can't extract geo keys: ";
    const ON_PLANE: [&str; 3] = ["geo values must be", "geo field only has", "point not in interval"];
    if let Some(begin) = message.find(ON_SPHERE) {
        let reason = message.get(begin..)?.rsplit_once("}  ")?.1;
        let of_empty = [
            ": null",
            ": {}",
            "Point must only contain numeric elements",
            // From 7.0 on.
            "Point must only contain numeric elements, instead got type missing",
        ];
        return Some(LocationError {
            message: format!("{ON_SPHERE}{reason}"),
            may_be_empty: of_empty.into_iter().any(|end| reason.ends_with(end)),
        });
    }
    let begin = ON_PLANE.into_iter().find_map(|text| message.find(text))?;
    let (reason, _) = message.get(begin..)?.split_once(" :: caused by :: {")?;
    Some(LocationError {
        message: reason.to_owned(),
        may_be_empty: false,
    })
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn error_of_a_location_does_not_contain_the_page() {
        let error = |message| location_error(message).map(|error| (error.message, error.may_be_empty));
        let page = "Can't extract geo keys: { _id: 1, items: [ { at: null } ] }  geo element must be an array or object: at: null";
        let expected = "Can't extract geo keys: geo element must be an array or object: at: null";
        assert_eq!(error(page), Some((expected.to_owned(), true)));
        let empty =
            "Can't extract geo keys: { _id: 1 }  Point must only contain numeric elements, instead got type missing";
        assert!(error(empty).is_some_and(|(_, may_be_empty)| may_be_empty));
        let text =
            "Can't extract geo keys: { _id: 1 }  Point must only contain numeric elements, instead got type string";
        assert!(error(text).is_some_and(|(_, may_be_empty)| !may_be_empty));
        let bounds = "Can't extract geo keys: { _id: 1 }  longitude/latitude is out of bounds, lng: 1 lat: 200";
        assert!(error(bounds).is_some_and(|(_, may_be_empty)| !may_be_empty));
        let flat = "geo field only has 1 element :: caused by :: { _id: 1, items: [ { at: [ 1 ] } ] }";
        assert_eq!(error(flat), Some(("geo field only has 1 element".to_owned(), false)));
        assert_eq!(error("another error"), None);
    }
}
