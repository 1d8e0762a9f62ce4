//! Options of writes.

use bson::{Bson, Document, bson, doc};
use proto_tests::sides::COLLECTION;

use super::KEPT;
use crate::support_matrix::probe::{Of, uuid};

fn long(id: i32) -> Document {
    doc! { "_id": id, "n": id, "tags": (0..17).collect::<Vec<i32>>() }
}

fn with(mut sent: Document, more: Document) -> Document {
    sent.extend(more);
    sent
}

/// A validator that the documents do not satisfy.
fn validator() -> Document {
    doc! { "collMod": COLLECTION, "validator": { "v": 1 }, "comment": KEPT }
}

fn without_validator() -> Document {
    doc! { "collMod": COLLECTION, "validator": {} }
}

pub(super) fn insert() -> Of {
    let of = |documents: Vec<Document>| doc! { "insert": COLLECTION, "documents": documents };
    Of::new("insert", doc! {})
        .sent("documents", of(vec![long(100)]))
        .wrong("documents", of(vec![long(100), long(2)]))
        .but("documents", of(vec![doc! { "_id": 100, "has_extras": true }]))
        .but(
            "documents",
            of(vec![long(101), doc! { "_id": 100, "has_extras_control": 1 }]),
        )
        .sent(
            "ordered",
            with(of(vec![long(100), long(101)]), doc! { "ordered": false }),
        )
        .wrong(
            "ordered",
            with(of(vec![long(100), long(2), long(101)]), doc! { "ordered": false }),
        )
        .sent(
            "bypassDocumentValidation",
            with(of(vec![long(100)]), doc! { "bypassDocumentValidation": true }),
        )
        .sent("stmtId", with(of(vec![long(100)]), doc! { "stmtId": 3 }))
        .sent("stmtIds", with(of(vec![long(100)]), doc! { "stmtIds": [3] }))
        .sent(
            "collectionUUID",
            with(of(vec![long(100)]), doc! { "collectionUUID": uuid() }),
        )
}

pub(super) fn update() -> Of {
    let of = |statement: Document| doc! { "update": COLLECTION, "updates": [statement] };
    let push = || doc! { "q": { "_id": 2 }, "u": { "$push": { "tags": 7 }, "$inc": { "n": 10 } } };
    let pull = || doc! { "q": { "_id": 2 }, "u": { "$pull": { "tags": 7 } } };
    let both = |more: Document| [push(), pull()].map(|statement| of(with(statement, more.clone())));
    let command = |more: Document| [push(), pull()].map(|statement| with(of(statement), more.clone()));
    let german = doc! { "collation": { "locale": "de", "strength": 1 } };
    let of_many = |filter: Document, change: Bson| of(doc! { "q": filter, "u": change, "multi": true });
    let upserted = |filter: Document, change: Bson| of(doc! { "q": filter, "u": change, "upsert": true });
    let appended = bson!([{ "$set": { "tags": { "$concatArrays": ["$tags", ["$$x"]] } } }]);
    let cased = |change: Document| {
        let filters = if change.contains_key("$set") {
            bson!([{ "t": "W9" }])
        } else {
            bson!([])
        };
        let collation = doc! { "locale": "en", "strength": 2 };
        of(doc! { "q": { "_id": 3 }, "u": change, "collation": collation, "arrayFilters": filters })
    };
    let by_variable = doc! { "q": { "$expr": { "$eq": ["$n", "$$x"] } }, "u": { "$push": { "tags": 1 } } };
    let constant = doc! { "q": { "_id": 2 }, "u": [{ "$set": { "tags": { "$concatArrays": ["$tags", "$$z"] } } }], "c": { "z": [1, 2] } };
    Of::new("update", doc! {})
        .sent("updates", doc! { "update": COLLECTION, "updates": [push(), pull(), { "q": { "n": 5 }, "u": { "$pop": { "tags": 1 } } }] })
        .sent("updates", doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "s": 1 }, "name": "s_1", "unique": true }], "comment": KEPT })
        .wrong("updates", with(of(doc! { "q": { "_id": 2 }, "u": { "$pull": { "tags": 3 }, "$set": { "s": "c" } } }), doc! { "comment": KEPT }))
        .wrong("updates", with(of(doc! { "q": { "_id": 2 }, "u": { "$push": { "tags": 3 }, "$set": { "s": "c" } } }), doc! { "comment": KEPT }))
        .sent("updates", doc! { "dropIndexes": COLLECTION, "index": "s_1" })
        .sent_all("ordered", command(doc! { "ordered": false }))
        .wrong("ordered", doc! { "update": COLLECTION, "ordered": false, "updates": [{ "q": { "_id": 2 }, "u": { "$inc": { "tags.x": 1 } } }, push()] })
        .sent_all("bypassDocumentValidation", command(doc! { "bypassDocumentValidation": true }))
        .sent("bypassDocumentValidation", validator())
        .sent("bypassDocumentValidation", with(of(push()), doc! { "bypassDocumentValidation": true, "comment": KEPT }))
        .sent("bypassDocumentValidation", with(of(pull()), doc! { "bypassDocumentValidation": true, "comment": KEPT }))
        .wrong("bypassDocumentValidation", with(of(doc! { "q": { "_id": 2 }, "u": { "$pop": { "tags": 1 } } }), doc! { "comment": KEPT }))
        .sent("bypassDocumentValidation", without_validator())
        .sent("let", with(of(by_variable), doc! { "let": { "x": 2 } }))
        .sent("let", with(of(doc! { "q": { "_id": 2 }, "u": appended.clone() }), doc! { "let": { "x": 2 } }))
        .sent_all("stmtId", command(doc! { "stmtId": 3 }))
        .sent_all("stmtIds", command(doc! { "stmtIds": [3] }))
        .sent("collectionUUID", with(of(push()), doc! { "collectionUUID": uuid() }))
        .sent("collectionUUID", with(of(doc! { "q": { "_id": 2 }, "u": { "$inc": { "n": 1 } } }), doc! { "collectionUUID": uuid() }))
        .sent("updates.q", of(doc! { "q": { "tags": 19 }, "u": { "$set": { "m": 1 } } }))
        .sent("updates.q", of(doc! { "q": { "tags.x": 11 }, "u": { "$push": { "tags": { "x": 12 } } } }))
        .but("updates.q", of(doc! { "q": { "$where": "true" }, "u": { "$set": { "m": 1 } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 2 }, "u": { "$set": { "m": 1 } } }))
        .but("updates.u", of(doc! { "q": { "_id": 2 }, "u": { "$set": { "has_extras": true } } }))
        .but("updates.u", of(doc! { "q": { "_id": 2 }, "u": { "$unset": { "has_extras_control.tail": 1 } } }))
        .sent("updates.multi", of_many(doc! { "_id": { "$lt": 7 } }, bson!({ "$push": { "tags": 1 } })))
        .sent("updates.multi", of_many(doc! { "_id": { "$lt": 7 } }, bson!({ "$pull": { "tags": { "$gt": 1 } } })))
        .sent("updates.multi", of_many(doc! { "tags": 19 }, bson!([{ "$set": { "m": "$tags" } }])))
        .sent("updates.upsert", upserted(doc! { "_id": 2 }, bson!({ "$push": { "tags": 1 } })))
        .sent("updates.upsert", upserted(doc! { "_id": 100 }, bson!({ "$push": { "tags": { "$each": (0..9).collect::<Vec<i32>>() } } })))
        .sent("updates.upsert", upserted(doc! { "_id": 100 }, bson!({ "$setOnInsert": { "tags": (0..9).collect::<Vec<i32>>() } })))
        .sent("updates.upsert", upserted(doc! { "_id": 100, "tags": (0..9).collect::<Vec<i32>>() }, bson!({ "$set": { "n": 1 } })))
        .sent("updates.upsert", upserted(doc! { "_id": 100 }, bson!({ "tags": (0..9).collect::<Vec<i32>>() })))
        .but("updates.upsert", upserted(doc! { "_id": 100, "has_extras": true }, bson!({ "$set": { "n": 1 } })))
        .sent_all("updates.collation", both(german))
        .sent("updates.collation", cased(doc! { "$pull": { "tags": "W9" } }))
        .sent("updates.collation", cased(doc! { "$addToSet": { "tags": "W9" } }))
        .sent("updates.collation", cased(doc! { "$set": { "tags.$[t]": 1 } }))
        .sent("updates.collation", of(doc! { "q": { "_id": 3, "tags": "W9" }, "u": { "$set": { "tags.$": 1 } }, "collation": { "locale": "en", "strength": 2 } }))
        .sent("updates.arrayFilters", of(doc! { "q": { "_id": 2 }, "u": { "$set": { "tags.$[t]": -1 } }, "arrayFilters": [{ "t": { "$gt": 17 } }] }))
        .wrong_on_some("updates.sort", of(with(pull(), doc! { "sort": { "n": -1 } })))
        .wrong_on_some("updates.sort", of(with(push(), doc! { "sort": { "n": -1 } })))
        .sent_all("updates.hint", both(doc! { "hint": "_id_" }))
        .sent("updates.hint", of(doc! { "q": { "tags": 19, "n": 2 }, "u": { "$push": { "tags": 7 } }, "hint": "n_1" }))
        .wrong_loosely("updates.hint", of(with(pull(), doc! { "hint": "none" })))
        .wrong_loosely("updates.hint", of(with(push(), doc! { "hint": "none" })))
        .sent("updates.c", of(constant))
}

pub(super) fn delete() -> Of {
    let of = |statement: Document| doc! { "delete": COLLECTION, "deletes": [statement] };
    let command = |more: Document| with(of(doc! { "q": { "_id": 2 }, "limit": 1 }), more);
    let by_tag = |more: Document| of(with(doc! { "q": { "tags": 19, "n": 2 }, "limit": 1 }, more));
    Of::new("delete", doc! {})
        .sent("deletes", doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 2 }, "limit": 1 }, { "q": { "n": 5 }, "limit": 1 }] })
        .sent("ordered", command(doc! { "ordered": false }))
        .sent("let", doc! { "delete": COLLECTION, "let": { "x": 3 }, "deletes": [{ "q": { "$expr": { "$eq": ["$n", "$$x"] } }, "limit": 1 }] })
        .sent("bypassDocumentValidation", command(doc! { "bypassDocumentValidation": true }))
        .sent("stmtId", command(doc! { "stmtId": 3 }))
        .sent("stmtIds", command(doc! { "stmtIds": [3] }))
        .sent("collectionUUID", command(doc! { "collectionUUID": uuid() }))
        .sent("deletes.q", of(doc! { "q": { "tags.x": 11 }, "limit": 1 }))
        .but("deletes.q", of(doc! { "q": { "$where": "true" }, "limit": 1 }))
        .sent("deletes.limit", of(doc! { "q": { "tags": { "$in": [0, "w9"] } }, "limit": 0 }))
        .sent("deletes.limit", of(doc! { "q": { "n": { "$gt": 1 } }, "limit": 0 }))
        .wrong_loosely("deletes.limit", of(doc! { "q": { "_id": 2 }, "limit": 2 }))
        .sent("deletes.collation", of(doc! { "q": { "tags": "W9" }, "limit": 1, "collation": { "locale": "en", "strength": 2 } }))
        .sent("deletes.hint", by_tag(doc! { "hint": "n_1" }))
        .wrong_loosely("deletes.hint", by_tag(doc! { "hint": "none" }))
}

pub(super) fn find_and_modify() -> Of {
    let and = |more: Document| {
        with(
            doc! { "findAndModify": COLLECTION, "query": { "_id": 2 }, "update": { "$push": { "tags": 7 } } },
            more,
        )
    };
    let pull = |more: Document| and(with(doc! { "update": { "$pull": { "tags": { "$gt": 15 } } } }, more));
    Of::new("findAndModify", doc! {})
        .sent("query", and(doc! { "query": { "tags": 19, "n": 2 } }))
        .but("query", and(doc! { "query": { "$where": "true" } }))
        .sent("update", and(doc! {}))
        .sent("update", pull(doc! {}))
        .sent("update", and(doc! { "update": [{ "$set": { "m": { "$size": "$tags" } } }] }))
        .but("update", and(doc! { "update": { "$set": { "has_extras": 1 } } }))
        .sent("remove", doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "remove": true })
        .sent("new", and(doc! { "new": true }))
        .sent("new", pull(doc! { "new": true }))
        .sent("upsert", and(doc! { "query": { "_id": 100 }, "update": { "$set": { "tags": (0..9).collect::<Vec<i32>>() } }, "upsert": true, "new": true }))
        .but("upsert", and(doc! { "query": { "_id": 100, "has_extras": true }, "update": { "$set": { "n": 1 } }, "upsert": true, "new": true }))
        .sent("fields", and(doc! { "fields": { "n": 1 } }))
        .sent("fields", and(doc! { "fields": { "tags": { "$slice": -3 } }, "new": true }))
        .sent("fields", and(doc! { "query": { "tags": 19, "n": 2 }, "fields": { "tags.$": 1 } }))
        .sent("sort", and(doc! { "query": { "n": { "$lt": 4 } }, "sort": { "n": -1 } }))
        .sent("sort", and(doc! { "query": { "_id": { "$lt": 6 } }, "sort": { "tags.x": -1 } }))
        .sent("collation", and(doc! { "query": { "_id": 3 }, "update": { "$pull": { "tags": "W9" } }, "collation": { "locale": "en", "strength": 2 }, "new": true }))
        .sent("collation", and(doc! { "query": { "tags": "W9" }, "collation": { "locale": "en", "strength": 2 } }))
        .sent("arrayFilters", and(doc! { "update": { "$set": { "tags.$[t]": -1 } }, "arrayFilters": [{ "t": { "$gt": 17 } }], "new": true }))
        .sent("hint", and(doc! { "hint": "_id_" }))
        .wrong_loosely("hint", and(doc! { "hint": "none" }))
        .sent("bypassDocumentValidation", validator())
        .sent("bypassDocumentValidation", pull(doc! { "bypassDocumentValidation": true, "new": true, "comment": KEPT }))
        .sent("bypassDocumentValidation", and(doc! { "bypassDocumentValidation": true, "new": true, "comment": KEPT }))
        .wrong("bypassDocumentValidation", and(doc! { "comment": KEPT }))
        .wrong("bypassDocumentValidation", and(doc! { "update": { "$pop": { "tags": 1 } }, "comment": KEPT }))
        .sent("bypassDocumentValidation", without_validator())
        .sent("let", and(doc! { "let": { "x": 2 }, "query": { "$expr": { "$eq": ["$n", "$$x"] } } }))
        .sent("let", and(doc! { "let": { "x": 2 }, "update": [{ "$set": { "tags": { "$concatArrays": ["$tags", ["$$x"]] } } }], "new": true }))
        .sent("stmtId", and(doc! { "stmtId": 3 }))
        .wrong("collectionUUID", and(doc! { "collectionUUID": uuid() }))
}
