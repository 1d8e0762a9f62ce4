//! Inserts of one document by many clients: while the first ones are executed, the others wait in the proxy, which then
//! executes them as one command.

use std::collections::BTreeSet;
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::breaking_relay::{self, BreakingRelay};
use proto_tests::mongod::Options;
use proto_tests::raw::{self, Connection};
use proto_tests::replies::{comparable, first_code};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::{Moment, StoppingRelay};
use proto_tests::{ItemIds, Level, Mongod, Proxy, ProxyOptions, Shape, client, mongod};

const CLIENTS: i32 = 40;
/// The commands that a proxy executes on a collection at a time.
const IN_FLIGHT: usize = 8;
const DUPLICATE_KEY: i32 = 11000;
const UNAUTHORIZED: i32 = 13;
/// The longest time until the proxy has received all commands.
const LIMIT: Duration = Duration::from_secs(20);

fn shape() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        max_items: 4,
        items_change: true,
        item_ids: ItemIds::Unique,
        ..Shape::new(&["k"])
    }
}

fn item(id: i32, key: i32) -> Document {
    doc! { "_id": id, "k": key, "at": DateTime::from_millis(i64::from(id) * 1000) }
}

fn insert(item: &Document) -> Document {
    doc! { "insert": COLLECTION, "documents": [item.clone()] }
}

/// Names the commands that are counted: those that write pages.
fn page_write(command: &Document) -> Option<String> {
    let of_pages = ["insert", "update"]
        .iter()
        .any(|name| command.get(name).and_then(Bson::as_str) == Some(COLLECTION));
    of_pages.then(String::new)
}

/// Many clients of a proxy, whose inserts arrive while the first of them are executed.
struct Crowd {
    relay: StoppingRelay,
    sides: Sides,
    proxy: Proxy,
    connections: Vec<Connection>,
}

impl Crowd {
    fn new(server: &Mongod) -> Result<Self> {
        let relay = StoppingRelay::to(server.address(), page_write)?;
        let uri = relay.uri();
        Self::behind(server, relay, &uri)
    }

    /// A crowd whose proxy reaches the relay at this connection string.
    fn behind(server: &Mongod, relay: StoppingRelay, upstream: &str) -> Result<Self> {
        let sides = Sides::at(shape(), (server.uri(), server.address()))?;
        let config = shape().toml(&format!("{}.{COLLECTION}", sides.shaped_database()));
        let proxy = Proxy::start(&ProxyOptions::new(upstream).config(&config))?;
        let connections = (0..CLIENTS).map(|_| Connection::open(proxy.address()));
        let connections = connections.collect::<Result<_>>()?;
        let mut crowd = Self {
            relay,
            sides,
            proxy,
            connections,
        };
        // A session asks for its users when it first waits. After two rounds, most know them.
        for round in 1..=2 {
            let items: Vec<Document> = (0..CLIENTS)
                .map(|client| item(client - round * CLIENTS, client))
                .collect();
            crowd.insert_into_plain(&items)?;
            for reply in crowd.insert(&items.iter().map(insert).collect::<Vec<_>>())? {
                ensure!(reply?.get_i32("n")? == 1);
            }
        }
        Ok(crowd)
    }

    /// Sends an insert on each connection. None is executed before all have arrived. Returns the replies.
    fn insert(&mut self, commands: &[Document]) -> Result<Vec<Result<Document>>> {
        self.relay.arm(Some((1, Moment::Before)));
        let mut commands = commands.to_vec();
        let mut bytes = received(&self.proxy);
        for command in &mut commands {
            command.insert("$db", self.sides.shaped_database());
            bytes += f64::from(u32::try_from(raw::request(1, command)?.len())?);
        }
        thread::scope(|scope| {
            let connections = self.connections.iter_mut().zip(&commands);
            let running = connections.map(|(connection, command)| scope.spawn(move || connection.command(command)));
            let running: Vec<_> = running.collect();
            let deadline = Instant::now() + LIMIT;
            while received(&self.proxy) < bytes {
                ensure!(Instant::now() < deadline, "the commands do not arrive");
                thread::sleep(Duration::from_millis(5));
            }
            self.relay.go_on();
            Ok(running
                .into_iter()
                .map(|client| client.join().expect("a client panicked"))
                .collect())
        })
    }

    fn insert_into_plain(&mut self, items: &[Document]) -> Result<()> {
        let command = doc! { "insert": COLLECTION, "documents": items, "$db": self.sides.plain_database() };
        self.sides.plain.command_ok(&command).map(drop)
    }

    /// The mean number of inserts in a group so far.
    fn group_size(&self) -> f64 {
        let series = |suffix| self.proxy.metric(&format!("mongoshape_insert_group_size_{suffix}"));
        series("sum") / series("count")
    }
}

/// The bytes that a proxy has received from its clients.
fn received(proxy: &Proxy) -> f64 {
    proxy.metric("mongoshape_bytes_total{direction=\"received\"}")
}

#[test]
fn each_client_gets_the_reply_for_its_own_document() -> Result<()> {
    let mut crowd = Crowd::new(mongod::shared())?;
    let documents = (0..CLIENTS).map(|client| match client % 5 {
        // It exists, with this key or another one.
        0 => item(client - CLIENTS, client),
        1 => item(client - CLIENTS, 0),
        // One key for several clients.
        2 => item(client, 100),
        3 => doc! { "_id": client, "n": "without key and time" },
        _ => item(client, client),
    });
    let commands: Vec<Document> = documents.map(|document| insert(&document)).collect();
    let replies = crowd.insert(&commands)?;
    let (plain, shaped) = (crowd.sides.plain_database(), crowd.sides.shaped_database());
    for (command, reply) in commands.into_iter().zip(replies) {
        let mut command = command;
        command.insert("$db", &plain);
        let expected = crowd.sides.plain.command(&command)?;
        let [expected, reply] = [(expected, &plain), (reply?, &shaped)]
            .map(|(reply, database)| comparable(&reply, &["n", "writeErrors", "ok"], database));
        ensure!(reply == expected, "{command}: {reply}, expected {expected}");
    }
    crowd.sides.check()?;
    ensure!(crowd.group_size() > 2.0, "no groups");
    Ok(())
}

#[test]
fn one_of_several_documents_with_the_same_id_is_inserted() -> Result<()> {
    let mut crowd = Crowd::new(mongod::shared())?;
    // The keys differ, so the documents belong on different pages.
    let commands: Vec<Document> = (0..CLIENTS).map(|client| insert(&item(client / 4, client))).collect();
    let replies = crowd.insert(&commands)?;
    let mut inserted = Vec::new();
    for (client, reply) in (0..CLIENTS).zip(replies) {
        let reply = reply?;
        match reply.get_i32("n")? {
            1 => inserted.push(item(client / 4, client)),
            _ => ensure!(first_code(&reply) == DUPLICATE_KEY, "{reply}"),
        }
    }
    ensure!(i32::try_from(inserted.len())? == CLIENTS / 4, "{inserted:?}");
    crowd.insert_into_plain(&inserted)?;
    crowd.sides.check()
}

/// A standalone refuses a write concern of two members.
#[test]
fn clients_of_different_write_concerns_are_in_different_groups() -> Result<()> {
    const BAD_VALUE: i32 = 2;
    let mut crowd = Crowd::new(mongod::shared())?;
    let is_refused = |client: i32| client % 2 == 0;
    let commands = (0..CLIENTS).map(|client| {
        let mut command = insert(&item(client, client));
        if is_refused(client) {
            command.insert("writeConcern", doc! { "w": 2 });
        }
        command
    });
    let mut inserted = Vec::new();
    for (client, reply) in (0..CLIENTS).zip(crowd.insert(&commands.collect::<Vec<_>>())?) {
        let reply = reply?;
        if is_refused(client) {
            ensure!(first_code(&reply) == BAD_VALUE, "client {client}: {reply}");
        } else {
            ensure!(reply.get_i32("n")? == 1, "client {client}: {reply}");
            inserted.push(item(client, client));
        }
    }
    ensure!(crowd.group_size() > 2.0, "no groups");
    crowd.insert_into_plain(&inserted)?;
    crowd.sides.check()
}

/// Breaks a proxy's connection while many clients insert. No document may be stored twice, and each acknowledged one
/// must be stored. Returns the number of clients that get a network error.
fn break_while_inserting(moment: breaking_relay::Moment) -> Result<usize> {
    let server = mongod::shared();
    let stopping = StoppingRelay::to(server.address(), page_write)?;
    let address = stopping.uri().replace("mongodb://", "");
    let address: SocketAddr = address.split('/').next().context("no address")?.parse()?;
    let breaking = BreakingRelay::to(address)?;
    let upstream = format!("mongodb://{}/?directConnection=true", breaking.address());
    let mut crowd = Crowd::behind(server, stopping, &upstream)?;
    // Mostly the first command after those that were executed when the others arrived.
    breaking.arm(moment, IN_FLIGHT + 1);
    let commands: Vec<Document> = (0..CLIENTS).map(|client| insert(&item(client, client))).collect();
    let replies = crowd.insert(&commands)?;
    ensure!(breaking.disarm(), "no connection was broken");
    for line in ["the upstream is not available", "the result of its insert is unknown"] {
        crowd.proxy.expect_log(Level::Warn, line);
    }
    let answered = (0..CLIENTS).zip(&replies).filter(|(_, reply)| reply.is_ok());
    let answered: BTreeSet<i32> = answered.map(|(client, _)| client).collect();
    let stored = crowd.sides.items(true)?;
    let ids = stored.iter().filter_map(|item| item.get_i32("_id").ok());
    let ids: Vec<i32> = ids.filter(|id| *id >= 0).collect();
    let distinct: BTreeSet<i32> = ids.iter().copied().collect();
    ensure!(distinct.len() == ids.len(), "{moment:?}: a document is stored twice");
    ensure!(answered.is_subset(&distinct), "{moment:?}: a document is missing");
    crowd.insert_into_plain(&ids.iter().map(|id| item(*id, *id)).collect::<Vec<_>>())?;
    crowd.sides.check()?;
    Ok(replies.len() - answered.len())
}

#[test]
fn a_lost_connection_closes_those_of_all_clients_of_the_group() -> Result<()> {
    for moment in [breaking_relay::Moment::Before, breaking_relay::Moment::After] {
        let mut attempts = 0;
        while break_while_inserting(moment)? < 2 {
            attempts += 1;
            ensure!(attempts < 10, "{moment:?}: no group was affected");
        }
    }
    Ok(())
}

/// mongod may have executed a part of a command that it could not finish.
#[test]
fn no_client_of_a_group_gets_an_error_that_promises_that_nothing_was_stored() -> Result<()> {
    const NOT_PRIMARY: i32 = 10107;
    let server = Options::default().parameter("enableTestCommands=1").standalone()?;
    let mut crowd = Crowd::new(&server)?;
    crowd
        .proxy
        .expect_log(Level::Warn, "the result of its insert is unknown");
    let fail = |mode: Bson| {
        let data = doc! { "failCommands": ["insert", "update"], "errorCode": NOT_PRIMARY };
        doc! { "configureFailPoint": "failCommand", "mode": mode, "data": data, "$db": "admin" }
    };
    crowd
        .sides
        .plain
        .command_ok(&fail(Bson::String("alwaysOn".to_owned())))?;
    let items = (0..CLIENTS).map(|client| insert(&item(client, client)));
    let replies = crowd.insert(&items.collect::<Vec<_>>())?;
    crowd.sides.plain.command_ok(&fail(Bson::String("off".to_owned())))?;
    let answered: Vec<i32> = replies.iter().flatten().map(first_code).collect();
    ensure!(answered.iter().all(|code| *code == NOT_PRIMARY), "{answered:?}");
    // Those that were executed alone.
    ensure!(answered.len() < replies.len() / 2, "{} replies", answered.len());
    crowd.sides.check()
}

#[tokio::test(flavor = "multi_thread")]
async fn clients_of_different_users_are_in_different_groups() -> Result<()> {
    const DATABASE: &str = "shop";
    let server = Options::default().auth().standalone()?;
    let admin = client(&server.uri()).await?.database("admin");
    for (user, role) in [("writer", "readWrite"), ("reader", "read")] {
        let roles = [doc! { "role": role, "db": DATABASE }];
        let command = doc! { "createUser": user, "pwd": "word", "roles": roles.to_vec() };
        admin.run_command(command).await?;
    }
    let relay = StoppingRelay::to(server.address(), page_write)?;
    let through = |address: &str, uri: String| uri.replace(&server.address().to_string(), address);
    let relayed = relay.uri().replace("mongodb://", "");
    let relayed = relayed.split('/').next().context("no address")?.to_owned();
    let upstream = through(&relayed, server.uri());
    let config = shape().toml(&format!("{DATABASE}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&upstream).config(&config))?;
    let mut clients = Vec::new();
    for number in 0..CLIENTS {
        let user = if number % 2 == 0 { "writer" } else { "reader" };
        let uri = through(&proxy.address().to_string(), server.uri_as(user, "word"));
        clients.push(client(&uri).await?.database(DATABASE));
    }
    for round in 0..3 {
        relay.arm(Some((1, Moment::Before)));
        let running = clients.iter().zip(0..CLIENTS).map(|(database, number)| {
            let database = database.clone();
            tokio::spawn(async move {
                let command = insert(&item(number + round * CLIENTS, number));
                (number, database.run_command(command).await)
            })
        });
        let running: Vec<_> = running.collect();
        relay.wait_for_stop(|| false)?;
        tokio::time::sleep(Duration::from_millis(300)).await;
        relay.go_on();
        for client in running {
            let (number, reply) = client.await?;
            match reply {
                Ok(reply) => ensure!(number % 2 == 0 && reply.get_i32("n")? == 1, "client {number}: {reply}"),
                Err(error) => {
                    let is_refused = error.to_string().contains(&format!("code: {UNAUTHORIZED}"));
                    let is_refused = is_refused || error.to_string().contains("not authorized");
                    ensure!(number % 2 == 1 && is_refused, "client {number}: {error}");
                }
            }
        }
    }
    let sum = proxy.metric("mongoshape_insert_group_size_sum");
    ensure!(sum > proxy.metric("mongoshape_insert_group_size_count"), "no groups");
    Ok(())
}
