//! Snapshot sessions on a bucket collection: every read answers the time at which the session goes on.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::snapshots::SnapshotSession;
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Shape, mongod};

/// Items that are inserted at once.
const ITEMS: i32 = 20;

fn insert(sides: &mut Sides, round: i32) -> Result<()> {
    let first = round * ITEMS;
    let item = |id: i32| doc! { "_id": id, "k": id % 3 + round, "n": id, "city": format!("city {id}") };
    let items: Vec<Document> = (first..first + ITEMS).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(())
}

/// Reads of different access paths.
fn reads() -> Vec<Document> {
    let distinct = |key: &str| doc! { "distinct": COLLECTION, "key": key };
    let stages = vec![doc! { "$sort": { "_id": -1 } }, doc! { "$limit": 5 }];
    vec![
        doc! { "find": COLLECTION, "sort": { "_id": -1 }, "limit": 5 },
        doc! { "find": COLLECTION, "sort": { "n": -1 }, "limit": 5, "batchSize": 2 },
        doc! { "find": COLLECTION, "filter": { "k": 1 }, "sort": { "_id": 1 } },
        doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} },
        distinct("k"),
        distinct("n"),
        distinct("city"),
        doc! { "distinct": COLLECTION, "key": "n", "query": { "k": 1 } },
    ]
}

/// The results of a read on both sides. `times`: those at which the sessions read. They are set by their first
/// reads.
fn read(sides: &mut Sides, command: &Document, times: &mut [Option<Bson>; 2]) -> Result<[Vec<Bson>; 2]> {
    let mut results = [Vec::new(), Vec::new()];
    for (is_shaped, (time, result)) in [false, true].into_iter().zip(times.iter_mut().zip(&mut results)) {
        let mut session = SnapshotSession::new(sides, is_shaped, time.take());
        *result = session.all(command.clone()).with_context(|| command.to_string())?;
        *time = session.time;
        if command.contains_key("distinct") {
            result.sort_by_key(ToString::to_string);
        }
    }
    Ok(results)
}

#[test]
fn a_snapshot_session_goes_on_at_the_time_of_its_first_read() -> Result<()> {
    let mut sides = Sides::open(Shape::new(&["k"]))?;
    let index = doc! { "key": { "n": 1 }, "name": "n" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    insert(&mut sides, 0)?;
    for (round, first) in (1..).zip(reads()) {
        let mut times = [None, None];
        let [plain, shaped] = read(&mut sides, &first, &mut times)?;
        ensure!(plain == shaped, "{first}\n  plain:  {plain:?}\n  shaped: {shaped:?}");
        insert(&mut sides, round)?;
        for command in reads() {
            let [plain, shaped] = read(&mut sides, &command, &mut times)?;
            ensure!(
                plain == shaped,
                "{first}, {command}\n  plain:  {plain:?}\n  shaped: {shaped:?}"
            );
        }
    }
    Ok(())
}

/// Names a query for late pages.
fn late_pages(command: &Document) -> Option<String> {
    let filter = command.get_document("filter").ok()?;
    filter.contains_key("control.late").then(|| filter.to_string())
}

#[test]
fn two_queries_are_not_sent_for_a_new_snapshot() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), late_pages)?;
    let shape = Shape {
        time: Some("at".to_owned()),
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (relay.uri(), set.address()))?;
    let item = |id: i32| doc! { "_id": id, "k": id % 3, "at": DateTime::from_millis(i64::from(id) * 1000) };
    let items: Vec<Document> = (0..60).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let filter = doc! { "k": { "$in": [1, 2] } };
    let feed = doc! { "find": COLLECTION, "filter": filter, "sort": { "at": -1 }, "limit": 3 };
    let mut times = [None, None];
    for is_new in [true, false] {
        relay.arm(None);
        let [plain, shaped] = read(&mut sides, &feed, &mut times)?;
        ensure!(plain == shaped, "plain:  {plain:?}\n  shaped: {shaped:?}");
        let queries = relay.commands();
        ensure!(queries.is_empty() == is_new, "new: {is_new}, {queries:?}");
    }
    Ok(())
}
