//! Writes of items.

use bson::{DateTime, Document, doc};
use proto_tests::sides::COLLECTION;

use super::item;
use crate::support_matrix::probe::{Compared, Of, uuid};

pub(super) fn insert() -> Of {
    let of = |id: i32| doc! { "insert": COLLECTION, "documents": [item(id, 1)] };
    let and = |mut sent: Document, more: Document| {
        sent.extend(more);
        sent
    };
    Of::new("insert", doc! {})
        .sent("documents", of(200))
        .compared_by("documents", of(200), Compared::WholeIfUnique)
        .sent(
            "ordered",
            doc! { "insert": COLLECTION, "ordered": false, "documents": [item(207, 0), item(208, 0)] },
        )
        .compared_by(
            "ordered",
            doc! { "insert": COLLECTION, "ordered": false, "documents": [item(201, 0), item(201, 0), item(202, 0)] },
            Compared::WholeIfUnique,
        )
        .sent(
            "bypassDocumentValidation",
            and(of(203), doc! { "bypassDocumentValidation": true }),
        )
        .sent("stmtId", and(of(204), doc! { "stmtId": 3 }))
        .sent("stmtIds", and(of(205), doc! { "stmtIds": [3] }))
        .sent("collectionUUID", and(of(206), doc! { "collectionUUID": uuid() }))
}

pub(super) fn update() -> Of {
    let of = |statement: Document| doc! { "update": COLLECTION, "updates": [statement] };
    let plain = || doc! { "q": { "_id": 3 }, "u": { "$inc": { "n": 1 } } };
    let and = |more: Document| {
        let mut statement = plain();
        statement.extend(more);
        of(statement)
    };
    let command = |more: Document| {
        let mut sent = of(plain());
        sent.extend(more);
        sent
    };
    Of::new("update", doc! {})
        .sent("updates", of(plain()))
        .sent("ordered", command(doc! { "ordered": false }))
        .sent("bypassDocumentValidation", command(doc! { "bypassDocumentValidation": true }))
        .sent("let", doc! { "update": COLLECTION, "let": { "x": 3 }, "updates": [{ "q": { "$expr": { "$eq": ["$q", "$$x"] } }, "u": { "$inc": { "n": 1 } } }] })
        .sent("stmtId", command(doc! { "stmtId": 3 }))
        .sent("stmtIds", command(doc! { "stmtIds": [3] }))
        .sent("collectionUUID", command(doc! { "collectionUUID": uuid() }))
        .sent("updates.q", of(doc! { "q": { "q": 4 }, "u": { "$set": { "n": 7 } } }))
        .sent("updates.q", of(doc! { "q": { "q": { "$gte": 4 } }, "u": { "$set": { "n": 7 } } , "multi": true }))
        .sent("updates.u", of(doc! { "q": { "_id": 4 }, "u": [{ "$set": { "n": { "$add": ["$q", 1] } } }] }))
        .sent("updates.u", of(doc! { "q": { "_id": 5 }, "u": { "$rename": { "n": "m" } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 5 }, "u": { "$set": { "k": 7 } } }))
        .but("updates.u", of(doc! { "q": { "_id": 6, "a": { "$ne": 70 } }, "u": { "$set": { "a.$": 70 } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 6 }, "u": { "$set": { "_id": 70 } } }))
        .sent("updates.u", of(doc! { "q": { "_id": 6 }, "u": { "_id": 6, "k": 0, "at": DateTime::from_millis(6000), "q": 6, "new": 1 } }))
        .sent("updates.multi", of(doc! { "q": { "k": 1 }, "u": { "$set": { "all": 1 } }, "multi": true }))
        .sent("updates.upsert", of(doc! { "q": { "_id": 300 }, "u": { "$set": { "k": 1, "at": DateTime::from_millis(300_000), "q": 300 } }, "upsert": true }))
        .sent("updates.collation", and(doc! { "collation": { "locale": "de" } }))
        .sent("updates.arrayFilters", of(doc! { "q": { "_id": 3 }, "u": { "$set": { "a.$[x]": 9 } }, "arrayFilters": [{ "x": 3 }] }))
        .wrong_on_some("updates.sort", and(doc! { "sort": { "q": -1 } }))
        .sent("updates.hint", and(doc! { "hint": "_id_" }))
        .loosely("updates.hint", and(doc! { "hint": "none" }))
        .but("updates.hint", of(doc! { "q": { "q": -1 }, "u": { "$inc": { "n": 1 } }, "hint": { "$natural": -1 } }))
        .sent("updates.c", of(doc! { "q": { "_id": 4 }, "u": [{ "$set": { "n": "$$z" } }], "c": { "z": 3 } }))
}

pub(super) fn delete() -> Of {
    let of = |statement: Document| doc! { "delete": COLLECTION, "deletes": [statement] };
    let command = |q: i32, more: Document| {
        let mut sent = of(doc! { "q": { "_id": q }, "limit": 1 });
        sent.extend(more);
        sent
    };
    Of::new("delete", doc! {})
        .sent("deletes", command(11, doc! {}))
        .sent("ordered", command(12, doc! { "ordered": false }))
        .sent("let", doc! { "delete": COLLECTION, "let": { "x": 13 }, "deletes": [{ "q": { "$expr": { "$eq": ["$q", "$$x"] } }, "limit": 1 }] })
        .sent("bypassDocumentValidation", command(20, doc! { "bypassDocumentValidation": true }))
        .sent("stmtId", command(14, doc! { "stmtId": 3 }))
        .sent("stmtIds", command(15, doc! { "stmtIds": [3] }))
        .sent("collectionUUID", command(16, doc! { "collectionUUID": uuid() }))
        .sent("deletes.q", of(doc! { "q": { "q": 17 }, "limit": 1 }))
        .sent("deletes.limit", of(doc! { "q": { "q": { "$gte": 22 , "$lte": 23 } }, "limit": 0 }))
        .loosely("deletes.limit", of(doc! { "q": { "q": 24 }, "limit": 2 }))
        .sent("deletes.collation", of(doc! { "q": { "q": 18 }, "limit": 1, "collation": { "locale": "de" } }))
        .sent("deletes.hint", of(doc! { "q": { "q": 19 }, "limit": 1, "hint": "q_1" }))
        .loosely("deletes.hint", of(doc! { "q": { "q": 19 }, "limit": 1, "hint": "none" }))
        .but("deletes.hint", of(doc! { "q": { "q": 19 }, "limit": 1, "hint": { "$natural": -1 } }))
        .but("deletes.q", of(doc! { "q": { "$text": { "$search": "x" } }, "limit": 1 }))
}

pub(super) fn find_and_modify() -> Of {
    let update = doc! { "update": { "$inc": { "n": 1 } } };
    let and = |more: Document| {
        let mut sent = doc! { "findAndModify": COLLECTION, "query": { "_id": 1 } };
        sent.extend(update.clone());
        sent.extend(more);
        sent
    };
    Of::new("findAndModify", doc! {})
        .sent("query", and(doc! {}))
        .sent("query", and(doc! { "query": { "q": 2 } }))
        .sent("update", and(doc! { "update": [{ "$set": { "n": 5 } }] }))
        .sent("update", and(doc! { "update": { "$set": { "k": 5 } } }))
        .sent("remove", doc! { "findAndModify": COLLECTION, "query": { "q": 20 }, "remove": true })
        .sent("new", and(doc! { "new": true }))
        .sent("upsert", and(doc! { "query": { "_id": 301 }, "update": { "$set": { "k": 1, "at": DateTime::from_millis(301_000), "q": 301 } }, "upsert": true, "new": true }))
        .sent("fields", and(doc! { "fields": { "q": 1 } }))
        .but("fields", and(doc! { "query": { "_id": -1, "a": 1 }, "fields": { "a.$": 1 } }))
        .sent("sort", and(doc! { "query": { "k": 0 }, "sort": { "q": -1 } }))
        .sent("collation", and(doc! { "collation": { "locale": "de" } }))
        .sent("arrayFilters", and(doc! { "update": { "$set": { "a.$[x]": 9 } }, "arrayFilters": [{ "x": 1 }] }))
        .sent("arrayFilters", doc! { "findAndModify": COLLECTION, "query": { "q": 21 }, "remove": true, "arrayFilters": [{ "x": 1 }] })
        .sent("hint", and(doc! { "hint": "_id_" }))
        .loosely("hint", and(doc! { "hint": "none" }))
        .but("hint", and(doc! { "query": { "q": -1 }, "hint": { "$natural": -1 } }))
        .sent("hint", doc! { "findAndModify": COLLECTION, "query": { "q": 21 }, "remove": true, "hint": 7 })
        .sent("bypassDocumentValidation", and(doc! { "bypassDocumentValidation": true }))
        .sent("let", and(doc! { "let": { "x": 2 }, "query": { "$expr": { "$eq": ["$q", "$$x"] } } }))
        .sent("let", doc! { "findAndModify": COLLECTION, "let": { "x": 21 }, "query": { "$expr": { "$eq": ["$q", "$$x"] } }, "remove": true })
        .sent("stmtId", and(doc! { "stmtId": 3 }))
        .sent("collectionUUID", and(doc! { "collectionUUID": uuid() }))
}
