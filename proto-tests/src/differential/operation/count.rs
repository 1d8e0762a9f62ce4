//! `count`.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};

use super::{Operation, Outcome};
use crate::differential::compare;
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
        command.insert("skip", world.pick(&[0, 1, 7, 30]));
    }
    if world.chance(25) {
        let limits = [bson!(0), bson!(1), bson!(12), bson!(-3), Bson::Int64(5), bson!(2.0)];
        command.insert("limit", world.pick(&limits));
    }
    match world.below(30) {
        0 => {
            command.insert("hint", world.pick(&[bson!("_id_"), bson!({ "_id": 1 })]));
        }
        1 => {
            command.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
        2 => {
            command.insert("query", Bson::Null);
        }
        3 | 4 => command = wrong(world),
        _ => {}
    }
    Box::new(Count { command })
}

/// One mistake: of two in one command, which is told depends on what is looked at first.
fn wrong(world: &mut World) -> Document {
    let mistakes = [
        doc! { "skip": -1 },
        doc! { "skip": 1.5 },
        doc! { "skip": "x" },
        doc! { "limit": 2.9 },
        doc! { "limit": "x" },
        doc! { "limit": Bson::Null },
        doc! { "limit": f64::NAN },
        doc! { "limit": Bson::Int64(i64::MIN) },
        doc! { "hint": "nope" },
        doc! { "hint": { "qty": 1 } },
        doc! { "hint": 1 },
        doc! { "fields": {} },
        doc! { "nope": {} },
        doc! { "query": 1 },
        doc! { "collation": { "locale": "nope" } },
    ];
    let mut command = doc! { "count": COLLECTION };
    command.extend(world.pick(&mistakes));
    command
}

impl Operation for Count {
    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let [naive, shaped] = sides.both(&self.command)?;
        if sides.is_refused(&self.command, &shaped) {
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
