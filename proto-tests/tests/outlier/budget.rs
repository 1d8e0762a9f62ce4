//! Outliers that are together larger than a reply: the batches equal those of a plain collection, and memory
//! is bounded.

use std::sync::{Arc, Barrier};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{Document, RawDocument, doc};
use proto_tests::measure::{is_full, rows};
use proto_tests::raw::{self, Connection};
use proto_tests::sessions::lsid;
use proto_tests::{Outlier, Proxy, ProxyOptions, database_name, mongod};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use crate::fixture::{BOOKS, Fixture, on_each};

const PLAIN: &str = "plain";
const MIB: usize = 1 << 20;

/// A book that weighs about so many bytes, in so many buyers.
fn heavy(id: i32, bytes: usize, buyers: usize) -> Document {
    let name = format!("{id} ") + &"x".repeat(bytes / buyers);
    let buyers: Vec<bson::Bson> = (0..buyers).map(|number| format!("{number} {name}").into()).collect();
    doc! { "_id": id, "title": "Invisible Cities", "customers_purchased": buyers, "year": id % 3 }
}

/// The length of the buyers' arrays.
const BUYERS: usize = 120;

/// Books in the shaped collection.
fn fill(fixture: &mut Fixture, bytes: &[usize]) -> Result<()> {
    for (id, bytes) in (1..).zip(bytes) {
        fixture.run(doc! { "insert": BOOKS, "documents": [heavy(id, *bytes, BUYERS)] })?;
    }
    fixture.rest()
}

/// The same books in the shaped collection and in a plain one.
fn fill_both(fixture: &mut Fixture, bytes: &[usize]) -> Result<()> {
    fill(fixture, bytes)?;
    for (id, bytes) in (1..).zip(bytes) {
        let insert = doc! { "insert": PLAIN, "documents": [heavy(id, *bytes, BUYERS)], "$db": &fixture.database };
        fixture.direct.command_ok(&insert)?;
    }
    Ok(())
}

/// The batches that a cursor answers, each with the `_id`s of its documents, which are to be whole.
fn batches(
    connection: &mut Connection,
    database: &str,
    (mut command, more): (Document, Document),
) -> Result<Vec<Vec<Document>>> {
    command.insert("$db", database);
    let collection = command.get_str("find")?.to_owned();
    let mut reply = connection.command_ok(&command)?;
    let mut batches = Vec::new();
    loop {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        let documents = batch
            .iter()
            .map(|document| document.as_document().cloned().context("no document"));
        batches.push(documents.collect::<Result<Vec<_>>>()?);
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok(batches);
        }
        let mut next = doc! { "getMore": id, "collection": &collection };
        next.extend(more.clone());
        next.insert("$db", database);
        if let Ok(lsid) = command.get_document("lsid") {
            next.insert("lsid", lsid.clone());
        }
        reply = connection.command_ok(&next)?;
    }
}

#[test]
fn outlier_batches_equal_those_of_a_plain_collection() -> Result<()> {
    let fixture = &mut Fixture::on(mongod::shared_replica_set())?;
    fill_both(fixture, &[5 * MIB, 5 * MIB, 5 * MIB, 100, 12 * MIB, 7 * MIB, 300])?;
    let finds = [
        (doc! {}, doc! {}),
        (doc! { "sort": { "_id": -1 } }, doc! {}),
        (doc! { "batchSize": 4 }, doc! { "batchSize": 2 }),
        (doc! { "limit": 7 }, doc! {}),
        (doc! { "limit": 7, "singleBatch": true }, doc! {}),
        (doc! { "singleBatch": true }, doc! {}),
        (doc! { "batchSize": 0 }, doc! {}),
        (doc! { "filter": { "year": 1 }, "projection": { "title": 0 } }, doc! {}),
        (
            doc! { "projection": { "customers_purchased": 1 }, "sort": { "year": 1, "_id": 1 } },
            doc! {},
        ),
        (doc! { "lsid": lsid("reader") }, doc! {}),
    ];
    for (find, more) in rows(finds, 2, 0) {
        let command = |collection: &str| {
            let mut command = doc! { "find": collection };
            command.extend(find.clone());
            (command, more.clone())
        };
        let plain = batches(&mut fixture.direct, &fixture.database, command(PLAIN))?;
        let shaped = batches(&mut fixture.application, &fixture.database, command(BOOKS))?;
        let ids = |batches: &[Vec<Document>]| {
            let ids = |batch: &Vec<Document>| batch.iter().map(|book| book.get_i32("_id").unwrap_or(0)).collect();
            batches.iter().map(ids).collect::<Vec<Vec<i32>>>()
        };
        let [of_plain, of_shaped] = [&plain, &shaped].map(|batches| ids(batches));
        ensure!(
            shaped.concat() == plain.concat(),
            "{find}: {of_shaped:?}, not {of_plain:?}"
        );
        // The first batch is as long as mongod's. Later ones may be shorter.
        ensure!(of_shaped[0] == of_plain[0], "{find}: {of_shaped:?}, not {of_plain:?}");
    }
    Ok(())
}

#[test]
fn cursor_with_pending_outliers_is_bound_to_its_owner_and_can_be_killed() -> Result<()> {
    on_each(|fixture| {
        fill(fixture, &[9 * MIB, 9 * MIB, 9 * MIB])?;
        let database = fixture.database.clone();
        let mut other = fixture.another()?;
        for batch_size in [2, 101] {
            let open = |fixture: &mut Fixture| -> Result<i64> {
                let reply = fixture.run(doc! { "find": BOOKS, "batchSize": batch_size })?;
                Ok(reply.get_document("cursor")?.get_i64("id")?)
            };
            let id = open(fixture)?;
            let more = doc! { "getMore": id, "collection": BOOKS, "$db": &database };
            let mut in_session = more.clone();
            in_session.insert("lsid", lsid("other"));
            let refused = other.command(&in_session)?;
            ensure!(refused.get_i32("code")? == 50736, "{refused}");
            let elsewhere = doc! { "getMore": id, "collection": "other", "$db": &database };
            let refused = other.command(&elsewhere)?;
            ensure!(refused.get_f64("ok")? < 0.5, "{refused}");
            // Any connection of the user's may read on.
            let next = other.command_ok(&more)?;
            ensure!(
                next.get_document("cursor")?.get_array("nextBatch")?.len() == 1,
                "a batch of one"
            );
            let kill = doc! { "killCursors": BOOKS, "cursors": [id, 77_i64], "$db": &database };
            let killed = other.command_ok(&kill)?;
            ensure!(killed.get_array("cursorsKilled")? == &vec![id.into()], "{killed}");
            ensure!(killed.get_array("cursorsNotFound")? == &vec![77_i64.into()], "{killed}");
            let gone = other.command(&more)?;
            ensure!(gone.get_i32("code")? == 43, "{gone}");
        }
        Ok(())
    })
}

#[test]
fn cursor_with_pending_outliers_ends_with_an_error_or_its_last_document() -> Result<()> {
    on_each(|fixture| {
        fill(fixture, &[9 * MIB, 9 * MIB, 9 * MIB])?;
        let open = |fixture: &mut Fixture| -> Result<Document> {
            let reply = fixture.run(doc! { "find": BOOKS, "batchSize": 2 })?;
            let id = reply.get_document("cursor")?.get_i64("id")?;
            Ok(doc! { "getMore": id, "collection": BOOKS, "$db": &fixture.database })
        };
        let [read, failing] = [open(fixture)?, open(fixture)?];
        // Each first batch has one book. mongod has returned the second, and the third is at the end.
        for more in [&read, &read, &failing] {
            let reply = fixture.application.command_ok(more)?;
            let batch = reply.get_document("cursor")?.get_array("nextBatch")?;
            ensure!(batch.len() == 1, "{} books", batch.len());
        }
        fixture.run(doc! { "drop": BOOKS })?;
        let failed = fixture.application.command(&failing)?;
        ensure!(failed.get_f64("ok")? < 0.5, "{failed}");
        for more in [&read, &failing] {
            let gone = fixture.application.command(more)?;
            ensure!(gone.get_i32("code")? == 43, "{gone}");
        }
        Ok(())
    })
}

/// After the error, a `getMore` must not go on behind the document.
#[test]
fn a_cursor_ends_with_the_error_of_a_document_that_is_too_large() -> Result<()> {
    let fixture = &mut Fixture::on(mongod::shared_replica_set())?;
    fill(fixture, &[100, 9 * MIB, 100])?;
    let push = doc! { "$push": { "customers_purchased": "x".repeat(8 * MIB) } };
    fixture.run(doc! { "update": BOOKS, "updates": [{ "q": { "_id": 2 }, "u": push }] })?;
    let reply = fixture.run(doc! { "find": BOOKS, "sort": { "_id": 1 }, "batchSize": 1 })?;
    let id = reply.get_document("cursor")?.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": BOOKS, "batchSize": 1, "$db": &fixture.database };
    for expected in [10334, 43] {
        let failed = fixture.application.command(&more)?;
        ensure!(failed.get_i32("code").ok() == Some(expected), "{failed}");
    }
    Ok(())
}

#[test]
fn killing_a_session_ends_its_cursor_with_pending_outliers() -> Result<()> {
    let fixture = &mut Fixture::on(mongod::shared_replica_set())?;
    fill_both(fixture, &[9 * MIB, 9 * MIB, 9 * MIB])?;
    let database = fixture.database.clone();
    for (connection, collection) in [(&mut fixture.direct, PLAIN), (&mut fixture.application, BOOKS)] {
        let session = lsid(&format!("{database} {collection}"));
        let find = doc! { "find": collection, "batchSize": 2, "lsid": &session, "$db": &database };
        let reply = connection.command_ok(&find)?;
        let id = reply.get_document("cursor")?.get_i64("id")?;
        let more = doc! { "getMore": id, "collection": collection, "lsid": &session, "$db": &database };
        connection.command_ok(&doc! { "killSessions": [&session], "$db": "admin" })?;
        let gone = connection.command(&more)?;
        ensure!(gone.get_i32("code").ok() == Some(43), "{collection}: {gone}");
    }
    Ok(())
}

/// The smallest budget that can be configured.
const BUDGET_MIB: u64 = 192;
/// What is not in the budget: the program itself, and buffers, stacks and TLS of connections.
const ALLOWANCE_MIB: u64 = 64;
const ALLOWANCE_KIB_FOR_EACH: u64 = 100;

/// How many clients read at once. The outliers that sixty read have three times the bytes of the budget.
/// `MONGOSHAPE_CRASHES=full` takes two hundred. `MONGOSHAPE_CROWD=1000` is the documented size of the budget.
fn crowd() -> Result<u32> {
    match std::env::var("MONGOSHAPE_CROWD") {
        Ok(crowd) => Ok(crowd.parse()?),
        Err(_) if is_full("MONGOSHAPE_CRASHES") => Ok(200),
        Err(_) => Ok(60),
    }
}

/// The result of one client.
enum ClientResult {
    /// The document's bytes.
    Served(usize),
    /// The error that there was no memory in time.
    OutOfMemory,
}

fn ask(connection: &mut Connection, database: &str) -> Result<ClientResult> {
    connection.stream().set_read_timeout(Some(Duration::from_mins(3)))?;
    connection.send(&raw::request(1, &doc! { "find": BOOKS, "$db": database })?)?;
    let frame = connection.receive()?;
    let reply = RawDocument::from_bytes(raw::body(&frame)?)?;
    if reply.get_f64("ok")? > 0.5 {
        let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
        ensure!(batch.into_iter().count() == 1, "not one outlier");
        return Ok(ClientResult::Served(frame.len()));
    }
    let message = reply.get_str("errmsg")?;
    ensure!(
        reply.get_i32("code")? == 146 && message.contains("listen.memory_mib"),
        "{message}"
    );
    Ok(ClientResult::OutOfMemory)
}

/// Sixty clients, two hundred or `MONGOSHAPE_CROWD`, each read all of a collection of four outliers of 10 MB.
/// Of mongod alone they would have 40 MB each.
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
#[test]
fn concurrent_reads_of_large_outliers_stay_within_the_memory_budget() -> Result<()> {
    let files = getrlimit(Resource::Nofile).maximum;
    setrlimit(
        Resource::Nofile,
        Rlimit {
            current: files,
            maximum: files,
        },
    )?;
    let database = database_name();
    let shape = Outlier::new("customers_purchased", (50, 1000));
    let options = ProxyOptions::new(&mongod::shared().uri())
        .listen(&format!("memory_mib = {BUDGET_MIB}"))
        .config(&shape.toml(&format!("{database}.{BOOKS}")));
    let proxy = Proxy::start(&options)?;
    let mut application = Connection::open(proxy.address())?;
    for id in 0..4 {
        let insert = doc! { "insert": BOOKS, "documents": [heavy(id, 10_000_000, 2000)], "$db": &database };
        application.command_ok(&insert)?;
    }
    let crowd = crowd()?;
    let begun = Instant::now();
    let together = Arc::new(Barrier::new(usize::try_from(crowd)?));
    let clients = (0..crowd).map(|_| {
        let mut connection = Connection::open(proxy.address())?;
        let (together, database) = (Arc::clone(&together), database.clone());
        let client = thread::Builder::new().stack_size(256 * 1024).spawn(move || {
            together.wait();
            ask(&mut connection, &database)
        });
        Ok(client?)
    });
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let (mut served, mut refused) = (0, 0);
    for client in clients {
        let Ok(result) = client.join() else {
            bail!("a client panicked");
        };
        match result? {
            ClientResult::Served(bytes) => {
                ensure!(bytes > 10_000_000, "{bytes} bytes");
                served += 1;
            }
            ClientResult::OutOfMemory => refused += 1,
        }
    }
    let peak = proxy.peak_kib()? / 1024;
    let most = BUDGET_MIB + ALLOWANCE_MIB + u64::from(crowd) * ALLOWANCE_KIB_FOR_EACH / 1024;
    eprintln!(
        "{crowd} clients: {served} served, {refused} without memory, {:?}, peak {peak} of {most} MiB",
        begun.elapsed()
    );
    ensure!(peak < most, "{peak} MiB of {most}");
    ensure!(served > 0, "no client was served");
    // After their end the memory is free again.
    ensure!(
        matches!(ask(&mut application, &database)?, ClientResult::Served(_)),
        "memory is missing"
    );
    Ok(())
}
