//! mongoshape before the model: explanations have the form of a mongos, and the access path.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::cluster::{self, Kind};
use proto_tests::replies::first_code;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};

/// The proxy's code for a refused command.
const NOT_SUPPORTED: i32 = 115;

fn sides(is_sharded: bool) -> Result<Sides> {
    let cluster = cluster::shared();
    let shape = Shape {
        max_items: 3,
        time: Some("date".to_owned()),
        item_ids: ItemIds::UniqueInKey,
        ..Shape::new(&["k"])
    };
    let mut sides = Sides::at(shape, (cluster.uri(), cluster.router_addresses()[0]))?;
    if is_sharded {
        let namespace = format!("{}.{COLLECTION}", sides.shaped_database());
        cluster.shard_collection(&namespace, &doc! { "k": 1 }, Kind::Ranged)?;
    }
    let item = |number: i64| doc! { "_id": number, "k": number % 17, "date": bson::DateTime::from_millis(number) };
    let items: Vec<Document> = (0..60).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

fn explained(sides: &mut Sides, command: Document) -> Result<Document> {
    let explain = doc! { "explain": command, "verbosity": "executionStats", "$db": sides.shaped_database() };
    sides.shaped.command(&explain)
}

/// The stage of the mongos, and the number of shards below it.
fn stage(explanation: &Document) -> Result<(String, usize)> {
    let plan = explanation.get_document("queryPlanner")?.get_document("winningPlan")?;
    Ok((plan.get_str("stage")?.to_owned(), plan.get_array("shards")?.len()))
}

fn access_path(explanation: &Document) -> Result<&str> {
    let explained = explanation
        .get_document("mongoshape")
        .with_context(|| explanation.to_string())?;
    Ok(explained.get_str("strategy")?)
}

#[test]
fn explanations_have_the_plans_of_the_shards() -> Result<()> {
    for is_sharded in [false, true] {
        let mut sides = sides(is_sharded)?;
        let of_any = doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": { "n": 1 } }], "cursor": {} };
        let explanation = explained(&mut sides, of_any)?;
        ensure!(access_path(&explanation)? == "pipeline", "{explanation}");
        let shards = explanation.get_document("shards").map_or(0, Document::len);
        ensure!(shards == if is_sharded { 2 } else { 0 }, "{explanation}");
        let explanation = explained(&mut sides, doc! { "find": COLLECTION, "sort": { "_id": 1 } })?;
        access_path(&explanation)?;
    }
    Ok(())
}

/// All pages of a key are on one shard, so no other one is asked.
#[test]
fn reads_of_a_key_reach_one_shard() -> Result<()> {
    let at = bson::DateTime::from_millis;
    let of_key = doc! { "k": 3 };
    let find = |sort: Document, skip: i32| {
        doc! { "find": COLLECTION, "filter": &of_key, "sort": sort, "skip": skip, "limit": 2 }
    };
    let from = doc! { "k": 3, "date": { "$gte": at(20) } };
    let until = doc! { "k": 3, "date": { "$lt": at(40) } };
    let by_id = doc! { "k": 3, "_id": 3 };
    let commands = [
        find(doc! { "date": 1 }, 0),
        find(doc! { "date": -1 }, 0),
        find(doc! { "date": 1 }, 2),
        find(doc! {}, 0),
        doc! { "find": COLLECTION, "filter": &from, "sort": { "date": 1 }, "limit": 1 },
        doc! { "find": COLLECTION, "filter": &until, "sort": { "date": -1 }, "limit": 1 },
        doc! { "find": COLLECTION, "filter": &from, "sort": { "date": 1 } },
        doc! { "find": COLLECTION, "filter": &by_id },
        doc! { "find": COLLECTION, "filter": &of_key, "sort": { "n": 1 } },
        doc! { "count": COLLECTION, "query": &of_key },
        doc! { "count": COLLECTION, "query": &from },
        doc! { "distinct": COLLECTION, "key": "_id", "query": &of_key },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &of_key }, { "$group": { "_id": "$n" } }], "cursor": {} },
    ];
    let mut sides = sides(true)?;
    // The second time, first pages are in a cache of the proxy.
    for command in commands.iter().chain(&commands) {
        let explanation = explained(&mut sides, command.clone())?;
        let shards = match explanation.get_document("shards") {
            Ok(shards) => shards.len(),
            Err(_) => stage(&explanation)?.1,
        };
        ensure!(shards == 1, "{command}\n{explanation}");
        let run = |database: String| {
            let mut command = command.clone();
            command.insert("$db", database);
            command
        };
        if command.contains_key("find") {
            let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
            let expected = sides.plain.all(&run(plain))?;
            let found = sides.shaped.all(&run(shaped))?;
            ensure!(found.len() == expected.len(), "{command}\n{found:?}\n{expected:?}");
        }
    }
    Ok(())
}

#[test]
fn an_aggregation_may_explain_itself() -> Result<()> {
    let mut sides = sides(true)?;
    let pipeline = vec![doc! { "$group": { "_id": "$k", "n": { "$sum": 1 } } }];
    let command =
        doc! { "aggregate": COLLECTION, "pipeline": pipeline, "explain": true, "$db": sides.shaped_database() };
    let explanation = sides.shaped.command_ok(&command)?;
    ensure!(explanation.get_document("shards")?.len() == 2, "{explanation}");
    access_path(&explanation)?;
    Ok(())
}

/// The explanation is that of the query for the items, so it needs the shard of one item, too.
#[test]
fn an_explained_write_of_one_item_names_its_key_or_id() -> Result<()> {
    let update = |filter: Document, options: Document| {
        let mut statement = doc! { "q": filter, "u": { "$set": { "n": 1 } } };
        statement.extend(options);
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    let delete = |filter: Document, limit: i32| {
        doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
    };
    let modify = |filter: Document| doc! { "findAndModify": COLLECTION, "query": filter, "remove": true };
    let executed = [
        update(doc! { "k": 3, "n": 1 }, doc! {}),
        update(doc! { "_id": 3 }, doc! {}),
        update(doc! { "_id": 3, "k": 3 }, doc! { "upsert": true }),
        update(doc! { "n": 1 }, doc! { "multi": true }),
        delete(doc! { "k": 3 }, 1),
        delete(doc! { "_id": 5 }, 1),
        delete(doc! {}, 0),
        modify(doc! { "k": 3, "_id": 3 }),
    ];
    let refused = [
        update(doc! { "n": 1 }, doc! {}),
        update(doc! { "_id": 3 }, doc! { "upsert": true }),
        delete(doc! { "n": 1 }, 1),
        modify(doc! { "_id": 3 }),
    ];
    for is_sharded in [false, true] {
        let mut sides = sides(is_sharded)?;
        for command in &executed {
            let explanation = explained(&mut sides, command.clone())?;
            ensure!(access_path(&explanation)? == "pipeline", "{command}\n{explanation}");
        }
        for command in &refused {
            let explanation = explained(&mut sides, command.clone())?;
            if is_sharded {
                ensure!(first_code(&explanation) == NOT_SUPPORTED, "{command}\n{explanation}");
            } else {
                access_path(&explanation)?;
            }
        }
        let invalid = update(doc! { "k": 3 }, doc! { "u": { "$unknown": { "n": 1 } } });
        let explanation = explained(&mut sides, invalid)?;
        ensure!(first_code(&explanation) == 9, "{explanation}");
        sides.check_layout()?;
    }
    Ok(())
}
