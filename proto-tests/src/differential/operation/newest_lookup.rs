//! The newest or oldest items of several keys, by `$lookup`.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Bson, DateTime, Document, bson, doc};

use super::cursor::{self, Batches, Reading};
use super::newest::compare_times;
use super::{Operation, Outcome};
use crate::differential::compare::Canon;
use crate::differential::grammar::{
    NEWEST_LOOKUP, NewestDirection, NewestLookupBefore, NewestLookupForm, NewestLookupKey, NewestLookupLimit,
    NewestLookupPlace, NewestLookupSkip, NewestLookupSort, NewestLookupSource,
};
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Generator, Sides};
use crate::invariants;

/// The longest limit, which is more items than a page has.
const MANY: i32 = 30;

#[derive(Debug)]
struct NewestLookup {
    command: Document,
    time: String,
    batches: Batches,
    /// The form in which items are compared.
    canon: Canon,
}

/// The field of a document that has the key to be looked up, and the documents.
struct Source {
    /// The first stages of the pipeline, which return the documents.
    stages: Vec<Bson>,
    /// `1`, or the collection of the command.
    collection: Bson,
    /// The path of the key.
    local: String,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    generator.group(&NEWEST_LOOKUP, |generator| {
        let time = generator.shape.time.clone().unwrap_or_else(|| "date".to_owned());
        let source = source(generator);
        let mut stages = source.stages.clone();
        let place = generator.take::<NewestLookupPlace>();
        let lookup = bson!({ "$lookup": lookup(generator, &source.local, &time) });
        match place {
            NewestLookupPlace::Pipeline | NewestLookupPlace::Collation => stages.push(lookup),
            NewestLookupPlace::Unwound => {
                let until = DateTime::from_millis(generator.some_time());
                let filter = doc! { format!("found.{time}"): { "$lt": until } };
                stages.extend(unwound(lookup, filter));
            }
            NewestLookupPlace::Facet => stages.extend(in_facet(&lookup)),
            NewestLookupPlace::Nested => stages.extend(nested(&lookup)),
        }
        stages.push(bson!({ "$project": { "_id": 0, "i": 1, "found": 1 } }));
        // A `getMore` names the shaped collection, so a cursor of another one must end with its first batch.
        let is_shaped = source.collection.as_str() == Some(COLLECTION);
        let cursor = if is_shaped {
            doc! {}
        } else {
            doc! { "batchSize": 10_000 }
        };
        let mut command = doc! { "aggregate": source.collection, "pipeline": stages, "cursor": cursor };
        if place == NewestLookupPlace::Collation {
            command.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
        Box::new(NewestLookup {
            command,
            time,
            batches: Batches {
                until_killed: usize::MAX,
                in_any_order: true,
                ..generator.batches()
            },
            canon: generator.canon(),
        })
    })
}

/// The documents whose keys are looked up. Their field `i` distinguishes them.
fn source(generator: &mut Generator) -> Source {
    if generator.take::<NewestLookupSource>() == NewestLookupSource::Shaped {
        let stages = bson!([{ "$sort": { "n": 1 } }, { "$limit": 5 }, { "$set": { "i": "$n" } }]);
        return Source {
            stages: stages.as_array().cloned().unwrap_or_default(),
            collection: COLLECTION.into(),
            local: generator.shape.key[0].clone(),
        };
    }
    let is_deep = generator.chance(30);
    let documents: Vec<Bson> = (0..4)
        .map(|number| {
            let mut document = doc! { "i": number };
            let key = local_key(generator, is_deep);
            document.extend(key.map(|key| ("local".to_owned(), key)));
            bson!({ "$literal": document })
        })
        .collect();
    Source {
        stages: vec![bson!({ "$documents": documents })],
        collection: 1.into(),
        local: if is_deep { "local.key" } else { "local" }.to_owned(),
    }
}

/// The value of the field `local`, whose own field `key` is looked up if `is_deep`.
fn local_key(generator: &mut Generator, is_deep: bool) -> Option<Bson> {
    let deep = |key: Option<Bson>| -> Option<Bson> {
        match key {
            Some(key) if is_deep => Some(bson!({ "key": key })),
            None if is_deep => Some(bson!({})),
            key => key,
        }
    };
    match generator.take_where(|form: NewestLookupKey| is_deep || form != NewestLookupKey::ArrayOfDocuments) {
        NewestLookupKey::Known => deep(generator.key_value(0)),
        NewestLookupKey::Null => deep(Some(Bson::Null)),
        NewestLookupKey::Missing => None,
        NewestLookupKey::Other => {
            let value = generator.value();
            deep(Some(value))
        }
        NewestLookupKey::Array => {
            let keys = (0..generator.below(4)).map(|_| generator.key_value(0).unwrap_or(Bson::Null));
            let keys: Vec<Bson> = keys.collect();
            deep(Some(keys.into()))
        }
        NewestLookupKey::ArrayOfDocuments => {
            let keys = (0..2).map(|_| deep(generator.key_value(0)).unwrap_or_default());
            Some(keys.collect::<Vec<Bson>>().into())
        }
    }
}

/// The `$lookup` of the newest or oldest items.
fn lookup(generator: &mut Generator, local: &str, time: &str) -> Document {
    let key = generator.shape.key[0].clone();
    let path = format!("${key}");
    let equal = match generator.take::<NewestLookupForm>() {
        NewestLookupForm::Fields => None,
        NewestLookupForm::Variable => Some(bson!({ "$expr": { "$eq": [path, "$$wanted"] } })),
        NewestLookupForm::VariableFirst => Some(bson!({ "$expr": { "$eq": ["$$wanted", path] } })),
        NewestLookupForm::VariableAndMore => {
            Some(bson!({ "$expr": { "$eq": [path, "$$wanted"] }, "n": { "$gt": generator.some_serial() } }))
        }
        NewestLookupForm::VariableInAnd => Some(bson!({ "$expr": { "$and": [{ "$eq": [path, "$$wanted"] }] } })),
    };
    let mut lookup = doc! { "from": COLLECTION, "as": "found" };
    let mut stages = Vec::new();
    if let Some(filter) = equal {
        lookup.insert("let", doc! { "wanted": format!("${local}") });
        stages.push(bson!({ "$match": filter }));
    } else {
        lookup.extend(doc! { "localField": local, "foreignField": &key });
    }
    match generator.take::<NewestLookupBefore>() {
        NewestLookupBefore::Nothing => {}
        NewestLookupBefore::Match => stages.push(bson!({ "$match": { "n": { "$gt": generator.some_serial() } } })),
    }
    let direction = match generator.take::<NewestDirection>() {
        NewestDirection::Ascending => 1,
        NewestDirection::Descending => -1,
    };
    let sort = match generator.take::<NewestLookupSort>() {
        NewestLookupSort::Time => doc! { time: direction },
        NewestLookupSort::TimeAndNumber => doc! { time: direction, "n": 1 },
    };
    stages.push(bson!({ "$sort": sort }));
    match generator.take::<NewestLookupSkip>() {
        NewestLookupSkip::None => {}
        NewestLookupSkip::Few => stages.push(bson!({ "$skip": generator.between(1, 4) })),
    }
    let limit = match generator.take::<NewestLookupLimit>() {
        NewestLookupLimit::None => None,
        NewestLookupLimit::One => Some(bson!(1)),
        NewestLookupLimit::Few => Some(bson!(generator.between(2, 5))),
        NewestLookupLimit::Many => Some(bson!(MANY)),
        NewestLookupLimit::Double => Some(bson!(3.0)),
    };
    stages.extend(limit.map(|limit| bson!({ "$limit": limit })));
    lookup.insert("pipeline", stages);
    lookup
}

/// Returns each item that matches by itself. mongod makes the three stages one.
fn unwound(lookup: Bson, filter: Document) -> [Bson; 4] {
    [
        lookup,
        bson!({ "$unwind": "$found" }),
        bson!({ "$match": filter }),
        bson!({ "$set": { "found": ["$found"] } }),
    ]
}

fn in_facet(lookup: &Bson) -> [Bson; 3] {
    [
        bson!({ "$facet": { "one": [lookup] } }),
        bson!({ "$unwind": "$one" }),
        bson!({ "$replaceRoot": { "newRoot": "$one" } }),
    ]
}

/// Runs the stage within another `$lookup`.
fn nested(lookup: &Bson) -> [Bson; 3] {
    let documents = bson!([{ "$documents": ["$$outer"] }, lookup]);
    [
        bson!({ "$lookup": { "let": { "outer": "$$ROOT" }, "pipeline": documents, "as": "inner" } }),
        bson!({ "$unwind": "$inner" }),
        bson!({ "$replaceRoot": { "newRoot": "$inner" } }),
    ]
}

impl Operation for NewestLookup {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let answers = match cursor::answers(sides, &self.command, &self.batches)? {
            Reading::Answers(answers) => answers,
            Reading::Ended(outcome) => return Ok(outcome),
        };
        compare_times([&answers.plain, &answers.shaped].map(|answers| self.times(answers)))?;
        self.check_items(sides, &answers.shaped)?;
        Ok(Outcome::Done)
    }
}

/// The items that were found for a document.
fn found(answer: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let found = field(answer, "found").and_then(RawBsonRef::as_array);
    found
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document)
}

impl NewestLookup {
    /// The answers with the time of each item in place of the item.
    fn times(&self, answers: &[RawDocumentBuf]) -> Vec<RawDocumentBuf> {
        let times = answers.iter().map(|answer| {
            let times = found(answer).map(|item| match field(item, &self.time) {
                None | Some(RawBsonRef::Undefined) => RawBson::Null,
                Some(time) => time.into(),
            });
            let mut replaced = RawDocumentBuf::new();
            replaced.append(cstr!("i"), field(answer, "i").unwrap_or(RawBsonRef::Null));
            replaced.append(cstr!("found"), times.collect::<RawArrayBuf>());
            replaced
        });
        times.collect()
    }

    /// Fails unless the items of each array are different items of the plain collection.
    fn check_items(&self, sides: &mut Sides, answers: &[RawDocumentBuf]) -> Result<()> {
        let command = doc! { "find": COLLECTION, "$db": sides.plain.database.as_str() };
        let all = invariants::read_all(sides.plain.routes.any(), &command).context("all documents")?;
        let all: Vec<Vec<u8>> = all.iter().map(|document| self.canon.of(document)).collect();
        for answer in answers {
            let mut rest = all.clone();
            for item in found(answer) {
                let place = rest.iter().position(|other| *other == self.canon.of(item));
                ensure!(place.is_some(), "no document is {}, or it was found twice", show(item));
                place.map(|place| rest.swap_remove(place));
            }
        }
        Ok(())
    }
}
