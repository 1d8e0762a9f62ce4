//! `count`.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};

use super::{Operation, Outcome};
use crate::differential::compare;
use crate::differential::refusal;
use crate::differential::sides::{COLLECTION, field};
use crate::differential::{Sides, World};

#[derive(Debug)]
struct Count {
    command: Document,
}

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    let mut command = doc! { "count": COLLECTION };
    if world.chance(80) {
        command.insert("query", world.filter());
    }
    if world.chance(25) {
        command.insert(
            "skip",
            world.pick(&[bson!(0), bson!(1), bson!(7), bson!(30), bson!(-1), bson!(1.5)]),
        );
    }
    if world.chance(25) {
        let limits = [
            bson!(0),
            bson!(1),
            bson!(12),
            bson!(-3),
            Bson::Int64(5),
            bson!(2.0),
            bson!(2.9),
            bson!("x"),
        ];
        command.insert("limit", world.pick(&limits));
    }
    match world.below(30) {
        0 => {
            command.insert(
                "hint",
                world.pick(&[bson!("_id_"), bson!({ "_id": 1 }), bson!("nope"), bson!({ "qty": 1 })]),
            );
        }
        1 => {
            command.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
        2 => {
            command.insert("query", Bson::Null);
        }
        3 => {
            command.insert(world.pick(&["fields", "nope"]), doc! {});
        }
        _ => {}
    }
    Box::new(Count { command })
}

impl Operation for Count {
    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let [naive, shaped] = sides.both(&self.command)?;
        if refusal::is_refused(&self.command, &shaped) {
            return Ok(Outcome::Refused);
        }
        if !compare::outcomes(&naive, &shaped)? {
            return Ok(Outcome::Failed);
        }
        let [naive, shaped] = [&naive, &shaped].map(|reply| field(reply, "n"));
        ensure!(naive == shaped, "{shaped:?} instead of {naive:?}");
        Ok(Outcome::Done)
    }
}
