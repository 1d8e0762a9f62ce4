//! `$merge` into a collection of a few documents.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, DateTime, Document, Timestamp, bson, doc};

use super::lookup::PLAIN;
use super::scene::documents;
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::{
    MERGE, MergeDocuments, MergeForm, MergeIndex, MergeInto, MergeMatched, MergeNotMatched, MergeOn, MergeOption,
    MergeSource,
};
use crate::differential::sides::{ANOTHER, COLLECTION, field, show};
use crate::differential::{Generator, Side, Sides, contents};

const VIEW: &str = "view";
/// Stands for the name of the database.
const DATABASE: &str = "<db>";
/// Parts of the messages with which the proxy refuses a `$merge`.
const REFUSED: [&str; 3] = [
    "$merge into it, without item_ids",
    "$merge into it with a collation",
    "$merge into it with a batchSize of 0",
];

#[derive(Debug)]
struct Merge {
    documents: Vec<Document>,
    index: Option<Document>,
    /// Creates the source.
    preparation: Vec<Document>,
    command: Document,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    Box::new(match generator.take::<MergeForm>() {
        MergeForm::Ordinary => generator.group(&MERGE, make_up),
        MergeForm::Mistake => mistake(generator),
    })
}

fn make_up(generator: &mut Generator) -> Merge {
    let moves = generator.moves;
    let kind = generator.take_where(|kind| kind != MergeDocuments::Moved || moves);
    let index = generator.take::<MergeIndex>();
    let mut existing = documents(generator, 8, &[]);
    for document in &mut existing {
        let number = document.get_i32("_id").unwrap_or_default();
        document.extend(doc! { "qty": number, "status": "old", "tags": [number] });
    }
    let merged = merged(generator, kind);
    let (source, preparation, mut pipeline) = source(generator, &merged);
    pipeline.push(doc! { "$sort": { "n": 1 } });
    if kind == MergeDocuments::Failing {
        pipeline.push(doc! { "$set": { "failed": { "$divide": [1, { "$subtract": ["$n", 6] }] } } });
    }
    if kind == MergeDocuments::Dollar || kind == MergeDocuments::Path {
        let name = if kind == MergeDocuments::Path { "a.b" } else { "$x" };
        let set = doc! { "field": { "$literal": name }, "input": "$$ROOT", "value": "$n" };
        pipeline.push(doc! { "$replaceWith": { "$setField": set } });
    }
    pipeline.push(doc! { "$merge": stage(generator, index) });
    let mut command = doc! { "aggregate": source, "pipeline": pipeline, "cursor": {} };
    command.extend(option(generator));
    let unique =
        |key: Document| doc! { "createIndexes": COLLECTION, "indexes": [{ "key": key, "name": "u", "unique": true }] };
    Merge {
        documents: existing,
        index: match index {
            MergeIndex::None => None,
            MergeIndex::Field => Some(unique(doc! { "qty": 1 })),
            MergeIndex::Two => Some(unique(doc! { "qty": -1, "n": 1 })),
        },
        preparation,
        command,
        canon: Canon {
            without_id: generator.canon().without_id || kind == MergeDocuments::WithoutId,
            ..generator.canon()
        },
    }
}

/// The documents that are merged: those with the numbers 5 to 8 exist.
fn merged(generator: &mut Generator, kind: MergeDocuments) -> Vec<Document> {
    let numbers = match kind {
        MergeDocuments::New => 9..12,
        MergeDocuments::Existing => 5..8,
        _ => 5..12,
    };
    let all = documents(generator, 12, &[]);
    let mut merged: Vec<Document> = Vec::new();
    for number in numbers {
        let mut document = all[usize::try_from(number).unwrap_or_default() - 1].clone();
        document.extend(doc! { "qty": number, "added": { "by": "merge" }, "tags": [0] });
        document.remove("nested");
        match kind {
            MergeDocuments::WithoutId => drop(document.remove("_id")),
            MergeDocuments::NullId if number == 7 => drop(document.insert("_id", Bson::Null)),
            MergeDocuments::ArrayId if number == 7 => drop(document.insert("_id", bson!([7]))),
            MergeDocuments::Twice => drop(document.insert("_id", number / 2 + 3)),
            MergeDocuments::Moved if number % 2 == 0 => {
                let key = generator.shape.key[0].clone();
                document.insert(key, number);
                if let Some(time) = generator.shape.time.clone() {
                    document.insert(time, DateTime::from_millis(i64::from(20 - number) * 1000));
                }
            }
            MergeDocuments::Colliding => drop(document.insert("qty", number / 2)),
            MergeDocuments::Timestamp => drop(document.insert("at", Timestamp { time: 0, increment: 0 })),
            _ => {}
        }
        merged.push(document);
    }
    merged
}

/// The source, the commands that create it, and the stages that make the documents of it.
fn source(generator: &mut Generator, merged: &[Document]) -> (Bson, Vec<Document>, Vec<Document>) {
    let literal: Vec<Document> = merged.iter().map(|document| doc! { "$literal": document }).collect();
    let insert = |collection: &str| {
        let documents: Vec<Document> = (0..)
            .zip(merged)
            .map(|(id, document)| doc! { "_id": id, "d": document })
            .collect();
        doc! { "insert": collection, "documents": documents }
    };
    let replace = vec![doc! { "$replaceWith": "$d" }];
    let union = |from: &str| {
        vec![
            doc! { "$match": { "n": { "$lt": 0 } } },
            doc! { "$unionWith": { "coll": from, "pipeline": replace.clone() } },
        ]
    };
    match generator.take::<MergeSource>() {
        MergeSource::Itself => (COLLECTION.into(), vec![insert(PLAIN)], union(PLAIN)),
        MergeSource::Another => (ANOTHER.into(), vec![insert(PLAIN)], union(PLAIN)),
        MergeSource::Plain => (PLAIN.into(), vec![insert(PLAIN)], replace),
        MergeSource::View => {
            let create = doc! { "create": VIEW, "viewOn": PLAIN, "pipeline": replace };
            (VIEW.into(), vec![insert(PLAIN), create], Vec::new())
        }
        MergeSource::Documents => (1.into(), Vec::new(), vec![doc! { "$documents": literal }]),
        MergeSource::Missing => ("missing".into(), Vec::new(), Vec::new()),
    }
}

fn stage(generator: &mut Generator, index: MergeIndex) -> Bson {
    let into = match generator.take::<MergeInto>() {
        MergeInto::Text => return COLLECTION.into(),
        MergeInto::Name => COLLECTION.into(),
        MergeInto::Document => bson!({ "coll": COLLECTION }),
        MergeInto::WithDatabase => bson!({ "db": DATABASE, "coll": COLLECTION }),
    };
    let mut stage = doc! { "into": into };
    let on = generator.take_where(|on| match on {
        MergeOn::Unique | MergeOn::UniqueList => index == MergeIndex::Field,
        MergeOn::Two => index == MergeIndex::Two,
        _ => true,
    });
    match on {
        MergeOn::Default => {}
        MergeOn::Id => drop(stage.insert("on", "_id")),
        MergeOn::Unique => drop(stage.insert("on", "qty")),
        MergeOn::UniqueList => drop(stage.insert("on", bson!(["qty"]))),
        MergeOn::Two => drop(stage.insert("on", bson!(["n", "qty"]))),
        MergeOn::WithoutIndex => drop(stage.insert("on", bson!(["status", "_id"]))),
    }
    match generator.take::<MergeMatched>() {
        MergeMatched::Default => {}
        MergeMatched::Merge => drop(stage.insert("whenMatched", "merge")),
        MergeMatched::Replace => drop(stage.insert("whenMatched", "replace")),
        MergeMatched::Keep => drop(stage.insert("whenMatched", "keepExisting")),
        MergeMatched::Fail => drop(stage.insert("whenMatched", "fail")),
        MergeMatched::Stages => drop(stage.insert("whenMatched", generator.example("merge.stages", &stages()))),
        MergeMatched::StagesWithLet => {
            let (variables, stages) = generator.example("merge.let", &with_let());
            stage.extend(doc! { "let": variables, "whenMatched": stages });
        }
        MergeMatched::FailingStages => {
            stage.insert("whenMatched", generator.example("merge.failing", &failing()));
        }
    }
    match generator.take::<MergeNotMatched>() {
        MergeNotMatched::Default => {}
        MergeNotMatched::Insert => drop(stage.insert("whenNotMatched", "insert")),
        MergeNotMatched::Discard => drop(stage.insert("whenNotMatched", "discard")),
        MergeNotMatched::Fail => drop(stage.insert("whenNotMatched", "fail")),
    }
    stage.into()
}

fn stages() -> Vec<Bson> {
    vec![
        bson!([{ "$set": { "status": "$$new.added.by" } }]),
        bson!([{ "$set": { "qty": { "$add": ["$qty", 100] }, "got": "$$new" } }]),
        bson!([{ "$unset": "status" }, { "$addFields": { "n": "$$new.n" } }]),
        bson!([{ "$replaceWith": { "$mergeObjects": ["$$ROOT", { "added": "$$new.added" }] } }]),
        bson!([]),
    ]
}

fn with_let() -> Vec<(Document, Bson)> {
    vec![
        (doc! { "x": "$n" }, bson!([{ "$set": { "status": "$$x" } }])),
        (
            doc! { "x": { "$add": ["$n", 1] }, "new": "$$ROOT" },
            bson!([{ "$set": { "status": ["$$x", "$$new.n"] } }]),
        ),
        (doc! { "x": "$missing" }, bson!([{ "$set": { "status": "$$x" } }])),
        (
            doc! { "x": { "y": ["$n", "$missing"] } },
            bson!([{ "$set": { "status": "$$x.y" } }]),
        ),
        (doc! {}, bson!([{ "$set": { "status": "$$new.n" } }])),
        (doc! { "x": { "$divide": [1, { "$subtract": ["$n", 6] }] } }, bson!([])),
    ]
}

/// Stages that fail for the documents that exist.
fn failing() -> Vec<Bson> {
    vec![
        bson!([{ "$set": { "_id": 99 } }]),
        bson!([{ "$set": { "qty": { "$add": ["$qty", "text"] } } }]),
        bson!([{ "$set": { "qty": "$$nope" } }]),
        bson!([{ "$match": {} }]),
        bson!([{ "$set": { "qty": { "$divide": [1, { "$subtract": ["$n", 6] }] } } }]),
    ]
}

fn option(generator: &mut Generator) -> Document {
    match generator.take::<MergeOption>() {
        MergeOption::None => doc! {},
        MergeOption::Let => doc! { "let": { "y": 4 } },
        MergeOption::Collation => {
            let collations = [doc! { "locale": "simple" }, doc! { "locale": "en", "strength": 1 }];
            doc! { "collation": generator.example("merge.collation", &collations) }
        }
        MergeOption::Batch => doc! { "cursor": { "batchSize": generator.pick(&[1, 3, 100]) } },
        MergeOption::Harmless => {
            let harmless = [
                doc! { "allowDiskUse": true },
                doc! { "maxTimeMS": 20_000 },
                doc! { "comment": "nothing" },
                doc! { "bypassDocumentValidation": true },
                doc! { "explain": false },
            ];
            generator.example("merge.harmless", &harmless)
        }
        MergeOption::Concern => {
            let concerns = [
                doc! { "writeConcern": { "w": 1 } },
                doc! { "writeConcern": { "w": 0 } },
                doc! { "writeConcern": { "w": "majority" } },
                doc! { "readConcern": { "level": "local" } },
                doc! { "readConcern": { "level": "linearizable" } },
            ];
            generator.example("merge.concern", &concerns)
        }
    }
}

/// One mistake: with two in one command, the reported one depends on the order of checks.
fn mistake(generator: &mut Generator) -> Merge {
    let spec = |fields: Document| {
        let mut stage = doc! { "into": COLLECTION };
        stage.extend(fields);
        doc! { "pipeline": [{ "$merge": stage }] }
    };
    let mistakes = [
        spec(doc! { "nope": 1 }),
        spec(doc! { "on": 1 }),
        spec(doc! { "on": [] }),
        spec(doc! { "on": ["_id", "_id"] }),
        spec(doc! { "on": ["_id", 1] }),
        spec(doc! { "on": "" }),
        spec(doc! { "on": "$x" }),
        spec(doc! { "on": "x." }),
        spec(doc! { "on": "n" }),
        spec(doc! { "on": "_id.x" }),
        spec(doc! { "let": { "x": 1 } }),
        spec(doc! { "let": 1 }),
        spec(doc! { "let": { "new": 1 }, "whenMatched": [] }),
        spec(doc! { "let": { "X": 1 }, "whenMatched": [] }),
        spec(doc! { "let": { "x": "$x." }, "whenMatched": [] }),
        spec(doc! { "whenMatched": "nope" }),
        spec(doc! { "whenMatched": 1 }),
        spec(doc! { "whenMatched": [1] }),
        spec(doc! { "whenMatched": [{ "$nope": 1 }] }),
        spec(doc! { "whenNotMatched": "nope" }),
        spec(doc! { "whenNotMatched": 1 }),
        spec(doc! { "whenMatched": "keepExisting", "whenNotMatched": "discard" }),
        spec(doc! { "whenMatched": "fail", "whenNotMatched": "fail" }),
        doc! { "pipeline": [{ "$match": { "n": { "$nope": 1 } } }, { "$merge": COLLECTION }] },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "nope": 1 },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "hint": "nope" },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "cursor": { "batchSize": -1 } },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "cursor": 1 },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "maxTimeMS": -1 },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "let": 1 },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "collation": { "locale": "nope" } },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "writeConcern": { "w": 1000 } },
        doc! { "pipeline": [{ "$merge": COLLECTION }], "aggregate": 1 },
    ];
    let documents = documents(generator, 2, &[]);
    let mut command = doc! { "aggregate": PLAIN, "pipeline": [], "cursor": {} };
    command.extend(generator.example("merge.mistake", &mistakes));
    Merge {
        preparation: vec![doc! { "insert": PLAIN, "documents": documents.clone() }],
        documents,
        index: None,
        command,
        canon: generator.canon(),
    }
}

impl Operation for Merge {
    fn commands(&self) -> Vec<Document> {
        self.index.iter().chain([&self.command]).cloned().collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            let insert = doc! { "insert": COLLECTION, "documents": self.documents.clone() };
            for command in [insert].iter().chain(&self.index).chain(&self.preparation) {
                for reply in sides.both(command)? {
                    ensure!(compare::succeeded(&reply), "{}", show(&reply));
                }
            }
            let shaped = sides.shaped.run(&of_side(&sides.shaped, &self.command))?;
            let refused = REFUSED.iter().find(|message| show(&shaped).contains(*message));
            if let Some(message) = refused {
                sides.refused(*message);
                contents::unchanged(sides, self.canon)?;
                return Ok(Outcome::Refused);
            }
            let plain = sides.plain.run(&of_side(&sides.plain, &self.command))?;
            let outcome = compare::outcomes(&plain, &shaped).with_context(|| show(&shaped))?;
            for name in ["keyPattern", "keyValue"] {
                ensure!(
                    field(&plain, name) == field(&shaped, name),
                    "{}\n{}",
                    show(&plain),
                    show(&shaped)
                );
            }
            let cursors = [(&sides.plain, &plain), (&sides.shaped, &shaped)].map(|(side, reply)| cursor(side, reply));
            ensure!(cursors[0] == cursors[1], "{cursors:?}");
            contents::unchanged(sides, self.canon).with_context(|| show(&plain))?;
            Ok(if outcome { Outcome::Done } else { Outcome::Failed })
        })
    }
}

/// The command with the name of the side's database.
fn of_side(side: &Side, command: &Document) -> Document {
    let mut command = command.clone();
    if let Ok(pipeline) = command.get_array_mut("pipeline")
        && let Some(Bson::Document(last)) = pipeline.last_mut()
        && let Ok(stage) = last.get_document_mut("$merge")
        && let Ok(into) = stage.get_document_mut("into")
        && into.contains_key("db")
    {
        into.insert("db", side.database.as_str());
    }
    command
}

/// The cursor of a reply, without the name of the side's database.
fn cursor(side: &Side, reply: &RawDocument) -> Option<String> {
    let cursor = field(reply, "cursor").and_then(RawBsonRef::as_document)?;
    Some(side.neutral(&show(cursor)))
}
