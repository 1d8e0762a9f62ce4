//! The first element of an array that matches a condition.
//!
//! mongod evaluates the client's own condition: each element is wrapped in an array of one element,
//! in a `$lookup` on documents made of the array. So the result is the element that `find` would
//! return.

use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, single};

/// The variable that passes an array to its `$lookup`.
const ELEMENTS: &str = "mongoshape_elements";
/// The field with a wrapped element.
pub(super) const ELEMENT: &str = "element";

/// The field with a wrapped value that is not an array.
const WHOLE: &str = "whole";

/// `$elemMatch`: removes the field if no element matches.
pub(super) fn first_matching(name: &str, condition: &RawDocument) -> [RawDocumentBuf; 2] {
    let condition = single(ELEMENT, single("$elemMatch", condition));
    let removed = RawBson::String("$$REMOVE".to_owned());
    [
        lookup(name, RawBson::Array(RawArrayBuf::new()), &condition),
        single(
            "$set",
            single(
                name,
                expression("$ifNull", [first(&format!("{name}.{ELEMENT}")), removed]),
            ),
        ),
    ]
}

/// The positional operator: of an array, the first element that matches the condition, which must
/// exist. Any other value stays as it is.
pub(super) fn positional(name: &str, condition: &RawDocument) -> [RawDocumentBuf; 2] {
    let is_whole = single(ELEMENT, single("$exists", false));
    let condition = single("$or", array_of(&[condition.to_owned(), is_whole]));
    let whole: RawArrayBuf = [single(WHOLE, format!("${name}"))].into_iter().collect();
    // `$toInt` of an array fails: the error if no element matches.
    let found = expression(
        "$cond",
        [
            RawBson::Document(expression(
                "$eq",
                [RawBson::String(format!("${name}")), RawBson::Array(RawArrayBuf::new())],
            )),
            RawBson::Document(single("$toInt", format!("${name}"))),
            RawBson::Document(expression(
                "$ifNull",
                [first(&format!("{name}.{ELEMENT}")), first(&format!("{name}.{WHOLE}"))],
            )),
        ],
    );
    [
        lookup(name, RawBson::Array(whole), &condition),
        single("$set", single(name, found)),
    ]
}

/// The stage that sets the field to an array of the first wrapped element that matches. If the
/// field is not an array, `otherwise` provides the documents.
fn lookup(name: &str, otherwise: RawBson, condition: &RawDocument) -> RawDocumentBuf {
    let field = || RawBson::String(format!("${name}"));
    let mut map = single("input", field());
    let wrapped: RawArrayBuf = [RawBson::String("$$this".to_owned())].into_iter().collect();
    map.append(cstr!("in"), single(ELEMENT, wrapped));
    let is_array = RawBson::Document(single("$isArray", field()));
    let documents = expression("$cond", [is_array, RawBson::Document(single("$map", map)), otherwise]);
    let matching = [
        single("$documents", format!("$${ELEMENTS}")),
        single("$match", condition),
        single("$limit", 1),
    ];
    let mut lookup = single("let", single(ELEMENTS, documents));
    lookup.append(cstr!("pipeline"), array_of(&matching));
    lookup.append(cstr!("as"), name);
    single("$lookup", lookup)
}

fn first(path: &str) -> RawBson {
    RawBson::Document(single("$first", format!("${path}")))
}

fn expression<const N: usize>(operator: &str, arguments: [RawBson; N]) -> RawDocumentBuf {
    single(operator, arguments.into_iter().collect::<RawArrayBuf>())
}
