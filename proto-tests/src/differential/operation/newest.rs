//! The newest or oldest item of each key, by `$group`.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, bson, doc};

use super::cursor::{self, Batches, Reading};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{NEWEST, NewestBefore, NewestBy, NewestDirection, NewestForm, NewestSort};
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Generator, Sides};
use crate::invariants;

#[derive(Debug)]
struct Newest {
    command: Document,
    time: String,
    batches: Batches,
    /// The form in which items are compared.
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    generator.group(&NEWEST, |generator| {
        let time = generator.shape.time.clone().unwrap_or_else(|| "date".to_owned());
        let pipeline = pipeline(generator, &time);
        let mut cursor = doc! {};
        if let Some(size) = generator.batch_size() {
            cursor.insert("batchSize", size);
        }
        Box::new(Newest {
            command: doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": cursor },
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

/// Returns of each key the time as `at`, and the item as `item`.
fn pipeline(generator: &mut Generator, time: &str) -> Vec<Bson> {
    let key = generator.shape.key[0].clone();
    let direction = match generator.take::<NewestDirection>() {
        NewestDirection::Ascending => 1,
        NewestDirection::Descending => -1,
    };
    let sort = match generator.take::<NewestSort>() {
        NewestSort::Time => doc! { time: direction },
        NewestSort::KeyAndTime => doc! { &key: 1, time: direction },
        NewestSort::TimeAndKey => doc! { time: direction, &key: -1 },
        NewestSort::TimeAndNumber => doc! { time: direction, "n": 1 },
    };
    let at = format!("${time}");
    let by = |operator: &str, value: &str| bson!({ operator: value });
    let top = |operator: &str, value: &str| bson!({ operator: { "sortBy": { time: direction }, "output": value } });
    let (is_sorted, at, item) = match generator.take::<NewestForm>() {
        NewestForm::First => (true, by("$first", &at), Some(by("$first", "$$ROOT"))),
        NewestForm::Last => (true, by("$last", &at), Some(by("$last", "$$ROOT"))),
        NewestForm::Top => (false, top("$top", &at), Some(top("$top", "$$ROOT"))),
        NewestForm::Bottom => (false, top("$bottom", &at), Some(top("$bottom", "$$ROOT"))),
        NewestForm::Max => (false, by("$max", &at), None),
        NewestForm::Min => (false, by("$min", &at), None),
        NewestForm::FirstAndMax => (true, by("$max", &at), Some(by("$first", "$$ROOT"))),
        NewestForm::FirstAndMin => (true, by("$min", &at), Some(by("$first", "$$ROOT"))),
    };
    let id = match generator.take::<NewestBy>() {
        NewestBy::Key => bson!(format!("${key}")),
        NewestBy::KeyInDocument => bson!({ "key": format!("${key}") }),
        NewestBy::OtherField => bson!("$n"),
    };
    let mut group = doc! { "_id": id, "at": at };
    group.extend(item.map(|item| ("item".to_owned(), item)));
    let mut stages: Vec<Bson> = match generator.take::<NewestBefore>() {
        NewestBefore::Nothing => vec![],
        NewestBefore::MatchKey => vec![bson!({ "$match": generator.one_key() })],
        NewestBefore::MatchAll => vec![bson!({ "$match": {} })],
    };
    stages.extend(is_sorted.then(|| bson!({ "$sort": sort })));
    stages.push(bson!({ "$group": group }));
    stages
}

impl Operation for Newest {
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

/// Compares the times of the items that both sides have returned. Of items with the same time, mongod may choose
/// any.
pub(super) fn compare_times([plain, shaped]: [Vec<RawDocumentBuf>; 2]) -> Result<()> {
    let canon = Canon {
        loose: true,
        ..Canon::default()
    };
    compare::documents(canon, &Order::Free, &plain, &shaped, &[])
}

impl Newest {
    /// The answers with the time of the item in place of the item.
    fn times(&self, answers: &[RawDocumentBuf]) -> Vec<RawDocumentBuf> {
        let times = answers.iter().map(|answer| {
            let mut times = RawDocumentBuf::new();
            for (name, value) in answer.iter().flatten() {
                match value.as_document().filter(|_| name.as_str() == "item") {
                    Some(item) => times.append(name, field(item, &self.time).unwrap_or(RawBsonRef::Null)),
                    None => times.append(name, value),
                }
            }
            times
        });
        times.collect()
    }

    /// Fails unless each item is one of the plain collection.
    fn check_items(&self, sides: &mut Sides, answers: &[RawDocumentBuf]) -> Result<()> {
        let items: Vec<&RawDocument> = answers
            .iter()
            .filter_map(|answer| field(answer, "item")?.as_document())
            .collect();
        if items.is_empty() {
            return Ok(());
        }
        let command = doc! { "find": COLLECTION, "$db": sides.plain.database.as_str() };
        let all = invariants::read_all(sides.plain.routes.any(), &command).context("all documents")?;
        let all: Vec<Vec<u8>> = all.iter().map(|document| self.canon.of(document)).collect();
        for item in items {
            ensure!(all.contains(&self.canon.of(item)), "no document is {}", show(item));
        }
        Ok(())
    }
}
