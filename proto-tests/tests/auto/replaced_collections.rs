//! Commands on plain documents that replace their own collection. Each is executed once, as on a plain
//! collection.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;

use super::commands::code;
use super::fixture::{COLLECTION, Fixture, item};

const PLAIN: &str = "plain";
const DOCUMENTS: i32 = 20;
/// Commands on a collection of a name.
const COMMANDS: [fn(&str) -> Document; 5] = [
    converted_to_capped,
    replaced_by_map_reduce,
    replaced_by_pipeline,
    replaced_under_strict,
    dropped_under_strict,
];

fn converted_to_capped(name: &str) -> Document {
    doc! { "convertToCapped": name, "size": 100_000 }
}

fn replaced_by_map_reduce(name: &str) -> Document {
    let (map, reduce) = (
        "function() { emit(this.k, this._id); }",
        "function(key, values) { return Array.sum(values); }",
    );
    doc! { "mapReduce": name, "map": map, "reduce": reduce, "out": name }
}

fn replaced_by_pipeline(name: &str) -> Document {
    let pipeline = vec![doc! { "$match": { "_id": { "$gte": 10 } } }, doc! { "$out": name }];
    doc! { "aggregate": name, "pipeline": pipeline, "cursor": {} }
}

fn replaced_under_strict(name: &str) -> Document {
    strict(replaced_by_pipeline(name))
}

fn dropped_under_strict(name: &str) -> Document {
    strict(doc! { "drop": name })
}

/// The command under `apiStrict`, in which no command can name a UUID.
fn strict(mut command: Document) -> Document {
    command.extend(doc! { "apiVersion": "1", "apiStrict": true });
    command
}

/// The documents of a collection and its options, as mongod has them.
fn stored(fixture: &Fixture, name: &str) -> Result<Vec<Document>> {
    let mut direct = fixture.direct()?;
    let find = doc! { "find": name, "sort": { "_id": 1 }, "$db": &fixture.database };
    let mut stored = direct.all(&find)?;
    let listed = direct.all(&doc! { "listCollections": 1, "filter": { "name": name }, "$db": &fixture.database })?;
    for collection in listed {
        stored.push(collection.get_document("options")?.clone());
    }
    Ok(stored)
}

#[test]
fn a_command_that_replaces_its_collection_is_executed_once() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let documents: Vec<Document> = (0..DOCUMENTS).map(|id| item(id, id % 4, i64::from(id))).collect();
    for command in COMMANDS {
        for name in [PLAIN, COLLECTION] {
            // An error: it does not exist.
            fixture
                .direct()?
                .command(&doc! { "drop": name, "$db": &fixture.database })?;
            fixture.past(doc! { "create": name })?;
            fixture.past(doc! { "insert": name, "documents": &documents })?;
        }
        // The layout is known.
        let count = fixture.run(0, doc! { "count": COLLECTION })?;
        ensure!(count.get_i32("n")? == DOCUMENTS, "{count}");
        let mut on_plain = command(PLAIN);
        on_plain.insert("$db", &fixture.database);
        let plain = fixture.direct()?.command(&on_plain)?;
        let shaped = fixture.run(0, command(COLLECTION))?;
        let outcomes = [&plain, &shaped].map(|reply| (reply.get_f64("ok").ok(), code(reply)));
        ensure!(outcomes[0] == outcomes[1], "{on_plain}\n{plain}\n{shaped}");
        let contents = [stored(&fixture, PLAIN)?, stored(&fixture, COLLECTION)?];
        ensure!(contents[0] == contents[1], "{on_plain}\n{contents:?}");
        // The proxy finds the collection that has the name now.
        let insert = |name: &str| doc! { "insert": name, "documents": [item(DOCUMENTS, 0, 0)] };
        fixture.past(insert(PLAIN))?;
        let inserted = fixture.run(0, insert(COLLECTION))?;
        ensure!(code(&inserted).is_none(), "{inserted}");
        let count = fixture.run(0, doc! { "count": COLLECTION })?;
        let plain = fixture.past(doc! { "count": PLAIN })?;
        ensure!(count.get("n") == plain.get("n"), "{on_plain}\n{count}\n{plain}");
    }
    Ok(())
}
