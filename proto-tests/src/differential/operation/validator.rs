//! Writes on a collection with a validator. Many documents do not satisfy it.

use anyhow::{Context as _, Result, ensure};
use bson::raw::RawBsonRef;
use bson::{Bson, DateTime, Document, doc};

use super::scene::documents;
use super::step::{Refusal, Step, Target};
use super::{Operation, Outcome, unique};
use crate::differential::compare::Canon;
use crate::differential::grammar::{VALIDATOR, ValidatorCreation, ValidatorForm, ValidatorOption, ValidatorWrite};
use crate::differential::sides::COLLECTION;
use crate::differential::{Generator, Sides, contents};

/// What the proxy refuses.
const REFUSALS: &[Refusal] = &[
    Refusal {
        text: "a validator that existing documents do not satisfy",
        reason: "a validator that documents do not satisfy",
    },
    Refusal {
        text: "bypassDocumentValidation of a document that",
        reason: "bypassDocumentValidation of an invalid document",
    },
    Refusal {
        text: "a validator with $expr",
        reason: "a validator with $expr",
    },
];

#[derive(Debug)]
pub(super) struct Validator {
    documents: Vec<Document>,
    create: Document,
    /// The `collMod` after the documents are inserted.
    modify: Option<Step>,
    steps: Vec<Step>,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    generator.group(&VALIDATOR, make_up)
}

fn make_up(generator: &mut Generator) -> Box<dyn Operation> {
    let mut create = doc! { "create": COLLECTION };
    let options = options(generator);
    let mut modify = None;
    if generator.take::<ValidatorCreation>() == ValidatorCreation::Create {
        create.extend(options);
    } else {
        let mut command = doc! { "collMod": COLLECTION };
        command.extend(options);
        modify = Some(alone(command));
    }
    let documents = (1..=12).map(|number| new_document(generator, number)).collect();
    let steps = (0..12).map(|number| step(generator, 100 + 10 * number)).collect();
    Box::new(Validator {
        documents,
        create,
        modify,
        steps,
        canon: generator.canon(),
    })
}

/// A validator, and perhaps its level or action.
fn options(generator: &mut Generator) -> Document {
    let mut options = doc! { "validator": validator(generator) };
    options.extend(match generator.take::<ValidatorOption>() {
        ValidatorOption::None => doc! {},
        ValidatorOption::Strict => doc! { "validationLevel": "strict" },
        ValidatorOption::Moderate => doc! { "validationLevel": "moderate" },
        ValidatorOption::Off => doc! { "validationLevel": "off" },
        ValidatorOption::Error => doc! { "validationAction": "error" },
        ValidatorOption::Warn => doc! { "validationAction": "warn" },
    });
    options
}

fn validator(generator: &mut Generator) -> Document {
    let key = generator.shape.key[0].clone();
    let has_ids = generator.has_ids();
    let form = generator.take_where(|form: ValidatorForm| has_ids || form != ValidatorForm::OnId);
    let limit = generator.between(1, 6);
    match form {
        ValidatorForm::Field => doc! { "qty": { "$gt": limit } },
        ValidatorForm::Path => doc! { "nested.x": { "$lte": limit } },
        ValidatorForm::Key => doc! { key: { "$ne": 2 } },
        ValidatorForm::KeyType => doc! { key: { "$type": ["int", "string", "null"] } },
        ValidatorForm::KeyAndField => doc! { key: { "$exists": true }, "qty": { "$not": { "$type": "string" } } },
        ValidatorForm::KeyOrField => doc! { "$or": [{ key: 1 }, { "qty": { "$exists": true } }] },
        ValidatorForm::Nor => doc! { "$nor": [{ key: 2, "qty": { "$lt": limit } }, { "qty": Bson::Null }] },
        ValidatorForm::Conjunctions => {
            doc! { "$or": [{ "$and": [{ &key: 1 }, { "qty": { "$gte": limit } }] }, { "$nor": [{ key: { "$in": [1, 2] } }] }] }
        }
        ValidatorForm::OnId => doc! { "_id": { "$type": "int", "$ne": 111 } },
        ValidatorForm::Schema => {
            let qty = doc! { "bsonType": ["int", "double", "long"], "minimum": limit, "description": "a number" };
            doc! { "$jsonSchema": { "bsonType": "object", "required": ["qty", "n"], "properties": { "qty": qty } } }
        }
        ValidatorForm::SchemaOfKey => {
            let of_key = doc! { "bsonType": ["int", "string"], "enum": [1, 2, "a"] };
            doc! { "$jsonSchema": { "required": ["_id", &key, "qty"], "properties": { key: of_key } } }
        }
        ValidatorForm::Closed => {
            let others = doc! { "not": { "bsonType": ["string", "null"] } };
            let number = doc! { "bsonType": "int" };
            let mut schema = doc! { "properties": { "n": number } };
            if has_ids {
                schema.insert("additionalProperties", others);
            }
            doc! { "$jsonSchema": schema }
        }
        ValidatorForm::SchemaAlternatives => {
            let alternatives = [
                doc! { "required": ["qty"] },
                doc! { "properties": { "nested": { "required": ["x"] } } },
            ];
            doc! { "$jsonSchema": { "anyOf": alternatives.to_vec(), "allOf": [{ "required": [key] }] } }
        }
        ValidatorForm::SchemaAndQuery => {
            doc! { "$and": [{ "qty": { "$gte": limit } }, { "$jsonSchema": { "required": [key] } }] }
        }
        ValidatorForm::Nested => {
            let nested = doc! { "bsonType": "object", "properties": { "x": { "maximum": limit } }, "additionalProperties": false };
            doc! { "$jsonSchema": { "properties": { "nested": nested } } }
        }
        ValidatorForm::Expression => doc! { "$expr": { "$gt": ["$qty", limit] } },
    }
}

/// A document that no step has inserted.
fn new_document(generator: &mut Generator, number: i32) -> Document {
    let mut document = documents(generator, 1, &[]).remove(0);
    document.insert("_id", number);
    document.insert("n", number);
    if let Some(time) = generator.shape.time.clone() {
        document.insert(time, DateTime::from_millis(i64::from(number) * 1000));
    }
    for key in &generator.shape.key.clone() {
        match key_value(generator) {
            Some(value) => document.insert(key, value),
            None => document.remove(key),
        };
    }
    match unique::value(generator) {
        Some(value) => document.insert("qty", value),
        None => document.remove("qty"),
    };
    document
}

/// Equal numbers of different types are one key.
fn key_value(generator: &mut Generator) -> Option<Bson> {
    let number = generator.between(1, 3);
    Some(match generator.below(12) {
        0 => f64::from(number).into(),
        1 => i64::from(number).into(),
        2 => "a".into(),
        3 => Bson::Null,
        4 => return None,
        _ => number.into(),
    })
}

/// A command that is neither retried nor in a transaction.
fn alone(command: Document) -> Step {
    Step {
        command,
        sent: 0,
        is_transaction: false,
    }
}

/// A step. `next` is the number of the next new document.
fn step(generator: &mut Generator, next: i32) -> Step {
    let (has_ids, moves) = (generator.has_ids(), generator.moves);
    let form = generator.take_where(|form: ValidatorWrite| match form {
        ValidatorWrite::Move | ValidatorWrite::Replace => moves,
        ValidatorWrite::Upsert => has_ids,
        _ => true,
    });
    let command = match form {
        ValidatorWrite::InsertOne => insertion(generator, next, 1),
        ValidatorWrite::InsertMany => {
            let count = generator.between(2, 8);
            insertion(generator, next, count)
        }
        ValidatorWrite::Bypass => {
            let mut insert = insertion(generator, next, 1);
            insert.insert("bypassDocumentValidation", true);
            return alone(insert);
        }
        ValidatorWrite::Modify => {
            let mut command = doc! { "collMod": COLLECTION };
            command.extend(options(generator));
            return alone(command);
        }
        ValidatorWrite::Remove => {
            let removed = if generator.chance(50) {
                doc! { "collMod": COLLECTION, "validator": {} }
            } else {
                doc! { "collMod": COLLECTION, "validationLevel": "off" }
            };
            return alone(removed);
        }
        _ => change(generator, form, next),
    };
    let is_transaction = generator.has_sessions && generator.chance(15);
    Step {
        sent: if is_transaction { 0 } else { generator.sent() },
        is_transaction,
        command,
    }
}

fn insertion(generator: &mut Generator, next: i32, count: i32) -> Document {
    let new: Vec<Document> = (next..next + count)
        .map(|number| new_document(generator, number))
        .collect();
    doc! { "insert": COLLECTION, "documents": new, "ordered": generator.chance(50) }
}

/// A change of one document, or its deletion.
fn change(generator: &mut Generator, form: ValidatorWrite, next: i32) -> Document {
    let Target { number, filter } = Target::generate(generator, next);
    let statement = match form {
        ValidatorWrite::Set => {
            let value = unique::value(generator);
            let unset = doc! { "$unset": { "qty": 1 } };
            doc! { "q": filter, "u": value.map_or(unset, |value| doc! { "$set": { "qty": value } }) }
        }
        ValidatorWrite::Unset => doc! { "q": filter, "u": { "$unset": { "qty": 1, "nested": 1 } } },
        ValidatorWrite::SetNested => doc! { "q": filter, "u": { "$set": { "nested.x": generator.between(1, 9) } } },
        ValidatorWrite::Stages => {
            let stage = doc! { "$set": { "qty": { "$literal": unique::value(generator).unwrap_or(Bson::Null) } } };
            doc! { "q": filter, "u": [stage] }
        }
        ValidatorWrite::Replace => {
            let mut document = new_document(generator, next);
            document.remove("_id");
            document.insert("n", number);
            doc! { "q": filter, "u": document }
        }
        ValidatorWrite::Move => {
            let key = generator.shape.key[0].clone();
            let value = key_value(generator).unwrap_or(Bson::Null);
            doc! { "q": filter, "u": { "$set": { key: value, "qty": generator.between(1, 8) } } }
        }
        ValidatorWrite::FindAndModify => {
            let change = doc! { "$set": { "qty": unique::value(generator).unwrap_or(Bson::Null) } };
            return doc! { "findAndModify": COLLECTION, "query": filter, "update": change, "new": true };
        }
        ValidatorWrite::Upsert => {
            let mut document = new_document(generator, next);
            let id = doc! { "_id": document.remove("_id") };
            doc! { "q": id, "u": { "$set": document }, "upsert": true }
        }
        _ => return doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 1 }] },
    };
    doc! { "update": COLLECTION, "updates": [statement] }
}

impl Operation for Validator {
    fn commands(&self) -> Vec<Document> {
        let steps = self.modify.iter().chain(&self.steps);
        let steps = steps.map(|step| step.command.clone());
        [self.create.clone()].into_iter().chain(steps).collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            let create = alone(self.create.clone());
            if create.run(sides, self.canon, REFUSALS)? == Outcome::Refused {
                return Ok(Outcome::Refused);
            }
            let insert = doc! { "insert": COLLECTION, "documents": self.documents.clone(), "ordered": false };
            let insert = alone(insert);
            let mut outcome = Outcome::Done;
            for step in [&insert].into_iter().chain(&self.modify).chain(&self.steps) {
                let of_step = step
                    .run(sides, self.canon, REFUSALS)
                    .with_context(|| step.command.to_string())?;
                if of_step != Outcome::Done {
                    outcome = of_step;
                }
                contents::unchanged(sides, self.canon).with_context(|| step.command.to_string())?;
                same_options(sides).with_context(|| step.command.to_string())?;
            }
            Ok(outcome)
        })
    }
}

/// Compares the listed options.
fn same_options(sides: &mut Sides) -> Result<()> {
    let listed = sides.both(&doc! { "listCollections": 1, "filter": { "name": COLLECTION } })?;
    let options = listed.map(|reply| -> Result<Document> {
        let cursor = reply.get_document("cursor")?;
        let first = cursor.get_array("firstBatch")?.into_iter().next();
        let first = first.transpose()?.and_then(RawBsonRef::as_document);
        let first = first.context("not listed")?;
        let mut options = Document::try_from(first.get_document("options")?)?;
        options.remove("changeStreamPreAndPostImages");
        Ok(options)
    });
    let [plain, shaped] = options;
    let (plain, shaped) = (plain?, shaped?);
    ensure!(plain == shaped, "options\n  plain:  {plain}\n  shaped: {shaped}");
    Ok(())
}
