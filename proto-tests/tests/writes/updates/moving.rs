//! Bulk updates of items that are relocated concurrently.

use std::net::SocketAddr;
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::{Transaction, lsid};

use crate::updates::sides::{self, COLLECTION};

/// A client in one transaction after the other.
struct Within {
    connection: Connection,
    database: String,
    transaction: Option<Transaction>,
    begun: u32,
    name: &'static str,
}

impl Within {
    fn open(address: SocketAddr, database: &str, name: &'static str) -> Result<Self> {
        Ok(Self {
            connection: Connection::open(address)?,
            database: database.to_owned(),
            transaction: None,
            begun: 0,
            name,
        })
    }

    /// Updates one item, which is there.
    fn update(&mut self, filter: Document, change: Document) -> Result<()> {
        self.begun += 1;
        let session = format!("{} {} {}", self.database, self.name, self.begun);
        let mut transaction = Transaction::new(&session, &self.database);
        let update = doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] };
        let reply = transaction.run(&mut self.connection, &update)?;
        ensure!(reply.get_i32("n").ok() == Some(1), "{reply}");
        self.transaction = Some(transaction);
        Ok(())
    }

    fn end(&mut self, how: &str) -> Result<()> {
        let mut transaction = self.transaction.take().context("one that has begun")?;
        let reply = transaction.end(&mut self.connection, how)?;
        ensure!(reply.get("code").is_none(), "{reply}");
        Ok(())
    }
}

/// Until the bulk has come to what keeps it waiting.
fn soon() {
    thread::sleep(Duration::from_millis(400));
}

#[test]
fn bulk_update_matches_an_item_that_is_relocated_before_each_attempt() -> Result<()> {
    let mut sides = sides::open()?;
    let database = sides.shaped_database();
    let address = sides.proxy.address();
    let mut mover = Within::open(address, &database, "mover")?;
    let mut holder = Within::open(address, &database, "holder")?;
    for (numbered, key) in [(false, 10), (true, 20)] {
        mover.update(doc! { "_id": 1 }, doc! { "$set": { "k": key } })?;
        holder.update(doc! { "_id": 15 }, doc! { "$set": { "held": 1 } })?;
        let of = |id: i32| doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1000 } } };
        let mut bulk = doc! { "update": COLLECTION, "updates": [of(1), of(15), of(32)], "$db": &database };
        if numbered {
            bulk.extend(doc! { "lsid": lsid(&format!("{database} bulk")), "txnNumber": 1_i64 });
        }
        let bulk = thread::spawn(move || Connection::open(address)?.command_ok(&bulk));
        soon();
        // It has waited for this, and misses the item; then it waits for the other.
        mover.end("commitTransaction")?;
        soon();
        mover.update(doc! { "_id": 1 }, doc! { "$set": { "k": key + 1 } })?;
        holder.end("abortTransaction")?;
        // It is sent again, and waits for the item once more.
        soon();
        mover.end("commitTransaction")?;
        let reply = bulk.join().map_err(|_| anyhow!("the bulk has panicked"))??;
        ensure!(
            reply.get_i32("n")? == 3 && reply.get_i32("nModified")? == 3,
            "{numbered}: {reply}"
        );
        ensure!(reply.get("retriedStmtIds").is_none(), "{numbered}: {reply}");
    }
    let items = sides.items(true)?;
    for id in [1, 15, 32] {
        let item = items
            .iter()
            .find(|item| item.get_i32("_id").ok() == Some(id))
            .context("an item")?;
        ensure!(item.get_i32("n")? == id + 2000, "{item}");
    }
    Ok(())
}
