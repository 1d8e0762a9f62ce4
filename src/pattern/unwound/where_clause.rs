//! `$where` in a query on documents that earlier stages made.
//!
//! mongod refuses `$where` in a `$match`. `$function` with `_internalSetObjToThis` calls the same code in the
//! same way: with the document as `this` and `obj`, and with the function that mongod makes of an expression.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

use super::{names_nothing, of_no_document};
use crate::command::document::{array_of, put, single};

/// Whether a filter has a `$where`.
#[must_use]
pub fn has_where(filter: &RawDocument) -> bool {
    !clauses(filter).is_empty()
}

/// The `$where` conditions of a filter.
fn clauses(filter: &RawDocument) -> Vec<RawDocumentBuf> {
    let mut found = Vec::new();
    for (name, value) in filter.iter().flatten() {
        match (name.as_str(), value) {
            ("$where", code) => found.push(single("$where", code)),
            ("$and" | "$or" | "$nor", RawBsonRef::Array(branches)) => {
                let branches = branches.into_iter().flatten();
                found.extend(branches.filter_map(RawBsonRef::as_document).flat_map(clauses));
            }
            _ => {}
        }
    }
    found
}

/// A `find` that matches no document. mongod parses the filter and compiles the code of its `$where`
/// conditions. `None` if there are no such conditions.
#[must_use]
pub fn code_validation(
    collection: &str,
    filter: &RawDocument,
    let_variables: Option<&RawDocument>,
) -> Option<RawDocumentBuf> {
    let code = clauses(filter);
    if code.is_empty() {
        return None;
    }
    // mongod 6.0.5 crashes on some conditions on a field without a name.
    let sent = if names_nothing(RawBsonRef::Document(filter)) {
        code
    } else {
        vec![filter.to_owned()]
    };
    let conditions: Vec<_> = std::iter::once(of_no_document()).chain(sent).collect();
    let mut command = single("find", collection);
    put(&mut command, "filter", single("$and", array_of(&conditions)));
    put(&mut command, "singleBatch", true);
    if let Some(variables) = let_variables {
        put(&mut command, "let", variables);
    }
    Some(command)
}

/// The filter with each `$where` as an expression. `document` is the expression for the document that the
/// code sees. mongod reports the error of code of another type.
#[must_use]
pub fn with_code_as_expression(filter: &RawDocument, document: &RawBson) -> RawDocumentBuf {
    let mut converted = RawDocumentBuf::new();
    let mut code = Vec::new();
    for (name, value) in filter.iter().flatten() {
        match (name.as_str(), value) {
            ("$where", RawBsonRef::String(body) | RawBsonRef::JavaScriptCode(body)) => {
                let function = rawdoc! {
                    "body": body, "args": [document.clone()], "lang": "js", "_internalSetObjToThis": true,
                };
                code.push(single("$expr", single("$function", function)));
            }
            (name @ ("$and" | "$or" | "$nor"), RawBsonRef::Array(branches)) => {
                let branches = branches.into_iter().flatten().map(|branch| match branch {
                    RawBsonRef::Document(branch) => with_code_as_expression(branch, document).into(),
                    other => RawBson::from(other),
                });
                put(&mut converted, name, branches.collect::<bson::raw::RawArrayBuf>());
            }
            (name, value) => put(&mut converted, name, value),
        }
    }
    if code.is_empty() {
        return converted;
    }
    // The filter may have an `$expr` of its own.
    code.insert(0, converted);
    single("$and", array_of(&code))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn code_becomes_an_expression_on_the_document() {
        let filter = rawdoc! { "n": 1, "$or": [{ "$where": "this.n" }, { "k": 2 }] };
        let function = rawdoc! { "body": "this.n", "args": ["$$ROOT"], "lang": "js", "_internalSetObjToThis": true };
        let code = rawdoc! { "$expr": { "$function": function } };
        let expected = rawdoc! { "n": 1, "$or": [{ "$and": [{}, code.clone()] }, { "k": 2 }] };
        assert_eq!(with_code_as_expression(&filter, &"$$ROOT".into()), expected);
        let filter = rawdoc! { "$where": "this.n", "$expr": "$n", "k": 1 };
        let expected = rawdoc! { "$and": [{ "$expr": "$n", "k": 1 }, code] };
        assert_eq!(with_code_as_expression(&filter, &"$$ROOT".into()), expected);
        assert!(has_where(&filter) && !has_where(&rawdoc! { "n": { "$where": 1 } }));
    }
}
