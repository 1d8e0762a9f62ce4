//! A drop removes extras, but not those of documents that other clients insert meanwhile.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use anyhow::{Result, ensure};
use bson::oid::ObjectId;
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Pattern as _, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Mongod, Outlier, Proxy, ProxyOptions, mongod};

use crate::interleaved::interleaved;

const EXTRAS: &str = "extra_items";

/// Names a command that removes extras.
fn removes_extras(command: &Document) -> Option<String> {
    let is_on_extras = |name: &str| command.get_str(name).is_ok_and(|collection| collection == EXTRAS);
    (is_on_extras("drop") || is_on_extras("delete")).then(|| "removal".to_owned())
}

/// Names the insert of a base document.
fn inserts_base(command: &Document) -> Option<String> {
    let is_on_it = command
        .get_str("insert")
        .is_ok_and(|collection| collection == COLLECTION);
    is_on_it.then(|| "insert".to_owned())
}

fn outlier(id: i32) -> Document {
    doc! { "_id": id, "tags": (0..20).collect::<Vec<i32>>() }
}

/// Two proxies before one collection, which contains an outlier.
struct TwoProxies {
    /// The first one reaches the server through the relay.
    sides: Sides<Outlier>,
    relay: StoppingRelay,
    other: Connection,
    _proxy: Proxy,
}

impl TwoProxies {
    fn start(mongod: &Mongod, counted: fn(&Document) -> Option<String>) -> Result<Self> {
        let relay = StoppingRelay::to(mongod.address(), counted)?;
        let mut sides = Sides::at(Outlier::new("tags", (5, 7)), (relay.uri(), mongod.address()))?;
        let table = sides.shape.table(&format!("{}.{COLLECTION}", sides.shaped_database()));
        let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&table))?;
        let mut other = Connection::open(proxy.address())?;
        let insert = doc! { "insert": COLLECTION, "documents": [outlier(0)], "$db": sides.shaped_database() };
        sides.shaped.command_ok(&insert)?;
        // Both have read the shape marker.
        other.command_ok(&doc! { "find": COLLECTION, "$db": sides.shaped_database() })?;
        Ok(Self {
            sides,
            relay,
            other,
            _proxy: proxy,
        })
    }

    /// Sends a command to the first proxy, and while that is stopped, one to the other. Then outlier 1 is there, and
    /// nothing is left of outlier 0.
    fn run(mut self, first: Document, meanwhile: Document) -> Result<()> {
        let database = self.sides.shaped_database();
        let [first, meanwhile] = [first, meanwhile].map(|mut command| {
            command.insert("$db", &database);
            command
        });
        let other = &mut self.other;
        let reply = interleaved(&mut self.sides.shaped, &first, &self.relay, || {
            other.command_ok(&meanwhile)?;
            Ok(())
        })?;
        ensure!(reply.get_f64("ok")? > 0.0, "{first}: {reply}");
        ensure!(self.sides.items(true)? == [outlier(1)], "{:?}", self.sides.items(true)?);
        self.sides.check_layout()
    }
}

#[test]
fn outlier_that_is_inserted_while_its_collection_is_dropped_keeps_its_extras() -> Result<()> {
    let insert = doc! { "insert": COLLECTION, "documents": [outlier(1)] };
    let drop = doc! { "drop": COLLECTION };
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        // After the collection is dropped.
        TwoProxies::start(mongod, removes_extras)?.run(drop.clone(), insert.clone())?;
        // The collection is dropped after the pages are stored.
        TwoProxies::start(mongod, inserts_base)?.run(insert.clone(), drop.clone())?;
    }
    Ok(())
}

/// A page of no document, with a generation of that age.
fn orphan(age: Duration) -> Result<Document> {
    let seconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)?
        .saturating_sub(age)
        .as_secs();
    let mut bytes = ObjectId::new().bytes();
    bytes[..4].copy_from_slice(&u32::try_from(seconds)?.to_be_bytes());
    let generation = ObjectId::from_bytes(bytes);
    Ok(doc! {
        "_id": format!("{generation}_0"), "ref": 7, "tags_extra": [1], "count": 1,
        "control": { "v": 1, "generation": generation, "from": 0_i64 },
    })
}

/// A page without a document may be that of an insert in progress, unless it is old.
#[test]
fn drop_removes_all_pages_but_young_orphans() -> Result<()> {
    let mut sides = Sides::on_a_standalone(Outlier::new("tags", (5, 7)))?;
    let database = sides.shaped_database();
    sides.alike(&doc! { "insert": COLLECTION, "documents": [outlier(1), outlier(2)] })?;
    let [young, old] = [Duration::from_mins(50), Duration::from_hours(2)].map(orphan);
    let (young, old) = (young?, old?);
    let by_hand = doc! { "ref": 7, "tags_extra": [1] };
    let insert = doc! { "insert": EXTRAS, "documents": [young.clone(), old, by_hand], "$db": &database };
    sides.plain.command_ok(&insert)?;
    sides.alike(&doc! { "drop": COLLECTION })?;
    let left = sides.plain.find(&database, EXTRAS, doc! {})?;
    ensure!(left == [young], "{left:?}");
    sides.alike(&doc! { "insert": COLLECTION, "documents": [outlier(1)] })?;
    ensure!(sides.items(true)? == [outlier(1)]);
    Ok(())
}
