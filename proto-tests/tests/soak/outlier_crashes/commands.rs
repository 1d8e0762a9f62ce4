//! The client commands.

use bson::{Bson, Document, doc};
use proto_tests::books::{BUYERS, COLLECTION};

/// Buyers of these numbers.
pub(crate) fn buyers(numbers: std::ops::Range<i32>) -> Vec<String> {
    numbers.map(|number| format!("user{number:02}")).collect()
}

/// The books of one run: a full one, an outlier, and a typical one. A base document holds five buyers, and a
/// page four.
pub(crate) fn books(base: i64) -> Vec<Document> {
    let book = |number: i64, title: &str, count: i32| {
        doc! { "_id": base + number, "title": title, "run": base, BUYERS: buyers(0..count) }
    };
    vec![book(0, "full", 5), book(1, "outlier", 12), book(2, "typical", 2)]
}

/// Every third of the commands, from this one on.
pub(crate) fn third<const FIRST: usize>(base: i64) -> Vec<Document> {
    commands(base).into_iter().skip(FIRST).step_by(3).collect()
}

#[expect(clippy::too_many_lines, reason = "a list")]
/// Each does what must not be done twice, or what shows whether it was.
pub(crate) fn commands(base: i64) -> Vec<Document> {
    let update = |filter: Document, change: Bson, upsert: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": upsert }] }
    };
    let change = |filter: Document, change: Document| update(filter, change.into(), false);
    let modify = |fields: Document| {
        let mut command = doc! { "findAndModify": COLLECTION };
        command.extend(fields);
        command
    };
    let delete = |filter: Document| doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 1 }] };
    let (full, outlier, typical) = (doc! { "_id": base }, doc! { "_id": base + 1 }, doc! { "_id": base + 2 });
    let by_title = doc! { "run": base, "title": "outlier" };
    let by_buyer = doc! { "run": base, BUYERS: "user11" };
    let one = doc! { "$push": { BUYERS: "new" }, "$inc": { "n": 1 } };
    let some = |count: i32| doc! { "$push": { BUYERS: { "$each": buyers(20..20 + count) } }, "$inc": { "n": 1 } };
    let added = doc! { "$addToSet": { BUYERS: { "$each": buyers(2..14) } }, "$inc": { "n": 1 } };
    let first = doc! { "$push": { BUYERS: { "$each": ["new"], "$position": 0 } } };
    let pull = doc! { "$pull": { BUYERS: { "$in": ["user03", "user07"] } }, "$inc": { "n": 1 } };
    let whole = |count: i32| doc! { "title": "another", "run": base, BUYERS: buyers(0..count) };
    let stages = vec![doc! { "$set": { BUYERS: { "$concatArrays": [format!("${BUYERS}"), ["new"]] } } }];
    let mut inserted = whole(14);
    inserted.insert("_id", base + 9);
    let small = doc! { "_id": base + 10, "run": base, BUYERS: ["user00"] };
    let pushes = vec![
        doc! { "q": &typical, "u": &one },
        doc! { "q": &full, "u": &one },
        doc! { "q": &outlier, "u": &one },
    ];
    vec![
        doc! { "insert": COLLECTION, "documents": [&inserted, small] },
        doc! { "insert": COLLECTION, "documents": [&inserted], "ordered": false },
        change(full.clone(), one.clone()),
        change(full.clone(), some(3)),
        change(full.clone(), some(9)),
        change(typical.clone(), some(5)),
        change(outlier.clone(), one.clone()),
        change(outlier.clone(), some(7)),
        change(by_title.clone(), one.clone()),
        change(by_buyer.clone(), one.clone()),
        change(outlier.clone(), first),
        change(
            full.clone(),
            doc! { "$push": { BUYERS: { "$each": buyers(20..23), "$slice": -7 } } },
        ),
        change(outlier.clone(), pull.clone()),
        change(
            outlier.clone(),
            doc! { "$addToSet": { BUYERS: "new" }, "$inc": { "n": 1 } },
        ),
        change(full.clone(), added.clone()),
        change(outlier.clone(), added),
        change(outlier.clone(), doc! { "$pop": { BUYERS: 1 } }),
        change(
            outlier.clone(),
            doc! { "$set": { format!("{BUYERS}.7"): "changed" }, "$inc": { "n": 1 } },
        ),
        change(
            outlier.clone(),
            doc! { "$set": { BUYERS: buyers(30..44) }, "$inc": { "n": 1 } },
        ),
        change(outlier.clone(), doc! { "$unset": { BUYERS: 1 } }),
        change(typical.clone(), whole(14)),
        change(outlier.clone(), whole(14)),
        change(outlier.clone(), whole(3)),
        update(outlier.clone(), stages.into(), false),
        update(doc! { "_id": base + 20 }, whole(14).into(), true),
        update(doc! { "_id": base + 20 }, doc! { "$set": whole(14) }.into(), true),
        doc! { "update": COLLECTION, "updates": pushes },
        modify(doc! { "query": &full, "update": &one }),
        modify(doc! { "query": &outlier, "update": &one }),
        modify(doc! { "query": by_title, "update": &pull, "new": true }),
        modify(doc! { "query": &outlier, "update": whole(3) }),
        modify(doc! { "query": &outlier, "remove": true }),
        modify(doc! { "query": &by_buyer, "remove": true }),
        delete(outlier),
        delete(by_buyer),
        delete(typical),
    ]
}
