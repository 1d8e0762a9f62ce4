//! The view of a shaped collection's items, for stages that read a collection without a pipeline.
//!
//! An ordinary view in the collection's database. It is created when such a stage first needs it.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::unwind::{FieldOrder, unpack};
use crate::command::document::{array_of, get, single};
use crate::pattern::shapes::BucketShape;
use crate::pattern::unwound::of_whole_documents;

/// The suffix of the view's name.
const SUFFIX: &str = ".mongoshape_items";

/// The view's name.
#[must_use]
pub fn name(collection: &str) -> String {
    format!("{collection}{SUFFIX}")
}

/// The `create` command of the view.
#[must_use]
pub fn create(shape: &BucketShape, collection: &str) -> RawDocumentBuf {
    let mut command = single("create", name(collection));
    command.append(cstr!("viewOn"), collection);
    // A view that another version has created is recognised by its definition.
    let mut stages = unpack(shape, FieldOrder::Any);
    stages.push(end());
    command.append(cstr!("pipeline"), array_of(&stages));
    command
}

/// The last stage of the view's pipeline. A reader of the view may match a field with an empty
/// name, which mongod would otherwise lose (see
/// [`match_items`](crate::pattern::unwound::match_documents)).
#[must_use]
pub fn end() -> RawDocumentBuf {
    single("$match", of_whole_documents())
}

/// Whether the entry of `listCollections` with that name is the view.
#[must_use]
pub fn is(shape: &BucketShape, collection: &str, found: &RawDocument) -> bool {
    let made = create(shape, collection);
    let options = get(found, "options").and_then(RawBsonRef::as_document);
    options.is_some_and(|options| {
        let same = |name| get(options, name) == get(&made, name);
        options.iter().count() == 2 && same("viewOn") && same("pipeline")
    })
}

/// Whether a view may read the collection or view with this name: whether its definition contains
/// the name anywhere. `view` is the entry of `listCollections`.
#[must_use]
pub fn is_read_by(name: &str, view: &RawDocument) -> bool {
    let options = get(view, "options").and_then(RawBsonRef::as_document);
    options.is_some_and(|options| document_has(options, name))
}

fn document_has(document: &RawDocument, text: &str) -> bool {
    document.iter().flatten().any(|(_, value)| has(value, text))
}

fn array_has(array: &RawArray, text: &str) -> bool {
    array.into_iter().flatten().any(|value| has(value, text))
}

/// The recursion is bounded by mongod's limit on nesting.
fn has(value: RawBsonRef<'_>, text: &str) -> bool {
    match value {
        RawBsonRef::String(string) => string == text,
        RawBsonRef::Document(document) => document_has(document, text),
        RawBsonRef::Array(array) => array_has(array, text),
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_view_reads_what_its_definition_names() {
        let check = |options: RawDocumentBuf, expected: bool| {
            let view = rawdoc! { "name": "v", "type": "view", "options": options };
            assert_eq!(is_read_by(&name("c"), &view), expected, "{view:?}");
        };
        check(rawdoc! { "viewOn": "c.mongoshape_items", "pipeline": [] }, true);
        let lookup = rawdoc! { "$graphLookup": { "from": "c.mongoshape_items" } };
        check(
            rawdoc! { "viewOn": "o", "pipeline": [{ "$facet": { "f": [lookup] } }] },
            true,
        );
        check(
            rawdoc! { "viewOn": "c", "pipeline": [{ "$match": { "x": "c.mongoshape" } }] },
            false,
        );
    }
}
