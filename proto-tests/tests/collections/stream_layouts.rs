//! Events of documents that are no pages, in change streams: of a former layout, and of direct writes.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::shaped::COLLECTION;

use super::change_streams::{Watched, watch};

const FATAL: i32 = 280;

/// A stream on the collection, and one on the database.
fn targets() -> [Bson; 2] {
    [COLLECTION.into(), 1.into()]
}

/// The options of a stream that begins at the present time: a token of mongod, and a time.
fn positions(watched: &mut Watched, target: &Bson) -> Result<[Document; 2]> {
    let mut command = watch(target.clone(), doc! {});
    command.insert("$db", &watched.database);
    let opened = watched.direct.command_ok(&command)?;
    let token = opened.get_document("cursor")?.get_document("postBatchResumeToken")?;
    let mut time = opened.get_timestamp("operationTime")?;
    time.increment += 1;
    Ok([doc! { "resumeAfter": token }, doc! { "startAtOperationTime": time }])
}

/// The reply with the first event or error of a stream.
fn first_event(watched: &mut Watched, target: &Bson, options: Document) -> Result<Document> {
    let opened = watched.run(watch(target.clone(), options))?;
    let Ok(cursor) = opened.get_document("cursor") else {
        return Ok(opened);
    };
    ensure!(cursor.get_array("firstBatch")?.is_empty(), "{cursor}");
    let of = target.as_str().unwrap_or("$cmd.aggregate");
    watched.run(doc! { "getMore": cursor.get_i64("id")?, "collection": of, "maxTimeMS": 5000 })
}

fn plain(id: i32) -> Document {
    doc! { "_id": id, "k": 1, "date": DateTime::now() }
}

#[test]
fn events_before_a_collection_was_packed_are_an_error() -> Result<()> {
    for target in targets() {
        let mut watched = Watched::start(true)?;
        watched.past(doc! { "insert": COLLECTION, "documents": [plain(1)] })?;
        let positions = positions(&mut watched, &target)?;
        watched.past(doc! { "insert": COLLECTION, "documents": [plain(2)] })?;
        let packed = watched.proxy.run_with("setup", &["--pack"])?;
        ensure!(packed.status.success(), "{packed:?}");
        watched.insert(3..4, DateTime::now())?;
        for options in positions {
            let reply = first_event(&mut watched, &target, options.clone())?;
            ensure!(reply.get_i32("code").ok() == Some(FATAL), "{target} {options}: {reply}");
            ensure!(reply.get_str("errmsg")?.contains("setup --pack"), "{reply}");
        }
    }
    Ok(())
}

#[test]
fn events_before_a_collection_was_dropped_are_an_error() -> Result<()> {
    let mut watched = Watched::start(true)?;
    let target = Bson::from(1);
    watched.past(doc! { "insert": COLLECTION, "documents": [plain(1)] })?;
    let positions = positions(&mut watched, &target)?;
    watched.past(doc! { "insert": COLLECTION, "documents": [plain(2)] })?;
    watched.past(doc! { "drop": COLLECTION })?;
    watched.insert(3..4, DateTime::now())?;
    for options in positions {
        let reply = first_event(&mut watched, &target, options.clone())?;
        ensure!(reply.get_i32("code").ok() == Some(FATAL), "{options}: {reply}");
    }
    Ok(())
}

#[test]
fn documents_beside_the_pages_have_no_events() -> Result<()> {
    for target in targets() {
        let mut watched = Watched::start(true)?;
        watched.insert(0..1, DateTime::now())?;
        let mut streams = vec![watched.open(target.clone(), doc! {})?];
        let positions = positions(&mut watched, &target)?;
        let other_version =
            doc! { "_id": "0_9", "k": 0, "count": 1, "history": [{ "_id": 9 }], "control": { "v": 2, "page": 1 } };
        watched.past(doc! { "insert": COLLECTION, "documents": [plain(100), other_version] })?;
        let change = doc! { "q": { "_id": 100 }, "u": { "$set": { "n": 1 } } };
        watched.past(doc! { "update": COLLECTION, "updates": [change] })?;
        watched.past(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 100 }, "limit": 1 }] })?;
        watched.insert(1..2, DateTime::now())?;
        for options in positions {
            streams.push(watched.open(target.clone(), options)?);
        }
        for mut stream in streams {
            stream.read(&mut watched, 1)?;
            assert_eq!(stream.events, [("insert".to_owned(), 1)], "{target}");
        }
    }
    Ok(())
}

/// The page is read as before.
#[test]
fn a_page_with_a_field_of_another_program_has_events() -> Result<()> {
    for target in targets() {
        let mut watched = Watched::start(true)?;
        watched.insert(0..1, DateTime::now())?;
        let mut stream = watched.open(target.clone(), doc! {})?;
        let change = doc! { "q": { "k": 0 }, "u": { "$set": { "archived": true } } };
        watched.past(doc! { "update": COLLECTION, "updates": [change] })?;
        let change = doc! { "q": { "_id": 0 }, "u": { "$set": { "n": 1 } } };
        watched.done(doc! { "update": COLLECTION, "updates": [change] })?;
        watched.done(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 0 }, "limit": 1 }] })?;
        stream.read(&mut watched, 2)?;
        assert_eq!(
            stream.events,
            [("update".to_owned(), 0), ("delete".to_owned(), 0)],
            "{target}"
        );
    }
    Ok(())
}
