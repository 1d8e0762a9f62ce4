//! Commands within a transaction.

use bson::{Document, doc};
use proto_tests::sides::COLLECTION;

use crate::support_matrix::probe::Of;

pub(super) fn transactions() -> Of {
    let change = |change: Document| doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 2 }, "u": change }] };
    let by_tag = doc! { "tags": 19 };
    let long: Vec<i32> = (0..9).collect();
    let commands = [
        (
            "insert",
            doc! { "insert": COLLECTION, "documents": [{ "_id": 100, "tags": long }] },
        ),
        ("update", change(doc! { "$push": { "tags": 20 } })),
        ("update", change(doc! { "$pull": { "tags": 3 } })),
        (
            "delete",
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 2 }, "limit": 1 }] },
        ),
        (
            "findAndModify",
            doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "update": { "$pop": { "tags": 1 } }, "new": true },
        ),
        (
            "find",
            doc! { "find": COLLECTION, "filter": by_tag.clone(), "sort": { "_id": 1 } },
        ),
        (
            "distinct",
            doc! { "distinct": COLLECTION, "key": "tags.x", "query": { "n": 5 } },
        ),
        (
            "aggregate",
            doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": by_tag }, { "$sort": { "_id": 1 } }], "cursor": {} },
        ),
    ];
    (100_i64..)
        .zip(commands)
        .fold(Of::new("transactions", doc! {}), |of, (number, (option, command))| {
            let within = |mut sent: Document, more: Document| {
                sent.extend(doc! { "lsid": {}, "txnNumber": number, "autocommit": false });
                sent.extend(more);
                sent
            };
            let find = doc! { "find": COLLECTION, "sort": { "_id": 1 } };
            let end = doc! { "commitTransaction": 1, "$db": "admin" };
            of.sent(option, within(find.clone(), doc! { "startTransaction": true }))
                .sent(option, within(command, doc! {}))
                .sent(option, within(find, doc! {}))
                .sent(option, within(end, doc! {}))
        })
}
