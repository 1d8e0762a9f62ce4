//! Deletes of one item by `_id`. If the item's page has reserved the next one, update operators delete the item;
//! otherwise a pipeline does.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, mongod};

/// Items of a page.
const ROOM: i32 = 4;

fn shape() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        max_items: usize::try_from(ROOM).unwrap_or_default(),
        items_change: true,
        item_ids: ItemIds::Unique,
        ..Shape::new(&["k"])
    }
}

/// Items of one key: two full pages, and a head page with two items.
fn items() -> Vec<Document> {
    let items = 0..2 * ROOM + 2;
    let items = items.map(|id| doc! { "_id": id, "k": 1, "at": DateTime::from_millis(i64::from(id) * 1000), "n": id });
    items.collect()
}

fn delete(id: i32) -> Document {
    doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": id }, "limit": 1 }] }
}

/// Names the commands that are counted: those that delete items.
fn deletion(command: &Document) -> Option<String> {
    let is_deletion = command.get("update").and_then(Bson::as_str) == Some(COLLECTION);
    is_deletion.then(|| "update".to_owned())
}

/// A proxy whose deletions are counted.
struct Observed {
    relay: StoppingRelay,
    database: String,
    sides: Sides,
    connection: Connection,
    _proxy: Proxy,
}

impl Observed {
    fn new(server: &Mongod) -> Result<Self> {
        let mut sides = Sides::at(shape(), (server.uri(), server.address()))?;
        sides.alike(&doc! { "insert": COLLECTION, "documents": items() })?;
        let database = sides.shaped_database();
        let relay = StoppingRelay::to(server.address(), deletion)?;
        let config = shape().toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&relay.uri()).config(&config))?;
        Ok(Self {
            relay,
            database,
            sides,
            connection: Connection::open(proxy.address())?,
            _proxy: proxy,
        })
    }

    /// Deletes an item from both collections. Returns the number of statements that the proxy sent, each in a command.
    fn delete(&mut self, id: i32) -> Result<usize> {
        self.delete_from_plain(id)?;
        self.relay.arm(None);
        let reply = self.run(delete(id))?;
        ensure!(reply.get_i32("n")? == 1, "{id}: {reply}");
        let sent = self.relay.commands().len();
        self.sides.check()?;
        Ok(sent)
    }

    fn delete_from_plain(&mut self, id: i32) -> Result<()> {
        let mut command = delete(id);
        command.insert("$db", self.sides.plain_database());
        self.sides.plain.command_ok(&command).map(drop)
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.connection.command_ok(&command)
    }
}

#[test]
fn an_item_of_a_reserving_page_is_deleted_by_one_statement() -> Result<()> {
    let mut observed = Observed::new(mongod::shared())?;
    // The first page is emptied. It stays, because it has reserved the next one.
    for id in [2, 0, 3, 1, 4] {
        let sent = observed.delete(id)?;
        ensure!(sent == 1, "item {id}: {sent} statements");
    }
    // An item of the head page: the first statement misses. The next deletion is a pipeline at once, and the one
    // after it is not.
    for (id, expected) in [(8, 2), (5, 1), (6, 1)] {
        let sent = observed.delete(id)?;
        ensure!(sent == expected, "item {id}: {sent} statements");
    }
    // The last item of the key: the empty pages are removed.
    observed.delete(7)?;
    observed.delete(9)?;
    let buckets = observed.sides.buckets()?;
    ensure!(buckets.is_empty(), "{buckets:?}");
    Ok(())
}

/// mongod's retry record of a deletion answers a retry, whichever statement the retry sends.
#[test]
fn a_resent_deletion_deletes_nothing_more() -> Result<()> {
    let mut observed = Observed::new(mongod::shared_replica_set())?;
    let session = lsid("deletions by _id");
    for (number, id) in [(1, 1), (2, 8), (3, 2), (4, 9)] {
        let mut command = delete(id);
        command.extend(doc! { "lsid": session.clone(), "txnNumber": Bson::Int64(number) });
        observed.delete_from_plain(id)?;
        observed.run(command.clone())?;
        // An item with the same `_id` is inserted meanwhile.
        let again = doc! { "insert": COLLECTION, "documents": [items()[usize::try_from(id)?].clone()] };
        observed.sides.alike(&again)?;
        for _ in 0..2 {
            let reply = observed.run(command.clone())?;
            ensure!(
                reply.get_i32("n")? == 1 && reply.contains_key("retriedStmtIds"),
                "{reply}"
            );
        }
        observed.sides.check()?;
    }
    Ok(())
}
