//! Inserts of every size and with every option, on a plain collection and on a shaped one of one replica set.

mod empty;
mod failed_lookups;
mod insert_replies;
mod refused_documents;
mod repeated_ids;
mod resent;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::{self, Connection};
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{Shape, frame, invariants, replies};

/// Two empty collections, grouped by `k`.
fn sides() -> Result<Sides> {
    Sides::open(Shape::new(&["k"]))
}

/// An insert on both sides, as a message with a sequence; the replies without the databases' names and what
/// only one server can know.
fn insert(sides: &mut Sides, body: &Document, documents: &[Document]) -> Result<[Document; 2]> {
    let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
    let run = |connection: &mut Connection, database: String| -> Result<Document> {
        let mut command = doc! { "insert": COLLECTION };
        command.extend(body.clone());
        command.insert("$db", &database);
        let sections = [
            frame::body_section(&command)?,
            frame::sequence_section("documents", documents)?,
        ];
        connection.send(&frame::message(1, 0, &sections))?;
        let reply = raw::document(&connection.receive()?)?;
        Ok(comparable(&reply, &database))
    };
    Ok([run(&mut sides.plain, plain)?, run(&mut sides.shaped, shaped)?])
}

/// An insert that both sides answer alike.
fn alike(sides: &mut Sides, body: &Document, documents: &[Document]) -> Result<Document> {
    let [plain, shaped] = insert(sides, body, documents)?;
    ensure!(plain == shaped, "{body}\n  plain:  {plain}\n  shaped: {shaped}");
    Ok(plain)
}

/// How many documents both sides have, as the application counts them; the layout is checked.
fn count(sides: &mut Sides) -> Result<i32> {
    let databases = (sides.plain_database(), sides.shaped_database());
    let count = |connection: &mut Connection, database: String| -> Result<i32> {
        let reply = connection.command_ok(&doc! { "count": COLLECTION, "query": {}, "$db": database })?;
        Ok(reply.get_i32("n")?)
    };
    let plain = count(&mut sides.plain, databases.0)?;
    let shaped = count(&mut sides.shaped, databases.1)?;
    ensure!(plain == shaped, "{plain} and {shaped} documents");
    let database = sides.shaped_database();
    invariants::check(&mut sides.plain, &database, COLLECTION, &sides.shape)?;
    Ok(shaped)
}

fn comparable(reply: &Document, database: &str) -> Document {
    const KEPT: [&str; 7] = [
        "n",
        "writeErrors",
        "writeConcernError",
        "ok",
        "errmsg",
        "code",
        "codeName",
    ];
    replies::comparable(reply, &KEPT, database)
}

/// A document of exactly so many bytes.
fn of_bytes(id: i32, bytes: usize) -> Document {
    let with = |length: usize| doc! { "_id": id, "k": id % 7, "x": "x".repeat(length) };
    let empty = with(0).to_vec().expect("a document").len();
    with(bytes - empty)
}

/// A document that is so many levels deep, itself being the first.
fn of_depth(id: i32, depth: usize) -> Document {
    let nested = (2..depth).fold(doc! { "a": 1 }, |inner, _| doc! { "a": inner });
    doc! { "_id": id, "k": 1, "a": nested }
}

#[test]
fn insert_of_the_maximum_number_of_documents() -> Result<()> {
    let mut sides = sides()?;
    let documents: Vec<Document> = (0..100_000).map(|id| doc! { "_id": id, "k": id % 333 }).collect();
    alike(&mut sides, &doc! { "ordered": false }, &documents)?;
    ensure!(count(&mut sides)? == 100_000);
    let more: Vec<Document> = (100_000..200_001).map(|id| doc! { "_id": id, "k": id % 333 }).collect();
    alike(&mut sides, &doc! {}, &more)?;
    alike(&mut sides, &doc! {}, &[])?;
    ensure!(count(&mut sides)? == 100_000);
    let metric = |series: &str| sides.proxy.metric(series);
    ensure!(
        metric(&format!(
            "mongoshape_bucket_items_inserted_total{{namespace=\"{}_s.items\"}}",
            sides.database
        )) >= 100_000.0
    );
    Ok(())
}

#[test]
fn insert_of_the_maximum_message_size() -> Result<()> {
    let mut sides = sides()?;
    // Ten of them on a page would be more than its bytes allow.
    let large: Vec<Document> = (0..45).map(|id| of_bytes(id, 1_060_000)).collect();
    alike(&mut sides, &doc! {}, &large)?;
    let small: Vec<Document> = (1000..1400).map(|id| of_bytes(id, 119_000)).collect();
    alike(&mut sides, &doc! {}, &small)?;
    // The message has the same size with fewer documents.
    let (number, bytes) = if is_full("MONGOSHAPE_TABLES") {
        (80_000, 590)
    } else {
        (16_000, 2950)
    };
    let tiny: Vec<Document> = (10_000..10_000 + number).map(|id| of_bytes(id, bytes)).collect();
    alike(&mut sides, &doc! { "ordered": false }, &tiny)?;
    ensure!(count(&mut sides)? == number + 445);
    Ok(())
}

#[test]
fn documents_that_are_too_large_are_refused() -> Result<()> {
    const MAX: usize = 16 << 20;
    let mut sides = sides()?;
    alike(&mut sides, &doc! {}, &[of_bytes(1, MAX - 4096)])?;
    alike(
        &mut sides,
        &doc! { "ordered": false },
        &[of_bytes(2, 100), of_bytes(3, MAX + 1), of_bytes(4, 100)],
    )?;
    ensure!(count(&mut sides)? == 3);
    // Where the bucket has no room for it, the proxy returns the error.
    let [_, shaped] = insert(
        &mut sides,
        &doc! {},
        &[of_bytes(5, 100), of_bytes(6, MAX), of_bytes(7, 100)],
    )?;
    let errors = shaped.get_array("writeErrors")?;
    let error = errors[0].as_document().expect("an error");
    ensure!(shaped.get_i32("n")? == 1 && errors.len() == 1, "{shaped}");
    ensure!(
        error.get_i32("index")? == 1 && error.get_i32("code")? == 10334,
        "{shaped}"
    );
    let buckets = sides.shaped.command_ok(&doc! {
        "count": COLLECTION, "query": { "_id": { "$gte": 5 } }, "$db": format!("{}_s", sides.database)
    })?;
    ensure!(buckets.get_i32("n")? == 1, "{buckets}");
    Ok(())
}

#[test]
fn documents_that_are_too_deep_are_refused() -> Result<()> {
    let mut sides = sides()?;
    alike(&mut sides, &doc! {}, &[of_depth(1, 178)])?;
    for depth in [181, 190] {
        let documents = [of_depth(2, depth), of_depth(3, 3)];
        let [plain, shaped] = insert(&mut sides, &doc! {}, &documents)?;
        let code = |reply: &Document| -> Result<Bson> {
            let error = reply.get_array("writeErrors")?[0]
                .as_document()
                .cloned()
                .unwrap_or_default();
            Ok(error.get("code").cloned().unwrap_or(Bson::Null))
        };
        ensure!(code(&plain)? == code(&shaped)?, "{depth}: {plain} and {shaped}");
        ensure!(plain.get("n") == shaped.get("n"));
    }
    ensure!(count(&mut sides)? == 1);
    // mongod would store them, and cannot two levels deeper.
    for depth in [179, 180] {
        let [_, shaped] = insert(&mut sides, &doc! {}, &[of_depth(4, depth), of_depth(5, 3)])?;
        let errors = shaped.get_array("writeErrors")?;
        let error = errors[0].as_document().expect("an error");
        ensure!(shaped.get_i32("n")? == 0 && error.get_i32("code")? == 15, "{shaped}");
    }
    Ok(())
}

#[test]
fn write_concern_is_awaited_and_its_error_returned() -> Result<()> {
    let mut sides = sides()?;
    let mut id = 0;
    let mut some = |count: i32| -> Vec<Document> {
        id += count;
        (id - count..id).map(|id| doc! { "_id": id, "k": id % 3 }).collect()
    };
    for concern in [
        doc! { "w": 1 },
        doc! { "w": "majority", "wtimeout": 10_000 },
        doc! { "w": 1, "j": true },
        doc! { "w": 3, "wtimeout": 50 },
        doc! { "w": "nobody" },
        doc! { "w": 0 },
        // Refused before anything is written.
        doc! { "w": 51 },
        doc! { "w": -1 },
        doc! { "w": 1, "x": 1 },
        doc! { "w": 1, "wtimeout": "long" },
    ] {
        for count in [1, 25] {
            let documents = some(count);
            alike(&mut sides, &doc! { "writeConcern": concern.clone() }, &documents)?;
        }
    }
    count(&mut sides)?;
    Ok(())
}

#[test]
fn options_without_effect_are_accepted() -> Result<()> {
    let mut sides = sides()?;
    let documents: Vec<Document> = (0..25).map(|id| doc! { "_id": id, "k": id % 3 }).collect();
    let options = doc! {
        "bypassDocumentValidation": true,
        "comment": { "why": "a test" },
        "maxTimeMS": 10_000,
        "apiVersion": "1",
        "apiStrict": true,
    };
    alike(&mut sides, &options, &documents)?;
    // Again: all are duplicates.
    let [plain, shaped] = [true, false].map(|ordered| {
        let mut options = options.clone();
        options.insert("ordered", ordered);
        alike(&mut sides, &options, &documents)
    });
    plain?;
    shaped?;
    ensure!(count(&mut sides)? == 25);
    Ok(())
}

#[test]
fn client_statement_ids_do_not_collide_with_internal_ones() -> Result<()> {
    let mut sides = sides()?;
    let documents: Vec<Document> = (0..4).map(|id| doc! { "_id": id, "k": 1 }).collect();
    for (number, ids) in [
        doc! { "stmtId": 7 },
        doc! { "stmtIds": [9, 3, 5, 1] },
        doc! { "stmtIds": [1, 2] },
    ]
    .into_iter()
    .enumerate()
    {
        // Sent twice.
        for _ in 0..2 {
            let run = |connection: &mut Connection, database: String| -> Result<Document> {
                let lsid = lsid(&format!("{number}{database}"));
                let mut command = doc! { "insert": COLLECTION, "documents": &documents };
                command.extend(doc! { "lsid": lsid, "txnNumber": 1_i64, "$db": &database });
                command.extend(ids.clone());
                Ok(comparable(&connection.command(&command)?, &database))
            };
            let plain = run(&mut sides.plain, format!("{}_n", sides.database))?;
            let shaped = run(&mut sides.shaped, format!("{}_s", sides.database))?;
            let same = ["n", "ok", "code", "writeErrors"]
                .iter()
                .all(|name| plain.get(name) == shaped.get(name));
            ensure!(same, "{ids}\n  plain:  {plain}\n  shaped: {shaped}");
        }
    }
    ensure!(count(&mut sides)? == 4);
    // mongod would abort its process.
    let database = format!("{}_s", sides.database);
    let reply = sides.shaped.command(&doc! {
        "insert": COLLECTION, "documents": &documents[..2], "stmtIds": [5, 5],
        "lsid": lsid(&format!("twice{database}")), "txnNumber": 1_i64, "$db": database
    })?;
    ensure!(reply.get_i32("code")? == 72, "{reply}");
    Ok(())
}
