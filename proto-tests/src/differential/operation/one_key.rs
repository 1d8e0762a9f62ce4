//! Writes on one key whose page is nearly full, through each proxy in turn. So a proxy's cached state of the
//! page is outdated in many ways.

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};

use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::OneKeyWrite;
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Generator, Sides, contents};
use crate::invariants;

/// Seconds between two of the first documents, so that others fit between them.
const STEP: i64 = 10;
/// The most seconds between the newest document and a newer one.
const GAP: i32 = 50;
/// The key of all documents.
const KEY: i32 = 1;

#[derive(Debug)]
struct OneKey {
    writes: Vec<RoutedWrite>,
    canon: Canon,
}

/// A write through one of the proxies.
#[derive(Debug)]
struct RoutedWrite {
    proxy: usize,
    command: Document,
}

/// The documents that exist at a point of the sequence.
struct ExistingDocuments<'g> {
    generator: &'g mut Generator,
    /// Their numbers and times.
    documents: Vec<NumberedDocument>,
    next_number: i32,
}

#[derive(Clone, Copy)]
struct NumberedDocument {
    number: i32,
    second: i64,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let canon = generator.canon();
    let size = i32::try_from(generator.shape.max_items).unwrap_or(i32::MAX);
    let first = (size - generator.between(1, 3)).clamp(1, 200);
    let mut existing = ExistingDocuments {
        generator,
        documents: Vec::new(),
        next_number: 1,
    };
    let mut seconds: Vec<i64> = (1..=i64::from(first)).map(|place| place * STEP).collect();
    if existing.generator.chance(50) {
        existing.generator.shuffle(&mut seconds);
    }
    let mut writes = vec![RoutedWrite {
        proxy: 0,
        command: existing.insert(&seconds),
    }];
    for _ in 0..existing.generator.between(3, 8) {
        let before = writes[writes.len() - 1].proxy;
        let proxy = if existing.generator.chance(75) {
            1 - before
        } else {
            before
        };
        let commands = existing.write();
        writes.extend(commands.into_iter().map(|command| RoutedWrite { proxy, command }));
    }
    Box::new(OneKey { writes, canon })
}

impl ExistingDocuments<'_> {
    /// The commands of a turn.
    fn write(&mut self) -> Vec<Document> {
        let seconds = |of: fn(i64, i64) -> i64, documents: &[NumberedDocument], none: i64| {
            documents
                .iter()
                .map(|document| document.second)
                .reduce(of)
                .unwrap_or(none)
        };
        let (oldest, newest) = (
            seconds(i64::min, &self.documents, STEP),
            seconds(i64::max, &self.documents, STEP),
        );
        let newer = newest + i64::from(self.generator.between(1, GAP));
        vec![match self.generator.take::<OneKeyWrite>() {
            OneKeyWrite::InsertNewer => self.insert(&[newer]),
            OneKeyWrite::InsertSeveral => {
                let (oldest, newest) = (i32::try_from(oldest).unwrap_or(0), i32::try_from(newest).unwrap_or(0));
                // Often between the newest document and the newest one that another proxy knows.
                let from = self.generator.pick(&[oldest, newest - GAP]).max(oldest);
                let count = self.generator.between(2, 4);
                let seconds: Vec<i64> = (0..count)
                    .map(|_| self.generator.between(from, newest).into())
                    .collect();
                self.insert(&seconds)
            }
            OneKeyWrite::InsertOlder => self.insert(&[oldest - 1]),
            // The number of documents stays.
            OneKeyWrite::InsertAndDelete => {
                return vec![self.insert(&[newer]), self.delete(|document| document.second)];
            }
            OneKeyWrite::DeleteOldest => self.delete(|document| document.second),
            OneKeyWrite::DeleteNewest => self.delete(|document| -document.second),
            OneKeyWrite::DeleteLatest => self.delete(|document| -i64::from(document.number)),
            OneKeyWrite::Update => {
                let numbers: Vec<i32> = self.documents.iter().map(|document| document.number).collect();
                let number = self.generator.pick(&numbers);
                let update = doc! { "q": self.by_number(number), "u": { "$set": { "text": "x".repeat(40) } } };
                doc! { "update": COLLECTION, "updates": [update] }
            }
        }]
    }

    fn insert(&mut self, seconds: &[i64]) -> Document {
        let mut documents = Vec::new();
        for second in seconds {
            let number = self.next_number;
            self.next_number += 1;
            self.documents.push(NumberedDocument {
                number,
                second: *second,
            });
            let mut document = doc! { "_id": number, "n": number };
            for key in &self.generator.shape.key {
                document.insert(key, KEY);
            }
            if let Some(time) = &self.generator.shape.time {
                document.insert(time, DateTime::from_millis(second * 1000));
            }
            documents.push(document);
        }
        doc! { "insert": COLLECTION, "documents": documents }
    }

    /// Deletes the document with the least value.
    fn delete(&mut self, value: fn(&NumberedDocument) -> i64) -> Document {
        let place = (0..self.documents.len()).min_by_key(|place| value(&self.documents[*place]));
        let number = match place {
            // The last document stays, so that there is one to update.
            Some(place) if self.documents.len() > 1 => self.documents.remove(place).number,
            _ => 0,
        };
        doc! { "delete": COLLECTION, "deletes": [{ "q": self.by_number(number), "limit": 1 }] }
    }

    fn by_number(&self, number: i32) -> Document {
        doc! { &self.generator.shape.key[0]: KEY, "n": number }
    }
}

impl Operation for OneKey {
    fn commands(&self) -> Vec<Document> {
        self.writes.iter().map(|write| write.command.clone()).collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            for write in &self.writes {
                sides.shaped.routes.send_next_through(write.proxy);
                let [plain, shaped] = sides.both(&write.command)?;
                let is_executed = compare::succeeded(&plain) && compare::succeeded(&shaped);
                ensure!(
                    is_executed && field(&plain, "n") == field(&shaped, "n"),
                    "plain: {}\n  shaped: {}",
                    show(&plain),
                    show(&shaped)
                );
            }
            let (connection, database) = (sides.stored.routes.any(), &sides.stored.database);
            invariants::check(connection, database, COLLECTION, &sides.shape)?;
            contents::unchanged(sides, self.canon)?;
            Ok(Outcome::Done)
        })
    }
}
