//! Clients that send a write again until there is a reply: a proxy or mongod may end meanwhile.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::retrying::{Client, Retries};

use super::super::fixture::COLLECTION;
use super::clients::{BASE, base_document};
use super::subject::Subject;

/// The pause of a client between two documents.
const PAUSE: Duration = Duration::from_millis(20);
/// The most documents of a client.
const MOST: i32 = 100_000;

/// Documents and their number of changes, by `_id`.
pub(super) type Numbers = BTreeMap<i32, i32>;

/// Inserts and changes documents until told to stop, at least one, and deletes some of them. Each write is sent
/// again until there is a reply.
fn write_again(number: usize, database: &str, addresses: &[SocketAddr], stopping: &AtomicBool) -> Result<Numbers> {
    let mut client = Client::new(number, addresses, (database, Retries::Writes));
    let mut written = Numbers::new();
    let first = MOST * (i32::try_from(number)? + 1);
    for id in first..first + MOST {
        if stopping.load(Ordering::Relaxed) && !written.is_empty() {
            break;
        }
        thread::sleep(PAUSE);
        let own = doc! { "_id": id };
        let change = if id % 3 == 0 {
            doc! { "$inc": { "n": 1 }, "$set": { "k": 7 } }
        } else {
            doc! { "$inc": { "n": 1 } }
        };
        let mut commands = vec![
            doc! { "insert": COLLECTION, "documents": [base_document(id)] },
            doc! { "update": COLLECTION, "updates": [{ "q": &own, "u": change }] },
        ];
        let is_deleted = id % 4 == 0;
        if is_deleted {
            commands.push(doc! { "delete": COLLECTION, "deletes": [{ "q": own, "limit": 1 }] });
        } else {
            written.insert(id, 1);
        }
        for command in commands {
            let reply = client.write_with_reply(&command)?;
            ensure!(reply.get_i32("n")? == 1, "{command}: {reply}");
        }
    }
    Ok(written)
}

/// Runs `happens` beside clients with these numbers, each beginning with another proxy. Returns the documents
/// that they have written.
pub(super) fn beside_writers(
    subject: &mut Subject,
    numbers: Range<usize>,
    happens: impl FnOnce(&mut Subject) -> Result<()>,
) -> Result<Numbers> {
    let addresses = &[0, 1].map(|number: usize| subject.proxies[number].address());
    let (database, stopping) = (&subject.database.clone(), &AtomicBool::new(false));
    thread::scope(|scope| {
        let write = |number| scope.spawn(move || write_again(number, database, addresses, stopping));
        let writers: Vec<_> = numbers.map(write).collect();
        let happened = happens(subject);
        stopping.store(true, Ordering::Relaxed);
        let mut written = Numbers::new();
        for writer in writers {
            written.extend(writer.join().expect("a client panicked")?);
        }
        happened.map(|()| written)
    })
}

/// Checks the documents that a proxy reads.
pub(super) fn check_items(subject: &Subject, written: Numbers) -> Result<()> {
    let items: Vec<Document> = subject.items()?;
    let mut stored = Numbers::new();
    for item in &items {
        stored.insert(item.get_i32("_id")?, item.get_i32("n")?);
    }
    ensure!(stored.len() == items.len(), "an item is stored twice");
    let mut expected: Numbers = (0..BASE).map(|id| (id, 0)).collect();
    expected.extend(written);
    ensure!(
        stored == expected,
        "{} stored, {} expected",
        stored.len(),
        expected.len()
    );
    Ok(())
}
