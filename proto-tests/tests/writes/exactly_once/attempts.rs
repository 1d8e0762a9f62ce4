//! Two attempts at one command. The first breaks at an internal command, or is delayed there until the second
//! has completed through another proxy. Each internal command is tried in turn.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::attempts::{Attempts, Disturbance, Subject, disturbed};
use proto_tests::breaking_relay::{BreakingRelay, Moment};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, invariants, mongod};

const COLLECTION: &str = "items";
/// Commands of the proxy for one of the client's, at most.
const MOST: usize = 40;

const SUBJECT: Subject = Subject {
    collection: COLLECTION,
    documents: items,
    commands,
    numbers: &["_id", "k", "u", "run"],
    order: "u",
};

/// Commands whose own effect is why a second attempt finds another item, or none, or one to which it does
/// something else.
const CHANGES_ITS_MATCHES: Subject = Subject {
    commands: commands_that_change_their_matches,
    ..SUBJECT
};

fn at(second: i64) -> DateTime {
    DateTime::from_millis(1_698_335_223_434 + second * 1000)
}

/// Twelve items of one key and one of another.
fn items(base: i64) -> Vec<Document> {
    let item = |number: i64| {
        let key = base + i64::from(number == 12);
        doc! { "_id": base + number, "k": key, "u": base + number, "at": at(number), "run": base, "n": 0 }
    };
    (0..13).map(item).collect()
}

fn update(filter: Document, change: Bson, upsert: bool) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": upsert }] }
}

fn modify(fields: Document) -> Document {
    let mut command = doc! { "findAndModify": COLLECTION };
    command.extend(fields);
    command
}

/// The subject of an ordinary run: every second command, from this one on. `MONGOSHAPE_CRASHES=full` takes
/// all.
fn half(first: usize) -> Subject {
    if is_full("MONGOSHAPE_CRASHES") {
        return SUBJECT;
    }
    let commands = if first == 0 { even_commands } else { odd_commands };
    Subject { commands, ..SUBJECT }
}

fn even_commands(base: i64) -> Vec<Document> {
    commands(base).into_iter().step_by(2).collect()
}

fn odd_commands(base: i64) -> Vec<Document> {
    commands(base).into_iter().skip(1).step_by(2).collect()
}

/// Each adds to `n` what must not be added twice.
fn commands(base: i64) -> Vec<Document> {
    let add = doc! { "n": 1 };
    let moved = doc! { "$inc": &add, "$set": { "k": base + 1 } };
    let later = doc! { "$inc": &add, "$set": { "at": at(40) } };
    let stages = vec![doc! { "$set": { "n": { "$add": ["$n", 1] }, "k": base + 1 } }];
    let (id, u) = (doc! { "_id": base + 4 }, doc! { "u": base + 4 });
    let (new_id, new_u) = (doc! { "_id": base + 50 }, doc! { "u": base + 50 });
    let made = doc! { "$inc": &add, "$setOnInsert": { "k": base, "run": base } };
    let replacement = doc! { "k": base + 1, "u": base + 4, "at": at(4), "run": base, "n": 1 };
    let also = doc! { "q": { "_id": base + 2 }, "u": { "$inc": &add, "$set": { "k": base + 2 } } };
    let none = doc! { "q": { "_id": base + 70 }, "u": { "$inc": &add, "$set": { "k": base + 2 } } };
    vec![
        doc! { "update": COLLECTION, "updates": [{ "q": &id, "u": &moved }, none, also] },
        update(id.clone(), doc! { "$inc": &add }.into(), false),
        update(u.clone(), doc! { "$inc": &add }.into(), false),
        update(id.clone(), moved.clone().into(), false),
        update(u.clone(), moved.clone().into(), false),
        update(u.clone(), stages.into(), false),
        update(u.clone(), doc! { "$inc": { "k": 1 } }.into(), false),
        update(id.clone(), later.clone().into(), false),
        update(doc! { "u": base + 1 }, later.clone().into(), false),
        update(id.clone(), replacement.into(), false),
        update(new_id, made.clone().into(), true),
        update(new_u.clone(), made.clone().into(), true),
        modify(doc! { "query": &id, "update": &moved }),
        modify(doc! { "query": &u, "update": &moved, "new": true }),
        modify(doc! { "query": &u, "update": &later }),
        modify(doc! { "query": { "n": 0, "k": base }, "sort": { "u": 1 }, "update": &moved }),
        modify(doc! { "query": new_u, "update": made, "upsert": true, "new": true }),
        modify(doc! { "query": &id, "remove": true }),
        modify(doc! { "query": { "k": base, "n": 0 }, "remove": true }),
        modify(doc! { "query": { "u": base + 12 }, "remove": true }),
        doc! { "delete": COLLECTION, "deletes": [{ "q": id, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": base, "n": 0 }, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": base + 12 }, "limit": 1 }] },
        // One is missing, and the last one is the only item of its page.
        doc! { "delete": COLLECTION, "deletes": [
            { "q": { "_id": base + 4 }, "limit": 1 },
            { "q": { "_id": base + 70 }, "limit": 1 },
            { "q": { "_id": base + 12 }, "limit": 1 },
        ] },
    ]
}

fn commands_that_change_their_matches(base: i64) -> Vec<Document> {
    let add = doc! { "$inc": { "n": 1 } };
    let moved = doc! { "$inc": { "n": 1 }, "$set": { "k": base + 1 } };
    let (u, new_u) = (doc! { "u": base + 4 }, doc! { "u": base + 50 });
    let not_yet = doc! { "u": base + 4, "n": 0, "run": base };
    let of_key = doc! { "u": base + 4, "k": base, "run": base };
    let smallest = doc! { "$min": { "k": base }, "$set": { "n": 1 } };
    // Fails if `n` is 1.
    let divided = doc! { "$divide": [1, { "$subtract": [1, "$n"] }] };
    let stages = vec![doc! { "$set": { "n": { "$add": ["$n", 1] }, "divided": divided } }];
    // The first item has this key, and the second moves.
    let last_two = doc! { "u": { "$gte": base + 11 }, "n": 0, "run": base };
    let to_key = doc! { "$inc": { "n": 1 }, "$set": { "k": base } };
    // A second execution would move the inserted item.
    let made = doc! { "$inc": { "n": 1, "k": base }, "$setOnInsert": { "run": base } };
    vec![
        update(not_yet.clone(), add.clone().into(), false),
        update(not_yet.clone(), add.clone().into(), true),
        update(of_key.clone(), moved.clone().into(), true),
        update(u.clone(), smallest.clone().into(), false),
        update(u.clone(), stages.clone().into(), false),
        update(last_two.clone(), to_key.clone().into(), false),
        update(new_u.clone(), made.clone().into(), true),
        modify(doc! { "query": &not_yet, "update": &add }),
        modify(doc! { "query": &not_yet, "update": add, "upsert": true, "new": true }),
        modify(doc! { "query": &of_key, "update": moved, "upsert": true }),
        modify(doc! { "query": &u, "update": smallest, "new": true }),
        modify(doc! { "query": &u, "update": stages }),
        modify(doc! { "query": last_two, "sort": { "u": 1 }, "update": to_key }),
        modify(doc! { "query": new_u, "update": made, "upsert": true, "new": true }),
    ]
}

fn attempts(subject: Subject, database: &str, shape: &Shape) -> Result<Attempts> {
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let start = |uri: &str| Proxy::start(&ProxyOptions::new(uri).config(&config));
    Attempts::new(subject, database, start)
}

fn shape() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        items_change: true,
        ..Shape::new(&["k"])
    }
}

/// Disturbs each command at each of the proxy's commands in turn.
fn is_done_once(subject: Subject, disturbance: Disturbance) -> Result<()> {
    let (shape, database) = (shape(), database_name());
    let mut attempts = attempts(subject, &database, &shape)?;
    let mut wrong = attempts.done_otherwise(disturbance, |kind| disturbed(kind, 2, MOST))?;
    let mut direct = Connection::open(mongod::shared_replica_set().address())?;
    let found = invariants::violations(&mut direct, &database, COLLECTION, &shape)?;
    // What an attempt leaves behind that broke.
    wrong.extend(
        found
            .into_iter()
            .filter(|what| !what.contains("the highest page is empty")),
    );
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn delayed_attempt_has_no_effect_after_a_retry() -> Result<()> {
    is_done_once(half(0), Disturbance::IsHeldUp)
}

#[test]
fn delayed_attempt_returns_the_reply_of_the_retry() -> Result<()> {
    let (shape, database) = (shape(), database_name());
    let mut attempts = attempts(CHANGES_ITS_MATCHES, &database, &shape)?;
    attempts.compares_delayed = true;
    let wrong = attempts.done_otherwise(Disturbance::IsHeldUp, |kind| disturbed(kind, 3, MOST))?;
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

/// Two attempts generate `_id`s that differ in their seconds.
#[test]
fn delayed_upsert_returns_the_id_that_the_retry_has_stored() -> Result<()> {
    let (shape, database) = (shape(), database_name());
    let set = mongod::shared_replica_set();
    let relay = BreakingRelay::counting_all(set.address())?;
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let start = |address| {
        Proxy::start(&ProxyOptions::new(&format!("mongodb://{address}/?directConnection=true")).config(&config))
    };
    let (ours, other) = (start(relay.address())?, start(set.address())?);
    let change = doc! { "$set": { "n": 1 } };
    let upserts = |u: i32| {
        let filter = doc! { "k": 1, "u": u };
        let modify = modify(doc! { "query": &filter, "update": &change, "upsert": true });
        [update(filter, change.clone().into(), true), modify]
    };
    let mut direct = Connection::open(ours.address())?;
    direct.command_ok(&doc! { "insert": COLLECTION, "documents": [{ "k": 1, "u": 0 }], "$db": &database })?;
    let mut numbers = 1..;
    for kind in 0..2 {
        for delayed in disturbed(kind, 3, MOST) {
            let u = numbers.next().unwrap_or_default();
            let mut command = upserts(u)[kind].clone();
            command.extend(doc! { "lsid": lsid(&database), "txnNumber": i64::from(u), "$db": &database });
            let mut first = Connection::open(ours.address())?;
            first.find(&database, COLLECTION, doc! { "k": 1, "u": 0 })?;
            let mut second = Connection::open(other.address())?;
            let again = command.clone();
            let (is_sent, was_sent) = std::sync::mpsc::channel();
            relay.meanwhile(delayed, move || {
                thread::sleep(Duration::from_millis(1100));
                let _ = is_sent.send(second.command(&again));
            });
            let reply = first.command_ok(&command)?;
            let _ = relay.disarm();
            let Ok(again) = was_sent.try_recv() else { break };
            let stored = first.find(&database, COLLECTION, doc! { "u": u })?;
            ensure!(stored.len() == 1, "{stored:?}");
            for reply in [reply, again?] {
                let id = match reply.get_array("upserted") {
                    Ok(upserted) => upserted[0].as_document().and_then(|one| one.get("_id")),
                    Err(_) => reply.get_document("lastErrorObject")?.get("upserted"),
                };
                ensure!(id == stored[0].get("_id"), "{delayed}: {reply}\n{stored:?}");
            }
        }
    }
    Ok(())
}

#[test]
fn retry_completes_an_attempt_whose_replies_were_lost() -> Result<()> {
    is_done_once(half(1), Disturbance::Breaks(Moment::After))
}

#[test]
fn retry_completes_an_interrupted_attempt() -> Result<()> {
    // Nearly the same as the one before.
    if is_full("MONGOSHAPE_CRASHES") {
        is_done_once(SUBJECT, Disturbance::Breaks(Moment::Before))?;
    }
    Ok(())
}
