//! Another writer inserts an `_id` between the proxy's check for duplicates and its write.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::breaking_relay::BreakingRelay;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Proxy, ProxyOptions, Shape, database_name, invariants, mongod};

const COLLECTION: &str = "items";

/// The command's items: of one key, of another, of the first again.
const KEYS: [&str; 7] = ["a", "b", "a", "c", "a", "b", "d"];

fn item(id: i32, key: &str) -> Document {
    doc! { "_id": id, "k": key, "date": DateTime::from_millis(i64::from(id) * 1000) }
}

/// Sends the command while another writer stores an item with the `_id` of the one at `taken`. Returns the
/// reply and the stored `_id`s.
fn race(ordered: bool, retryable: bool, taken: i32) -> Result<(Document, Vec<i32>)> {
    let shape = Shape {
        time: Some("date".to_owned()),
        // What is taken back leaves bounds and bytes as they were.
        items_change: true,
        ..Shape::new(&["k"])
    };
    let set = mongod::shared_replica_set();
    let relay = BreakingRelay::to(set.address())?;
    let config = shape.toml(&format!("*.{COLLECTION}"));
    let uri = |address| format!("mongodb://{address}/?directConnection=true");
    let proxy = Proxy::start(&ProxyOptions::new(&uri(relay.address())).config(&config))?;
    let other = Proxy::start(&ProxyOptions::new(&uri(set.address())).config(&config))?;
    let database = database_name();
    let mut application = Connection::open(proxy.address())?;
    let mut stranger = Connection::open(other.address())?;
    let insert = |items: Vec<Document>| doc! { "insert": COLLECTION, "documents": items, "$db": &database };
    // Room for some of the items, now and then on a page whose bounds stay open when items are taken back
    // from it.
    let mut first = item(-1, "a");
    if taken % 2 == 0 {
        first.insert("date", "undated");
    }
    stranger.command_ok(&insert(vec![first]))?;
    application.command_ok(&doc! { "find": COLLECTION, "$db": &database })?;
    let theirs = insert(vec![item(taken, "z")]);
    relay.meanwhile(1, move || {
        stranger.command_ok(&theirs).expect("the stranger's insert");
    });
    let mut ours = insert((0..).zip(KEYS).map(|(id, key)| item(id, key)).collect());
    ours.insert("ordered", ordered);
    if retryable {
        ours.extend(doc! { "lsid": lsid(&database), "txnNumber": 1_i64 });
    }
    let reply = application.command_ok(&ours)?;
    let mut direct = Connection::open(set.address())?;
    invariants::check(&mut direct, &database, COLLECTION, &shape)?;
    let stored = application.all(&doc! { "find": COLLECTION, "filter": { "_id": { "$gte": 0 } }, "$db": &database })?;
    let mut ids: Vec<i32> = stored.iter().filter_map(|item| item.get_i32("_id").ok()).collect();
    ids.sort_unstable();
    Ok((reply, ids))
}

#[test]
fn ordered_insert_stops_at_an_id_taken_by_another_writer() -> Result<()> {
    for retryable in [false, true] {
        for taken in 0..7 {
            let (reply, stored) = race(true, retryable, taken)?;
            let expected: Vec<i32> = (0..=taken).collect();
            ensure!(
                stored == expected,
                "{taken} was taken, and {stored:?} is stored: {reply}"
            );
            ensure!(reply.get_i32("n")? == taken, "{reply}");
            ensure!(indexes(&reply)? == [taken], "{reply}");
        }
    }
    Ok(())
}

#[test]
fn unordered_insert_skips_ids_taken_by_another_writer() -> Result<()> {
    for retryable in [false, true] {
        for taken in [0, 1, 4, 6] {
            let (reply, stored) = race(false, retryable, taken)?;
            ensure!(
                stored == (0..7).collect::<Vec<_>>(),
                "{taken} was taken, and {stored:?} is stored"
            );
            ensure!(reply.get_i32("n")? == 6 && indexes(&reply)? == [taken], "{reply}");
        }
    }
    Ok(())
}

/// Where `_id`s need not be unique, a lost race is no reason to read them: without an index that reads the
/// collection.
#[test]
fn a_lost_race_does_not_make_ids_unique() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Stored,
        ..Shape::new(&["k"])
    };
    let mongod = mongod::shared();
    let config = shape.toml(&format!("*.{COLLECTION}"));
    let proxy = || Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&config));
    let (ours, theirs) = (proxy()?, proxy()?);
    let database = database_name();
    let insert = |address, ids: std::ops::Range<i32>| {
        let items: Vec<_> = ids.map(|id| item(id, "a")).collect();
        let insert = doc! { "insert": COLLECTION, "documents": items, "$db": &database };
        Connection::open(address)?.command_ok(&insert)
    };
    insert(ours.address(), 0..1)?;
    // Full now, which the first proxy does not know.
    insert(theirs.address(), 1..10)?;
    let reply = insert(ours.address(), 1..2)?;
    ensure!(
        ours.metric("mongoshape_bucket_conflicts_total") > 0.5,
        "no race was lost"
    );
    ensure!(
        reply.get_i32("n")? == 1 && !reply.contains_key("writeErrors"),
        "{reply}"
    );
    Ok(())
}

fn indexes(reply: &Document) -> Result<Vec<i32>> {
    let errors = reply.get_array("writeErrors")?.iter().filter_map(Bson::as_document);
    Ok(errors.filter_map(|error| error.get_i32("index").ok()).collect())
}
