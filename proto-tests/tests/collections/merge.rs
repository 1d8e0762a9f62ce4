//! `$merge` into a bucket collection, case by case. Random ones are in `differential.rs`.

use std::thread;
use std::time::Duration;

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::sessions::Transaction;
use proto_tests::shaped::{COLLECTION, Shaped, bucket};
use proto_tests::sides::{self, Sides};
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};

/// A source of another database that needs several batches.
const SOURCE: &str = "source";
const COUNT: i32 = 120;
/// mongod's code for a stage that only the end of a pipeline can have.
const NOT_THE_LAST_STAGE: i32 = 40601;
const ILLEGAL_OPERATION: i32 = 20;

struct Merging {
    shaped: Shaped,
    /// The database of the source.
    other: String,
}

fn start() -> Result<Merging> {
    let shaped = Shaped::start("max_items = 7")?;
    let other = format!("{}_other", shaped.database);
    let documents: Vec<Document> = (0..COUNT).map(|n| doc! { "_id": n, "k": n % 5, "n": n }).collect();
    let mut direct = shaped.direct()?;
    direct.command_ok(&doc! { "insert": SOURCE, "documents": documents, "$db": &other })?;
    Ok(Merging { shaped, other })
}

impl Merging {
    /// A `$merge` from the other database, whose documents are counted.
    fn command(&self, spec: Document) -> Document {
        let mut stage = doc! { "into": { "db": &self.shaped.database, "coll": COLLECTION } };
        stage.extend(spec);
        doc! { "aggregate": SOURCE, "pipeline": [{ "$merge": stage }], "cursor": {}, "$db": &self.other }
    }

    fn items(&self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.shaped.database };
        self.shaped.application()?.all(&find)
    }
}

#[test]
fn several_batches_from_another_database_and_from_itself() -> Result<()> {
    let merging = start()?;
    let mut application = merging.shaped.application()?;
    application.command_ok(&merging.command(doc! {}))?;
    let sum = |items: &[Document]| {
        items
            .iter()
            .map(|item| item.get_i32("n").unwrap_or_default())
            .sum::<i32>()
    };
    ensure!(merging.items()?.len() == 120 && sum(&merging.items()?) == COUNT * (COUNT - 1) / 2);
    // Each item gets the number of another one of the same collection.
    let own = doc! {
        "aggregate": COLLECTION,
        "pipeline": [{ "$set": { "n": { "$subtract": [COUNT, "$n"] } } }, { "$merge": { "into": COLLECTION, "whenNotMatched": "fail" } }],
        "cursor": { "batchSize": 10 },
        "$db": &merging.shaped.database,
    };
    application.command_ok(&own)?;
    let items = merging.items()?;
    ensure!(
        items.len() == 120 && sum(&items) == COUNT * (COUNT + 1) / 2,
        "{items:?}"
    );
    Ok(())
}

#[test]
fn two_proxies_merge_the_same_documents() -> Result<()> {
    let merging = start()?;
    let shaped = &merging.shaped;
    mongod::create_on_wine(&mut shaped.application()?, &shaped.database, COLLECTION)?;
    let another = shaped.another_proxy("max_items = 7")?;
    let command = merging.command(doc! { "whenMatched": [{ "$set": { "n": { "$add": ["$n", "$$new.n"] } } }] });
    let mut command = command;
    let limited = bson!([{ "$limit": 30 }, command.get_array("pipeline")?[0].clone()]);
    command.insert("pipeline", limited);
    let addresses = [shaped.proxy.address(), another.address(), shaped.proxy.address()];
    thread::scope(|scope| -> Result<()> {
        let threads = addresses.map(|address| {
            let command = &command;
            scope.spawn(move || {
                proto_tests::raw::Connection::open(address)?
                    .command_ok(command)
                    .map(drop)
            })
        });
        for thread in threads {
            thread.join().map_err(|_| anyhow::anyhow!("a thread panicked"))??;
        }
        Ok(())
    })?;
    for item in merging.items()? {
        ensure!(item.get_i32("n")? == 3 * item.get_i32("_id")?, "{item}");
    }
    Ok(())
}

#[test]
fn refused_without_a_change() -> Result<()> {
    let merging = start()?;
    let mut application = merging.shaped.application()?;
    let mut without_batch = merging.command(doc! {});
    without_batch.insert("cursor", doc! { "batchSize": 0 });
    let create = doc! { "create": "german", "collation": { "locale": "de" }, "$db": &merging.other };
    merging.shaped.direct()?.command_ok(&create)?;
    let mut collated = merging.command(doc! {});
    collated.insert("aggregate", "german");
    for command in [without_batch, collated] {
        let reply = application.command(&command)?;
        ensure!(reply.get_i32("code").ok() == Some(115), "{reply}");
    }
    ensure!(merging.items()?.is_empty());
    Ok(())
}

#[test]
fn explained_without_a_change() -> Result<()> {
    let merging = start()?;
    let mut application = merging.shaped.application()?;
    application.command_ok(&merging.shaped.insert(&[doc! { "_id": 1, "k": 1 }]))?;
    let aggregate =
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$set": { "x": 1 } }, { "$merge": COLLECTION }], "cursor": {} };
    let mut option = aggregate.clone();
    option.extend(doc! { "explain": true, "$db": &merging.shaped.database });
    let command = doc! { "explain": aggregate, "verbosity": "executionStats", "$db": &merging.shaped.database };
    for command in [option, command] {
        let reply = application.command_ok(&command)?;
        let stages = reply.get_array("stages")?;
        let last = stages.last().and_then(Bson::as_document);
        ensure!(last.is_some_and(|last| last.contains_key("$merge")), "{reply}");
    }
    ensure!(merging.items()? == [doc! { "_id": 1, "k": 1 }]);
    Ok(())
}

#[test]
fn not_in_a_transaction() -> Result<()> {
    let upstream = mongod::shared_replica_set();
    let database = database_name();
    let options = ProxyOptions::new(&upstream.uri()).config(&bucket(&database, ""));
    let proxy = Proxy::start(&options)?;
    let mut connection = proto_tests::raw::Connection::open(proxy.address())?;
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1 }], "$db": &database };
    connection.command_ok(&insert)?;
    let mut transaction = Transaction::new("merge", &database);
    let merge = doc! { "aggregate": COLLECTION, "pipeline": [{ "$merge": COLLECTION }], "cursor": {} };
    let reply = transaction.run(&mut connection, &merge)?;
    ensure!(reply.get_i32("code").ok() == Some(263), "{reply}");
    let reply = transaction.end(&mut connection, "commitTransaction")?;
    ensure!(reply.get_i32("code").ok() == Some(251), "{reply}");
    Ok(())
}

/// Without its last stage, the pipeline would be valid.
#[test]
fn a_stage_that_writes_before_the_last_one_is_not_executed() -> Result<()> {
    const OTHER: &str = "other";
    let mut sides = Sides::on_a_standalone(Shape::new(&["k"]))?;
    for (collection, id) in [(SOURCE, 1), (sides::COLLECTION, 2), (OTHER, 3)] {
        sides.alike(&doc! { "insert": collection, "documents": [{ "_id": id, "k": id }] })?;
    }
    let stages = [
        doc! { "$out": OTHER },
        doc! { "$merge": OTHER },
        doc! { "$merge": sides::COLLECTION },
    ];
    for source in [SOURCE, sides::COLLECTION] {
        for stage in &stages {
            let pipeline = vec![stage.clone(), doc! { "$merge": { "into": sides::COLLECTION } }];
            let reply = sides.alike(&doc! { "aggregate": source, "pipeline": pipeline, "cursor": {} })?;
            ensure!(reply.get_i32("code").ok() == Some(NOT_THE_LAST_STAGE), "{reply}");
        }
    }
    for collection in [SOURCE, OTHER] {
        let count = sides.alike(&doc! { "count": collection })?;
        ensure!(count.get_i32("n")? == 1, "{collection}: {count}");
    }
    let kept = sides.alike(&doc! { "count": OTHER, "query": { "_id": 3 } })?;
    ensure!(kept.get_i32("n")? == 1, "{kept}");
    sides.check()
}

/// Without its last stage, the pipeline would have no end.
#[test]
fn a_change_stream_is_not_merged() -> Result<()> {
    let shape = Shape {
        change_streams: true,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::open(shape)?;
    for collection in [SOURCE, sides::COLLECTION] {
        sides.alike(&doc! { "insert": collection, "documents": [{ "_id": 1, "k": 1 }] })?;
    }
    let merge = |source: Bson, into: Bson| {
        let pipeline = vec![doc! { "$changeStream": {} }, doc! { "$merge": { "into": into } }];
        doc! { "aggregate": source, "pipeline": pipeline, "cursor": {} }
    };
    for source in [Bson::from(SOURCE), sides::COLLECTION.into(), 1.into()] {
        let reply = sides.alike(&merge(source, sides::COLLECTION.into()))?;
        ensure!(reply.get_i32("code").ok() == Some(ILLEGAL_OPERATION), "{reply}");
    }
    // A database without a shaped collection.
    let into = bson!({ "db": sides.shaped_database(), "coll": sides::COLLECTION });
    let mut elsewhere = merge(1.into(), into);
    elsewhere.insert("$db", sides.plain_database());
    let reply = sides.shaped.command(&elsewhere)?;
    ensure!(reply.get_i32("code").ok() == Some(ILLEGAL_OPERATION), "{reply}");
    sides.check()
}

/// One command has at most 100,000 statements.
#[test]
fn more_small_documents_than_one_command_may_have() -> Result<()> {
    const MANY: i32 = 100_001;
    let shape = Shape {
        max_items: 1000,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::on_a_standalone(shape)?;
    let patience = Some(Duration::from_mins(1));
    for connection in [&sides.plain, &sides.shaped] {
        connection.stream().set_read_timeout(patience)?;
    }
    sides.alike(&doc! { "insert": SOURCE, "documents": [{ "_id": 1 }] })?;
    let pipeline = bson!([
        { "$project": { "n": { "$range": [0, MANY] } } },
        { "$unwind": "$n" },
        { "$project": { "_id": "$n", "k": { "$mod": ["$n", 7] } } },
        { "$merge": { "into": sides::COLLECTION, "whenMatched": "fail" } },
    ]);
    let merged = sides.alike(&doc! { "aggregate": SOURCE, "pipeline": pipeline, "cursor": {} })?;
    ensure!(merged.get_f64("ok")? > 0.0, "{merged}");
    let count = sides.alike(&doc! { "count": sides::COLLECTION })?;
    ensure!(count.get_i32("n")? == MANY, "{count}");
    let sums = bson!([
        { "$group": { "_id": "$k", "n": { "$sum": 1 }, "ids": { "$sum": "$_id" } } },
        { "$sort": { "_id": 1 } },
    ]);
    sides.pages_read(&doc! { "aggregate": sides::COLLECTION, "pipeline": sums, "cursor": {} })?;
    Ok(())
}
