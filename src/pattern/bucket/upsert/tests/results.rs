//! The `_id` of the inserted document, and the options of the update.

use super::*;

#[test]
fn an_id_may_be_set_to_the_one_of_the_filter() {
    for operator in ["$set", "$setOnInsert"] {
        check_whole(
            doc! { "_id": 1 },
            doc! { operator: { "_id": 1, "a": 2 } },
            doc! { "_id": 1, "a": 2 },
        );
        check_whole(doc! {}, doc! { operator: { "_id": 1 } }, doc! { "_id": 1 });
    }
}

#[test]
fn an_id_that_is_an_array_is_found_by_the_check_that_mongod_makes_first() {
    let message = "After applying the update to the document, the (immutable) field '_id' was found to be an array or \
                   array descendant.";
    check_error(doc! { "_id": [1] }, doc! { "a": 1 }, 54, message);
    check_error(doc! {}, doc! { "_id": [1] }, 54, message);
    // This replacement changes nothing.
    check_error(
        doc! { "_id": [1] },
        doc! { "_id": [1] },
        53,
        "The '_id' value cannot be of type array",
    );
}

#[test]
fn stages_keep_the_id_of_the_filter() {
    let after = |base: Document, result: Document| {
        let [base, result] = [base, result].map(|document| RawDocumentBuf::try_from(document).unwrap());
        match after_stages(&base, &result, &mut FixedMint) {
            Ok(inserted) => Ok(Document::try_from(inserted).unwrap()),
            Err(UpsertError::Mongod(error)) => Err(error.code),
            Err(UpsertError::Unsupported(what)) => panic!("{what}"),
        }
    };
    for (base, result, expected) in [
        (
            doc! { "_id": 3 },
            doc! { "x": 1, "_id": 3 },
            Ok(doc! { "_id": 3, "x": 1 }),
        ),
        // It may have another type.
        (doc! { "_id": 3 }, doc! { "_id": 3.0 }, Ok(doc! { "_id": 3.0 })),
        (doc! { "_id": 3 }, doc! { "_id": 4 }, Err(66)),
        (doc! {}, doc! { "_id": 4 }, Ok(doc! { "_id": 4 })),
        (doc! {}, doc! { "_id": [4] }, Err(54)),
    ] {
        assert_eq!(after(base.clone(), result.clone()), expected, "{base} {result}");
    }
}

#[test]
fn array_filters_are_refused_unless_there_are_none() {
    let operators = RawDocumentBuf::try_from(doc! { "$set": { "a": 2 } }).unwrap();
    let stored = RawDocumentBuf::try_from(doc! { "_id": 1 }).unwrap();
    for (filters, is_done) in [(doc! { "f": [] }, true), (doc! { "f": [{ "x": 1 }] }, false)] {
        let filters = RawDocumentBuf::try_from(filters).unwrap();
        let array_filters = Some(filters.get_array("f").unwrap());
        let request = UpdateRequest {
            filter: Some(&stored),
            change: RawBsonRef::Document(&operators),
            array_filters,
            collation: None,
        };
        let update = OperatorUpdate {
            operators: &operators,
            array_filters,
            collation: None,
        };
        let (built, changed) = (build(request, &mut FixedMint), changed(&stored, update, &mut FixedMint));
        assert_eq!([built.is_ok(), changed.is_ok()], [is_done; 2], "{filters:?}");
    }
}
