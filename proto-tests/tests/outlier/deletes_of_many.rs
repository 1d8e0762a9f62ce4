//! Deletions of many documents: the commands that are sent together, and a failed query for outliers.

use std::io::{self, Write as _};
use std::net::{Shutdown, TcpListener, TcpStream};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::altering_relay::AlteringRelay;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Outlier, frame, mongod, raw};

/// `_id`s in one batch of the proxy's query.
const BATCH: i32 = 1000;
/// The time in which a relay expects a command.
const LIMIT: Duration = Duration::from_secs(20);

fn shape() -> Outlier {
    Outlier::new("tags", (5, 7))
}

/// Both sides with this many outliers and ten inline documents.
fn sides(uri: String, outliers: i32) -> Result<Sides<Outlier>> {
    let mut sides = Sides::at(shape(), (uri, mongod::shared().address()))?;
    let document = |id: i32| {
        let length = if id < outliers { 8 } else { 4 };
        doc! { "_id": id, "n": id, "tags": (0..length).collect::<Vec<i32>>() }
    };
    let documents: Vec<Document> = (0..outliers + 10).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

fn delete(filter: Document) -> Document {
    doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] }
}

/// The kind of a command on the collection.
fn kind(frame: &[u8]) -> Option<String> {
    let command = raw::document(frame).ok()?;
    let (name, collection) = command.iter().next()?;
    (collection.as_str() == Some(COLLECTION)).then(|| name.clone())
}

/// A relay that passes on a deletion of many with the two queries around it only together. Returns its
/// connection string.
fn relay_of_three() -> Result<String> {
    let listener = TcpListener::bind("127.0.0.1:0")?;
    let uri = format!("mongodb://{}/?directConnection=true", listener.local_addr()?);
    thread::spawn(move || {
        for client in listener.incoming().flatten() {
            thread::spawn(move || carry(&client));
        }
    });
    Ok(uri)
}

fn carry(client: &TcpStream) {
    let Ok(server) = TcpStream::connect(mongod::shared().address()) else {
        return;
    };
    thread::scope(|scope| {
        scope.spawn(|| {
            let _ = io::copy(&mut &server, &mut &*client);
            let _ = client.shutdown(Shutdown::Both);
        });
        let _ = requests(client, &server);
        for stream in [client, &server] {
            let _ = stream.shutdown(Shutdown::Both);
        }
    });
}

fn requests(mut client: &TcpStream, mut server: &TcpStream) -> io::Result<()> {
    loop {
        let mut frames = vec![frame::read(&mut client)?];
        if kind(&frames[0]).as_deref() == Some("find") {
            client.set_read_timeout(Some(LIMIT))?;
            for expected in ["delete", "find"] {
                let next = frame::read(&mut client)?;
                if kind(&next).as_deref() != Some(expected) {
                    return Err(io::ErrorKind::InvalidData.into());
                }
                frames.push(next);
            }
            client.set_read_timeout(None)?;
        }
        server.write_all(&frames.concat())?;
    }
}

#[test]
fn inline_documents_are_deleted_with_one_round_trip() -> Result<()> {
    let mut sides = sides(relay_of_three()?, 0)?;
    for filter in [doc! { "n": { "$lt": 4 } }, doc! { "n": -1 }, doc! {}] {
        sides.alike(&delete(filter))?;
    }
    ensure!(sides.buckets()?.is_empty(), "documents are left");
    Ok(())
}

#[test]
fn outliers_are_deleted_with_their_extras() -> Result<()> {
    for filter in [
        doc! { "n": { "$gte": 2 } },
        doc! { "tags": 3, "n": { "$gte": 2 } },
        doc! {},
    ] {
        let mut sides = sides(mongod::shared().uri(), 5)?;
        sides.alike(&delete(filter))?;
        sides.check()?;
    }
    Ok(())
}

/// Turns the first reply with a later batch into the error of a pipeline that missed pages.
fn fail_once(reply: &mut Document) -> bool {
    static HAS_FAILED: AtomicBool = AtomicBool::new(false);
    let is_later = reply
        .get_document("cursor")
        .is_ok_and(|cursor| cursor.contains_key("nextBatch"));
    if !is_later || HAS_FAILED.swap(true, Ordering::SeqCst) {
        return false;
    }
    let message = "mongoshape: pages are missing of 507f1f77bcf86cd799439011";
    *reply = doc! { "ok": 0.0, "errmsg": message, "code": 241, "codeName": "ConversionFailure" };
    true
}

/// The first batch contains all outliers, and the reply to the request for the next one is an error.
#[test]
fn inline_documents_are_deleted_after_the_selection_of_outliers_has_failed() -> Result<()> {
    let relay = AlteringRelay::to(mongod::shared().address(), fail_once)?;
    let mut sides = sides(relay.uri(), BATCH)?;
    let reply = sides.alike(&delete(doc! { "tags": 3 }))?;
    ensure!(reply.get_i32("n")? == BATCH + 10, "{reply}");
    ensure!(sides.buckets()?.is_empty(), "documents are left");
    Ok(())
}
