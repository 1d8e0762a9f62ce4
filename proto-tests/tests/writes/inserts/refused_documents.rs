//! An ordered insert of several keys with a document that mongod refuses: no later document is stored, and no
//! other is changed.

use anyhow::{Result, ensure};
use bson::oid::ObjectId;
use bson::{Document, bson, doc};
use proto_tests::attempts::disturbed;
use proto_tests::breaking_relay::{BreakingRelay, Moment};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};
use proto_tests::{ItemIds, Level, Names, Proxy, ProxyOptions, Shape, mongod};

/// Commands of the proxy for one of the client's, at most.
const MOST: usize = 20;

/// Two sides with an index that refuses a document in which both of its fields are arrays.
fn sides(item_ids: ItemIds) -> Result<Sides> {
    let mut sides = Sides::open(Shape {
        item_ids,
        names: Names::Any,
        items_change: true,
        ..Shape::new(&["k"])
    })?;
    let indexes = bson!([{ "key": { "a": 1, "b": 1 }, "name": "parallel" }]);
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": "b", "n": 1 }] })?;
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": indexes })?;
    Ok(sides)
}

/// What the index refuses, of key `a`.
fn refused() -> Document {
    doc! { "_id": 0, "k": "a", "a": [1, 2], "b": [1, 2] }
}

fn insert(documents: &[Document]) -> Document {
    doc! { "insert": COLLECTION, "documents": documents }
}

/// Only mongod's error text may differ, which names the stored index and bucket.
fn same(sides: &mut Sides, command: &Document) -> Result<Document> {
    let mut replies = sides.run(command)?;
    for reply in &mut replies {
        for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
            error.as_document_mut().expect("an error").remove("errmsg");
        }
    }
    let [plain, shaped] = replies;
    ensure!(plain == shaped, "{command}\n  plain:  {plain}\n  shaped: {shaped}");
    sides.check()?;
    Ok(plain)
}

#[test]
fn ordered_insert_stores_nothing_after_a_refused_document() -> Result<()> {
    for item_ids in ALL_IDS {
        let refused = refused();
        let mut sides = sides(item_ids)?;
        for behind in [
            // The `_id` of one that is there.
            doc! { "_id": 1, "k": "b", "n": 2 },
            doc! { "_id": 2, "k": "b", "n": 2 },
            // The same as one that is there, where that has no `_id`.
            doc! { "_id": 3, "k": "b", "n": 1 },
            doc! { "_id": 4, "k": "c", "n": 1 },
        ] {
            let reply = same(&mut sides, &insert(&[refused.clone(), behind.clone()]))?;
            ensure!(reply.get_i32("n")? == 0, "{reply}");
            let before = doc! { "_id": ObjectId::new(), "k": "c", "n": 5 };
            let reply = same(
                &mut sides,
                &insert(&[before, refused.clone(), behind.clone(), behind.clone()]),
            )?;
            ensure!(reply.get_i32("n")? == 1, "{reply}");
        }
    }
    Ok(())
}

#[test]
fn an_unordered_insert_stores_all_but_the_refused() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let refused = refused();
    let others = [
        doc! { "_id": 5, "k": "a" },
        doc! { "_id": 6, "k": "b" },
        doc! { "_id": 7, "k": "a" },
    ];
    let mut command = insert(&[&[refused], others.as_slice()].concat());
    command.insert("ordered", false);
    let reply = same(&mut sides, &command)?;
    ensure!(reply.get_i32("n")? == 3, "{reply}");
    Ok(())
}

#[test]
fn undo_removes_items_after_a_refused_document_from_all_pages() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let mut item = doc! { "_id": 8, "n": 8 };
        sides.plain.command_ok(&doc! {
            "insert": COLLECTION, "documents": [{ "_id": 8, "k": "d", "n": 8 }], "$db": sides.plain_database(),
        })?;
        if item_ids == ItemIds::Dropped {
            item.remove("_id");
        }
        let bytes = i32::try_from(item.to_vec()?.len())?;
        let page = doc! { "_id": ObjectId::new(), "k": "d", "count": 1, "history": [item], "control": { "v": 1, "page": 0, "bytes": bytes } };
        sides
            .plain
            .command_ok(&doc! { "insert": COLLECTION, "documents": [page], "$db": sides.shaped_database() })?;
        let refused = refused();
        let documents = [refused, doc! { "_id": 9, "k": "d", "n": 9 }];
        let reply = same(&mut sides, &insert(&documents))?;
        ensure!(reply.get_i32("n")? == 0, "{reply}");
    }
    Ok(())
}

#[test]
fn resent_command_undoes_once() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let refused = refused();
        let documents = [
            refused,
            doc! { "_id": 3, "k": "b", "n": 1 },
            doc! { "_id": 4, "k": "c", "n": 1 },
        ];
        let mut command = insert(&documents);
        command.extend(doc! { "lsid": lsid("x"), "txnNumber": 1_i64 });
        for _ in 0..3 {
            let reply = same(&mut sides, &command)?;
            ensure!(reply.get_i32("n")? == 0, "{reply}");
        }
    }
    Ok(())
}

/// The connection to mongod breaks at each internal command in turn. The command is resent through another
/// proxy.
#[test]
fn retry_undoes_an_interrupted_command() -> Result<()> {
    for (place, item_ids) in ALL_IDS.into_iter().enumerate() {
        for moment in [Moment::Before, Moment::After] {
            cut_short(item_ids, moment, disturbed(place, 3, MOST))?;
        }
    }
    Ok(())
}

fn cut_short(item_ids: ItemIds, moment: Moment, numbers: impl Iterator<Item = usize>) -> Result<()> {
    let mut sides = sides(item_ids)?;
    let set = mongod::shared_replica_set();
    let relay = BreakingRelay::to(set.address())?;
    let toml = sides.shape.toml(&format!("{}.{COLLECTION}", sides.shaped_database()));
    let uri = format!("mongodb://{}/?directConnection=true", relay.address());
    let ours = Proxy::start(&ProxyOptions::new(&uri).config(&toml))?;
    ours.expect_log(Level::Warn, "the upstream is not available");
    let refused = refused();
    for number in numbers {
        let base = i32::try_from(number)? * 100;
        let key = |name: &str| format!("{name}{number}");
        let before = [
            doc! { "_id": base, "k": key("b"), "n": 1 },
            doc! { "_id": base + 1, "k": key("b"), "n": 2 },
        ];
        sides.alike(&insert(&before))?;
        let mut bad = refused.clone();
        bad.extend(doc! { "_id": base + 2, "k": key("a") });
        let mut documents = vec![bad, doc! { "_id": base + 3, "k": key("b"), "n": 2 }];
        documents.extend((4..20).map(|n| doc! { "_id": base + n, "k": key("c"), "n": n }));
        let mut command = insert(&documents);
        command.extend(doc! { "lsid": lsid(&format!("{number}")), "txnNumber": 1_i64 });
        let mut first = command.clone();
        first.extend(doc! { "lsid": lsid(&sides.shaped_database()), "$db": sides.shaped_database(), "txnNumber": i64::try_from(number)? });
        command.insert("txnNumber", i64::try_from(number)?);
        let mut application = Connection::open(ours.address())?;
        application.command_ok(&doc! { "find": COLLECTION, "$db": sides.shaped_database() })?;
        relay.arm(moment, number);
        let reply = application.command(&first);
        let broke = relay.disarm();
        ensure!(reply.is_err() == broke, "{reply:?}");
        let reply = same(&mut sides, &command)?;
        ensure!(reply.get_i32("n")? == 0, "{reply}");
        if !broke {
            return Ok(());
        }
    }
    anyhow::bail!("the command takes more commands than that")
}
