//! The positional operator: the element that matched the filter.

use anyhow::{Context as _, Result, ensure};
use bson::raw::cstr;
use bson::{Bson, Document, Regex, doc};
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{ItemIds, Proxy, ProxyOptions, database_name, mongod};

use crate::updates::sides::{self, ALL_IDS, COLLECTION, at, update};

#[test]
fn positional_operator_changes_the_element_matched_by_the_filter() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let statements = [
            doc! { "q": { "u": 3, "lines.a": 7 }, "u": { "$set": { "lines.$.b": 20 } } },
            doc! { "q": { "u": 3, "lines.a": 3 }, "u": { "$set": { "lines.$.b": 21, "n": 5 }, "$inc": { "lines.$.a": 1 } } },
            doc! { "q": { "u": 4, "tags": "x" }, "u": { "$set": { "tags.$": "y" } } },
            doc! { "q": { "u": 4, "tags": { "$gte": 5 } }, "u": { "$unset": { "tags.$": 1 } } },
            doc! { "q": { "u": 5, "lines": { "$elemMatch": { "a": 7, "b": 2 } } }, "u": { "$set": { "lines.$": { "c": 1 } } } },
            doc! { "q": { "k": 1, "lines.a": 7 }, "u": { "$inc": { "lines.$.b": 1 } }, "multi": true },
            doc! { "q": { "u": 11 }, "u": { "$unset": { "lines.0.b": 1 } } },
            doc! { "q": { "u": 11, "lines.b": { "$exists": true } }, "u": { "$set": { "lines.$.b": 22 } } },
            doc! { "q": { "u": 12 }, "u": { "$set": { "lines.0.t": [], "lines.1.t": [1] } } },
            doc! { "q": { "u": 12, "lines.t": { "$exists": true } }, "u": { "$set": { "lines.$.b": 23 } } },
            doc! { "q": { "u": 12, "lines.c": { "$exists": 1 } }, "u": { "$set": { "lines.$.b": 24 } } },
            doc! { "q": { "u": 6 }, "u": { "$set": { "lines.$.b": 1 } } },
            // Of two mistakes the one that comes first in the order of paths.
            doc! { "q": { "u": 6 }, "u": { "$pop": { "lines.$": 1, "inner.other": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$pop": { "lines.$": 1, "name": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$pop": { "lines.$": 1, "k.a": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$set": { "lines.$": 1, "k": 5 } } },
            doc! { "q": { "u": 6 }, "u": { "$setOnInsert": { "lines.$": 1 } } },
            doc! { "q": { "u": 6 }, "u": { "$setOnInsert": { "lines.$": 1 } }, "multi": true },
            doc! { "q": { "u": 7, "lines.a": 700 }, "u": { "$set": { "lines.$.b": 1 } } },
            doc! { "q": { "u": 8, "name": "NAME 8", "tags": "X" }, "u": { "$set": { "tags.$": 1 } },
            "collation": { "locale": "en", "strength": 2 } },
        ];
        for statement in statements {
            let update = doc! { "update": COLLECTION, "updates": [&statement] };
            sides.alike(&update).with_context(|| format!("{ids:?}"))?;
            sides.check().with_context(|| format!("{ids:?}, after {statement}"))?;
        }
        if ids == ItemIds::Unique {
            let by_id = doc! { "update": COLLECTION, "updates": [
                { "q": { "_id": 9, "lines.a": 7 }, "u": { "$set": { "lines.$.b": 20 } } },
            ] };
            sides.alike(&by_id)?;
            let found = doc! { "findAndModify": COLLECTION, "query": { "u": 10, "tags": 10 }, "update": { "$set": { "tags.$": 0 } },
            "new": true };
            sides.alike(&found)?;
            sides.check()?;
        }
    }
    Ok(())
}

/// Changes that mongod makes to the first element that matches, by filters on the item of this number.
fn determined(n: i32) -> Vec<Document> {
    let pattern = Bson::RegularExpression(Regex {
        pattern: cstr!("^x").into(),
        options: cstr!("").into(),
    });
    let of_tags = [
        doc! { "tags": n + 1 },
        doc! { "tags": { "$eq": "x" } },
        doc! { "tags": { "$gt": n } },
        doc! { "tags": { "$in": ["x", n + 1, Bson::Null] } },
        doc! { "tags": { "$in": [&pattern, 900] } },
        doc! { "tags": &pattern },
        doc! { "tags": { "$regex": "^X", "$options": "i" } },
        doc! { "tags": { "$type": "string" } },
        doc! { "tags": { "$type": 2 } },
        doc! { "tags": { "$mod": [2, 1] } },
        doc! { "tags": { "$bitsAllClear": 1 } },
        doc! { "tags": { "$elemMatch": { "$gt": n, "$lt": n + 9 } } },
        doc! { "$and": [{ "tags": "x" }, { "inner.deep.er": { "$gte": n, "$ne": 900 } }] },
        // These match no element.
        doc! { "inner.deep.er": n },
        doc! { "tags": { "$gt": 900 } },
    ];
    let of_lines = [
        doc! { "lines.a": 7 },
        doc! { "lines.b": { "$in": [2, 3] } },
        doc! { "lines.c": Bson::Null },
        doc! { "lines": { "$elemMatch": { "a": { "$gte": 7 }, "b": { "$ne": 1 } } } },
        doc! { "lines": { "a": 7, "b": 2 } },
    ];
    let of_lines = of_lines.into_iter().map(|filter| (filter, "lines.$.b"));
    let all = of_tags.into_iter().map(|filter| (filter, "tags.$")).chain(of_lines);
    let statements = all.map(|(mut filter, path)| {
        filter.insert("u", n);
        doc! { "q": filter, "u": { "$set": { path: "changed" } } }
    });
    statements.collect()
}

#[test]
fn each_operator_on_elements_determines_one() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        for number in 0..determined(0).len() {
            let n = i32::try_from(number)? + 10;
            let statement = determined(n).swap_remove(number);
            let update = doc! { "update": COLLECTION, "updates": [&statement] };
            let modify = doc! {
                "findAndModify": COLLECTION, "query": statement.get("q"), "update": statement.get("u"), "new": true,
            };
            for command in [update, modify] {
                sides.alike(&command).with_context(|| format!("{ids:?}"))?;
            }
            sides.check().with_context(|| format!("{ids:?}, after {statement}"))?;
        }
    }
    Ok(())
}

/// mongod changes another element than the first that meets all conditions, or none.
#[test]
fn positional_operator_is_refused_if_the_element_is_not_determined() -> Result<()> {
    let mut sides = sides::open()?;
    let arrays = doc! { "x": [0, 1], "y": [5, 6], "z": [{ "x": [3, 1] }], "n": 1 };
    sides.alike(&update(doc! { "u": 20 }, doc! { "$set": { "inner": arrays } }))?;
    for (mut filter, path) in [
        // Of another array.
        (doc! { "inner.x": 1 }, "inner.y.$"),
        (doc! { "inner.x": 1 }, "inner.$"),
        (doc! { "inner.x": 1 }, "tags.$"),
        (doc! { "inner.z.x": 1 }, "inner.z.x.$"),
        // By several conditions.
        (doc! { "tags": { "$gte": 21, "$lte": 21 } }, "tags.$"),
        (doc! { "tags": { "$elemMatch": { "$gt": 20 }, "$ne": 900 } }, "tags.$"),
        (doc! { "$and": [{ "tags": 20 }, { "tags": 21 }] }, "tags.$"),
        (doc! { "tags": 21, "inner.x": 0 }, "tags.$"),
        (doc! { "$or": [{ "tags": 21 }] }, "tags.$"),
        // By the whole array, or by none of its elements.
        (doc! { "tags": [20, 21, "x"] }, "tags.$"),
        (doc! { "tags": { "$in": [[20, 21, "x"], 21] } }, "tags.$"),
        (doc! { "tags": { "$gte": [20] } }, "tags.$"),
        (doc! { "tags": { "$all": [21] } }, "tags.$"),
        (doc! { "tags": { "$size": 3 } }, "tags.$"),
        (doc! { "tags": { "$exists": true } }, "tags.$"),
        (doc! { "tags": { "$type": "array" } }, "tags.$"),
        (doc! { "tags": { "$ne": 900 } }, "tags.$"),
        (doc! { "tags": { "$nin": [900] } }, "tags.$"),
        (doc! { "tags": { "$not": { "$gt": 900 } } }, "tags.$"),
        // By a position.
        (doc! { "tags.1": 21 }, "tags.$"),
        (doc! { "lines.1.a": 7 }, "lines.$.b"),
    ] {
        filter.insert("u", 20);
        let change = doc! { "$set": { path: 9 } };
        sides.refused(&update(filter.clone(), change.clone()))?;
        sides.refused(&doc! { "findAndModify": COLLECTION, "query": filter, "update": change })?;
    }
    // A condition on another field of the same document.
    let filter = doc! { "u": 20, "inner.n": { "$gte": 1, "$lt": 2 }, "inner.x": 1 };
    sides.alike(&update(filter, doc! { "$set": { "inner.x.$": 9 } }))?;
    sides.check()
}

/// Commands on the collection, and aggregations of documents that they contain.
fn counted(command: &Document) -> Option<String> {
    let (name, value) = command.iter().next()?;
    let is_counted = value.as_str() == Some(COLLECTION) || name == "getMore" || name == "aggregate";
    is_counted.then(|| name.clone())
}

#[test]
fn elements_of_many_items_are_found_together() -> Result<()> {
    const ITEMS: i32 = 500;
    let relay = StoppingRelay::to(mongod::shared().address(), counted)?;
    let database = database_name();
    let config = sides::shape(ItemIds::Unique).toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&relay.uri()).config(&config))?;
    let mut application = Connection::open(proxy.address())?;
    let mut run = |mut command: Document| -> Result<Document> {
        command.insert("$db", &database);
        application.command_ok(&command)
    };
    let items: Vec<Document> = (0..ITEMS)
        .map(|id| doc! { "_id": id, "k": id % 3, "at": at(id.into()), "lines": [{ "a": 1 }, { "a": 2, "b": id }] })
        .collect();
    run(doc! { "insert": COLLECTION, "documents": items })?;
    relay.arm(None);
    let change = doc! { "q": { "lines.a": 2 }, "u": { "$inc": { "lines.$.b": 1 } }, "multi": true };
    let reply = run(doc! { "update": COLLECTION, "updates": [change] })?;
    let commands = relay.commands();
    assert_eq!((reply.get_i32("n")?, reply.get_i32("nModified")?), (ITEMS, ITEMS));
    ensure!(commands.len() <= 20, "{} commands: {commands:?}", commands.len());
    let count = run(doc! { "count": COLLECTION, "query": { "lines.1.b": { "$gte": 1, "$lte": ITEMS } } })?;
    assert_eq!(count.get_i32("n")?, ITEMS);
    Ok(())
}
