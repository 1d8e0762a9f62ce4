//! The clause that refuses writes of programs that bypass the proxy, and that take pages for documents of the
//! application ([decision](../../../../docs/decisions/0043-mongod-refuses-direct-writes.md)).
//!
//! ```js
//! { $jsonSchema: { title: "mongoshape_direct_writes", description: .., <the fields of a page> },
//!   $expr: { $let: { vars: { mongoshape_direct_writes: .. }, in: <count is the length of the array> } } }
//! ```
//!
//! The schema accepts any further field of `control`, because later versions of mongoshape may add some. It
//! is about the page header only. The expression reads the array's length, and no item.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

use crate::command::document::{first_field, get, put, single};
use crate::pattern::bucket::layout::VERSION;
use crate::pattern::shapes::BucketShape;

/// The title of the schema, and the variable of the expression. mongod's error for a refused write contains
/// one of them.
const NAME: &str = "mongoshape_direct_writes";
/// mongod's error for a refused write contains this text.
const DESCRIPTION: &str = "mongoshape stores this collection in the bucket pattern: write to it through mongoshape";

/// The condition that every page of the shape satisfies.
#[must_use]
pub fn clause(shape: &BucketShape) -> RawDocumentBuf {
    let control = rawdoc! {
        "bsonType": "object",
        "required": ["v", "page", "bytes"],
        "properties": {
            "v": { "enum": [VERSION] },
            "page": { "bsonType": "number" },
            "bytes": { "bsonType": "number" },
        },
    };
    let mut fields = single("_id", RawDocumentBuf::new());
    for field in shape.key() {
        put(&mut fields, field, RawDocumentBuf::new());
    }
    put(&mut fields, shape.count(), single("bsonType", "number"));
    put(&mut fields, shape.items(), single("bsonType", "array"));
    put(&mut fields, BucketShape::CONTROL, control);
    let schema = rawdoc! {
        "title": NAME,
        "description": DESCRIPTION,
        "required": [shape.count(), shape.items(), BucketShape::CONTROL],
        "properties": fields,
        "additionalProperties": false,
    };
    let (items, count) = (format!("${}", shape.items()), format!("${}", shape.count()));
    // `$size` fails on any other value, and mongod would report that failure.
    let length = rawdoc! { "$cond": [{ "$isArray": items.as_str() }, { "$size": items.as_str() }, RawBsonRef::Null] };
    let counted = rawdoc! { "$let": {
        "vars": single(NAME, single("$literal", DESCRIPTION)),
        "in": { "$eq": [length, count] },
    } };
    rawdoc! { "$jsonSchema": schema, "$expr": counted }
}

/// Whether a clause refuses direct writes, also in the form of another version or shape.
#[must_use]
pub fn is_clause(clause: &RawDocument) -> bool {
    match first_field(clause) {
        Some(("$jsonSchema", RawBsonRef::Document(schema))) => is_named(schema),
        _ => false,
    }
}

/// Whether mongod's error reports a page that does not satisfy the clause: the reply of a failed command, or
/// an element of `writeErrors`.
#[must_use]
pub fn is_refused(error: &RawDocument) -> bool {
    get(error, "errInfo")
        .and_then(RawBsonRef::as_document)
        .is_some_and(mentions_clause)
}

fn is_named(schema: &RawDocument) -> bool {
    get(schema, "title") == Some(RawBsonRef::String(NAME))
}

/// Whether an error contains a part of the clause at any depth.
fn mentions_clause(details: &RawDocument) -> bool {
    is_named(details)
        || details.iter().flatten().any(|(name, value)| match value {
            RawBsonRef::Document(inner) => name == NAME || mentions_clause(inner),
            RawBsonRef::Array(array) => {
                let mut elements = array.into_iter().flatten().filter_map(RawBsonRef::as_document);
                elements.any(mentions_clause)
            }
            _ => false,
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape(key: &str) -> BucketShape {
        let mut options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec![key.into()]);
        options.items = "items".into();
        options.count = "n".into();
        BucketShape::new(options).unwrap()
    }

    #[test]
    fn clause_names_the_fields_of_a_page() {
        let clause = clause(&shape("k"));
        let schema = clause.get_document("$jsonSchema").unwrap();
        let properties = schema.get_document("properties").unwrap();
        let names: Vec<&str> = properties.iter().flatten().map(|(name, _)| name.as_str()).collect();
        assert_eq!(names, ["_id", "k", "n", "items", "control"]);
        let required: Vec<RawBsonRef<'_>> = schema.get_array("required").unwrap().into_iter().flatten().collect();
        assert_eq!(required, ["n", "items", "control"].map(RawBsonRef::String));
    }

    #[test]
    fn clause_is_recognised_for_any_shape() {
        assert!(is_clause(&clause(&shape("k"))) && is_clause(&clause(&shape("other"))));
        assert_ne!(clause(&shape("k")), clause(&shape("other")));
        for other in [
            rawdoc! {},
            rawdoc! { "$jsonSchema": { "title": "another" } },
            rawdoc! { "a": 1 },
        ] {
            assert!(!is_clause(&other), "{other:?}");
        }
    }

    #[test]
    fn errors_of_the_clause_are_recognised() {
        let error = |details: RawDocumentBuf| {
            let clause =
                rawdoc! { "index": 0, "details": { "operatorName": "$and", "clausesNotSatisfied": [details] } };
            rawdoc! { "code": 121, "errInfo": { "details": { "clausesNotSatisfied": [clause] } } }
        };
        let of_schema = rawdoc! { "index": 0, "details": { "operatorName": "$jsonSchema", "title": NAME } };
        let specified = clause(&shape("k")).get_document("$expr").unwrap().to_owned();
        let of_count =
            rawdoc! { "index": 1, "details": { "operatorName": "$expr", "specifiedAs": { "$expr": specified } } };
        assert!(is_refused(&error(of_schema)) && is_refused(&error(of_count)));
        assert!(!is_refused(&error(
            rawdoc! { "index": 0, "details": { "title": "another" } }
        )));
        assert!(!is_refused(&rawdoc! { "code": 121 }));
    }
}
