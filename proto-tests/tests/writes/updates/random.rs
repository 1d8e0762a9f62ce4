//! Random updates. An error names the seed.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::ItemIds;
use proto_tests::measure::{fixed_seed, is_full};
use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::updates::by_filter::{filters, more_changes, of_ids, pipelines};
use crate::updates::by_id::{self, changes};
use crate::updates::sides::{self, ALL_IDS, COLLECTION};

#[test]
fn random_updates_equal_a_plain_collection() -> Result<()> {
    let seed = fixed_seed();
    for ids in ALL_IDS {
        at_random(seed, ids).with_context(|| format!("{ids:?}; to see it again: MONGOSHAPE_SEED={seed}"))?;
    }
    Ok(())
}

/// A statement about one item, or about many.
fn statement(rng: &mut ChaCha8Rng, ids: ItemIds) -> Document {
    let id = rng.random_range(0..40);
    let mut filters = filters(id);
    let mut changes = changes(id);
    changes.extend(more_changes(id));
    if ids == ItemIds::Dropped {
        changes.retain(|change| !change.to_string().contains("_id"));
    } else {
        filters.extend(by_id::filters(id));
        changes.extend(of_ids(id));
    }
    let filter = filters.choose(rng).cloned().unwrap_or_default();
    let change = changes.choose(rng).cloned().unwrap_or_default();
    let mut statement = doc! { "q": filter, "u": change };
    let kind = rng.random_range(0..5);
    if kind == 0 {
        statement.insert("u", pipelines(id).choose(rng).cloned().unwrap_or_default());
    } else if kind == 1 {
        // All of them, by what fails for none: which are changed before one fails is not defined.
        let multi = [
            doc! { "$inc": { "n": 1 } },
            doc! { "$push": { "tags": 2 } },
            doc! { "$set": { "quantity": 5 } },
            doc! { "$rename": { "n": "m", "m2": "n" } },
            doc! { "$unset": { "lines": 1 } },
        ];
        let filters = [
            doc! {},
            doc! { "k": id % 3 },
            doc! { "u": { "$gt": id } },
            doc! { "n": { "$type": "number" } },
        ];
        let fit = doc! {
            "$or": [{ "n": { "$type": "number" } }, { "n": { "$exists": false } }],
            "$nor": [{ "tags": { "$exists": true, "$not": { "$type": "array" } } }],
        };
        let filter = filters.choose(rng).cloned().unwrap_or_default();
        statement = doc! {
            "q": { "$and": [filter, fit] },
            "u": multi.choose(rng).cloned().unwrap_or_default(),
            "multi": true,
        };
    }
    statement
}

fn at_random(seed: u64, ids: ItemIds) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let mut sides = sides::of(ids)?;
    let commands = if is_full("MONGOSHAPE_TABLES") { 300 } else { 90 };
    for number in 0..commands {
        let first = statement(&mut rng, ids);
        let command = if !first.contains_key("multi") && rng.random_bool(0.3) {
            doc! {
                "findAndModify": COLLECTION, "query": first.get_document("q")?, "update": first.get("u"),
                "new": rng.random_bool(0.5),
            }
        } else {
            let mut statements = vec![first];
            while rng.random_bool(0.3) {
                statements.push(statement(&mut rng, ids));
            }
            doc! { "update": COLLECTION, "updates": statements, "ordered": rng.random_bool(0.5) }
        };
        let [plain, shaped] = sides.run(&command)?;
        let comparable = |reply: &Document| {
            let errors = reply.get_array("writeErrors").into_iter().flatten();
            let errors: Vec<_> = errors
                .filter_map(|error| error.as_document())
                .map(|error| ["index", "code"].map(|name| error.get(name).cloned()))
                .collect();
            let fields = ["n", "nModified", "value", "code"].map(|name| reply.get(name).cloned());
            (fields, errors)
        };
        ensure!(
            comparable(&plain) == comparable(&shaped),
            "{command}\n  plain:  {plain}\n  shaped: {shaped}"
        );
        if number % 10 == 0 {
            sides.check().with_context(|| format!("after {command}"))?;
        }
    }
    sides.check()
}
