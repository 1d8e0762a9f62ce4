//! The collections that maintenance puts beside a collection, in the same database.

use super::{compact, conversion, pack};

/// The part of a name behind the collection's own.
const SUFFIX: &str = ".mongoshape_";

/// The copies that may replace a collection in a swap, and the record of its conversion.
#[must_use]
pub fn copies(collection: &str) -> Vec<String> {
    let names = [
        compact::copy_name,
        compact::stopped_name,
        pack::copy_name,
        conversion::copy_name,
        conversion::record_name,
    ];
    names.iter().map(|name| name(collection)).collect()
}

/// The [copies](copies), and the names under which a collection is kept after a swap.
#[must_use]
pub fn names(collection: &str) -> Vec<String> {
    let mut names = copies(collection);
    names.extend([pack::plain_name(collection), conversion::kept_name(collection)]);
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
