//! Commands that are resent or late: their replies, and mongod's retry records.

use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::measure::rows;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Mongod, Shape, mongod};

/// The number of statements in the bulk. Each moves an item. It must exceed [`FEW`].
const MOVED: i32 = 60;
/// Sessions that the proxies themselves may have made meanwhile.
const FEW: i64 = 40;

fn at(seconds: i32) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + i64::from(seconds) * 1000)
}

fn sides(item_ids: ItemIds) -> Result<Sides> {
    sides_on(mongod::shared_replica_set(), item_ids)
}

fn sides_on(server: &Mongod, item_ids: ItemIds) -> Result<Sides> {
    let shape = Shape {
        time: Some("at".to_owned()),
        max_items: 20,
        items_change: true,
        item_ids,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (server.uri(), server.address()))?;
    let item = |n: i32| doc! { "_id": n, "k": n % 3, "at": at(n), "n": n, "tags": ["a", n] };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..300).map(item).collect::<Vec<_>>() })?;
    Ok(sides)
}

/// The number of a server's sessions, and of those with records of transactions or retryable writes.
fn sessions(server: &Mongod) -> Result<[i64; 2]> {
    let mut direct = Connection::open(server.address())?;
    let remembered =
        doc! { "aggregate": "transactions", "pipeline": [{ "$count": "n" }], "cursor": {}, "$db": "config" };
    let remembered = direct.all(&remembered)?;
    let status = direct.command_ok(&doc! { "serverStatus": 1, "$db": "admin" })?;
    let known = status
        .get_document("logicalSessionRecordCache")?
        .get_i32("activeSessionsCount")?;
    Ok([
        known.into(),
        remembered.first().map_or(Ok(0), |counted| counted.get_i32("n"))?.into(),
    ])
}

/// All that both sides say, also of what was executed before.
fn alike(sides: &mut Sides, command: &Document) -> Result<[Document; 2]> {
    let databases = [sides.plain_database(), sides.shaped_database()];
    let [plain, shaped] = [&mut sides.plain, &mut sides.shaped];
    let mut replies = Vec::new();
    for (connection, database) in [plain, shaped].into_iter().zip(databases) {
        let mut command = command.clone();
        command.insert("lsid", lsid(&database));
        command.insert("$db", &database);
        let mut reply = connection.command(&command)?;
        for name in ["$clusterTime", "operationTime", "electionId", "opTime"] {
            reply.remove(name);
        }
        // It names the session.
        reply.remove("errmsg");
        if let Ok(value) = reply.get_document_mut("value") {
            // An item has its key first.
            let mut fields: Vec<(String, Bson)> = std::mem::take(value).into_iter().collect();
            fields.sort_by(|one, other| one.0.cmp(&other.0));
            value.extend(fields);
        }
        replies.push(reply);
    }
    let [plain, shaped]: [Document; 2] = replies.try_into().ok().context("two")?;
    let fields = |reply: &Document| {
        let mut fields: Vec<String> = reply
            .iter()
            .map(|(name, value)| format!("{name}: {value:?}").replace("_s.items", "_n.items"))
            .collect();
        fields.sort();
        fields
    };
    ensure!(
        fields(&plain) == fields(&shaped),
        "{command}\n  plain:  {plain}\n  shaped: {shaped}"
    );
    Ok([plain, shaped])
}

fn numbered(command: &Document, number: i64) -> Document {
    let mut command = command.clone();
    command.insert("txnNumber", number);
    command
}

#[test]
fn relocating_statements_do_not_leave_one_session_each() -> Result<()> {
    // Its own: the sessions of a shared one are counted, too.
    let server = Mongod::replica_set(1)?;
    let mut sides = sides_on(&server, ItemIds::Unique)?;
    let session = lsid(&format!("{} bulk", sides.database));
    // It is much to do where the machine is busy.
    let patience = Some(Duration::from_mins(3));
    sides.shaped.stream().set_read_timeout(patience)?;
    let proxy = sides.another_proxy()?;
    let mut other = Connection::open(proxy.address())?;
    other.stream().set_read_timeout(patience)?;
    let changes: [fn(i32) -> Document; 3] = [
        |n| doc! { "$set": { "k": n % 3 } },
        |n| doc! { "$set": { "k": (n + 1) % 3 }, "$inc": { "n": 1000 } },
        |n| doc! { "$set": { "at": at(1000 - n) } },
    ];
    for (number, change) in (1_i64..).zip(changes) {
        let updates: Vec<Document> = (0..MOVED).map(|n| doc! { "q": { "_id": n }, "u": change(n) }).collect();
        let command = doc! {
            "update": COLLECTION, "updates": updates, "lsid": &session, "txnNumber": number, "$db": sides.shaped_database(),
        };
        let before = sessions(&server)?;
        let first = sides.shaped.command_ok(&command)?;
        ensure!(
            first.get_i32("n")? == MOVED && !first.contains_key("retriedStmtIds"),
            "{first}"
        );
        let items = sides.items(true)?;
        // The driver that watches the topology has some.
        let has_few = |after: [i64; 2]| after[0] - before[0] < FEW && after[1] - before[1] < FEW;
        ensure!(
            has_few(sessions(&server)?),
            "{number}: {before:?}, then {:?} sessions",
            sessions(&server)?
        );
        // The reply of a proxy without a record of it.
        let again = other.command_ok(&command)?;
        ensure!(again.get_i32("n")? == MOVED, "{again}");
        ensure!(sides.items(true)? == items, "{number}: executed again");
        ensure!(
            has_few(sessions(&server)?),
            "{number}, again: {before:?}, then {:?} sessions",
            sessions(&server)?
        );
    }
    sides.check_layout()
}

#[test]
fn resent_find_and_modify_that_relocated_its_item_returns_the_same_reply() -> Result<()> {
    for (place, item_ids) in [ItemIds::Unique, ItemIds::Stored].into_iter().enumerate() {
        let mut sides = sides(item_ids)?;
        let of = |fields: Document| {
            let mut command = doc! { "findAndModify": COLLECTION };
            command.extend(fields);
            command
        };
        let commands = [
            of(doc! { "query": { "_id": 4 }, "update": { "$set": { "k": 2 }, "$inc": { "n": 1 } } }),
            of(doc! { "query": { "_id": 5 }, "update": { "$set": { "k": 0 }, "$inc": { "n": 1 } }, "new": true }),
            of(
                doc! { "query": { "n": { "$gte": 6 } }, "sort": { "n": 1 }, "update": [{ "$set": { "k": 7, "n": { "$add": ["$n", 500] } } }] },
            ),
            of(
                doc! { "query": { "n": { "$gte": 7 } }, "sort": { "n": 1 }, "update": [{ "$set": { "k": 7, "n": { "$add": ["$n", 500] } } }], "new": true },
            ),
            of(doc! { "query": { "_id": 8 }, "update": { "$set": { "at": at(4000) } } }),
            of(doc! { "query": { "_id": 9 }, "update": { "$set": { "at": at(-5) } }, "new": true }),
            of(doc! { "query": { "_id": 10 }, "update": { "_id": 10, "k": 77, "at": at(1), "n": 1 } }),
            of(doc! { "query": { "_id": 11 }, "update": { "_id": 11, "k": 77, "at": at(1), "n": 1 }, "new": true }),
            of(doc! { "query": { "_id": 500 }, "update": { "$set": { "k": 1, "at": at(1), "n": 5 } }, "upsert": true }),
            of(
                doc! { "query": { "_id": 501 }, "update": { "$set": { "k": 1, "at": at(1), "n": 5 } }, "upsert": true, "new": true },
            ),
        ];
        // Both values of the option together have each kind of command.
        for (number, command) in rows((1_i64..).zip(&commands), 3, 2 * place) {
            let command = numbered(command, number);
            let [_, first] = alike(&mut sides, &command)?;
            // Others change the item and its pages before it is sent again.
            let noise = doc! { "update": COLLECTION, "updates": [{ "q": {}, "u": { "$set": { "noise": number } }, "multi": true }] };
            sides.alike(&noise)?;
            let [_, again] = alike(&mut sides, &command)?;
            for name in ["value", "lastErrorObject"] {
                ensure!(first.get(name) == again.get(name), "{command}\n  {first}\n  {again}");
            }
            sides.check().with_context(|| format!("{item_ids:?} {command}"))?;
        }
    }
    Ok(())
}

/// The retry's first statement matches nothing. Then another client lets the item match, and the delayed
/// first attempt changes it. The item's page has the position that an earlier command has recorded.
#[test]
fn resent_find_and_modify_by_id_returns_no_other_item() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = DelayingRelay::to(set.address())?;
    let shape = Shape {
        items_change: true,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (relay.uri(), set.address()))?;
    let database = sides.shaped_database();
    let second = sides.another_proxy_to(&set.uri())?;
    let mut other = Connection::open(second.address())?;
    let items: Vec<Document> = (0..4).map(|id: i32| doc! { "_id": id, "k": 1, "n": id }).collect();
    let insert = doc! { "insert": COLLECTION, "documents": items, "$db": &database };
    sides.shaped.command_ok(&insert)?;
    let add = |query: Document, session: &str| {
        let mut command = doc! { "findAndModify": COLLECTION, "query": query, "update": { "$inc": { "n": 100 } } };
        command.extend(doc! { "new": true, "lsid": lsid(session), "txnNumber": 1_i64, "$db": &database });
        command
    };
    other.command_ok(&add(doc! { "n": 0 }, &format!("{database} earlier")))?;
    let command = add(doc! { "_id": 2, "ready": true }, &database);
    let statement = doc! { "q": { "_id": 2 }, "u": { "$set": { "ready": true } } };
    let ready = doc! { "update": COLLECTION, "updates": [statement], "$db": &database };
    let first_attempt = command.clone();
    let mut other = Some(other);
    relay.judge(move |command| {
        let is_find = command.get_str("find").is_ok_and(|name| name == COLLECTION);
        if is_find && let Some(mut other) = other.take() {
            other.command_ok(&ready).expect("the other client's update");
            other.command_ok(&first_attempt).expect("the first attempt");
        }
        Fate::Arrives
    });
    let reply = sides.shaped.command_ok(&command)?;
    ensure!(reply.contains_key("retriedStmtId"), "{reply}");
    let value = reply.get_document("value")?;
    ensure!(value.get_i32("_id")? == 2 && value.get_i32("n")? == 102, "{reply}");
    sides.check_layout()
}

#[test]
fn reply_to_a_resent_command_names_the_retried_statements() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let commands = [
        doc! { "update": COLLECTION, "updates": [
            { "q": { "_id": 500 }, "u": { "$set": { "k": 1, "at": at(1), "n": 5 } }, "upsert": true },
        ] },
        doc! { "update": COLLECTION, "updates": [
            { "q": { "_id": 4 }, "u": { "$set": { "k": 2 }, "$inc": { "n": 1 } } },
        ] },
        doc! { "update": COLLECTION, "updates": [
            { "q": { "_id": 5 }, "u": { "$inc": { "n": 1 } } },
            { "q": { "_id": 501 }, "u": { "$set": { "k": 1, "at": at(1), "n": 5 } }, "upsert": true },
            { "q": { "_id": 6 }, "u": { "$set": { "k": 2 }, "$inc": { "n": 1000 } } },
            { "q": { "_id": 999 }, "u": { "$set": { "k": 2 }, "$inc": { "n": 1 } } },
            { "q": { "n": 7 }, "u": { "$set": { "at": at(3000), "x": 1 } } },
            { "q": { "_id": 502 }, "u": { "_id": 502, "k": 1, "at": at(1), "n": 5 }, "upsert": true },
        ] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 20 }, "limit": 1 }, { "q": { "n": 21 }, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [
            { "q": { "_id": 23 }, "limit": 1 }, { "q": { "_id": 24, "k": 0 }, "limit": 1 }, { "q": { "_id": 999 }, "limit": 1 },
            { "q": { "_id": 23 }, "limit": 1 },
        ] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 22 }, "remove": true },
        doc! { "insert": COLLECTION, "documents": [{ "_id": 600, "k": 1, "at": at(1) }, { "_id": 601, "k": 2, "at": at(1) }] },
    ];
    for (number, command) in (1_i64..).zip(&commands) {
        for ids in [false, true] {
            let mut command = numbered(command, number * 2 + i64::from(ids));
            if ids && !command.contains_key("findAndModify") {
                let count = ["updates", "deletes", "documents"]
                    .iter()
                    .find_map(|name| command.get_array(name).ok());
                let count = i32::try_from(count.context("statements")?.len())?;
                command.insert("stmtIds", (10..10 + count).collect::<Vec<i32>>());
            }
            if ids {
                // Executed in part under another number already.
                let plain = command.clone();
                alike(&mut sides, &plain)?;
            }
            alike(&mut sides, &command)?;
            alike(&mut sides, &command)?;
            sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn command_with_an_old_transaction_number_fails() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let newer = doc! { "insert": COLLECTION, "documents": [{ "_id": 900, "k": 1, "at": at(900) }] };
    alike(&mut sides, &numbered(&newer, 9))?;
    let commands = [
        doc! { "insert": COLLECTION, "documents": [{ "_id": 901, "k": 1, "at": at(901) }] },
        doc! { "insert": COLLECTION, "documents": [{ "_id": 901, "k": 1, "at": at(901) }, { "_id": 902, "k": 9, "at": at(901) }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "n": 1 }, "u": { "$inc": { "n": 1 } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 1 }, "u": { "$set": { "k": 2 } } }] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 950 }, "u": { "$set": { "k": 2 } }, "upsert": true }] },
        doc! { "update": COLLECTION, "ordered": false, "updates": [
            { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }, { "q": { "n": 2 }, "u": { "$set": { "k": 2 } } },
        ] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 1 }, "limit": 1 }], "ordered": false },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": { "$inc": { "n": 1 } } },
        doc! { "findAndModify": COLLECTION, "query": { "n": 1 }, "update": { "$inc": { "n": 1 } } },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": { "$set": { "k": 2 } } },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "remove": true },
        doc! { "findAndModify": COLLECTION, "query": { "n": 1 }, "remove": true },
    ];
    for command in &commands {
        let [plain, _] = alike(&mut sides, &numbered(command, 8))?;
        ensure!(plain.get_i32("code")? == 225, "{plain}");
        sides.check()?;
    }
    Ok(())
}
