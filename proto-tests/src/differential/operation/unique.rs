//! Writes on a collection with a unique index. Many of them would store a second document with the same key.

use anyhow::{Context as _, Result};
use bson::raw::cstr;
use bson::{Bson, DateTime, Decimal128, Document, Regex, bson, doc};

use super::scene::documents;
use super::step::{Creation, Refusal, Step, Target, same};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::{UNIQUE, UniqueCreation, UniqueId, UniqueIndex, UniqueValue, UniqueWrite};
use crate::differential::sides::COLLECTION;
use crate::differential::{Generator, Sides, contents};
use crate::shape::ItemIds;

/// The name of the index.
const INDEX: &str = "unique";
/// What the proxy refuses.
const REFUSALS: &[Refusal] = &[Refusal {
    text: "an array of documents inside a field of the unique index",
    reason: "array inside a path of a unique index",
}];

#[derive(Debug)]
pub(super) struct Unique {
    documents: Vec<Document>,
    create: Document,
    creation: Creation,
    steps: Vec<Step>,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    generator.group(&UNIQUE, make_up)
}

fn make_up(generator: &mut Generator) -> Box<dyn Operation> {
    let index = generator.take::<UniqueIndex>();
    let creation = match generator.take::<UniqueCreation>() {
        UniqueCreation::Early => Creation::BeforeDocuments,
        UniqueCreation::Late => Creation::AfterDocuments,
    };
    let mut documents = documents(generator, 12, &[]);
    for document in &mut documents {
        change_values(generator, index, document);
    }
    let steps = (0..12)
        .map(|number| step(generator, index, 100 + 10 * number))
        .collect();
    let spec = doc! { "key": key(generator, index), "name": INDEX, "unique": true };
    Box::new(Unique {
        documents,
        create: doc! { "createIndexes": COLLECTION, "indexes": [spec] },
        creation,
        steps,
        canon: generator.canon(),
    })
}

fn key(generator: &Generator, index: UniqueIndex) -> Document {
    let key = generator.shape.key[0].clone();
    let time = generator.shape.time.clone().unwrap_or_else(|| "at".to_owned());
    match index {
        UniqueIndex::Field => doc! { "qty": 1 },
        UniqueIndex::Backward => doc! { "qty": -1 },
        UniqueIndex::Nested => doc! { "nested.x": 1 },
        UniqueIndex::Two => doc! { "qty": 1, "nested.x": -1 },
        UniqueIndex::KeyAndField => doc! { key: 1, "qty": 1 },
        UniqueIndex::FieldAndKey => doc! { "qty": 1, key: -1 },
        UniqueIndex::KeyAndTime => {
            let mut whole: Document = generator.shape.key.iter().map(|key| (key.clone(), bson!(1))).collect();
            whole.insert(time, 1);
            whole
        }
        UniqueIndex::Time => doc! { time: 1 },
        UniqueIndex::Key => doc! { key: 1 },
    }
}

/// Gives a document values that others may have.
fn change_values(generator: &mut Generator, index: UniqueIndex, document: &mut Document) {
    let place = generator.between(1, 3);
    for key in &generator.shape.key.clone() {
        document.insert(key, place);
    }
    if index == UniqueIndex::KeyAndTime || index == UniqueIndex::Time {
        let time = generator.shape.time.clone().unwrap_or_else(|| "at".to_owned());
        let at = generator.between(1, 12);
        document.insert(time.clone(), at);
        if generator.shape.time.is_some() {
            document.insert(time, DateTime::from_millis(i64::from(at) * 1000));
        }
    }
    match value(generator) {
        Some(value) => document.insert("qty", value),
        None => document.remove("qty"),
    };
    match generator.below(8) {
        0 => document.remove("nested"),
        1 => document.insert("nested", doc! {}),
        2 => document.insert("nested", Bson::Null),
        _ => document.insert("nested", doc! { "x": generator.between(1, 9) }),
    };
}

/// A value that other documents may have.
pub(super) fn value(generator: &mut Generator) -> Option<Bson> {
    let number = generator.between(1, 12);
    Some(match generator.take::<UniqueValue>() {
        UniqueValue::Number => number.into(),
        UniqueValue::Double => f64::from(number).into(),
        UniqueValue::Long => i64::from(number).into(),
        UniqueValue::Decimal => Bson::Decimal128(
            number
                .to_string()
                .parse::<Decimal128>()
                .unwrap_or_else(|_| unreachable!()),
        ),
        UniqueValue::Text => number.to_string().into(),
        UniqueValue::Missing => return None,
        UniqueValue::Null => Bson::Null,
        UniqueValue::Undefined => Bson::Undefined,
        UniqueValue::Array => bson!([number, number + 1, number]),
        UniqueValue::EmptyArray => bson!([]),
        UniqueValue::ArrayOfArrays => bson!([[number], number]),
        UniqueValue::Document => bson!({ "a": number % 3 }),
        UniqueValue::Regex => Bson::RegularExpression(Regex {
            pattern: cstr!("a").to_owned(),
            options: cstr!("").to_owned(),
        }),
    })
}

/// A step. `next` is the number of the next new document.
fn step(generator: &mut Generator, index: UniqueIndex, next: i32) -> Step {
    let (has_ids, moves) = (generator.has_ids(), generator.moves);
    let form = generator.take_where(|form: UniqueWrite| match form {
        UniqueWrite::Move | UniqueWrite::Replace => moves,
        UniqueWrite::Upsert => has_ids,
        _ => true,
    });
    let command = match form {
        UniqueWrite::InsertOne | UniqueWrite::InsertMany | UniqueWrite::ThroughArray => {
            insertion(generator, form, index, next)
        }
        UniqueWrite::Drop => doc! { "dropIndexes": COLLECTION, "index": INDEX },
        UniqueWrite::Create | UniqueWrite::CreateOther => {
            let mut spec = doc! { "key": key(generator, index), "name": INDEX };
            if form == UniqueWrite::Create {
                spec.insert("unique", true);
            } else if generator.chance(50) {
                spec.insert("name", "another");
            }
            doc! { "createIndexes": COLLECTION, "indexes": [spec] }
        }
        _ => change(generator, form, index, next),
    };
    let is_write = !matches!(form, UniqueWrite::Drop | UniqueWrite::Create | UniqueWrite::CreateOther);
    let is_transaction = is_write && generator.has_sessions && generator.chance(15);
    Step {
        sent: if is_write && !is_transaction {
            generator.sent()
        } else {
            0
        },
        is_transaction,
        command,
    }
}

/// A document that no step has inserted.
fn new_document(generator: &mut Generator, index: UniqueIndex, number: i32) -> Document {
    let mut document = documents(generator, 1, &[]).remove(0);
    document.insert("_id", number);
    document.insert("n", number);
    if let Some(time) = generator.shape.time.clone() {
        document.insert(time, DateTime::from_millis(i64::from(number) * 1000));
    }
    change_values(generator, index, &mut document);
    document
}

fn insertion(generator: &mut Generator, form: UniqueWrite, index: UniqueIndex, next: i32) -> Document {
    let count = if form == UniqueWrite::InsertMany {
        generator.between(2, 8)
    } else {
        1
    };
    let mut new: Vec<Document> = (next..next + count)
        .map(|number| new_document(generator, index, number))
        .collect();
    if form == UniqueWrite::ThroughArray {
        new[0].insert("nested", bson!([{ "x": 1 }, { "x": 2 }]));
    }
    if form == UniqueWrite::InsertMany && generator.shape.item_ids == ItemIds::Unique {
        change_last_id(generator, &mut new, next);
    }
    doc! { "insert": COLLECTION, "documents": new, "ordered": generator.chance(50) }
}

/// Gives the last of several new documents an `_id` that another one may have. Which of them is stored depends on their
/// values.
fn change_last_id(generator: &mut Generator, new: &mut Vec<Document>, next: i32) {
    let id = match generator.take::<UniqueId>() {
        UniqueId::New => return,
        UniqueId::Repeated => next,
        UniqueId::Stored => generator.between(1, 12),
        UniqueId::StoredWithValues => {
            // The first has new values, so it is stored. Each document between them could be refused first, after
            // which more is looked up.
            new.drain(1..new.len() - 1);
            for document in &mut *new {
                document.extend(doc! { "qty": next, "nested": { "x": next } });
            }
            generator.between(1, 12)
        }
    };
    if let Some(last) = new.last_mut() {
        last.insert("_id", id);
    }
}

/// A change of one document, or its deletion.
fn change(generator: &mut Generator, form: UniqueWrite, index: UniqueIndex, next: i32) -> Document {
    let Target { number, filter } = Target::generate(generator, next);
    let statement = match form {
        UniqueWrite::Set => {
            let value = value(generator);
            let unset = doc! { "$unset": { "qty": 1 } };
            doc! { "q": filter, "u": value.map_or(unset, |value| doc! { "$set": { "qty": value } }) }
        }
        UniqueWrite::SetNested => doc! { "q": filter, "u": { "$set": { "nested.x": generator.between(1, 9) } } },
        UniqueWrite::Stages => {
            let stage = doc! { "$set": { "qty": { "$literal": value(generator).unwrap_or(Bson::Null) } } };
            doc! { "q": filter, "u": [stage] }
        }
        UniqueWrite::Replace => {
            let mut document = new_document(generator, index, next);
            document.remove("_id");
            document.insert("n", number);
            doc! { "q": filter, "u": document }
        }
        UniqueWrite::Move => {
            let key = generator.shape.key[0].clone();
            doc! { "q": filter, "u": { "$set": { key: generator.between(1, 3) } } }
        }
        UniqueWrite::FindAndModify => {
            let change = doc! { "$set": { "qty": value(generator).unwrap_or(Bson::Null) } };
            return doc! { "findAndModify": COLLECTION, "query": filter, "update": change, "new": true };
        }
        UniqueWrite::Upsert => {
            let mut document = new_document(generator, index, next);
            let id = doc! { "_id": document.remove("_id") };
            doc! { "q": id, "u": { "$set": document }, "upsert": true }
        }
        UniqueWrite::UpsertByValue => {
            let value = generator.between(1, 14);
            let mut rest = new_document(generator, index, next);
            rest.remove("qty");
            doc! { "q": { "qty": value }, "u": { "$setOnInsert": rest }, "upsert": true }
        }
        UniqueWrite::Delete => {
            return doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 1 }] };
        }
        _ => doc! { "q": filter, "u": { "$set": { "status": "set" } } },
    };
    doc! { "update": COLLECTION, "updates": [statement] }
}

impl Operation for Unique {
    fn commands(&self) -> Vec<Document> {
        let steps = self.steps.iter().map(|step| step.command.clone());
        [self.create.clone()].into_iter().chain(steps).collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            let insert = doc! { "insert": COLLECTION, "documents": self.documents.clone(), "ordered": false };
            for command in self.creation.in_order(&self.create, &insert) {
                same(&sides.both(command)?, sides, self.canon, command)?;
            }
            let mut outcome = Outcome::Done;
            for step in &self.steps {
                let of_step = step
                    .run(sides, self.canon, REFUSALS)
                    .with_context(|| step.command.to_string())?;
                if of_step != Outcome::Done {
                    outcome = of_step;
                }
                contents::unchanged(sides, self.canon).with_context(|| step.command.to_string())?;
                let listed = sides.both(&doc! { "listIndexes": COLLECTION })?;
                compare::outcomes(&listed[0], &listed[1])?;
            }
            Ok(outcome)
        })
    }
}
