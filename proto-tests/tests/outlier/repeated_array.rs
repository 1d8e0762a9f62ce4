//! Documents that have the array's field twice, which few drivers can send.

use anyhow::{Result, ensure};
use bson::raw::{RawArrayBuf, RawDocumentBuf, cstr};
use bson::{Document, doc, rawdoc};
use proto_tests::raw::{self, Connection};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Outlier, frame, replies};

/// An array that is split.
fn long() -> RawArrayBuf {
    (0..9).collect()
}

fn send(connection: &mut Connection, command: &RawDocumentBuf) -> Result<Document> {
    let section = [vec![0], command.as_bytes().to_vec()].concat();
    connection.send(&frame::message(1, 0, &[section]))?;
    raw::document(&connection.receive()?)
}

fn find(database: &str) -> Document {
    doc! { "find": COLLECTION, "$db": database }
}

#[test]
fn a_document_with_a_repeated_array_is_refused() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "tags": [1] }] })?;
    let database = sides.shaped_database();
    let before = sides.buckets()?;
    for repeated in [
        rawdoc! { "_id": 1, "tags": long(), "tags": "second" },
        rawdoc! { "_id": 1, "tags": [1], "n": 1, "tags": long() },
        rawdoc! { "_id": 1, "tags": [1], "tags": [2] },
    ] {
        let inserted = rawdoc! { "_id": 2, "tags": [2] };
        let statement = rawdoc! { "q": { "_id": 1 }, "u": repeated.clone(), "upsert": true };
        for mut command in [
            rawdoc! { "insert": COLLECTION, "documents": [inserted, repeated.clone()] },
            rawdoc! { "update": COLLECTION, "updates": [statement] },
            rawdoc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "update": repeated },
        ] {
            command.append(cstr!("$db"), database.as_str());
            let reply = send(&mut sides.shaped, &command)?;
            ensure!(replies::first_code(&reply) == 115, "{command:?}: {reply}");
            ensure!(sides.buckets()? == before, "{command:?} has changed something");
        }
    }
    sides.check()
}

/// It was stored by a program without the proxy.
#[test]
fn a_document_with_a_repeated_array_is_not_split() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    let database = sides.shaped_database();
    let document = rawdoc! { "_id": 1, "tags": long(), "tags": "second" };
    let insert = rawdoc! { "insert": COLLECTION, "documents": [document], "$db": database.as_str() };
    ensure!(send(&mut sides.plain, &insert)?.get_i32("n")? == 1);
    let before = sides.plain.command_raw(&find(&database))?;
    let statement = doc! { "q": { "_id": 1 }, "u": { "$set": { "tags.7": "x" } } };
    let update = doc! { "update": COLLECTION, "updates": [statement], "$db": &database };
    let reply = sides.shaped.command(&update)?;
    ensure!(replies::first_code(&reply) == 115, "{reply}");
    let after = sides.plain.command_raw(&find(&database))?;
    let [before, after] = [&before, &after].map(|reply| reply.get_document("cursor"));
    ensure!(before? == after?, "the document is changed");
    Ok(())
}
