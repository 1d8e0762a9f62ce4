//! Snapshot reads, and other read concerns, while the extras are replaced.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::Outlier;
use proto_tests::sessions::lsid;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::snapshots::SnapshotSession;

fn sides() -> Result<Sides<Outlier>> {
    let mut sides = Sides::open(Outlier::new("tags", (5, 7)))?;
    let document = |id: i32| doc! { "_id": id, "n": id, "tags": (0..10 + id).collect::<Vec<_>>() };
    let documents: Vec<Document> = (1..5).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

/// Gives all documents other extras, or none.
fn change_all(sides: &mut Sides<Outlier>) -> Result<()> {
    let change = |q: Document, u: Document| doc! { "q": q, "u": u, "multi": true };
    sides.alike(&doc! { "update": COLLECTION, "updates": [
        change(doc! {}, doc! { "$pull": { "tags": { "$gt": 6, "$lt": 9 } } }),
        change(doc! { "n": 2 }, doc! { "$set": { "tags": [] } }),
    ] })?;
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 3 }, "limit": 1 }] })?;
    sides.check()
}

/// All that reads the documents in different ways.
fn reads() -> Vec<Document> {
    let aggregate =
        |stages: Vec<Document>| doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": { "batchSize": 1 } };
    vec![
        doc! { "find": COLLECTION, "sort": { "_id": 1 }, "batchSize": 1 },
        doc! { "find": COLLECTION, "filter": { "n": 2 }, "projection": { "tags": 1 } },
        doc! { "find": COLLECTION, "filter": { "tags": 11 }, "sort": { "_id": 1 }, "batchSize": 1 },
        aggregate(vec![doc! { "$sort": { "_id": 1 } }]),
        doc! { "distinct": COLLECTION, "key": "tags" },
        doc! { "distinct": COLLECTION, "key": "n" },
    ]
}

#[test]
fn a_snapshot_session_reads_at_its_time_after_others_have_changed_the_extras() -> Result<()> {
    for first in reads() {
        let mut sides = sides()?;
        let mut times = [None, None];
        let mut before = Vec::new();
        for (is_shaped, time) in [false, true].into_iter().zip(&mut times) {
            let mut session = SnapshotSession::new(&mut sides, is_shaped, None);
            before.push(session.all(first.clone()).with_context(|| format!("{first}"))?);
            *time = session.time;
        }
        ensure!(before[0] == before[1], "{first}: {before:?}");
        change_all(&mut sides)?;
        for read in reads() {
            let mut found = Vec::new();
            for (is_shaped, time) in [false, true].into_iter().zip(&times) {
                let mut session = SnapshotSession::new(&mut sides, is_shaped, time.clone());
                found.push(session.all(read.clone()).with_context(|| format!("{read}"))?);
            }
            ensure!(
                found[0] == found[1],
                "{read}\n  plain:  {:?}\n  shaped: {:?}",
                found[0],
                found[1]
            );
        }
    }
    Ok(())
}

#[test]
fn snapshot_cursor_continues_at_its_timestamp() -> Result<()> {
    let mut sides = sides()?;
    let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "batchSize": 1 };
    let mut begun = Vec::new();
    for is_shaped in [false, true] {
        begun.push(SnapshotSession::new(&mut sides, is_shaped, None).run(find.clone())?);
    }
    change_all(&mut sides)?;
    let mut found = Vec::new();
    for (is_shaped, first) in [false, true].into_iter().zip(begun) {
        let id = first.get_document("cursor")?.get_i64("id")?;
        let mut session = SnapshotSession::new(&mut sides, is_shaped, Some(Bson::Null));
        let reply = session.run(doc! { "getMore": id, "collection": COLLECTION })?;
        found.push(reply.get_document("cursor")?.get_array("nextBatch")?.clone());
    }
    ensure!(found[0] == found[1] && found[0].len() == 3, "{found:?}");
    Ok(())
}

#[test]
fn every_read_concern_and_a_causal_read_show_whole_documents() -> Result<()> {
    let mut sides = sides()?;
    change_all(&mut sides)?;
    let expected = sides.items(false)?;
    let database = sides.shaped_database();
    let ping = sides.plain.command_ok(&doc! { "find": COLLECTION, "$db": &database })?;
    let now = ping.get("operationTime").context("no time")?.clone();
    let concerns = ["local", "available", "majority", "linearizable", "snapshot"].map(|level| doc! { "level": level });
    let causal = ["local", "majority", "snapshot"].map(|level| doc! { "level": level, "afterClusterTime": &now });
    for concern in concerns.into_iter().chain(causal) {
        let mut find =
            doc! { "find": COLLECTION, "sort": { "_id": 1 }, "readConcern": concern.clone(), "$db": &database };
        if concern.contains_key("afterClusterTime") {
            find.insert("lsid", lsid(&database));
        }
        let reply = sides.shaped.command_ok(&find)?;
        let found = reply.get_document("cursor")?.get_array("firstBatch")?;
        ensure!(
            found.iter().filter_map(Bson::as_document).eq(&expected),
            "{concern}: {found:?}"
        );
    }
    Ok(())
}

#[test]
fn a_transaction_reads_at_the_time_of_its_first_command() -> Result<()> {
    for level in ["snapshot", "majority", "local"] {
        for read in reads() {
            let mut sides = sides()?;
            let mut begun = Vec::new();
            for is_shaped in [false, true] {
                let session = SnapshotSession::new(&mut sides, is_shaped, None);
                let command = doc! {
                    "find": COLLECTION, "filter": { "n": 1 }, "lsid": lsid(&session.database), "txnNumber": 1_i64, "autocommit": false,
                    "startTransaction": true, "readConcern": { "level": level }, "$db": &session.database,
                };
                session.connection.command_ok(&command)?;
                begun.push(command);
            }
            // Writers of other documents do not wait for it.
            change_all(&mut sides)?;
            let mut found = Vec::new();
            for is_shaped in [false, true] {
                let session = SnapshotSession::new(&mut sides, is_shaped, None);
                let numbered = doc! { "lsid": lsid(&session.database), "txnNumber": 1_i64, "autocommit": false, "$db": &session.database };
                let mut command = read.clone();
                command.extend(numbered.clone());
                command.remove("batchSize");
                if command.contains_key("cursor") {
                    command.insert("cursor", doc! {});
                }
                let reply = session.connection.command_ok(&command)?;
                let values = reply
                    .get_array("values")
                    .or_else(|_| reply.get_document("cursor")?.get_array("firstBatch"))?;
                found.push(values.clone());
                let mut end = doc! { "commitTransaction": 1 };
                end.extend(numbered);
                end.insert("$db", "admin");
                session.connection.command_ok(&end)?;
            }
            ensure!(
                found[0] == found[1],
                "{level} {read}\n  plain:  {:?}\n  shaped: {:?}",
                found[0],
                found[1]
            );
        }
    }
    Ok(())
}
