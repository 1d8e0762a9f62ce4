//! A page whose items are deleted by several clients at a time is removed with its last item, also if a
//! reservation of the next page is withdrawn meanwhile.

use std::thread::{self, JoinHandle};

use anyhow::{Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::{Moment, StoppingRelay};
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, mongod};

/// Items of a page.
const ROOM: i32 = 3;
/// The `_id` of an item of another key.
const TAKEN: i32 = 100;

fn shape() -> Shape {
    Shape {
        max_items: usize::try_from(ROOM).unwrap_or_default(),
        items_change: true,
        item_ids: ItemIds::Unique,
        ..Shape::new(&["k"])
    }
}

fn is_write(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let is_write = ["update", "findAndModify"].contains(&name.as_str());
    (is_write && collection.as_str() == Some(COLLECTION)).then(|| name.clone())
}

/// A proxy whose writes can be stopped.
struct Slow {
    relay: StoppingRelay,
    proxy: Proxy,
}

/// A command that is stopped before one of its writes.
struct Stopped {
    relay: StoppingRelay,
    command: JoinHandle<Result<Document>>,
}

impl Slow {
    fn start(mongod: &Mongod, database: &str) -> Result<Self> {
        let relay = StoppingRelay::to(mongod.address(), is_write)?;
        let config = shape().toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&relay.uri()).config(&config))?;
        Ok(Self { relay, proxy })
    }

    /// Begins a command and stops it before its write with this number, counted from 1.
    fn stop(&self, number: usize, command: Document) -> Result<Stopped> {
        self.relay.arm(Some((number, Moment::Before)));
        let mut connection = Connection::open(self.proxy.address())?;
        let command = thread::spawn(move || connection.command_ok(&command));
        self.relay.wait_for_stop(|| command.is_finished())?;
        ensure!(self.relay.has_stopped(), "the command was not stopped");
        Ok(Stopped {
            relay: self.relay.clone(),
            command,
        })
    }
}

impl Stopped {
    /// Returns the reply.
    fn go_on(self) -> Result<Document> {
        self.relay.go_on();
        self.command.join().map_err(|_| anyhow!("the command panicked"))?
    }
}

fn insert(key: i32, ids: impl IntoIterator<Item = i32>) -> Document {
    let items = ids.into_iter().map(|id| doc! { "_id": id, "k": key, "x": id });
    doc! { "insert": COLLECTION, "documents": items.collect::<Vec<_>>() }
}

fn delete(filter: Document, limit: i32) -> Document {
    doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
}

/// Commands that delete item 1.
fn deletions() -> Vec<Document> {
    vec![
        delete(doc! { "x": 1 }, 0),
        delete(doc! { "x": 1 }, 1),
        delete(doc! { "_id": 1 }, 1),
        delete(doc! { "k": 1, "x": { "$lt": 2 } }, 1),
        delete(doc! { "k": 1 }, 0),
        doc! { "findAndModify": COLLECTION, "query": { "x": 1 }, "sort": { "x": 1 }, "remove": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "remove": true },
    ]
}

/// A shaped collection.
struct Subject {
    sides: Sides,
    database: String,
}

impl Subject {
    fn new(mongod: &Mongod) -> Result<Self> {
        let sides = Sides::at(shape(), (mongod.uri(), mongod.address()))?;
        let database = sides.shaped_database();
        Ok(Self { sides, database })
    }

    /// A full page, and an item of another key.
    fn with_full_page(mongod: &Mongod) -> Result<Self> {
        let mut subject = Self::new(mongod)?;
        subject.run(insert(1, 1..=ROOM))?;
        subject.run(insert(2, [TAKEN]))?;
        Ok(subject)
    }

    /// An insert that has reserved the page after the full one. It is stopped before it withdraws the reservation,
    /// because the `_id` is taken.
    fn refused_insert(&self, inserts: &Slow) -> Result<Stopped> {
        inserts.stop(2, self.on(insert(1, [TAKEN])))
    }

    fn slow(&self, mongod: &Mongod) -> Result<Slow> {
        Slow::start(mongod, &self.database)
    }

    fn on(&self, mut command: Document) -> Document {
        command.insert("$db", &self.database);
        command
    }

    fn run(&mut self, command: Document) -> Result<()> {
        let command = self.on(command);
        self.sides.shaped.command_ok(&command).map(drop)
    }

    fn check_empty(&mut self) -> Result<()> {
        let buckets = self.sides.buckets()?;
        ensure!(buckets.is_empty(), "pages are left: {buckets:?}");
        Ok(())
    }
}

/// Checks each deletion on a standalone and on a replica set.
fn each(check: fn(&Mongod, Document) -> Result<()>) -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        for deletion in deletions() {
            check(mongod, deletion)?;
        }
    }
    Ok(())
}

/// Lets an insert withdraw its reservation.
fn withdraw(refused: Stopped) -> Result<()> {
    let reply = refused.go_on()?;
    ensure!(reply.contains_key("writeErrors"), "{reply}");
    Ok(())
}

/// Two clients delete the two items of a page. Both have read the page with two items.
#[test]
fn a_page_that_two_clients_empty_is_removed() -> Result<()> {
    each(|mongod, deletion| {
        let mut subject = Subject::new(mongod)?;
        subject.run(insert(1, [1, 2]))?;
        let deletes = subject.slow(mongod)?;
        let stopped = deletes.stop(1, subject.on(deletion))?;
        subject.run(delete(doc! { "_id": 2 }, 1))?;
        stopped.go_on()?;
        subject.check_empty()
    })
}

/// A client deletes the last item of a page that it has read with a reservation. The reservation is withdrawn
/// before the item is deleted.
#[test]
fn a_page_whose_reservation_is_withdrawn_is_removed() -> Result<()> {
    each(|mongod, deletion| {
        let mut subject = Subject::with_full_page(mongod)?;
        let (inserts, deletes) = (subject.slow(mongod)?, subject.slow(mongod)?);
        let refused = subject.refused_insert(&inserts)?;
        subject.run(delete(doc! { "k": 1, "_id": { "$ne": 1 } }, 0))?;
        let stopped = deletes.stop(1, subject.on(deletion))?;
        withdraw(refused)?;
        stopped.go_on()?;
        subject.run(delete(doc! { "k": 2 }, 0))?;
        subject.check_empty()
    })
}

/// The items of a page are deleted while the page has a reservation. Then the reservation is withdrawn.
#[test]
fn a_page_that_was_emptied_beside_a_reservation_is_removed() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let mut subject = Subject::with_full_page(mongod)?;
        let inserts = subject.slow(mongod)?;
        let refused = subject.refused_insert(&inserts)?;
        subject.run(delete(doc! { "k": 1 }, 0))?;
        withdraw(refused)?;
        subject.run(delete(doc! { "k": 2 }, 0))?;
        subject.check_empty()?;
    }
    Ok(())
}
