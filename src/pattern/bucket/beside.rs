//! The collections that maintenance puts beside a collection, in the same database.

use super::{compact, conversion, pack};

/// The part of a name behind the collection's own.
const SUFFIX: &str = ".mongoshape_";

/// Those that no client sees: copies, and the record and the former collection of a conversion.
#[must_use]
pub fn hidden(collection: &str) -> Vec<String> {
    let names = [
        compact::copy_name,
        compact::stopped_name,
        pack::copy_name,
        conversion::copy_name,
        conversion::record_name,
        conversion::kept_name,
    ];
    names.iter().map(|name| name(collection)).collect()
}

/// All of them. Plain documents that were packed are kept for the user, who drops them.
#[must_use]
pub fn names(collection: &str) -> Vec<String> {
    let mut names = hidden(collection);
    names.push(pack::plain_name(collection));
    names
}

/// The collection beside which maintenance puts a collection with this name.
#[must_use]
pub fn original(name: &str) -> Option<&str> {
    let (original, _) = name.rsplit_once(SUFFIX)?;
    names(original).iter().any(|beside| beside == name).then_some(original)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn original_has_the_collection_beside_it() {
        for name in names("a.b") {
            assert_eq!(original(&name), Some("a.b"), "{name}");
        }
        for other in [
            "a.b",
            "a.mongoshape_items",
            "a.mongoshape_convert.b",
            "a.mongoshape_convertb",
        ] {
            assert_eq!(original(other), None, "{other}");
        }
    }
}
