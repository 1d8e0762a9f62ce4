//! Upserts of several clients for one document: one inserts it, the others change it.

use std::sync::Barrier;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Pattern as _, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Outlier, Proxy, ProxyOptions, mongod, replies, threads};

use crate::interleaved::interleaved;

const CLIENTS: i32 = 4;
const ROUNDS: i32 = 40;

fn shape() -> Outlier {
    Outlier::new("tags", (5, 7))
}

/// Names the statement of an upsert on the collection.
fn is_upsert(command: &Document) -> Option<String> {
    let is_on_it = |name: &str| command.get_str(name).is_ok_and(|collection| collection == COLLECTION);
    let inserts = command.get_bool("upsert").unwrap_or_default();
    (is_on_it("update") || (is_on_it("findAndModify") && inserts)).then(|| "upsert".to_owned())
}

fn on(database: String, command: &Document) -> Document {
    let mut command = command.clone();
    command.insert("$db", database);
    command
}

fn update(filter: Document, change: Document) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": true }] }
}

fn modify(filter: Document, change: Document) -> Document {
    doc! { "findAndModify": COLLECTION, "query": filter, "update": change, "upsert": true, "new": true }
}

/// The reply of the proxy to an upsert. Before mongod executes it, another client sends its command.
fn overtaken(
    sides: &mut Sides<Outlier>,
    relay: &StoppingRelay,
    upsert: &Document,
    theirs: &Document,
) -> Result<Document> {
    let table = sides.shape.table(&format!("{}.{COLLECTION}", sides.shaped_database()));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&table))?;
    let mut other = Connection::open(proxy.address())?;
    let [upsert, theirs] = [upsert, theirs].map(|command| on(sides.shaped_database(), command));
    interleaved(&mut sides.shaped, &upsert, relay, || {
        other.command_ok(&theirs)?;
        Ok(())
    })
}

#[test]
fn upsert_changes_a_document_that_another_client_has_inserted_meanwhile() -> Result<()> {
    let theirs = doc! { "_id": "x", "isbn": 5, "tags": (0..20).collect::<Vec<i32>>() };
    let theirs = doc! { "insert": COLLECTION, "documents": [theirs] };
    let long = doc! { "$set": { "tags": (0..9).collect::<Vec<i32>>() } };
    let upserts = [
        modify(doc! { "_id": "x" }, doc! { "$inc": { "views": 1 } }),
        modify(doc! { "isbn": 5 }, doc! { "$push": { "tags": 1 } }),
        modify(doc! { "_id": "x" }, long.clone()),
        update(doc! { "isbn": 5 }, doc! { "$push": { "tags": 1 } }),
        update(
            doc! { "$and": [{ "isbn": { "$eq": 5 } }] },
            doc! { "$pull": { "tags": 1 } },
        ),
        update(doc! { "_id": "x" }, long),
    ];
    let mongod = mongod::shared();
    for upsert in upserts {
        let relay = StoppingRelay::to(mongod.address(), is_upsert)?;
        let mut sides = Sides::at(shape(), (relay.uri(), mongod.address()))?;
        let index = doc! { "key": { "isbn": 1 }, "name": "isbn", "unique": true, "sparse": true };
        sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
        let plain = sides.plain_database();
        sides.plain.command_ok(&on(plain.clone(), &theirs))?;
        let expected = sides.plain.command(&on(plain.clone(), &upsert))?;
        let found = overtaken(&mut sides, &relay, &upsert, &theirs)?;
        let [expected, found] =
            [expected, found].map(|reply| replies::comparable(&reply, &replies::WRITE_RESULTS, "DATABASE"));
        ensure!(found == expected, "{upsert}\n  plain:  {expected}\n  shaped: {found}");
        sides.check().with_context(|| format!("after {upsert}"))?;
    }
    Ok(())
}

#[test]
fn upsert_of_many_inserts_if_another_client_has_removed_all_documents_meanwhile() -> Result<()> {
    let many = doc! {
        "q": { "k": "x" }, "u": { "$push": { "tags": 1 }, "$setOnInsert": { "_id": 9 } }, "upsert": true, "multi": true,
    };
    let many = doc! { "update": COLLECTION, "updates": [many] };
    let removed = doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": "x" }, "limit": 0 }] };
    let change = doc! { "q": { "k": "x" }, "u": { "$set": { "k": "y" } }, "multi": true };
    let changed = doc! { "update": COLLECTION, "updates": [change] };
    let mongod = mongod::shared();
    for (theirs, length) in [(&removed, 2), (&removed, 20), (&changed, 2), (&changed, 20)] {
        let relay = StoppingRelay::to(mongod.address(), is_upsert)?;
        let mut sides = Sides::at(shape(), (relay.uri(), mongod.address()))?;
        let document = doc! { "_id": 1, "k": "x", "tags": (0..length).collect::<Vec<i32>>() };
        sides.alike(&doc! { "insert": COLLECTION, "documents": [document] })?;
        let plain = sides.plain_database();
        sides.plain.command_ok(&on(plain.clone(), theirs))?;
        let expected = sides.plain.command(&on(plain, &many))?;
        let found = overtaken(&mut sides, &relay, &many, theirs)?;
        let [expected, found] =
            [expected, found].map(|reply| replies::comparable(&reply, &replies::WRITE_RESULTS, "DATABASE"));
        let context = || format!("{theirs}, {length}\n  plain:  {expected}\n  shaped: {found}");
        ensure!(found == expected, "{}", context());
        sides.check().with_context(context)?;
    }
    Ok(())
}

/// Each of several clients sends its upsert for a document that does not exist, at the same time.
fn at_once(upsert: impl Fn(i32, i32) -> Document + Sync) -> Result<()> {
    let mut sides = Sides::on_a_standalone(shape())?;
    let index = doc! { "key": { "isbn": 1 }, "name": "isbn", "unique": true, "sparse": true };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let (address, database) = (sides.proxy.address(), sides.shaped_database());
    let begins = Barrier::new(usize::try_from(CLIENTS)?);
    let send = |client: i32| -> Result<()> {
        let mut connection = Connection::open(address)?;
        let mut failed = Vec::new();
        for number in 0..ROUNDS {
            begins.wait();
            let reply = connection.command(&on(database.clone(), &upsert(number, client)));
            failed.extend(reply.map_or_else(
                |error| Some(format!("{error:#}")),
                |reply| (replies::first_code(&reply) != 0).then(|| reply.to_string()),
            ));
        }
        ensure!(failed.is_empty(), "{} failed: {failed:?}", failed.len());
        Ok(())
    };
    let send = &send;
    thread::scope(|scope| {
        let running = (0..CLIENTS).map(|client| scope.spawn(move || send(client))).collect();
        threads::join(running).map(|_| ())
    })?;
    for item in sides.items(true)? {
        let mut tags: Vec<i32> = item.get_array("tags")?.iter().filter_map(Bson::as_i32).collect();
        tags.sort_unstable();
        ensure!(tags == (0..CLIENTS).collect::<Vec<_>>(), "{item}");
    }
    let count = sides.items(true)?.len();
    ensure!(count == usize::try_from(ROUNDS)?, "{count} documents");
    sides.check_layout()
}

#[test]
fn concurrent_upserts_of_one_document_all_succeed() -> Result<()> {
    let push = |client: i32| doc! { "$push": { "tags": client } };
    at_once(|number, client| modify(doc! { "_id": number }, push(client)))?;
    at_once(|number, client| update(doc! { "isbn": number }, push(client)))
}
