//! `findAndModify`: of the document that the filter names, or of the first by a sort that leaves no two in either order.

use anyhow::{Context as _, Result, ensure};
use bson::raw::RawDocument;
use bson::{Document, doc};

use super::update::upserting_filter;
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon};
use crate::differential::refusal;
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Sides, World, contents};

#[derive(Debug)]
pub(super) struct FindAndModify {
    command: Document,
    /// How often it is sent as a retryable write; 0: it is none.
    sent: u32,
    canon: Canon,
}

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    Box::new(make_up(world))
}

pub(super) fn make_up(world: &mut World) -> FindAndModify {
    let mut command = doc! { "findAndModify": COLLECTION };
    match world.below(20) {
        0..=5 => {
            command.insert("query", world.filter_of_one().0);
            command.insert("remove", true);
        }
        6 | 7 => {
            command.extend(doc! { "query": world.filter_of_some(), "sort": by_number(world), "remove": true });
        }
        8..=10 => {
            let change = world.sure_change();
            let filter = doc! { "$and": [world.filter_of_some(), change.needs] };
            command.extend(doc! { "query": filter, "sort": by_number(world), "update": change.update });
            if let Some(filters) = change.array_filters {
                command.insert("arrayFilters", filters);
            }
        }
        other => {
            let upsert = other < 14;
            let (filter, number) = if upsert {
                upserting_filter(world)
            } else {
                world.filter_of_one()
            };
            let change = world.change(number);
            command.extend(doc! { "query": filter, "update": change.update });
            if upsert {
                command.insert("upsert", true);
            }
            if let Some(filters) = change.array_filters {
                command.insert("arrayFilters", filters);
            }
        }
    }
    if world.chance(50) && command.contains_key("update") {
        command.insert("new", true);
    }
    if world.chance(30) {
        let fields = [
            doc! { "n": 1, "qty": 1 },
            doc! { "_id": 0 },
            doc! { "tags": 0 },
            doc! { "nested.x": 1, "_id": 0 },
            doc! { "tags": { "$slice": 1 } },
            doc! { "twice": { "$add": ["$n", "$n"] }, "quantity": 1 },
            doc! { "_id": 1 },
        ];
        command.insert("fields", world.pick(&fields));
    }
    match world.below(40) {
        0 => command.insert("hint", "_id_"),
        // One mistake: of two, which is told depends on what is looked at first.
        7 if command.contains_key("remove") => command.insert("hint", "nope"),
        1 | 2 => command.insert("collation", doc! { "locale": "en", "strength": 2 }),
        3..=5 => command.insert("let", doc! { "x": world.scalar() }),
        6 if world.chance(30) => command.insert("new", true),
        _ => None,
    };
    let sent = if world.has_sessions {
        world.pick(&[0, 0, 1, 2, 3])
    } else {
        0
    };
    if sent > 1 {
        // To what is sent again mongod 6.0.5 answers whole documents.
        command.remove("fields");
    }
    FindAndModify {
        command,
        sent,
        canon: world.canon(),
    }
}

fn by_number(world: &mut World) -> Document {
    doc! { "n": world.pick(&[1, -1]) }
}

impl Operation for FindAndModify {
    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        super::sent_again(sides, self.sent, |sides, fields| self.run_with(sides, fields))
    }
}

impl FindAndModify {
    /// Runs it on both sides with fields of a retryable write or a transaction.
    pub(super) fn run_with(&self, sides: &mut Sides, fields: &Document) -> Result<Outcome> {
        let [for_naive, for_shaped] = [&sides.naive, &sides.shaped].map(|side| {
            if fields.is_empty() {
                self.command.clone()
            } else {
                side.in_session(&self.command, fields.clone())
            }
        });
        let shaped = sides.shaped.run(&for_shaped)?;
        if let Some(kind) = refusal::of_write(&sides.asked(&self.command), &shaped) {
            sides.refused(kind);
            contents::unchanged(sides, self.canon).with_context(|| format!("refused: {}", show(&shaped)))?;
            return Ok(Outcome::Refused);
        }
        let naive = sides.naive.run(&for_naive)?;
        if !(compare::succeeded(&naive) && compare::succeeded(&shaped)) {
            compare::outcomes(&naive, &shaped)?;
            return Ok(Outcome::Failed);
        }
        let told = |reply: &RawDocument| {
            let document = |name: &str, canon: Canon| {
                let value = field(reply, name);
                value.map(|value| value.as_document().map(|document| canon.of(document)))
            };
            (
                document("lastErrorObject", Canon::default()),
                document("value", self.canon),
            )
        };
        ensure!(
            told(&naive) == told(&shaped),
            "the replies differ.\n  naive:  {}\n  shaped: {}",
            show(&naive),
            show(&shaped)
        );
        Ok(Outcome::Done)
    }
}
