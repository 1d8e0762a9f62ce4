//! Clients that write while a collection is converted. Each has documents of its own, and knows what must be
//! stored of them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::thread::{self, JoinHandle};
use std::time::Duration;

use anyhow::{Result, bail};
use bson::{Binary, Bson, Document, doc};
use proto_tests::raw::Connection;
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use super::fixture::{COLLECTION, document};

/// Codes after which a writer ends: the collection is frozen, has another UUID, or is in a layout that the proxy
/// does not serve.
const ENDED: [i32; 4] = [121, 361, 72, 112];
/// The pause between two writes: the tests convert with an unoptimised build.
const PAUSE: Duration = Duration::from_millis(10);
/// Writes of a writer.
const WRITES: u32 = 300;
/// Documents of a writer.
const IDS: i32 = 200;

/// Where a writer connects to.
#[derive(Clone)]
pub(super) struct Place {
    pub(super) address: SocketAddr,
    pub(super) database: String,
    /// Names the collection, so that no write reaches another one.
    pub(super) uuid: Option<Binary>,
}

/// Running writers.
pub(super) struct Writers(Vec<JoinHandle<Result<BTreeMap<i32, Document>>>>);

impl Writers {
    /// Starts writers that go on until the collection refuses them.
    pub(super) fn start(place: &Place, count: i32) -> Self {
        let writer = |number: i32| {
            let place = place.clone();
            thread::spawn(move || write(&place, number))
        };
        Self((0..count).map(writer).collect())
    }

    /// Waits for the end of all. Returns their documents by `n`.
    pub(super) fn join(self) -> Result<BTreeMap<i32, Document>> {
        let mut all = BTreeMap::new();
        for writer in self.0 {
            all.extend(writer.join().expect("a writer panicked")?);
        }
        Ok(all)
    }
}

/// The result of a write.
#[derive(PartialEq)]
enum Written {
    Yes,
    Ended,
}

fn write(place: &Place, number: i32) -> Result<BTreeMap<i32, Document>> {
    let mut connection = Connection::open(place.address)?;
    let mut random = ChaCha8Rng::seed_from_u64(u64::try_from(number)?);
    let mut stored = BTreeMap::new();
    // Bounded: on a busy machine, writers could be faster than the conversion for ever.
    for _ in 0..WRITES {
        let n = 100_000 + number * IDS + random.random_range(0..IDS);
        let (command, after) = match stored.get(&n).cloned() {
            None => {
                let document = document(n);
                (doc! { "insert": COLLECTION, "documents": [&document] }, Some(document))
            }
            Some(before) => change(&mut random, before),
        };
        thread::sleep(PAUSE);
        if execute(&mut connection, place, command)? == Written::Ended {
            break;
        }
        match after {
            Some(after) => drop(stored.insert(n, after)),
            None => drop(stored.remove(&n)),
        }
    }
    Ok(stored)
}

/// A change of a document, and the document after it.
fn change(random: &mut ChaCha8Rng, before: Document) -> (Document, Option<Document>) {
    let q = doc! { "_id": before.get("_id").cloned().unwrap_or(Bson::Null) };
    let mut after = before;
    let u = match random.random_range(0..6) {
        0 => return (doc! { "delete": COLLECTION, "deletes": [{ "q": q, "limit": 1 }] }, None),
        1 => {
            after.insert("k", random.random_range(0..7));
            doc! { "$set": { "k": after.get("k") } }
        }
        2 => {
            let at = bson::DateTime::from_millis(1_698_349_623_000 + random.random_range(0..10_000_000));
            after.insert("at", at);
            doc! { "$set": { "at": at } }
        }
        3 => {
            let fields: Document = after.clone().into_iter().filter(|(field, _)| field != "more").collect();
            after = fields.clone();
            fields
        }
        _ => {
            after.insert("count", random.random_range(0..1000_i64));
            doc! { "$set": { "count": after.get("count") } }
        }
    };
    (
        doc! { "update": COLLECTION, "updates": [{ "q": q, "u": u }] },
        Some(after),
    )
}

fn execute(connection: &mut Connection, place: &Place, mut command: Document) -> Result<Written> {
    command.insert("$db", &place.database);
    if let Some(uuid) = &place.uuid {
        command.insert("collectionUUID", uuid);
    }
    let reply = connection.command(&command)?;
    let errors = reply
        .get_array("writeErrors")
        .into_iter()
        .flatten()
        .filter_map(Bson::as_document);
    let code = errors.chain([&reply]).find_map(|error| error.get_i32("code").ok());
    match code {
        Some(code) if ENDED.contains(&code) => Ok(Written::Ended),
        None if reply.get_i32("n").is_ok_and(|n| n == 1) => Ok(Written::Yes),
        _ => bail!("{command}: {reply}"),
    }
}
