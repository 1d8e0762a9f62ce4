//! TTL indexes: the answers of index commands. `crate::expiry` has the deletion of items.

use anyhow::{Result, bail, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::shaped::COLLECTION;

use super::{Compared, Comparison};

#[test]
fn index_commands_answer_as_on_a_plain_collection() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let index = |name: &str, more: Document| {
        let mut index = doc! { "key": { "at": 1 }, "name": name };
        index.extend(more);
        doc! { "createIndexes": COLLECTION, "indexes": [index] }
    };
    let expire = |seconds: Bson| doc! { "expireAfterSeconds": seconds };
    let modify = |index: Document| doc! { "collMod": COLLECTION, "index": index };
    let list = doc! { "listIndexes": COLLECTION };
    for command in [
        index("at_1", expire(bson!(1_000_000_000))),
        list.clone(),
        index("at_1", expire(bson!(1_000_000_000))),
        index("at_1", doc! {}),
        index("at_1", expire(bson!(1_000_000_001))),
        index("other", expire(bson!(1_000_000_001))),
        index("other", doc! {}),
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "bad": 1 }, "name": "bad", "expireAfterSeconds": "x" }] },
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "bad": 1 }, "name": "bad", "expireAfterSeconds": -1 }] },
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "at": 1, "n": 1 }, "name": "two", "expireAfterSeconds": 5 }] },
        modify(doc! { "name": "at_1", "expireAfterSeconds": 1_100_000_000 }),
        modify(doc! { "keyPattern": { "at": 1 }, "expireAfterSeconds": 1_200_000_000 }),
        modify(doc! { "name": "at_1", "expireAfterSeconds": "x" }),
        modify(doc! { "name": "none", "expireAfterSeconds": 5 }),
        modify(doc! { "keyPattern": { "none": 1 }, "expireAfterSeconds": 5 }),
        modify(doc! { "name": "at_1" }),
        modify(doc! { "expireAfterSeconds": 5 }),
        modify(doc! { "name": "at_1", "hidden": true }),
        modify(doc! { "name": "at_1", "hidden": false }),
        list.clone(),
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "later": 1 }, "name": "later_1" }] },
        modify(doc! { "name": "later_1", "expireAfterSeconds": 3_000_000_000_i64 }),
        modify(doc! { "name": "later_1", "expireAfterSeconds": -1 }),
        modify(doc! { "name": "later_1", "expireAfterSeconds": 1_000_000_000 }),
        list.clone(),
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "at": 1, "n": 1 }, "name": "two" }] },
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "k": 1, "at": 1 }, "name": "key_time" }] },
        modify(doc! { "name": "two", "expireAfterSeconds": 1_000_000_000 }),
        modify(doc! { "name": "two", "expireAfterSeconds": "x" }),
        modify(doc! { "keyPattern": { "k": 1, "at": 1 }, "expireAfterSeconds": 1_000_000_000 }),
        modify(doc! { "name": "_id_", "expireAfterSeconds": 1_000_000_000 }),
        modify(doc! { "keyPattern": { "_id": 1 }, "expireAfterSeconds": -1 }),
        list.clone(),
        doc! { "createIndexes": COLLECTION, "indexes": [{ "key": { "images": 1 }, "name": "images_1" }] },
        doc! {
            "collMod": COLLECTION,
            "index": { "name": "images_1", "expireAfterSeconds": 1_000_000_000 },
            "changeStreamPreAndPostImages": { "enabled": true },
        },
        list.clone(),
        doc! { "dropIndexes": COLLECTION, "index": "at_1" },
        list.clone(),
        doc! { "dropIndexes": COLLECTION, "index": "*" },
        list,
    ] {
        let is_build = command.contains_key("createIndexes");
        sides.same(&command, if is_build { Compared::Code } else { Compared::Whole })?;
    }
    let listed = sides.run(&doc! { "listCollections": 1, "filter": { "name": COLLECTION } })?;
    for reply in listed {
        let collections = reply.get_document("cursor")?.get_array("firstBatch")?;
        let [Bson::Document(collection)] = collections.as_slice() else {
            bail!("{reply}");
        };
        let images = doc! { "changeStreamPreAndPostImages": { "enabled": true } };
        ensure!(collection.get_document("options")? == &images, "{reply}");
    }
    Ok(())
}

/// A `collMod` leaves the marker of a TTL index if another client drops the index meanwhile.
#[test]
fn a_marker_without_its_index_does_not_make_a_new_index_expire() -> Result<()> {
    let mut sides = Comparison::filled()?;
    let marker = doc! {
        "key": { "mongoshape_expire_61745f31": 1 },
        "name": "mongoshape_expire_at_1",
        "partialFilterExpression": { "mongoshape_expire_61745f31": { "$exists": true } },
        "expireAfterSeconds": 1_000_000_000,
    };
    let index = |more: Document| {
        let mut index = doc! { "key": { "at": 1 }, "name": "at_1" };
        index.extend(more);
        doc! { "createIndexes": COLLECTION, "indexes": [index] }
    };
    for more in [doc! {}, doc! { "expireAfterSeconds": 1_100_000_000 }] {
        let database = &sides.shaped.database;
        let stored = doc! { "createIndexes": COLLECTION, "indexes": [&marker], "$db": database };
        sides.direct.command_ok(&stored)?;
        sides.same(&index(more), Compared::Whole)?;
        sides.same(&doc! { "listIndexes": COLLECTION }, Compared::Whole)?;
        sides.same(&doc! { "dropIndexes": COLLECTION, "index": "at_1" }, Compared::Whole)?;
    }
    Ok(())
}
