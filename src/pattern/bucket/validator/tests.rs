use bson::raw::{RawDocument, RawDocumentBuf};
use bson::{RawArrayBuf, rawdoc};

use super::page_condition::conditions;
use super::*;
use crate::command::document::{array_of, put, single};
use crate::pattern::bucket::freeze::is_frozen;
use crate::pattern::bucket::item_index;
use crate::pattern::bucket::unique_index::UniqueIndex;
use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds, NamespacePattern};

fn shape() -> BucketShape {
    shape_with(ItemIds::Unique)
}

fn shape_with(item_ids: ItemIds) -> BucketShape {
    let mut options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
    options.items = "items".into();
    options.rename = [("quantity".into(), "qty".into())].into();
    options.item_ids = item_ids;
    BucketShape::new(options).unwrap()
}

fn application(validator: &RawDocument) -> ApplicationValidator {
    let body = rawdoc! { "create": "c", "validator": validator.to_owned(), "validationLevel": "strict" };
    ApplicationValidator::of_create(&shape(), &body).unwrap().unwrap()
}

#[test]
fn a_condition_on_fields_holds_for_each_item() {
    let check = |validator: RawDocumentBuf, expected: &[RawDocumentBuf]| {
        assert_eq!(conditions(&shape(), &validator).unwrap(), expected, "{validator:?}");
    };
    let each = |item: RawDocumentBuf| {
        rawdoc! { "$nor": [{ "items": { "$elemMatch": { "$nor": [item] } } }] }
    };
    check(
        rawdoc! { "quantity.x": { "$gt": 1 }, "b": 2 },
        &[each(rawdoc! { "qty.x": { "$gt": 1 }, "b": 2 })],
    );
    check(
        rawdoc! { "$or": [{ "a": 1 }, { "$nor": [{ "quantity": 2 }] }] },
        &[each(rawdoc! { "$or": [{ "a": 1 }, { "$nor": [{ "qty": 2 }] }] })],
    );
}

#[test]
fn a_condition_on_the_key_holds_for_own_values_and_for_the_page() {
    let found = conditions(&shape(), &rawdoc! { "k": 1, "a": 2 }).unwrap();
    let own =
        rawdoc! { "$nor": [{ "items": { "$elemMatch": { "$nor": [{ "k": { "$exists": false } }, { "k": 1 }] } } }] };
    let page = rawdoc! { "$or": [
        { "k": 1 },
        { "$nor": [{ "items": { "$elemMatch": { "$nor": [{ "k": { "$exists": true } }] } } }] },
    ] };
    assert_eq!(found.get(..2), Some(&[own, page][..]));
    assert_eq!(found.len(), 3);
    let negated = conditions(&shape(), &rawdoc! { "$nor": [{ "k": 1, "a": 2 }] }).unwrap();
    assert_eq!(negated.len(), 2);
}

#[test]
fn a_long_or_with_a_key_field_is_not_copied_for_each_branch() {
    // Copying the branches before each one would take minutes.
    const BRANCHES: usize = 100_000;
    let mut branches = vec![rawdoc! { "a": 1 }; BRANCHES];
    branches[0] = rawdoc! { "k": 1 };
    let found = conditions(&shape(), &single("$or", array_of(&branches))).unwrap();
    let [own, page] = found.as_slice() else {
        panic!("{} clauses", found.len());
    };
    let size = |clause: &RawDocumentBuf| clause.as_bytes().len();
    let all = BRANCHES * size(&rawdoc! { "a": 1 });
    assert!(size(own) > all && size(page) > all);
}

#[test]
fn a_schema_is_that_of_the_elements() {
    let schema = rawdoc! { "$jsonSchema": {
        "bsonType": "object",
        "title": "t",
        "required": ["_id", "k", "quantity"],
        "properties": { "k": { "bsonType": "int" }, "quantity": { "minimum": 1 } },
        "additionalProperties": false,
    } };
    let found = conditions(&shape(), &schema).unwrap();
    let of_items = rawdoc! { "$jsonSchema": { "properties": { "items": { "items": {
        "bsonType": "object",
        "required": ["_id", "qty"],
        "properties": { "k": { "bsonType": "int" }, "qty": { "minimum": 1 } },
        "additionalProperties": false,
    } } } } };
    assert_eq!(found.last(), Some(&of_items));
    assert_eq!(found.len(), 3);
}

#[test]
fn what_has_no_equivalent_is_refused() {
    for validator in [
        rawdoc! { "$expr": true },
        rawdoc! { "$or": [{ "a": 1 }, { "$jsonSchema": { "required": ["b"] } }] },
        rawdoc! { "$nor": [{ "$jsonSchema": {} }] },
        rawdoc! { "$jsonSchema": { "minProperties": 1 } },
        rawdoc! { "$jsonSchema": { "patternProperties": {} } },
        rawdoc! { "$jsonSchema": { "anyOf": [{ "required": ["k"] }] } },
        rawdoc! { "$jsonSchema": { "not": { "additionalProperties": false } } },
    ] {
        assert!(conditions(&shape(), &validator).is_err(), "{validator:?}");
    }
    let dropped = shape_with(ItemIds::Dropped);
    for validator in [
        rawdoc! { "_id": 1 },
        rawdoc! { "$jsonSchema": { "properties": { "_id": {} } } },
        rawdoc! { "$jsonSchema": { "additionalProperties": false } },
    ] {
        assert!(conditions(&dropped, &validator).is_err(), "{validator:?}");
    }
    assert!(conditions(&dropped, &rawdoc! { "$jsonSchema": { "required": ["_id"] } }).is_ok());
}

#[test]
fn clauses_are_recognised() {
    let spec = rawdoc! { "v": 2, "key": { "a": 1 }, "name": "x", "unique": true };
    let index = UniqueIndex::all(&shape(), [item_index::stored(&shape(), &spec).unwrap()]);
    assert_eq!(index.len(), 1);
    let validator = PageValidator {
        indexes: index.iter().map(|index| ClauseOfIndex::of(&shape(), index)).collect(),
        application: Some(application(&rawdoc! { "a": 1 })),
        direct_writes: Some(direct_writes::clause(&shape())),
    };
    assert_eq!(PageValidator::parse(&validator.document()), Some(validator.clone()));
    let frozen = validator.frozen();
    assert!(is_frozen(&single("validator", &frozen)));
    let recorded = PageValidator {
        indexes: Vec::new(),
        ..validator
    };
    assert_eq!(PageValidator::parse(&frozen), Some(recorded));
    assert_eq!(PageValidator::default().frozen(), freeze());
    assert_eq!(
        PageValidator::parse(&RawDocumentBuf::new()),
        Some(PageValidator::default())
    );
    for other in [
        rawdoc! { "a": 1 },
        rawdoc! { "$and": [{ "a": 1 }] },
        rawdoc! { "$and": [], "a": 1 },
    ] {
        assert_eq!(PageValidator::parse(&other), None, "{other:?}");
    }
}

#[test]
fn the_options_of_the_application_are_listed() {
    let application = application(&rawdoc! { "a": 1 });
    let validator = PageValidator {
        application: Some(application),
        ..PageValidator::default()
    };
    let validator = PageValidator {
        direct_writes: Some(direct_writes::clause(&shape())),
        ..validator
    };
    let mut options = single("changeStreamPreAndPostImages", single("enabled", true));
    put(&mut options, "validator", validator.document());
    put(&mut options, "validationLevel", "moderate");
    let listed = rawdoc! {
        "changeStreamPreAndPostImages": { "enabled": true }, "validator": { "a": 1 }, "validationLevel": "strict",
    };
    assert_eq!(options_of_application(&options), listed);
    let of_shape = PageValidator {
        application: None,
        ..validator
    };
    assert!(options_of_application(&single("validator", of_shape.document())).is_empty());
    let frozen = single("validator", freeze());
    assert!(options_of_application(&frozen).is_empty());
    let other = single("validator", single("a", 1));
    assert_eq!(options_of_application(&other), other);
}

#[test]
fn the_error_of_a_document_contains_that_of_the_validator() {
    let error = |parts: RawArrayBuf| {
        let first = rawdoc! { "index": 0, "details": { "operatorName": "$and", "clausesNotSatisfied": parts } };
        let clause = rawdoc! { "index": 0, "details": { "operatorName": "$or", "clausesNotSatisfied": [first] } };
        rawdoc! { "code": 121, "errInfo": {
            "failingDocumentId": 7,
            "details": { "operatorName": "$and", "clausesNotSatisfied": [clause] },
        } }
    };
    let marker =
        rawdoc! { "index": 0, "details": { "operatorName": "$expr", "expressionResult": bson::raw::RawBsonRef::Null } };
    let failed = rawdoc! { "index": 1, "details": { "operatorName": "$eq" } };
    let violated = error([marker.clone(), failed].into_iter().collect());
    assert!(is_invalid(&violated));
    let info = rawdoc! { "failingDocumentId": 7, "details": { "operatorName": "$eq" } };
    assert_eq!(verdict(&violated), Some(Verdict::Violated(info)));
    assert_eq!(
        verdict(&error([marker].into_iter().collect())),
        Some(Verdict::Satisfied)
    );
    assert_eq!(verdict(&rawdoc! { "code": 121 }), None);
}
