//! Operators on arrays.

use super::*;

/// Checks the array after a `$push` with modifiers.
fn check_push(array: Bson, modifiers: Document, expected: Bson) {
    check(
        doc! { "a": { "$eq": array } },
        doc! { "$push": { "a": modifiers } },
        doc! { "a": expected },
    );
}

#[test]
fn pushed_elements_are_inserted_at_their_position() {
    for (position, expected) in [
        (0, bson!([9, 1, 2, 3])),
        (1, bson!([1, 9, 2, 3])),
        (7, bson!([1, 2, 3, 9])),
        (-1, bson!([1, 2, 9, 3])),
        (-2, bson!([1, 9, 2, 3])),
        (-7, bson!([9, 1, 2, 3])),
    ] {
        check_push(bson!([1, 2, 3]), doc! { "$each": [9], "$position": position }, expected);
    }
}

#[test]
fn a_slice_keeps_the_first_elements_or_the_last() {
    for (slice, expected) in [
        (0, bson!([])),
        (1, bson!([1])),
        (3, bson!([1, 2, 3])),
        (7, bson!([1, 2, 3])),
        (-1, bson!([3])),
        (-2, bson!([2, 3])),
        (-7, bson!([1, 2, 3])),
    ] {
        check_push(bson!([1, 2]), doc! { "$each": [3], "$slice": slice }, expected);
    }
}

#[test]
fn elements_are_sorted_by_themselves_or_by_their_fields() {
    for (array, sort, expected) in [
        (bson!([3, 1]), bson!(1), bson!([1, 3])),
        (bson!([3, 1, 2]), bson!(-1), bson!([3, 2, 1])),
        (
            bson!([{ "x": 2, "y": 1 }, { "x": 1, "y": 2 }]),
            bson!({ "x": 1 }),
            bson!([{ "x": 1, "y": 2 }, { "x": 2, "y": 1 }]),
        ),
        (
            bson!([{ "x": 1, "y": 1 }, { "x": 1, "y": 2 }]),
            bson!({ "x": 1, "y": -1 }),
            bson!([{ "x": 1, "y": 2 }, { "x": 1, "y": 1 }]),
        ),
    ] {
        check_push(array, doc! { "$each": [], "$sort": sort }, expected);
    }
    // The order of elements without the field, or equal in it, is mongod's.
    for array in [bson!([{ "x": 1 }, { "y": 1 }]), bson!([{ "x": 1, "y": 1 }, { "x": 1 }])] {
        let sort = doc! { "$push": { "a": { "$each": [], "$sort": { "x": 1 } } } };
        check_unsupported(doc! { "a": array }, sort);
    }
    let by_path = doc! { "$push": { "a": { "$each": [], "$sort": { "x.y": 1 } } } };
    check_unsupported(doc! { "a": [{ "x.y": 1 }, { "x.y": 2 }] }, by_path);
}

#[test]
fn a_long_array_is_not_sorted() {
    let sort = || doc! { "$push": { "a": { "$each": [], "$sort": -1 } } };
    let numbers = |count: i32| (0..count).map(Bson::from).collect::<Vec<Bson>>();
    let sorted: Vec<Bson> = numbers(500).into_iter().rev().collect();
    check(doc! { "a": numbers(500) }, sort(), doc! { "a": sorted });
    check_unsupported(doc! { "a": numbers(501) }, sort());
}

#[test]
fn elements_are_taken_by_their_value_or_from_an_end() {
    for (array, operators, expected) in [
        (bson!([1, 2, 3, 1]), doc! { "$pullAll": { "a": [1, 3] } }, bson!([2])),
        (bson!([1, 2, 3, 1]), doc! { "$pull": { "a": 1 } }, bson!([2, 3])),
        (bson!([1, 2, 3]), doc! { "$pop": { "a": 1 } }, bson!([1, 2])),
        (bson!([1, 2, 3]), doc! { "$pop": { "a": -1 } }, bson!([2, 3])),
        (bson!([]), doc! { "$pop": { "a": 1 } }, bson!([])),
        (bson!([]), doc! { "$pop": { "a": -1 } }, bson!([])),
    ] {
        check(doc! { "a": { "$eq": array } }, operators, doc! { "a": expected });
    }
}

#[test]
fn array_operator_on_another_type_has_its_own_error() {
    for (operators, code, message) in [
        (
            doc! { "$push": { "b.c": 1 } },
            2,
            "The field 'b.c' must be an array but is of type string in document {_id: 3}",
        ),
        (
            doc! { "$addToSet": { "b.c": 1 } },
            2,
            "Cannot apply $addToSet to non-array field. Field named 'c' has non-array type string",
        ),
        (
            doc! { "$pop": { "b.c": 1 } },
            14,
            "Path 'b.c' contains an element of non-array type 'string'",
        ),
        (
            doc! { "$pull": { "b.c": 1 } },
            2,
            "Cannot apply $pull to a non-array value",
        ),
        (
            doc! { "$pullAll": { "b.c": [1] } },
            2,
            "Cannot apply $pull to a non-array value",
        ),
    ] {
        check_error(doc! { "_id": 3, "b.c": "x" }, operators, code, message);
    }
}
