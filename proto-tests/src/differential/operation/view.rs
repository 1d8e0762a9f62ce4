//! Creates, changes and reads views on collections with and without a shape.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, bson, doc};

use super::lookup::{self, PLAIN};
use super::{Operation, Outcome};
use crate::differential::compare;
use crate::differential::refusal;
use crate::differential::sides::{ANOTHER, COLLECTION};
use crate::differential::{Generator, Sides};

const VIEW: &str = "view";

#[derive(Debug)]
struct View {
    create: Document,
    change: Option<Document>,
    reads: Vec<Document>,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let definition = |generator: &mut Generator| {
        let on = generator.pick(&[COLLECTION, ANOTHER, PLAIN]);
        let mut stages: Vec<Bson> = Vec::new();
        if generator.chance(60) {
            stages.push(bson!({ "$match": generator.filter() }));
        }
        if generator.chance(50) {
            stages.extend([bson!({ "$sort": { "n": 1 } }), bson!({ "$limit": 20 })]);
            stages.extend(generator.reaching(1));
        }
        if !generator.has_ids() {
            stages.push(bson!({ "$unset": "_id" }));
        }
        doc! { "viewOn": on, "pipeline": stages }
    };
    let mut create = doc! { "create": VIEW };
    create.extend(definition(generator));
    let change = generator.chance(30).then(|| {
        let mut change = doc! { "collMod": VIEW };
        change.extend(definition(generator));
        if generator.chance(20) {
            change.remove("viewOn");
        }
        change
    });
    let union = [bson!({ "$unionWith": VIEW })];
    let reads = [
        doc! { "aggregate": VIEW, "pipeline": [{ "$match": generator.filter() }] },
        doc! { "aggregate": PLAIN, "pipeline": &union },
        doc! {
            "aggregate": COLLECTION,
            "pipeline": [{ "$match": generator.filter() }, union[0].clone(), { "$unset": "_id" }],
        },
    ];
    let reads = reads.map(|mut read| {
        read.insert("cursor", doc! { "batchSize": 100_000 });
        read
    });
    Box::new(View {
        create,
        change,
        reads: reads.to_vec(),
    })
}

impl Operation for View {
    fn commands(&self) -> Vec<Document> {
        let changes = [Some(&self.create), self.change.as_ref()];
        changes.into_iter().flatten().chain(&self.reads).cloned().collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let outcome = self.steps(sides)?;
        sides.both(&doc! { "drop": VIEW })?;
        Ok(outcome)
    }
}

impl View {
    fn steps(&self, sides: &mut Sides) -> Result<Outcome> {
        for command in [Some(&self.create), self.change.as_ref()].into_iter().flatten() {
            let [plain, shaped] = sides.both(command)?;
            if sides.is_refused(command, &shaped) {
                return Ok(Outcome::Refused);
            }
            if !compare::outcomes(&plain, &shaped).with_context(|| format!("{command:?}"))? {
                return Ok(Outcome::Failed);
            }
        }
        let mut outcome = Outcome::Done;
        for read in &self.reads {
            let [plain, shaped] = sides.both(read)?;
            if sides.is_refused(read, &shaped) {
                outcome = Outcome::Refused;
                continue;
            }
            if refusal::asks_for_text(read) && [&plain, &shaped].iter().all(|reply| !compare::succeeded(reply)) {
                outcome = Outcome::Failed;
                continue;
            }
            let answered = lookup::same_documents(sides, plain, shaped).with_context(|| format!("{read:?}"))?;
            if answered == Outcome::Failed {
                outcome = answered;
            }
        }
        Ok(outcome)
    }
}
