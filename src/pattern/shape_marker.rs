//! The shape marker: an empty partial index whose filter records the options that stored data
//! depends on. A proxy with other options refuses the collection. mongod keeps no two such indexes
//! on a collection. See `docs/decisions/0019-a-collection-records-its-shape.md`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{as_whole_number, get, single};
use crate::command::value_text::value_text;

/// Name of the shape marker's index, which contains no document.
pub const INDEX: &str = "mongoshape_shape";
/// A path that no document of either pattern has.
const PATH: &str = "control.shape";
/// The text that names the remedy if the shape marker differs.
pub const REMEDY: &str = "change the shape back, or see docs/operations.md, \"Changing a shape\"";

/// The shape marker, as in the `indexes` of a `createIndexes`.
#[must_use]
pub fn index(stored_as: &RawDocument) -> RawDocumentBuf {
    let mut index = single("key", single(PATH, 1));
    index.append(cstr!("name"), INDEX);
    index.append(cstr!("partialFilterExpression"), single(PATH, stored_as));
    index
}

/// The shape marker among a collection's indexes.
pub fn among<'a>(mut indexes: impl Iterator<Item = &'a RawDocument>) -> Option<&'a RawDocument> {
    indexes.find(|index| index.get_str("name").is_ok_and(|name| name == INDEX))
}

/// The options that a [shape marker](among) records.
#[must_use]
pub fn recorded(index: &RawDocument) -> Option<&RawDocument> {
    let filter = index.get_document("partialFilterExpression").ok()?;
    get(filter, PATH).and_then(RawBsonRef::as_document)
}

/// Human-readable differences between the [shape marker](among) and the fingerprint of a shape.
/// Empty if the shape can read the collection.
#[must_use]
pub fn differing(stored_as: &RawDocument, index: &RawDocument) -> Vec<String> {
    match recorded(index) {
        Some(there) => differing_options(there, stored_as),
        None => vec![format!("{INDEX} does not record its options")],
    }
}

/// The options that differ, with their recorded values.
fn differing_options(there: &RawDocument, wanted: &RawDocument) -> Vec<String> {
    let fields = there.iter().chain(wanted.iter()).flatten();
    let mut names: Vec<&str> = fields.map(|(name, _)| name.as_str()).collect();
    names.sort_unstable();
    names.dedup();
    names.retain(|name| !is_same(get(there, name), get(wanted, name)));
    let difference = |name: &str| match get(there, name) {
        Some(value) => format!("{name} is {} in the shape marker", value_text(value)),
        None => format!("the shape marker does not contain {name}"),
    };
    names.into_iter().map(difference).collect()
}

/// Compares numbers by value, because tools that restore an index may change their type.
fn is_same(one: Option<RawBsonRef<'_>>, other: Option<RawBsonRef<'_>>) -> bool {
    let number = |value: Option<RawBsonRef<'_>>| value.and_then(as_whole_number);
    one == other || (number(one).is_some() && number(one) == number(other))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn differing_options_are_named() {
        let (ten, wanted) = (rawdoc! { "max_items": 10 }, rawdoc! { "max_items": 10_i64 });
        assert!(differing(&wanted, &index(&ten)).is_empty());
        let twenty = rawdoc! { "max_items": 20, "time": "at" };
        assert_eq!(
            differing(&wanted, &index(&twenty)),
            [
                "max_items is 20 in the shape marker",
                "time is \"at\" in the shape marker"
            ]
        );
        assert_eq!(
            differing(&wanted, &index(&rawdoc! {})),
            ["the shape marker does not contain max_items"]
        );
        assert_eq!(
            differing(&wanted, &rawdoc! {}),
            ["mongoshape_shape does not record its options"]
        );
    }
}
