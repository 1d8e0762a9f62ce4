//! The first element of an array that meets a condition.
//!
//! mongod itself matches it: each element is wrapped as an array of its own and asked the client's own
//! condition, in a `$lookup` on documents made of the array. So the first that matches is found exactly as
//! `find` would.

use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, single};

/// The variable that carries an array into its `$lookup`.
const ELEMENTS: &str = "mongoshape_elements";
/// The field that an element is wrapped in.
pub(super) const ELEMENT: &str = "element";

/// The field that anything but an array is wrapped in.
const WHOLE: &str = "whole";

/// `$elemMatch`: a field without such an element is left out.
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

/// The positional operator: of an array its first element that meets the condition, which is there; what is
/// no array is left as it is.
pub(super) fn positional(name: &str, condition: &RawDocument) -> [RawDocumentBuf; 2] {
    let is_whole = single(ELEMENT, single("$exists", false));
    let condition = single("$or", array_of(&[condition.to_owned(), is_whole]));
    let whole: RawArrayBuf = [single(WHOLE, format!("${name}"))].into_iter().collect();
    // Were there none, this would be an error, since no array is a number.
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

/// The stage that leaves in the field, as an array, the first wrapped element that matches; or, where the
/// field is no array, of other documents.
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
