//! Writes of many items during a freeze and a swap: each item is changed once, and counted.
//!
//! `MONGOSHAPE_CRASHES=full` changes three times as many items.

use std::path::Path;
use std::process::Command;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::delaying_relay::{DelayingRelay, Fate};
use proto_tests::measure::is_full;
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::sessions::Transaction;
use proto_tests::shaped::{COLLECTION, Shaped, bucket};
use proto_tests::{Proxy, ProxyOptions, mongod};

/// Items of a page.
const MAX_ITEMS: i32 = 20;

/// Items of three keys. As many others are deleted before, so that pages are short.
fn item_count() -> i32 {
    if is_full("MONGOSHAPE_CRASHES") { 900 } else { 300 }
}

/// Items of a key, before some are deleted.
fn items_of_key() -> i32 {
    item_count() * 2 / 3
}

struct Fixture {
    shaped: Shaped,
    direct: Connection,
    holder: Transaction,
    relay: DelayingRelay,
    /// The proxy whose configuration has the relay as its upstream.
    proxy: Proxy,
}

impl Fixture {
    /// Pages that are short.
    fn open(options: &str) -> Result<Self> {
        let set = mongod::shared_replica_set();
        let options = format!("max_items = {MAX_ITEMS}\n{options}");
        let shaped = Shaped::with(&options, &ProxyOptions::new(&set.uri()))?;
        let mut application = shaped.application()?;
        let of_key = items_of_key();
        let items: Vec<Document> = (0..item_count() * 2)
            .map(|n| doc! { "_id": n, "k": n / of_key, "n": 0, "even": n % 2 })
            .collect();
        application.command_ok(&shaped.insert(&items))?;
        let odd = doc! { "q": { "even": 1 }, "limit": 0 };
        application.command_ok(&doc! { "delete": COLLECTION, "deletes": [odd], "$db": &shaped.database })?;
        let relay = DelayingRelay::to(set.address())?;
        let proxy = Proxy::start(&ProxyOptions::new(&relay.uri()).config(&bucket(&shaped.database, &options)))?;
        Ok(Self {
            direct: Connection::open(set.address())?,
            holder: Transaction::new(&format!("{} holder", shaped.database), &shaped.database),
            shaped,
            relay,
            proxy,
        })
    }

    /// A transaction that has written the middle page of the second key, so that other writers of it wait.
    fn hold(&mut self) -> Result<()> {
        let page = items_of_key() / MAX_ITEMS / 2;
        let hold = doc! { "update": COLLECTION, "updates": [
            { "q": { "k": 1, "control.page": page }, "u": { "$set": { "held": 1 } } },
        ] };
        let reply = self.holder.run(&mut self.direct, &hold)?;
        ensure!(reply.get_i32("nModified").ok() == Some(1), "{reply}");
        Ok(())
    }

    /// The reply to a command during which the collection is frozen, and replaced.
    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.shaped.database);
        let [freezes, may_freeze] = [(); 2].map(|()| Arc::new(AtomicBool::new(false)));
        let (about_to, may) = (freezes.clone(), may_freeze.clone());
        self.relay.judge(move |command| {
            if is_freeze(command) {
                about_to.store(true, Ordering::Relaxed);
                while !may.load(Ordering::Relaxed) {
                    thread::sleep(Duration::from_millis(5));
                }
            }
            Fate::Arrives
        });
        let config = self.proxy.config_file().clone();
        let packing = thread::spawn(move || compact_by(&config));
        wait_until("compact does not freeze", || Ok(freezes.load(Ordering::Relaxed)))?;
        self.hold()?;
        let address = self.shaped.proxy.address();
        let command = thread::spawn(move || {
            let mut connection = Connection::open(address)?;
            connection.stream().set_read_timeout(Some(Duration::from_mins(1)))?;
            connection.command(&command)
        });
        thread::sleep(Duration::from_millis(700));
        may_freeze.store(true, Ordering::Relaxed);
        // It waits for the transaction, as the command does.
        let freezing = doc! { "aggregate": 1, "pipeline": [
            { "$currentOp": {} },
            { "$match": { "command.collMod": COLLECTION, "ns": { "$regex": &self.shaped.database } } },
        ], "cursor": {}, "$db": "admin" };
        wait_until("it is not frozen", || Ok(!self.direct.all(&freezing)?.is_empty()))?;
        thread::sleep(Duration::from_millis(100));
        self.holder.end(&mut self.direct, "abortTransaction")?;
        packing.join().map_err(|_| anyhow!("compact has panicked"))??;
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
        let mut fixture = Fixture::open("")?;
        let many = doc! { "q": {}, "u": &change, "multi": true };
        let one = doc! { "q": { "even": 1 }, "u": { "$inc": { "n": 1 } } };
        let reply = fixture.run(doc! { "update": COLLECTION, "updates": [one, many] })?;
        ensure!(reply.get("writeErrors").is_none(), "{change}: {reply}");
        let counts = (reply.get_i32("n")?, reply.get_i32("nModified")?);
        ensure!(counts == (item_count(), item_count()), "{change}: {reply}");
        let items = fixture.items()?;
        ensure!(items.len() == usize::try_from(item_count())?, "{} items", items.len());
        let wrong: Vec<&Document> = items.iter().filter(|item| item.get_i32("n").ok() != Some(1)).collect();
        ensure!(wrong.is_empty(), "{change}: {} items: {:?}", wrong.len(), wrong.first());
    }
    Ok(())
}

#[test]
fn update_that_cannot_be_resumed_reports_completed_changes() -> Result<()> {
    let mut fixture = Fixture::open("item_ids = \"dropped\"\n")?;
    let many = doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true };
    let reply = fixture.run(doc! { "update": COLLECTION, "updates": [many] })?;
    let items = fixture.items()?;
    ensure!(items.len() == usize::try_from(item_count())?, "{} items", items.len());
    let changed = items.iter().filter(|item| item.get_i32("n").ok() == Some(1)).count();
    ensure!(
        items.iter().all(|item| item.get_i32("n").is_ok_and(|n| n < 2)),
        "some twice"
    );
    ensure!(changed > 0, "the update had not begun");
    let error = reply
        .get_array("writeErrors")?
        .first()
        .and_then(bson::Bson::as_document)
        .context("an error")?;
    ensure!(error.get_i32("code")? == 112, "{reply}");
    let message = error.get_str("errmsg")?;
    ensure!(
        message.contains(&format!("{changed} items were changed")),
        "{changed}: {message}"
    );
    Ok(())
}

#[test]
fn a_delete_of_many_counts_each_item_once() -> Result<()> {
    for filter in [doc! {}, doc! { "n": 0 }, doc! { "_id": { "$gte": 0 } }] {
        let mut fixture = Fixture::open("")?;
        let many = doc! { "q": &filter, "limit": 0 };
        let reply = fixture.run(doc! { "delete": COLLECTION, "deletes": [many] })?;
        ensure!(reply.get("writeErrors").is_none(), "{filter}: {reply}");
        ensure!(reply.get_i32("n")? == item_count(), "{filter}: {reply}");
        ensure!(fixture.items()?.is_empty());
    }
    Ok(())
}

fn is_freeze(command: &Document) -> bool {
    let validator = command.get_document("validator");
    command.contains_key("collMod") && validator.is_ok_and(|validator| !validator.is_empty())
}

fn compact_by(config: &Path) -> Result<()> {
    let output = Command::new(find_binary()?)
        .args(["compact", "--config"])
        .arg(config)
        .output()?;
    super::successful_output(&output).map(drop)
}

fn wait_until(otherwise: &str, mut is_so: impl FnMut() -> Result<bool>) -> Result<()> {
    let begun = Instant::now();
    while !is_so()? {
        ensure!(begun.elapsed() < Duration::from_secs(30), "{otherwise}");
        thread::sleep(Duration::from_millis(20));
    }
    Ok(())
}
