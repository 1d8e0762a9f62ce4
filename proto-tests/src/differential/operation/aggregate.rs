//! `aggregate`.

use anyhow::Result;
use bson::{Document, doc};

use super::cursor::{self, Batches};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::refusal;
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
        1 => {
            command.insert("hint", world.pick(&["_id_", "nope"]));
        }
        2 => {
            command.insert("nope", 1);
        }
        3 => {
            command.remove("cursor");
        }
        _ => {}
    }
    let mut batches = world.batches();
    if !made.ordered {
        batches.until_killed = usize::MAX;
    }
    let defined = made.ordered && (!made.natural || !command.contains_key("hint"));
    Box::new(Aggregate {
        command,
        batches,
        order: if defined { Order::Defined } else { Order::Free },
        canon: Canon {
            // What a stage makes has an `_id` of its own; items have none, as the pipeline begins with leaving it out.
            without_id: false,
            loose: made.loose,
        },
    })
}

impl Operation for Aggregate {
    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let replies = sides.both(&self.command)?;
        if refusal::is_refused(&self.command, &replies[1]) {
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
