//! A few separate documents, and one write that fails on one of them or reaches a limit.

mod range;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};

use self::range::Range;
use super::writes::Writes;
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{FAILING, Failing, RANGE, SceneForm};
use crate::differential::sides::{COLLECTION, show};
use crate::differential::values::TWICE;
use crate::differential::{Generator, Sides, contents};
use crate::invariants;

/// More than a document may have.
const TOO_LONG: usize = 17_000_000;

#[derive(Debug)]
struct Scene {
    documents: Vec<Document>,
    write: Writes,
    canon: Canon,
}

/// A write that makes a document too big, which is not shown.
#[derive(Debug)]
struct TooBig {
    name: &'static str,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    match generator.take::<SceneForm>() {
        SceneForm::FailingUpdate => failing(generator),
        SceneForm::Dollar => dollar(generator),
        SceneForm::Range => generator.group(&RANGE, range::generate),
        SceneForm::Twice => twice(generator),
        SceneForm::Repeated => repeated(generator),
        SceneForm::TooBig => {
            let names = ["insert", "replace", "upsert", "$set", "$push"];
            Box::new(TooBig {
                name: generator.example("scene.tooBig", &names),
                canon: generator.canon(),
            })
        }
    }
}

/// Documents of one key in the order of their times, of which these have no number in `qty`.
pub(super) fn documents(generator: &Generator, count: i32, failing: &[i32]) -> Vec<Document> {
    let document = |number: i32| {
        let mut document = doc! { "_id": number, "n": number };
        for key in &generator.shape.key {
            document.insert(key, 1);
        }
        if let Some(time) = &generator.shape.time {
            document.insert(time, DateTime::from_millis(i64::from(number) * 1000));
        }
        if failing.contains(&number) {
            document.extend(doc! { "qty": "text", "tags": 1, "nested": 1 });
        } else {
            document.extend(doc! { "qty": number, "tags": [1], "nested": { "x": 1 } });
        }
        document
    };
    (1..=count).map(document).collect()
}

fn failing(generator: &mut Generator) -> Box<dyn Operation> {
    let (count, place, change, ordered) = generator.group(&FAILING, |generator| {
        let count = generator.pick(&[3, 20, 100]);
        let place = match generator.take::<Failing>() {
            Failing::First => 1,
            Failing::Middle => generator.between(2, count),
            Failing::Last => count,
        };
        let changes = [
            bson!({ "$inc": { "qty": 1 } }),
            bson!({ "$mul": { "qty": 2 } }),
            bson!({ "$push": { "tags": 1 } }),
            bson!({ "$set": { "nested.x": 2 } }),
            bson!({ "$pop": { "tags": 1 } }),
            bson!([{ "$set": { "qty": { "$add": ["$qty", 1] } } }]),
        ];
        (
            count,
            place,
            generator.example("scene.failingUpdate", &changes),
            generator.ordered(),
        )
    });
    let again = generator.between(place, count);
    let filter = match generator.below(3) {
        0 => doc! {},
        1 => doc! { "n": { "$gte": 1 } },
        _ => doc! { &generator.shape.key[0]: 1 },
    };
    let mut options = doc! {};
    if let Some(ordered) = ordered {
        options.insert("ordered", ordered);
    }
    let next = doc! { "q": { "n": 1 }, "u": { "$set": { "history": "next" } } };
    Box::new(Scene {
        documents: documents(generator, count, &[place, again]),
        write: Writes {
            name: "update",
            list: "updates",
            statements: vec![doc! { "q": filter, "u": change, "multi": true }, next],
            options,
            sent: 0,
            canon: generator.canon(),
        },
        canon: generator.canon(),
    })
}

/// A change by a `$`-field of a document that its `_id` names, or its number.
fn dollar(generator: &mut Generator) -> Box<dyn Operation> {
    let name = if generator.has_ids() {
        generator.pick(&["_id", "n"])
    } else {
        "n"
    };
    let change = generator.dollar(2);
    let mut update = change.update;
    if let (Some(replacement), None) = (update.as_document_mut(), generator.shape.time.as_ref())
        && replacement.contains_key("n")
    {
        for key in generator.shape.key.clone() {
            replacement.insert(key, 1);
        }
    }
    Box::new(Scene {
        documents: documents(generator, 3, &[]),
        write: Writes {
            name: "update",
            list: "updates",
            statements: vec![doc! { "q": { name: 2 }, "u": update, "upsert": generator.chance(20) }],
            options: doc! {},
            sent: generator.sent(),
            canon: generator.canon(),
        },
        canon: generator.canon(),
    })
}

/// Several updates of two documents, which their `_id`s name, or their numbers. Some of the statements match
/// nothing, or change nothing.
fn repeated(generator: &mut Generator) -> Box<dyn Operation> {
    let name = if generator.has_ids() { "_id" } else { "n" };
    let mut statements = Vec::new();
    for _ in 0..generator.between(2, 6) {
        let mut filter = doc! { name: generator.between(1, 3) };
        if generator.chance(60) {
            filter.insert("qty", generator.between(1, 3));
        }
        statements.push(doc! { "q": filter, "u": { "$set": { "qty": generator.between(1, 3) } } });
    }
    let mut options = doc! {};
    if let Some(ordered) = generator.ordered() {
        options.insert("ordered", ordered);
    }
    Box::new(Scene {
        documents: documents(generator, 2, &[]),
        write: Writes {
            name: "update",
            list: "updates",
            statements,
            options,
            sent: generator.sent(),
            canon: generator.canon(),
        },
        canon: generator.canon(),
    })
}

/// A read of documents that hold one with a field's name twice.
fn twice(generator: &mut Generator) -> Box<dyn Operation> {
    let find = |words: Document| {
        let mut command = doc! { "find": COLLECTION };
        command.extend(words);
        command
    };
    let aggregate = |stages: Vec<Document>| doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} };
    let path = format!("holds.{}", TWICE[0]);
    let commands = [
        find(doc! {}),
        find(doc! { "filter": { "n": 2 } }),
        find(doc! { "filter": { "n": { "$gte": 2 } }, "sort": { "n": 1 } }),
        find(doc! { "filter": { &path: 1 } }),
        find(doc! { "filter": { &path: 2 } }),
        find(doc! { "projection": { &path: 0 } }),
        aggregate(vec![doc! { "$match": { "n": 2 } }]),
        aggregate(vec![doc! { "$project": { &path: 1 } }]),
        aggregate(vec![doc! { "$group": { "_id": format!("${path}") } }]),
    ];
    let mut command = generator.example("scene.twice", &commands);
    if !generator.excludes_repeated_fields {
        command.remove("projection");
    }
    let mut documents = documents(generator, 3, &[]);
    for document in &mut documents {
        // At the top they are refused.
        document.insert("holds", doc! { TWICE[0]: 1, "between": 0, TWICE[1]: 2 });
    }
    Box::new(Range {
        documents,
        filter: doc! {},
        command,
        order: Order::Free,
        is_limited: false,
        canon: generator.canon(),
    })
}

impl Operation for Scene {
    fn commands(&self) -> Vec<Document> {
        self.write.commands()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            insert(sides, &self.documents)?;
            let outcome = self.write.run(sides)?;
            in_order(sides, self.canon)?;
            Ok(outcome)
        })
    }
}

fn insert(sides: &mut Sides, documents: &[Document]) -> Result<()> {
    for reply in sides.both(&doc! { "insert": COLLECTION, "documents": documents.to_vec() })? {
        ensure!(compare::succeeded(&reply), "{}", show(&reply));
    }
    Ok(())
}

/// Compares all, which are of one key, in the order of their numbers.
fn in_order(sides: &mut Sides, canon: Canon) -> Result<()> {
    let mut find = doc! { "find": COLLECTION, "sort": { "n": 1 } };
    let mut read = |side: &mut crate::differential::Side| {
        find.insert("$db", side.database.as_str());
        invariants::read_all(side.routes.any(), &find)
    };
    let (plain, shaped) = (read(&mut sides.plain)?, read(&mut sides.shaped)?);
    compare::documents(canon, &Order::Defined, &plain, &shaped, &[]).context("whole contents")
}

impl TooBig {
    fn command(&self) -> Document {
        let text = Bson::String("x".repeat(TOO_LONG));
        let update = |statement: Document| doc! { "update": COLLECTION, "updates": [statement] };
        match self.name {
            "insert" => doc! { "insert": COLLECTION, "documents": [{ "_id": 9, "n": 9, "text": text }] },
            "replace" => update(doc! { "q": { "n": 2 }, "u": { "n": 2, "text": text } }),
            "upsert" => update(doc! { "q": { "n": 9 }, "u": { "$set": { "text": text } }, "upsert": true }),
            "$set" => update(doc! { "q": { "n": 2 }, "u": { "$set": { "text": text } } }),
            _ => update(doc! { "q": { "n": 2 }, "u": { "$push": { "tags": text } } }),
        }
    }
}

impl Operation for TooBig {
    fn commands(&self) -> Vec<Document> {
        Vec::new()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            insert(
                sides,
                &[doc! { "_id": 1, "n": 1 }, doc! { "_id": 2, "n": 2, "tags": [] }],
            )?;
            let [plain, shaped] = sides.both(&self.command())?;
            let errors = [&plain, &shaped].map(|reply| -> Result<Option<i32>> {
                let reply = Document::try_from(&**reply)?;
                let errors = reply.get_array("writeErrors").ok();
                let error = errors.and_then(|errors| errors.first()?.as_document().cloned());
                Ok(error.unwrap_or(reply).get_i32("code").ok())
            });
            let [theirs, ours] = errors;
            let (theirs, ours) = (theirs?, ours?);
            ensure!(
                theirs == ours,
                "{ours:?} instead of {theirs:?}.\n  plain:  {}\n  shaped: {}",
                show(&plain),
                show(&shaped)
            );
            contents::unchanged(sides, self.canon)?;
            Ok(Outcome::Failed)
        })
    }
}
