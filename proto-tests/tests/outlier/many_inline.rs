//! Updates of many inline documents, and updates by a pipeline: how many commands they need.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::measure::rows;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{Mongod, Outlier, mongod};

const COUNT: i32 = 300;

/// Names a command on the collection, on its extras or on a scratch collection.
fn on_documents(command: &Document) -> Option<String> {
    let (name, collection) = command.iter().next()?;
    let collection = collection.as_str()?;
    collection.contains(COLLECTION).then(|| format!("{name} {collection}"))
}

/// Both sides with 300 documents. Each hundredth is an outlier, and each hundredth has no room.
fn sides(mongod: &Mongod, relay: &StoppingRelay) -> Result<Sides<Outlier>> {
    let mut sides = Sides::at(Outlier::new("tags", (5, 7)), (relay.uri(), mongod.address()))?;
    let document = |id: i32| {
        let length = match id % 100 {
            30 => 12,
            60 => 5,
            _ => 2,
        };
        doc! { "_id": id, "n": id, "tags": (0..length).collect::<Vec<i32>>() }
    };
    let documents: Vec<Document> = (0..COUNT).map(document).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": documents })?;
    Ok(sides)
}

fn update(filter: Document, change: Bson, multi: bool) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": multi }] }
}

#[test]
fn many_inline_documents_are_changed_by_few_commands() -> Result<()> {
    // Each server gets one half of the commands, or all. The commands of a half do not depend on the other.
    for (number, server) in [mongod::shared(), mongod::shared_replica_set()].into_iter().enumerate() {
        let relay = StoppingRelay::to(server.address(), on_documents)?;
        let mut sides = sides(server, &relay)?;
        let all = || doc! { "n": { "$gte": 0 } };
        let commands = [
            update(all(), bson!({ "$push": { "tags": "x" } }), true),
            update(all(), bson!({ "$push": { "tags": "y" }, "$inc": { "n": 1 } }), true),
            update(all(), bson!({ "$pull": { "tags": "x" } }), true),
            update(doc! { "tags": "y" }, bson!({ "$set": { "tags.$": "z" } }), true),
            update(
                all(),
                bson!([{ "$set": { "tags": { "$concatArrays": ["$tags", ["p"]] } } }]),
                true,
            ),
            update(
                doc! { "$or": [{ "n": 7 }, { "n": 31 }, { "n": 8 }] },
                bson!({ "$pop": { "tags": 1 } }),
                true,
            ),
        ];
        for command in rows(commands, 2, number) {
            relay.arm(None);
            let reply = sides.alike(&command)?;
            let commands = relay.commands();
            ensure!(
                commands.len() < 200,
                "{} commands for {command}: {reply}",
                commands.len()
            );
            sides.check().with_context(|| format!("after {command}"))?;
        }
    }
    Ok(())
}

#[test]
fn the_first_document_that_cannot_be_changed_ends_the_update() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), on_documents)?;
    let mut sides = sides(set, &relay)?;
    sides.alike(&update(doc! { "_id": 150 }, bson!({ "$set": { "n": "text" } }), false))?;
    let push = update(doc! {}, bson!({ "$push": { "tags": "x" }, "$inc": { "n": 1 } }), true);
    let replies = sides.run(&push)?;
    for reply in replies {
        let code = reply
            .get_array("writeErrors")?
            .first()
            .and_then(|error| error.as_document()?.get_i32("code").ok());
        ensure!(code == Some(14), "{reply}");
        ensure!(reply.get_i32("n")? == 0 && reply.get_i32("nModified")? == 0, "{reply}");
    }
    sides.check()
}

#[test]
fn an_inline_document_is_changed_by_a_pipeline_with_one_command() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), on_documents)?;
    let mut sides = sides(set, &relay)?;
    let append = |elements: &[&str]| bson!([{ "$set": { "tags": { "$concatArrays": ["$tags", elements] } } }]);
    for change in [
        append(&["x"]),
        append(&[]),
        bson!([{ "$set": { "n": { "$size": "$tags" } } }]),
        bson!([{ "$replaceWith": { "a": "$tags" } }]),
        bson!([{ "$unset": "a" }, { "$set": { "b": ["$tags"] } }]),
    ] {
        relay.arm(None);
        sides.alike(&update(doc! { "_id": 1 }, change.clone(), false))?;
        ensure!(relay.commands() == ["update items"], "{change}: {:?}", relay.commands());
    }
    // These documents become outliers, are outliers, and have a field of the name that is not an array.
    sides.alike(&update(doc! { "_id": 2 }, append(&["a", "b", "c", "d"]), false))?;
    sides.alike(&update(doc! { "_id": 30 }, append(&["a", "b"]), false))?;
    sides.alike(&update(
        doc! { "_id": 3 },
        bson!([{ "$set": { "tags": "text" } }]),
        false,
    ))?;
    sides.alike(&update(doc! { "_id": 3 }, append(&["a"]), false))?;
    sides.check()
}

/// The names of the fields are known only when mongod evaluates the pipeline.
#[test]
fn a_pipeline_cannot_make_an_outlier() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), on_documents)?;
    let mut sides = sides(set, &relay)?;
    let (first, rest) = sides.shape.flag.split_at(3);
    let name = doc! { "$concat": [first, rest] };
    let field = doc! { "$arrayToObject": [[{ "k": name, "v": true }]] };
    let change = bson!([{ "$replaceWith": { "$mergeObjects": ["$$ROOT", field] } }]);
    let before = sides.buckets()?;
    let mut command = update(doc! { "_id": 1 }, change, false);
    command.insert("$db", sides.shaped_database());
    let reply = sides.shaped.command(&command)?;
    let errors = reply.get_array("writeErrors").context("no error")?;
    let code = errors
        .first()
        .and_then(|error| error.as_document()?.get_i32("code").ok());
    ensure!(code == Some(115), "{reply}");
    ensure!(sides.buckets()? == before, "the document is changed");
    Ok(())
}
