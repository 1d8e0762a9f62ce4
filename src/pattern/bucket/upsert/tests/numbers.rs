//! Operators on numbers.

use super::*;

#[test]
fn doubles_are_added_and_multiplied() {
    for (operators, expected) in [
        (doc! { "$inc": { "a": 2 } }, 3.5),
        (doc! { "$inc": { "a": -0.25 } }, 1.25),
        (doc! { "$mul": { "a": 3 } }, 4.5),
        (doc! { "$mul": { "a": 0.5 } }, 0.75),
    ] {
        check(doc! { "a": 1.5 }, operators, doc! { "a": expected });
    }
    check(doc! { "a": 2 }, doc! { "$mul": { "a": 1.5 } }, doc! { "a": 3.0 });
}

#[test]
fn bit_on_a_non_integer_has_mongods_error() {
    check_error(
        doc! { "_id": 3, "a.b": 1.5 },
        doc! { "$bit": { "a.b": { "or": 1 } } },
        2,
        "Cannot apply $bit to a value of non-integral type._id: 3 has the field b of non-integer type double",
    );
    check_error(
        doc! { "a": "x" },
        doc! { "$bit": { "a": { "or": 1 } } },
        2,
        "Cannot apply $bit to a value of non-integral type.INVALID-MUTABLE-ELEMENT has the field a of non-integer \
         type string",
    );
}
