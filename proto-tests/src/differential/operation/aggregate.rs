//! `aggregate`.

use anyhow::Result;
use bson::{Document, doc};

use super::cursor::{self, Batches};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::sides::COLLECTION;
use crate::differential::{Sides, World};

#[derive(Debug)]
struct Aggregate {
    command: Document,
    batches: Batches,
    order: Order,
    canon: Canon,
}

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    let made = world.pipeline();
    let mut cursor = doc! {};
    if world.chance(40) {
        cursor.insert("batchSize", world.pick(&[0, 1, 3, 20]));
    }
    let mut command = doc! { "aggregate": COLLECTION, "pipeline": made.stages, "cursor": cursor };
    match world.below(40) {
        0 => {
            command.insert("allowDiskUse", true);
        }
        // A hint changes the naive side's natural order, on which the first stages may rest.
        1 if !made.begins_with_one_key => {
            command.insert("hint", "_id_");
        }
        2 | 3 => command = wrong(world),
        _ => {}
    }
    let mut batches = world.batches();
    if !made.ordered {
        batches.until_killed = usize::MAX;
    }
    Box::new(Aggregate {
        command,
        batches,
        order: if made.ordered { Order::Defined } else { Order::Free },
        canon: Canon {
            // What a stage makes has an `_id` of its own; items have none, as the pipeline begins with leaving it out.
            without_id: false,
            loose: made.loose,
            ..Canon::default()
        },
    })
}

/// One mistake: of two in one command, which is told depends on what is looked at first.
fn wrong(world: &mut World) -> Document {
    let mut command = doc! { "aggregate": COLLECTION, "pipeline": [], "cursor": {} };
    let mistakes = [
        doc! { "hint": "nope" },
        doc! { "hint": 1 },
        doc! { "nope": 1 },
        doc! { "pipeline": 1 },
        doc! { "pipeline": [1] },
        doc! { "pipeline": [{}] },
        doc! { "pipeline": [{ "$nope": 1 }] },
        doc! { "pipeline": [{ "$limit": 0 }] },
        doc! { "pipeline": [{ "$skip": -1 }] },
        doc! { "pipeline": [{ "$group": {} }] },
        doc! { "pipeline": [{ "$match": { "k": { "$nope": 1 } } }] },
        doc! { "pipeline": [{ "$match": 1 }] },
        doc! { "pipeline": [{ "$project": {} }] },
        doc! { "pipeline": [{ "$sort": {} }] },
        doc! { "pipeline": [{ "$limit": 1, "$skip": 1 }] },
        doc! { "cursor": 1 },
        doc! { "cursor": { "batchSize": -1 } },
        doc! { "collation": { "locale": "nope" } },
    ];
    command.extend(world.pick(&mistakes));
    if world.chance(5) {
        command.remove("cursor");
    }
    command
}

impl Operation for Aggregate {
    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let replies = sides.both(&self.command)?;
        if sides.is_refused(&self.command, &replies[1]) {
            return Ok(Outcome::Refused);
        }
        if !compare::outcomes(&replies[0], &replies[1])? {
            return Ok(Outcome::Failed);
        }
        let answers = cursor::read(sides, &replies, &self.batches)?;
        // A cursor of unordered documents that a hint made so and that was killed has left a choice.
        if !answers.killed || self.order == Order::Defined {
            compare::documents(self.canon, &self.order, &answers.naive, &answers.shaped, &[])?;
        }
        Ok(Outcome::Done)
    }
}
