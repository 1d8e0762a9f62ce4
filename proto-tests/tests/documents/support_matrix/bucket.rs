//! The probes of bucket collections.

mod collections;
mod indexes;
mod reads;
mod writes;

use anyhow::Result;
use bson::{DateTime, Document, doc};
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

use crate::support_matrix::observed;
use crate::support_matrix::probe::{Compared, Of, Probe};
use crate::support_matrix::tried::{self, Expected, Tried};

impl Tried for Shape {
    const DOCUMENT: &'static str = "support.md";
    const TELLS_ERRORS: bool = false;

    /// The commands follow one another.
    fn renew(_: &mut Sides<Self>, _: &Document, _: Expected) -> Result<()> {
        Ok(())
    }
}

/// Two empty collections.
pub(crate) fn open(item_ids: ItemIds) -> Result<Sides> {
    let mut shape = Shape::new(&["k"]);
    shape.time = Some("at".to_owned());
    shape.item_ids = item_ids;
    shape.items_change = true;
    Sides::open(shape)
}

/// Two collections that hold the same items.
fn filled(item_ids: ItemIds) -> Result<Sides> {
    let mut sides = open(item_ids)?;
    let items: Vec<Document> = (0..25)
        .map(|n| doc! { "_id": n, "k": n % 2, "at": DateTime::from_millis(1000 * i64::from(n)), "q": n, "a": [n, n + 1] })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let index = doc! { "key": { "q": 1 }, "name": "q_1" };
    sides.run(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    sides.run(&doc! { "insert": "plain", "documents": [{ "_id": 1, "k": 1 }] })?;
    Ok(sides)
}

fn try_all(item_ids: ItemIds) -> Result<()> {
    let mut probes = all();
    probes.retain(|probe| probe.compared != Compared::WholeIfUnique || item_ids == ItemIds::Unique);
    tried::all(&mut filled(item_ids)?, &probes)
}

#[test]
fn rows_behave_as_documented() -> Result<()> {
    try_all(ItemIds::Unique)
}

#[test]
fn rows_behave_as_documented_without_unique_ids() -> Result<()> {
    try_all(ItemIds::Stored)
}

#[test]
fn every_row_is_tried() -> Result<()> {
    tried::none_is_left_out::<Shape>(&all())
}

#[test]
fn refusals_are_observed() -> Result<()> {
    let unplanned = [
        // The positional operator needs the element that matches.
        ("update", "updates.u"),
        // Stored documents do not satisfy the validator.
        ("collMod", "validationLevel"),
        ("collMod", "validationAction"),
    ];
    observed::all(&filled(ItemIds::Unique)?, &all(), &unplanned)
}

/// All of them, in an order in which they can be sent one after the other.
fn all() -> Vec<Probe> {
    let of = [
        every_command(),
        reads::find(),
        reads::count(),
        reads::distinct(),
        reads::aggregate(),
        reads::stages(),
        writes::insert(),
        writes::update(),
        writes::delete(),
        writes::find_and_modify(),
        reads::explain(),
        indexes::indexes(),
        indexes::list_indexes(),
        indexes::drop_indexes(),
        reads::cursors(),
        reads::kill_cursors(),
        collections::collection(),
        collections::coll_mod(),
        collections::statistics(),
        collections::data_size(),
        collections::validate(),
        collections::compact(),
        collections::plan_cache(),
        collections::list_collections(),
        collections::db_stats(),
        collections::rename(),
        collections::drop(),
    ];
    of.into_iter().flat_map(|of| of.probes).collect()
}

fn every_command() -> Of {
    Of::new("every command", doc! { "find": COLLECTION, "sort": { "q": 1 }, "limit": 3 })
        .with("comment", "c")
        .with("maxTimeMS", 10_000)
        .with("readConcern", doc! { "level": "majority" })
        .with("$readPreference", doc! { "mode": "primaryPreferred" })
        .with("apiVersion", "1")
        .beside("apiStrict", doc! { "apiVersion": "1", "apiStrict": true })
        .beside("apiDeprecationErrors", doc! { "apiVersion": "1", "apiDeprecationErrors": true })
        .with("lsid", doc! {})
        .sent("startTransaction", doc! { "find": COLLECTION, "filter": { "_id": 3 }, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false, "startTransaction": true })
        .sent("autocommit", doc! { "find": COLLECTION, "filter": { "k": 1 }, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false })
        .sent("txnNumber", doc! { "abortTransaction": 1, "lsid": doc! {}, "txnNumber": 1_i64, "autocommit": false, "$db": "admin" })
        .sent("txnNumber", doc! { "insert": COLLECTION, "documents": [item(101, 1)], "lsid": doc! {}, "txnNumber": 2_i64 })
        .sent("txnNumber", doc! { "insert": COLLECTION, "documents": [item(101, 1)], "lsid": doc! {}, "txnNumber": 2_i64 })
        .sent("writeConcern", doc! { "insert": COLLECTION, "documents": [{ "_id": 100, "k": 1, "at": DateTime::from_millis(100_000), "q": 100 }], "writeConcern": { "w": "majority" } })
}

fn item(id: i32, k: i32) -> Document {
    doc! { "_id": id, "k": k, "at": DateTime::from_millis(i64::from(id) * 1000), "q": id }
}
