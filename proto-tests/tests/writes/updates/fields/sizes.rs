//! Documents that grow beyond 16 MB.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::ItemIds;
use proto_tests::measure::rows;

use super::{Table, is_refusal, outcome};
use crate::updates::sides::{COLLECTION, at};

fn commands(large: &str) -> Vec<Document> {
    let of = |q: Document, u: Bson, upsert: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": q, "u": u, "upsert": upsert }] }
    };
    let find_and_modify = |query: Document, update: Bson, upsert: bool| {
        doc! { "findAndModify": COLLECTION, "query": query, "update": update, "upsert": upsert, "fields": { "_id": 1 } }
    };
    let grow = bson!({ "$set": { "more": large } });
    let copy = bson!([{ "$set": { "copy": "$big" } }]);
    let mut commands = Vec::new();
    for filter in [doc! { "_id": 1 }, doc! { "n": 1 }] {
        commands.push(of(filter.clone(), grow.clone(), false));
        commands.push(of(filter.clone(), bson!({ "$push": { "list": large } }), false));
        commands.push(of(filter.clone(), copy.clone(), false));
        commands.push(of(filter.clone(), bson!({ "$set": { "more": large, "k": 2 } }), false));
        commands.push(find_and_modify(filter.clone(), grow.clone(), false));
        commands.push(find_and_modify(filter, copy.clone(), false));
    }
    let filter = doc! { "_id": 7, "big": large };
    commands.push(of(filter.clone(), grow.clone(), true));
    commands.push(of(filter.clone(), copy.clone(), true));
    commands.push(find_and_modify(filter.clone(), grow, true));
    commands.push(find_and_modify(filter, copy, true));
    commands
}

#[test]
fn a_document_that_grows_too_large_is_refused_as_in_a_plain_collection() -> Result<()> {
    let large = "x".repeat(9_000_000);
    let mut table = Table::open(ItemIds::Unique)?;
    let item = doc! { "_id": 1, "k": 1, "at": at(1), "n": 1, "big": &large, "list": [1] };
    table.sides.alike(&doc! { "insert": COLLECTION, "documents": [item] })?;
    let mut differing = Vec::new();
    for command in rows(commands(&large), 4, 1) {
        let [plain, shaped] = table.sides.run(&command)?;
        if outcome(&plain) != outcome(&shaped) && !is_refusal(&shaped) {
            let text = format!("{command}").replace(&large, "...");
            differing.push(format!("{text}\n  plain:  {plain:.400}\n  shaped: {shaped:.400}"));
        }
    }
    ensure!(
        differing.is_empty(),
        "{} differ\n{}",
        differing.len(),
        differing.join("\n")
    );
    for is_shaped in [false, true] {
        let items = table.sides.items(is_shaped)?;
        ensure!(items.len() == 1 && items[0].len() == 6, "{}", items.len());
    }
    Ok(())
}
