//! Writes of many items that are under way when the collection is frozen, and replaced: each item is changed once, and counted.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Mongod, ProxyOptions, mongod};

use super::compact;

/// Items of a key, every second of which is deleted before.
const ITEMS: i32 = 900;

struct World {
    shaped: Shaped,
    direct: Connection,
    holder: Transaction,
}

impl World {
    /// Pages that are short, and a transaction that holds one of them, which those who come to it wait for.
    fn open(options: &str) -> Result<Self> {
        let set = mongod::shared_replica_set();
        let shaped = Shaped::with(&format!("max_items = 20\n{options}"), &ProxyOptions::new(&set.uri()))?;
        let mut application = shaped.application()?;
        let items: Vec<Document> = (0..ITEMS * 2)
            .map(|n| doc! { "_id": n, "k": n / 600, "n": 0, "even": n % 2 })
            .collect();
        application.command_ok(&shaped.insert(&items))?;
        let odd = doc! { "q": { "even": 1 }, "limit": 0 };
        application.command_ok(&doc! { "delete": COLLECTION, "deletes": [odd], "$db": &shaped.database })?;
        let mut world = Self {
            direct: Connection::open(set.address())?,
            holder: Transaction::new(&format!("{} holder", shaped.database), &shaped.database),
            shaped,
        };
        let hold = doc! { "update": COLLECTION, "updates": [
            { "q": { "k": 1, "control.page": 15 }, "u": { "$set": { "held": 1 } } },
        ] };
        let reply = world.holder.run(&mut world.direct, &hold)?;
        ensure!(reply.get_i32("nModified").ok() == Some(1), "{reply}");
        Ok(world)
    }

    /// The reply to a command during which the collection is frozen, and replaced.
    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.shaped.database);
        let address = self.shaped.proxy.address();
        let command = thread::spawn(move || {
            let mut connection = Connection::open(address)?;
            connection.stream().set_read_timeout(Some(Duration::from_mins(1)))?;
            connection.command(&command)
        });
        thread::sleep(Duration::from_millis(700));
        thread::scope(|scope| {
            let proxy = &self.shaped.proxy;
            let packing = scope.spawn(move || compact(proxy));
            // Which waits for the transaction, as the command does.
            let freezing = doc! { "aggregate": 1, "pipeline": [
                { "$currentOp": {} },
                { "$match": { "command.collMod": COLLECTION, "ns": { "$regex": &self.shaped.database } } },
            ], "cursor": {}, "$db": "admin" };
            let begun = Instant::now();
            while self.direct.all(&freezing)?.is_empty() {
                ensure!(begun.elapsed() < Duration::from_secs(30), "it is not frozen");
                thread::sleep(Duration::from_millis(20));
            }
            thread::sleep(Duration::from_millis(100));
            self.holder.end(&mut self.direct, "abortTransaction")?;
            packing.join().map_err(|_| anyhow!("packing has panicked"))?
        })?;
        command.join().map_err(|_| anyhow!("the command has panicked"))?
    }

    fn items(&self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.shaped.database };
        self.shaped.application()?.all(&find)
    }
}

#[test]
fn an_update_of_many_changes_each_item_once() -> Result<()> {
    for change in [
        doc! { "$inc": { "n": 1 } },
        doc! { "$inc": { "n": 1 }, "$set": { "k": 7 } },
    ] {
        let mut world = World::open("")?;
        let many = doc! { "q": {}, "u": &change, "multi": true };
        let one = doc! { "q": { "even": 1 }, "u": { "$inc": { "n": 1 } } };
        let reply = world.run(doc! { "update": COLLECTION, "updates": [one, many] })?;
        ensure!(reply.get("writeErrors").is_none(), "{change}: {reply}");
        let said = (reply.get_i32("n")?, reply.get_i32("nModified")?);
        ensure!(said == (ITEMS, ITEMS), "{change}: {reply}");
        let items = world.items()?;
        ensure!(items.len() == usize::try_from(ITEMS)?, "{} items", items.len());
        let wrong: Vec<&Document> = items.iter().filter(|item| item.get_i32("n").ok() != Some(1)).collect();
        ensure!(wrong.is_empty(), "{change}: {} items: {:?}", wrong.len(), wrong.first());
    }
    Ok(())
}

#[test]
fn an_update_that_cannot_be_taken_up_says_what_was_done() -> Result<()> {
    let mut world = World::open("item_ids = \"dropped\"\n")?;
    let many = doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true };
    let reply = world.run(doc! { "update": COLLECTION, "updates": [many] })?;
    let items = world.items()?;
    ensure!(items.len() == usize::try_from(ITEMS)?, "{} items", items.len());
    let changed = items.iter().filter(|item| item.get_i32("n").ok() == Some(1)).count();
    ensure!(
        items.iter().all(|item| item.get_i32("n").is_ok_and(|n| n < 2)),
        "some twice"
    );
    ensure!(changed > 0, "it was not under way");
    let error = reply
        .get_array("writeErrors")?
        .first()
        .and_then(bson::Bson::as_document)
        .context("an error")?;
    ensure!(error.get_i32("code")? == 112, "{reply}");
    let message = error.get_str("errmsg")?;
    ensure!(
        message.contains(&format!("{changed} of its items were changed")),
        "{changed}: {message}"
    );
    Ok(())
}

#[test]
fn a_delete_of_many_counts_each_item_once() -> Result<()> {
    for filter in [doc! {}, doc! { "n": 0 }, doc! { "_id": { "$gte": 0 } }] {
        let mut world = World::open("")?;
        let many = doc! { "q": &filter, "limit": 0 };
        let reply = world.run(doc! { "delete": COLLECTION, "deletes": [many] })?;
        ensure!(reply.get("writeErrors").is_none(), "{filter}: {reply}");
        ensure!(reply.get_i32("n")? == ITEMS, "{filter}: {reply}");
        ensure!(world.items()?.is_empty());
    }
    Ok(())
}

/// Items of the runs at random.
const WORKED_ON: i32 = 400;

/// Clients that change all items all the time, while the collection is packed again and again: what is there is what was answered.
fn all_are_changed_as_often_as_was_answered(mongod: &Mongod) -> Result<()> {
    let shaped = Shaped::with("max_items = 20\n", &ProxyOptions::new(&mongod.uri()))?;
    let database = &shaped.database;
    let mut application = shaped.application()?;
    let items: Vec<Document> = (0..WORKED_ON)
        .map(|n| doc! { "_id": n, "k": n % 7, "n": 0, "m": 0 })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    let goes_on = AtomicBool::new(true);
    let by_id = |ordered: bool| {
        let one = |n: i32| doc! { "q": { "_id": n }, "u": { "$inc": { "n": 1 } } };
        doc! { "update": COLLECTION, "updates": (0..WORKED_ON).map(one).collect::<Vec<_>>(), "ordered": ordered, "$db": database }
    };
    let many = || {
        let statement = doc! { "q": { "m": { "$gte": 0 } }, "u": { "$inc": { "m": 1 } }, "multi": true };
        doc! { "update": COLLECTION, "updates": [statement], "$db": database }
    };
    let work = |command: &dyn Fn(i32) -> Document| -> Result<i32> {
        let mut connection = shaped.application()?;
        connection.stream().set_read_timeout(Some(Duration::from_mins(1)))?;
        let mut answered = 0;
        while goes_on.load(Ordering::Relaxed) {
            let reply = connection.command_ok(&command(answered))?;
            ensure!(reply.get("writeErrors").is_none(), "{reply}");
            ensure!(reply.get_i32("n")? == WORKED_ON, "{reply}");
            answered += 1;
        }
        Ok(answered)
    };
    let (n, m) = thread::scope(|scope| -> Result<(i32, i32)> {
        let bulks = scope.spawn(|| work(&|round| by_id(round % 2 == 0)));
        let manies = scope.spawn(|| work(&|_| many()));
        let packed: Result<()> = (0..6).try_for_each(|round| {
            // Pages that are short.
            let extra: Vec<Document> = (0..400)
                .map(|n| doc! { "_id": format!("{round} {n}"), "k": n % 7 })
                .collect();
            application.command_ok(&shaped.insert(&extra))?;
            let gone = doc! { "q": { "m": { "$exists": false } }, "limit": 0 };
            application.command_ok(&doc! { "delete": COLLECTION, "deletes": [gone], "$db": database })?;
            compact(&shaped.proxy).map(drop)
        });
        goes_on.store(false, Ordering::Relaxed);
        let join = |worker: thread::ScopedJoinHandle<'_, Result<i32>>| worker.join().map_err(|_| anyhow!("a panic"))?;
        let done = (join(bulks)?, join(manies)?);
        packed.map(|()| done)
    })?;
    let all = application.all(&doc! { "find": COLLECTION, "$db": database })?;
    ensure!(all.len() == usize::try_from(WORKED_ON)?, "{} items", all.len());
    let wrong: Vec<&Document> = all
        .iter()
        .filter(|item| (item.get_i32("n").ok(), item.get_i32("m").ok()) != (Some(n), Some(m)))
        .collect();
    ensure!(
        wrong.is_empty(),
        "{n} and {m}, {} others: {:?}",
        wrong.len(),
        wrong.first()
    );
    Ok(())
}

#[test]
fn all_are_changed_as_often_as_was_answered_on_a_replica_set() -> Result<()> {
    all_are_changed_as_often_as_was_answered(mongod::shared_replica_set())
}

#[test]
fn all_are_changed_as_often_as_was_answered_on_a_standalone() -> Result<()> {
    all_are_changed_as_often_as_was_answered(mongod::shared())
}
