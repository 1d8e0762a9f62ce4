//! Clients of three proxies insert, delete and change items of few keys at random. Each client knows what its own
//! items must be.
//!
//! A push relies on the page that its proxy knows, and other proxies push to the page, delete from it, close it and
//! change times on it. `MONGOSHAPE_CRASHES=full` executes several times as many commands.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, database_name, invariants, mongod, threads};
use rand::rngs::ChaCha8Rng;
use rand::seq::IteratorRandom as _;
use rand::{RngExt as _, SeedableRng as _};

const COLLECTION: &str = "items";
const CLIENTS: i64 = 9;
const KEYS: i32 = 4;

/// The commands of each client.
fn commands() -> i64 {
    if is_full("MONGOSHAPE_CRASHES") { 1500 } else { 80 }
}

/// A client and its items, by `_id`.
struct Client {
    number: i64,
    connection: Connection,
    database: String,
    /// Whether its inserts have retry numbers.
    is_retryable: bool,
    items: BTreeMap<i64, Document>,
    next: i64,
    random: ChaCha8Rng,
}

impl Client {
    fn item(&mut self) -> Document {
        self.next += 1;
        // Most times ascend.
        let late = if self.random.random_ratio(1, 12) { 50 } else { 0 };
        let at = DateTime::from_millis((self.next - late) * 1000);
        let k = self.random.random_range(0..KEYS);
        doc! { "_id": self.number * 1_000_000 + self.next, "k": k, "at": at, "n": 0 }
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.connection.command_ok(&command)?;
        ensure!(!reply.contains_key("writeErrors"), "{command}: {reply}");
        Ok(reply)
    }

    fn insert(&mut self, count: i64, number: i64) -> Result<()> {
        let items: Vec<Document> = (0..count).map(|_| self.item()).collect();
        let mut command = doc! { "insert": COLLECTION, "documents": &items, "ordered": self.random.random_bool(0.5) };
        if self.is_retryable {
            command.extend(doc! { "lsid": lsid(&format!("{} {}", self.database, self.number)), "txnNumber": number });
        }
        let reply = self.run(command)?;
        ensure!(i64::from(reply.get_i32("n")?) == count, "{reply}");
        let by_id = items.into_iter().map(|item| Ok((item.get_i64("_id")?, item)));
        self.items.extend(by_id.collect::<Result<BTreeMap<_, _>>>()?);
        Ok(())
    }

    /// One of its items.
    fn any(&mut self) -> Option<i64> {
        self.items.keys().copied().choose(&mut self.random)
    }

    fn update(&mut self, id: i64, field: &str, value: Bson) -> Result<()> {
        let change = doc! { "q": { "_id": id }, "u": { "$set": { field: &value } } };
        let reply = self.run(doc! { "update": COLLECTION, "updates": [change] })?;
        ensure!(reply.get_i32("n")? == 1, "{id}: {reply}");
        self.items.get_mut(&id).context("no item")?.insert(field, value);
        Ok(())
    }

    fn step(&mut self, number: i64) -> Result<()> {
        match (self.random.random_range(0..20), self.any()) {
            (0..5, Some(id)) => {
                let reply = self.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": id }, "limit": 1 }] })?;
                ensure!(reply.get_i32("n")? == 1, "{id}: {reply}");
                self.items.remove(&id);
                Ok(())
            }
            (5..7, Some(id)) => self.update(id, "n", Bson::Int64(number)),
            (7, Some(id)) => {
                let at = DateTime::from_millis(self.random.random_range(0..self.next + 50) * 1000);
                self.update(id, "at", at.into())
            }
            (8..13, _) => self.insert(1, number),
            _ => {
                let count = self.random.random_range(2..9);
                self.insert(count, number)
            }
        }
    }
}

/// Lets the clients run, and compares all items with those that they know.
fn share(server: &Mongod, item_ids: ItemIds, is_retryable: bool, seed: u64) -> Result<()> {
    let shape = Shape {
        item_ids,
        time: Some("at".to_owned()),
        max_items: 8,
        items_change: true,
        ..Shape::new(&["k"])
    };
    let database = database_name();
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let start = || Proxy::start(&ProxyOptions::new(&server.uri()).config(&config));
    let proxies = [start()?, start()?, start()?];
    // mongod 7.0 hangs on Wine if several clients create a collection.
    Connection::open(proxies[0].address())?.command_ok(&doc! { "create": COLLECTION, "$db": &database })?;
    let client = |(number, address): (i64, SocketAddr)| {
        Ok(Client {
            number,
            connection: Connection::open(address)?,
            database: database.clone(),
            is_retryable,
            items: BTreeMap::new(),
            next: 0,
            random: ChaCha8Rng::seed_from_u64(seed * 100 + u64::try_from(number)?),
        })
    };
    let addresses = proxies.iter().map(Proxy::address).cycle();
    let clients: Vec<Client> = (0..CLIENTS).zip(addresses).map(client).collect::<Result<_>>()?;
    let known = thread::scope(|scope| {
        let run = |mut client: Client| {
            scope.spawn(move || {
                (0..commands()).try_for_each(|number| client.step(number))?;
                Ok(client.items)
            })
        };
        threads::join(clients.into_iter().map(run).collect())
    })?;
    let known: BTreeMap<i64, Document> = known.into_iter().flatten().collect();
    let mut reader = Connection::open(proxies[0].address())?;
    let stored = reader.find(&database, COLLECTION, doc! {})?;
    ensure!(
        stored.len() == known.len(),
        "{} items, not {}",
        stored.len(),
        known.len()
    );
    for item in stored {
        let expected = known.get(&item.get_i64("_id")?);
        let is_equal =
            expected.is_some_and(|expected| expected.iter().all(|(name, value)| item.get(name) == Some(value)));
        ensure!(is_equal, "{item}, not {expected:?}");
    }
    invariants::check(&mut Connection::open(server.address())?, &database, COLLECTION, &shape)
}

#[test]
fn clients_of_three_proxies_share_pages_on_a_standalone() -> Result<()> {
    for (seed, item_ids) in (1..).zip([ItemIds::Unique, ItemIds::Stored]) {
        share(mongod::shared(), item_ids, false, seed).with_context(|| format!("{item_ids:?}"))?;
    }
    Ok(())
}

#[test]
fn clients_of_three_proxies_share_pages_on_a_replica_set() -> Result<()> {
    for (seed, item_ids) in (11..).zip([ItemIds::Unique, ItemIds::Stored]) {
        let is_retryable = item_ids == ItemIds::Stored || is_full("MONGOSHAPE_CRASHES");
        share(mongod::shared_replica_set(), item_ids, is_retryable, seed).with_context(|| format!("{item_ids:?}"))?;
    }
    Ok(())
}
