//! `count`.

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};

use super::{Operation, Outcome};
use crate::differential::compare;
use crate::differential::grammar::{COUNT, CountForm, CountLimit, Harmless};
use crate::differential::sides::{COLLECTION, field};
use crate::differential::{Generator, Sides};

#[derive(Debug)]
struct Count {
    command: Document,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let command = match generator.take::<CountForm>() {
        CountForm::Ordinary => generator.group(&COUNT, ordinary),
        CountForm::NullQuery => doc! { "count": COLLECTION, "query": Bson::Null },
        CountForm::Mistake => wrong(generator),
    };
    Box::new(Count { command })
}

fn ordinary(generator: &mut Generator) -> Document {
    let mut command = doc! { "count": COLLECTION };
    let filter = generator.filter();
    if !filter.is_empty() || generator.chance(50) {
        command.insert("query", filter);
    }
    if let Some(skip) = generator.skip() {
        command.insert("skip", skip);
    }
    match generator.take::<CountLimit>() {
        CountLimit::None => None,
        CountLimit::Zero => command.insert("limit", 0),
        CountLimit::One => command.insert("limit", 1),
        CountLimit::Some => command.insert("limit", 12),
        CountLimit::Negative => command.insert("limit", -3),
        CountLimit::Long => command.insert("limit", Bson::Int64(5)),
        CountLimit::Double => command.insert("limit", 2.0),
    };
    if let Some(collation) = generator.collation() {
        command.insert("collation", collation);
    }
    if let Some(hint) = generator.hint() {
        command.insert("hint", hint);
    }
    if generator.take::<Harmless>() == Harmless::Some {
        let harmless = [
            doc! { "fields": {} },
            doc! { "maxTimeMS": 20_000 },
            doc! { "comment": "nothing" },
            doc! { "readConcern": { "level": "local" } },
        ];
        command.extend(generator.example("count.harmless", &harmless));
    }
    command
}

/// One mistake: with two in one command, the reported one depends on the order of checks.
fn wrong(generator: &mut Generator) -> Document {
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
        doc! { "nope": {} },
        doc! { "maxTimeMS": -1 },
        doc! { "maxTimeMS": "x" },
        doc! { "query": { "$expr": { "$lt": ["$$NOW", 1] } }, "limit": "x" },
        doc! { "query": 1 },
        doc! { "collation": { "locale": "nope" } },
    ];
    let mut command = doc! { "count": COLLECTION };
    command.extend(generator.example("count.mistake", &mistakes));
    command
}

impl Operation for Count {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let [plain, shaped] = sides.both(&self.command)?;
        if sides.is_refused(&self.command, &shaped) {
            return Ok(Outcome::Refused);
        }
        if !compare::outcomes(&plain, &shaped)? {
            return Ok(Outcome::Failed);
        }
        let [plain, shaped] = [&plain, &shaped].map(|reply| field(reply, "n"));
        ensure!(plain == shaped, "{shaped:?} instead of {plain:?}");
        Ok(Outcome::Done)
    }
}
