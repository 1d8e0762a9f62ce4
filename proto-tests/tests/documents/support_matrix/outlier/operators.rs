//! Update operators on the array.

use bson::{Bson, Document, bson, doc};
use proto_tests::sides::COLLECTION;

use super::KEPT;
use crate::support_matrix::probe::Of;

/// Of outliers: numbers, and documents.
const NUMBERS: i32 = 2;
const DOCUMENTS: i32 = 5;

fn on(id: i32, change: Bson) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id }, "u": change }] }
}

fn numbers(change: Document) -> Document {
    on(NUMBERS, change.into())
}

pub(super) fn operators() -> Of {
    let documents = |change: Document| on(DOCUMENTS, change.into());
    let push = |modifiers: Document| numbers(doc! { "$push": { "tags": modifiers } });
    let many: Vec<i32> = (100..140).collect();
    Of::new("operators", doc! {})
        .sent("$push", numbers(doc! { "$push": { "tags": 20 } }))
        .sent("$push", on(1, bson!({ "$push": { "tags": 3 } })))
        .sent("$push", on(4, bson!({ "$push": { "tags": 3 } })))
        .sent("$each", push(doc! { "$each": [20, 21, 22] }))
        .sent("$each", push(doc! { "$each": many.clone() }))
        .sent("$each", push(doc! { "$each": [] }))
        .sent("$each", on(1, bson!({ "$push": { "tags": { "$each": many.clone() } } })))
        .sent("$position", push(doc! { "$each": [-1, -2], "$position": 0 }))
        .sent("$position", push(doc! { "$each": [-1, -2], "$position": 8 }))
        .sent("$position", push(doc! { "$each": [-1, -2], "$position": -2 }))
        .sent("$slice", push(doc! { "$each": [20], "$slice": -8 }))
        .sent("$slice", push(doc! { "$each": [20], "$slice": 8 }))
        .sent("$slice", push(doc! { "$each": [], "$slice": 3 }))
        .sent("$slice", push(doc! { "$each": [], "$slice": 0 }))
        .sent("$sort", push(doc! { "$each": [7], "$sort": -1 }))
        .sent("$sort", documents(doc! { "$push": { "tags": { "$each": [{ "x": 1, "y": 9 }], "$sort": { "y": -1, "x": 1 }, "$slice": 9 } } }))
        .sent("$addToSet", numbers(doc! { "$addToSet": { "tags": 19 } }))
        .sent("$addToSet", numbers(doc! { "$addToSet": { "tags": 20 } }))
        .sent("$addToSet", numbers(doc! { "$addToSet": { "tags": { "$each": [19, 20, 20, 21] } } }))
        .sent("$pull", numbers(doc! { "$pull": { "tags": 19 } }))
        .sent("$pull", numbers(doc! { "$pull": { "tags": { "$gt": 2 } } }))
        .sent("$pull", documents(doc! { "$pull": { "tags": { "y": 1 } } }))
        .sent("$pullAll", numbers(doc! { "$pullAll": { "tags": [0, 6, 19] } }))
        .sent("$pop", numbers(doc! { "$pop": { "tags": 1 } }))
        .sent("$pop", numbers(doc! { "$pop": { "tags": -1 } }))
        .sent("$set", numbers(doc! { "$set": { "tags": many.clone() } }))
        .sent("$set", numbers(doc! { "$set": { "tags": [1] } }))
        .sent("$set", numbers(doc! { "$set": { "tags": "none" } }))
        .sent("$set", on(1, bson!({ "$set": { "tags": many } })))
        .sent("$unset", numbers(doc! { "$unset": { "tags": 1 } }))
}

/// Operators on what is in the array, and changes of whole documents.
pub(super) fn others() -> Of {
    let documents = |change: Document| on(DOCUMENTS, change.into());
    let matching =
        |filter: Document, change: Document| doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] };
    let filtered = |change: Document, filter: Document| {
        let statement = doc! { "q": { "_id": DOCUMENTS }, "u": change, "arrayFilters": [filter] };
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    Of::new("operators", doc! {})
        .sent("indexed", numbers(doc! { "$set": { "tags.3": -1 } }))
        .sent("indexed", numbers(doc! { "$set": { "tags.15": -1 } }))
        .sent("indexed", numbers(doc! { "$set": { "tags.30": -1 } }))
        .sent("indexed", on(1, bson!({ "$set": { "tags.9": -1 } })))
        .sent("indexed", documents(doc! { "$inc": { "tags.11.x": 5 } }))
        .sent("indexed", numbers(doc! { "$unset": { "tags.15": 1 } }))
        .sent("positional", matching(doc! { "_id": NUMBERS, "tags": 19 }, doc! { "$set": { "tags.$": -1 } }))
        .sent("positional", matching(doc! { "tags": { "$elemMatch": { "x": 11 } } }, doc! { "$inc": { "tags.$.x": 5 } }))
        .sent("positional", numbers(doc! { "$inc": { "tags.$[]": 1 } }))
        .sent("array filters", filtered(doc! { "$set": { "tags.$[t].z": 1 } }, doc! { "t.y": 2 }))
        .sent("array filters", filtered(doc! { "$unset": { "tags.$[t]": 1 } }, doc! { "t.x": { "$gt": 3 } }))
        .sent("$inc", numbers(doc! { "$inc": { "tags.17": 1 } }))
        .sent("$mul", numbers(doc! { "$mul": { "tags.17": 2 } }))
        .sent("$min", numbers(doc! { "$min": { "tags.17": 2 } }))
        .sent("$max", numbers(doc! { "$max": { "tags.17": 200 } }))
        .sent("$bit", numbers(doc! { "$bit": { "tags.17": { "or": 64 } } }))
        .sent("$currentDate", with_comment(numbers(doc! { "$currentDate": { "tags.17": true } })))
        .sent("$currentDate", numbers(doc! { "$set": { "tags.17": 1 } }))
        .sent("$rename", numbers(doc! { "$rename": { "tags": "marks" } }))
        .sent("$rename", on(DOCUMENTS, bson!({ "$rename": { "s": "tags" } })))
        .but("$rename", numbers(doc! { "$rename": { "s": "has_extras" } }))
        .sent("$setOnInsert", doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 99 }, "u": { "$setOnInsert": { "tags": [1, 2, 3, 4, 5, 6] } }, "upsert": true }] })
        .wrong("together", numbers(doc! { "$push": { "tags": 20 }, "$pull": { "tags": 3 } }))
        .sent("together", numbers(doc! { "$push": { "tags": 20 }, "$set": { "s": "z" }, "$inc": { "n": 1 } }))
        .sent("replacement", numbers(doc! { "n": 1, "tags": (0..9).collect::<Vec<i32>>() }))
        .sent("replacement", numbers(doc! { "n": 1 }))
        .but("replacement", numbers(doc! { "n": 1, "has_extras": false }))
        .sent("pipeline", on(NUMBERS, bson!([{ "$set": { "tags": { "$reverseArray": "$tags" } } }])))
        .sent("pipeline", on(NUMBERS, bson!([{ "$set": { "last": { "$last": "$tags" } } }, { "$unset": "tags" }])))
        .sent("pipeline", on(NUMBERS, bson!([{ "$replaceWith": { "tags": { "$slice": ["$tags", 3, 9] } } }])))
        .sent("pipeline", on(NUMBERS, bson!([{ "$set": { "m": "$$ROOT" } }])))
        .but("pipeline", on(NUMBERS, bson!([{ "$set": { "m": "$has_extras" } }])))
}

/// Times are not the same on both sides until the next one sets them.
fn with_comment(mut sent: Document) -> Document {
    sent.insert("comment", KEPT);
    sent
}
