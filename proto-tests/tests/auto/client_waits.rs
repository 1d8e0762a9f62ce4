//! Clients that wait for a frozen collection: their number does not change what they cost the server.

use std::thread::{self, sleep};
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape};

use super::fixture::{COLLECTION, COPY};

const DATABASE: &str = "waiting";
const CLIENTS: i32 = 12;
/// The time in which lists are counted. One session lists at most 50 times in it.
const COUNTED: Duration = Duration::from_secs(1);
/// Twice as many as one session sends. If each of the clients listed, there would be 400 or more.
const MAX_LISTS: i64 = 100;
/// Twice as many as one session sends in 30 seconds. If each of the clients listed after that, there would be
/// 10,000.
const MAX_LISTS_OF_ONE_SESSION: i64 = 2_000;

fn lists(direct: &mut Connection) -> Result<i64> {
    let status = direct.command_ok(&doc! { "serverStatus": 1, "$db": "admin" })?;
    let commands = status.get_document("metrics")?.get_document("commands")?;
    Ok(commands.get_document("listCollections")?.get_i64("total")?)
}

fn set_validator(direct: &mut Connection, validator: Document) -> Result<()> {
    let command = doc! { "collMod": COLLECTION, "validator": validator, "$db": DATABASE };
    direct.command_ok(&command).map(drop)
}

/// A server, and a proxy with the collection's shape in a mode.
fn start(mode: &str) -> Result<(Mongod, Proxy)> {
    let mongod = Mongod::replica_set(1)?;
    let table = Shape::new(&["k"]).toml(&format!("{DATABASE}.{COLLECTION}"));
    let table = table.replacen("[[bucket]]\n", &format!("[[bucket]]\nmode = \"{mode}\"\n"), 1);
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&table))?;
    Ok((mongod, proxy))
}

/// Freezes a collection by a validator while clients write to it. `marker`: the field that the validator of the
/// layout's freeze demands.
fn check(mode: &str, indexes: &[Document], marker: &str) -> Result<()> {
    let (mongod, proxy) = start(mode)?;
    let mut direct = Connection::open(mongod.address())?;
    if !indexes.is_empty() {
        direct.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": indexes, "$db": DATABASE })?;
    }
    let insert = |n: i32| doc! { "insert": COLLECTION, "documents": [{ "_id": n, "k": n }], "$db": DATABASE };
    let mut connections = Vec::new();
    for n in 0..CLIENTS {
        let mut connection = Connection::open(proxy.address())?;
        connection.command_ok(&insert(n))?;
        connections.push(connection);
    }
    set_validator(&mut direct, doc! { marker: { "$exists": true } })?;
    let writing = connections.into_iter().zip(CLIENTS..).map(|(mut connection, n)| {
        let command = insert(n);
        thread::spawn(move || connection.command_ok(&command))
    });
    let writing: Vec<_> = writing.collect();
    sleep(Duration::from_millis(500));
    let before = lists(&mut direct)?;
    sleep(COUNTED);
    let listed = lists(&mut direct)? - before;
    ensure!(
        writing.iter().all(|client| !client.is_finished()),
        "a client does not wait"
    );
    set_validator(&mut direct, doc! {})?;
    for client in writing {
        client.join().expect("a client panicked")?;
    }
    ensure!((1..=MAX_LISTS).contains(&listed), "{listed} lists");
    let count = doc! { "count": COLLECTION, "$db": DATABASE };
    let count = Connection::open(proxy.address())?.command_ok(&count)?;
    ensure!(count.get_i32("n")? == 2 * CLIENTS, "{count}");
    Ok(())
}

#[test]
fn one_session_lists_a_frozen_collection_of_plain_documents() -> Result<()> {
    check(
        "auto",
        &[doc! { "key": { "other": 1 }, "name": "other" }],
        "mongoshape_pack",
    )
}

#[test]
fn one_session_lists_a_frozen_collection_of_pages() -> Result<()> {
    check("rewrite", &[], "mongoshape_compact")?;
    check("auto", &[], "mongoshape_compact")
}

/// Takes as long as a command waits.
#[test]
fn clients_that_have_waited_for_one_session_s_list_do_not_wait_again() -> Result<()> {
    let (mongod, proxy) = start("auto")?;
    let mut direct = Connection::open(mongod.address())?;
    // As between the two renamings of a swap: only the copy exists.
    direct.command_ok(&doc! { "create": COPY, "$db": DATABASE })?;
    let mut connections = Vec::new();
    for _ in 0..CLIENTS {
        connections.push(Connection::open(proxy.address())?);
    }
    let before = lists(&mut direct)?;
    let find = doc! { "find": COLLECTION, "$db": DATABASE };
    let waiting = connections.into_iter().map(|mut connection| {
        let find = find.clone();
        thread::spawn(move || connection.command(&find))
    });
    let waiting: Vec<_> = waiting.collect();
    for client in waiting {
        let reply = client.join().expect("a client panicked")?;
        ensure!(reply.get_i32("code").ok() == Some(112), "{reply}");
    }
    let listed = lists(&mut direct)? - before;
    ensure!(listed <= MAX_LISTS_OF_ONE_SESSION, "{listed} lists");
    Ok(())
}
