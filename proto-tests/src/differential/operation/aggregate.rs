//! `aggregate`.

use anyhow::Result;
use bson::{Document, bson, doc};

use super::cursor::{self, Batches, Reading};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{AGGREGATE, AggregateForm, Harmless};
use crate::differential::sides::COLLECTION;
use crate::differential::stages::Pipeline;
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Aggregate {
    command: Document,
    batches: Batches,
    order: Order,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let form = generator.take::<AggregateForm>();
    let (command, mut made) = match form {
        AggregateForm::Ordinary => generator.group(&AGGREGATE, ordinary),
        AggregateForm::Mistake => (wrong(generator), Pipeline::default()),
    };
    made.ordered &= !(made.begins_with_one_key && command.contains_key("collation"));
    let mut batches = generator.batches();
    if !made.ordered {
        batches.until_killed = usize::MAX;
        batches.in_any_order = true;
    }
    Box::new(Aggregate {
        command,
        batches,
        order: if made.ordered { Order::Defined } else { Order::Free },
        canon: Canon {
            // What a stage makes has an `_id` of its own; items have none, as an ordinary pipeline begins with
            // leaving it out. A mistake that mongod takes returns items.
            without_id: form == AggregateForm::Mistake && generator.canon().without_id,
            loose: made.loose,
            unordered: &["set"],
            ..Canon::default()
        },
    })
}

fn ordinary(generator: &mut Generator) -> (Document, Pipeline) {
    let mut made = generator.pipeline();
    let mut cursor = doc! {};
    if let Some(size) = generator.batch_size() {
        cursor.insert("batchSize", size);
    }
    let mut command = doc! { "aggregate": COLLECTION, "pipeline": made.stages.clone(), "cursor": cursor };
    if let Some(hint) = generator.hint() {
        // A hint changes the plain side's natural order, on which the first stages may rest.
        if made.begins_with_one_key {
            made.stages.insert(1, bson!({ "$sort": { "n": 1 } }));
            command.insert("pipeline", made.stages.clone());
        }
        command.insert("hint", hint);
    }
    if generator.take::<Harmless>() == Harmless::Some {
        let harmless = [
            doc! { "allowDiskUse": true },
            doc! { "maxTimeMS": 20_000 },
            doc! { "comment": "nothing" },
            doc! { "readConcern": { "level": "local" } },
            doc! { "bypassDocumentValidation": true },
            doc! { "let": { "x": 1 } },
        ];
        command.extend(generator.example("aggregate.harmless", &harmless));
    }
    (command, made)
}

/// One mistake: with two in one command, the reported one depends on the order of checks.
fn wrong(generator: &mut Generator) -> Document {
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
        doc! { "withoutCursor": true },
        doc! { "cursor": 1 },
        doc! { "maxTimeMS": -1 },
        doc! { "maxTimeMS": "x" },
        doc! { "hint": { "$natural": "x" } },
        doc! { "let": 1 },
        doc! { "pipeline": [{ "$out": 1 }] },
        doc! { "pipeline": [{ "$out": "x" }, { "$limit": 1 }] },
        doc! { "pipeline": [{ "$collStats": { "nope": 1 } }] },
        doc! { "pipeline": [{ "$limit": 1 }, { "$indexStats": {} }] },
        doc! { "pipeline": [{ "$currentOp": {} }] },
        doc! { "pipeline": [{ "$listSessions": {} }] },
        doc! { "pipeline": [{ "$listLocalSessions": {} }] },
        doc! { "pipeline": [{ "$unwind": "tags" }] },
        doc! { "pipeline": [{ "$sample": { "size": 0 } }] },
        doc! { "pipeline": [{ "$densify": 1 }] },
        doc! { "pipeline": [{ "$fill": {} }] },
        doc! { "pipeline": [{ "$bucketAuto": { "groupBy": "$n" } }] },
        doc! { "pipeline": [{ "$setWindowFields": {} }] },
        doc! { "cursor": { "batchSize": -1 } },
        doc! { "collation": { "locale": "nope" } },
    ];
    command.extend(generator.example("aggregate.mistake", &mistakes));
    // One of the examples.
    if command.contains_key("withoutCursor") {
        command.remove("cursor");
        command.remove("withoutCursor");
    }
    command
}

impl Operation for Aggregate {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let answers = match cursor::answers(sides, &self.command, &self.batches)? {
            Reading::Answers(answers) => answers,
            Reading::Ended(outcome) => return Ok(outcome),
        };
        // A cursor of unordered documents that a hint made so and that was killed has left a choice.
        if !answers.killed || self.order == Order::Defined {
            compare::documents(self.canon, &self.order, &answers.plain, &answers.shaped, &[])?;
        }
        Ok(Outcome::Done)
    }
}
