//! mongoshape before the model: `collStats`, `$collStats`, `dataSize`, `dbStats` and `validate` count items,
//! in the form of a mongos.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::cluster::{self, Kind};
use proto_tests::replies::first_code;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

/// The proxy's code for a refused command.
const NOT_SUPPORTED: i32 = 115;
const ITEMS: i64 = 40;
/// The fields of statistics that are the same for items and for pages of them.
const COMPARED: [&str; 14] = [
    "sharded",
    "primary",
    "count",
    "objects",
    "numObjects",
    "collections",
    "views",
    "indexes",
    "nindexes",
    "nrecords",
    "nIndexes",
    "keysPerIndex",
    "scaleFactor",
    "valid",
];

/// A plain collection and a shaped one with the same items. Both are sharded, or none.
fn sides(is_sharded: bool) -> Result<Sides> {
    let cluster = cluster::shared();
    let shape = Shape {
        max_items: 3,
        item_ids: ItemIds::UniqueInKey,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (cluster.uri(), cluster.router_addresses()[0]))?;
    if is_sharded {
        for database in [sides.plain_database(), sides.shaped_database()] {
            cluster.shard_collection(&format!("{database}.{COLLECTION}"), &doc! { "k": 1 }, Kind::Ranged)?;
        }
    }
    let items: Vec<Document> = (0..ITEMS)
        .map(|number| doc! { "_id": number, "k": number % 17 })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

/// The reply of each side. In a `dataSize`, the first value is the namespace.
fn both(sides: &mut Sides, command: &Document) -> Result<[Document; 2]> {
    let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
    let on = |database: String| {
        let mut command = command.clone();
        if command.contains_key("dataSize") {
            command.insert("dataSize", format!("{database}.{COLLECTION}"));
        }
        command.insert("$db", database);
        command
    };
    Ok([sides.plain.command(&on(plain))?, sides.shaped.command(&on(shaped))?])
}

/// The names of all fields, and the values of those that are compared. Sizes and details of storage are left
/// out.
fn compared(reply: &Document) -> Vec<String> {
    let fields = reply.iter().filter(|(name, _)| {
        let left_out = [
            "wiredTiger",
            "indexDetails",
            "$clusterTime",
            "operationTime",
            "uuid",
            "ns",
        ];
        !left_out.contains(&name.as_str())
    });
    fields
        .map(|(name, value)| match value {
            _ if COMPARED.contains(&name.as_str()) => format!("{name}: {value}"),
            Bson::Document(inner) => format!("{name}: {:?}", compared(inner)),
            _ => name.clone(),
        })
        .collect()
}

fn same(sides: &mut Sides, command: &Document) -> Result<[Document; 2]> {
    let [plain, shaped] = both(sides, command)?;
    ensure!(
        compared(&plain) == compared(&shaped),
        "{command}\n  plain:  {plain}\n  shaped: {shaped}"
    );
    Ok([plain, shaped])
}

#[test]
fn statistics_of_a_collection_that_is_not_sharded_have_the_fields_of_a_mongos() -> Result<()> {
    let mut sides = sides(false)?;
    let stage = |stage: Document| doc! { "aggregate": COLLECTION, "pipeline": [{ "$collStats": stage }], "cursor": {} };
    for command in [
        doc! { "collStats": COLLECTION },
        doc! { "collStats": COLLECTION, "scale": 1024 },
        doc! { "collStats": "missing" },
        doc! { "dataSize": "" },
        doc! { "validate": COLLECTION },
        stage(doc! { "count": {} }),
        stage(doc! { "storageStats": {} }),
    ] {
        let has_form_of_mongos = command.keys().next().is_some_and(|name| name == "collStats");
        let [_, shaped] = same(&mut sides, &command)?;
        ensure!(shaped.contains_key("shards") == has_form_of_mongos, "{shaped}");
    }
    // The proxy leaves out the statistics of shards.
    let replies = both(&mut sides, &doc! { "dbStats": 1 })?;
    let [plain, shaped] = replies.map(|mut reply| {
        reply.remove("raw");
        compared(&reply)
    });
    ensure!(plain == shaped, "plain:  {plain:?}\n  shaped: {shaped:?}");
    Ok(())
}

#[test]
fn statistics_of_a_sharded_collection_count_the_items_of_all_shards() -> Result<()> {
    let mut sides = sides(true)?;
    let [plain, shaped] = both(&mut sides, &doc! { "collStats": COLLECTION })?;
    for name in ["sharded", "count", "nindexes", "scaleFactor"] {
        ensure!(
            plain.get(name) == shaped.get(name),
            "{name}\n  plain:  {plain}\n  shaped: {shaped}"
        );
    }
    ensure!(shaped.get_i64("count")? == ITEMS, "{shaped}");
    let shards = shaped.get_document("shards")?;
    ensure!(shards.len() == 2, "{shaped}");
    for shard in shards.values() {
        let shard = shard.as_document().context("no document")?;
        // The numbers of pages would be wrong.
        let names: Vec<&str> = shard.keys().map(String::as_str).collect();
        ensure!(!names.contains(&"count") && !names.contains(&"avgObjSize"), "{names:?}");
        let indexes: Vec<&str> = shard.get_document("indexSizes")?.keys().map(String::as_str).collect();
        // The second one is that of the shard key.
        ensure!(indexes == ["_id_", "k_1"], "{indexes:?}");
    }
    let [plain, shaped] = both(&mut sides, &doc! { "dataSize": "" })?;
    ensure!(plain.get("numObjects") == shaped.get("numObjects"), "{plain}\n{shaped}");
    let [plain, shaped] = both(&mut sides, &doc! { "dbStats": 1 })?;
    for name in ["objects", "indexes", "collections"] {
        ensure!(
            plain.get(name) == shaped.get(name),
            "{name}\n  plain:  {plain}\n  shaped: {shaped}"
        );
    }
    for command in [
        doc! { "validate": COLLECTION },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$collStats": { "count": {} } }], "cursor": {} },
    ] {
        let [_, shaped] = both(&mut sides, &command)?;
        ensure!(first_code(&shaped) == NOT_SUPPORTED, "{command}\n{shaped}");
        let text = shaped.get_str("errmsg")?;
        ensure!(text.contains("several shards"), "{text}");
    }
    Ok(())
}
