//! TTL indexes: the answers of index commands. `crate::expiry` has the deletion of items.

use anyhow::Result;
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
        modify(doc! { "name": "later_1", "expireAfterSeconds": 1_000_000_000 }),
        list.clone(),
        doc! { "dropIndexes": COLLECTION, "index": "at_1" },
        list.clone(),
        doc! { "dropIndexes": COLLECTION, "index": "*" },
        list,
    ] {
        let is_build = command.contains_key("createIndexes");
        sides.same(&command, if is_build { Compared::Code } else { Compared::Whole })?;
    }
    Ok(())
}
