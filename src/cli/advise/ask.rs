//! Asks the server, in commands that only read and are bounded in time, and in documents where they look at such. What is
//! refused, or is not there, becomes a note.

use std::collections::{BTreeMap, BTreeSet};
use std::time::{Duration, Instant};

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};

use super::candidate::Candidate;
use super::facts::Facts;
use super::number::count;
use super::sample::Sample;
use super::sizes::Sizes;
use super::watched::{Watched, watched};
use crate::command::document::{as_whole_number, get, put, single};

/// How long one question may take mongod, and one that looks at documents.
const TIME: Duration = Duration::from_secs(5);
const SAMPLE_TIME: Duration = Duration::from_secs(10);
/// Documents are looked at until they come to so many bytes.
const SAMPLE_BYTES: u64 = 32 << 20;
/// mongod looks at all documents for a sample of more than a twentieth; of more bytes it is asked for less.
const SCANNED_BYTES: u64 = 32 << 20;
const PART: u64 = 25;
/// Below so many documents it always does.
const RANDOM_AT_LEAST: u64 = 100;
/// Entries of a profile that are read, the newest.
const PROFILED: i64 = 2000;
/// Keys that are counted, and how long one may take, and all of them.
const KEYS: usize = 40;
const KEY_TIME: Duration = Duration::from_millis(500);
const KEYS_TIME: Duration = Duration::from_secs(5);

/// Questions to one server, and what could not be learnt.
pub(super) struct Ask<'a> {
    client: &'a Client,
    /// What, and of which namespaces.
    notes: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self {
            client,
            notes: BTreeMap::new(),
        }
    }

    /// Something that is not known of a namespace.
    pub(super) fn note(&mut self, text: impl Into<String>, namespace: &str) {
        self.notes.entry(text.into()).or_default().insert(namespace.to_owned());
    }

    /// All that is not known, a line for each thing.
    pub(super) fn notes(&self) -> impl Iterator<Item = String> {
        self.notes.iter().map(|(text, namespaces)| {
            let first: Vec<&str> = namespaces.iter().take(3).map(String::as_str).collect();
            let more = match namespaces.len() - first.len() {
                0 => String::new(),
                more => format!(" and {more} more"),
            };
            format!("{}{more}: {text}", first.join(", "))
        })
    }

    /// What `listCollections` says of a database.
    pub(super) async fn collections(&self, database: &Database) -> Result<Vec<Document>, Error> {
        let command = doc! { "listCollections": 1, "maxTimeMS": milliseconds(TIME) };
        let found = database
            .run_cursor_command(command)
            .selection_criteria(sampled())
            .await?;
        found.try_collect().await
    }

    /// Sizes and indexes.
    pub(super) async fn add_facts(&self, database: &Database, facts: &mut Facts) -> Result<(), Error> {
        let name = facts.collection().to_owned();
        let list = doc! { "listIndexes": &name, "maxTimeMS": milliseconds(TIME) };
        let indexes = database.run_cursor_command(list).selection_criteria(sampled()).await?;
        let indexes: Vec<Document> = indexes.try_collect().await?;
        facts.add_indexes(&indexes);
        let statistics = doc! { "collStats": &name, "maxTimeMS": milliseconds(TIME) };
        facts.add_statistics(&database.run_command(statistics).selection_criteria(sampled()).await?);
        Ok(())
    }

    /// The newest entries of a database's profile.
    pub(super) async fn profile(&mut self, database: &Database, names: &[String]) -> Vec<Document> {
        let name = database.name();
        if !names.iter().any(|name| name == "system.profile") {
            self.note(
                "there is no system.profile, which db.setProfilingLevel begins: no commands are known",
                name,
            );
            return Vec::new();
        }
        let filter = doc! { "ns": { "$nin": [format!("{name}.system.profile")] } };
        let projection = doc! { "ns": 1, "op": 1, "command": 1 };
        let find = doc! {
            "find": "system.profile", "filter": filter, "projection": projection, "sort": { "$natural": -1 }, "limit": PROFILED,
            "maxTimeMS": milliseconds(TIME),
        };
        let found = self.all(database, find).await;
        found.unwrap_or_else(|error| {
            self.note(format!("system.profile cannot be read: {}", reason(&error)), name);
            Vec::new()
        })
    }

    /// How often indexes were used, and the plans that are cached.
    pub(super) async fn usage(&mut self, database: &Database, namespace: &str) -> (Vec<Document>, Vec<Document>) {
        let mut answers = [Vec::new(), Vec::new()];
        let name = namespace.split_once('.').map_or("", |(_, name)| name);
        for (answer, stage) in answers.iter_mut().zip(["$indexStats", "$planCacheStats"]) {
            let stages = [doc! { stage: {} }];
            let command = doc! {
                "aggregate": name, "pipeline": stages.to_vec(), "cursor": {}, "maxTimeMS": milliseconds(TIME),
            };
            match self.all(database, command).await {
                Ok(found) => *answer = found,
                Err(error) => self.note(format!("{stage} is not available: {}", reason(&error)), namespace),
            }
        }
        answers.into()
    }

    /// What change streams watch.
    pub(super) async fn watched(&mut self) -> Vec<Watched> {
        let stages = [
            doc! { "$currentOp": { "allUsers": true, "idleCursors": true } },
            doc! { "$project": { "ns": 1, "command.pipeline": 1, "cursor.originatingCommand.pipeline": 1 } },
        ];
        let command =
            doc! { "aggregate": 1, "pipeline": stages.to_vec(), "cursor": {}, "maxTimeMS": milliseconds(TIME) };
        let found = match self.all(&self.client.database("admin"), command).await {
            Ok(found) => found,
            Err(error) => {
                let text = format!(
                    "$currentOp is not available, so change streams are not seen: {}",
                    reason(&error)
                );
                self.note(text, "all");
                return Vec::new();
            }
        };
        found.iter().filter_map(watched).collect()
    }

    /// Some documents, at random where there are many. `None` where none can be read; then that is noted.
    pub(super) async fn sample(&mut self, database: &Database, facts: &Facts, most: u64) -> Option<Sample> {
        let wanted = if facts.data <= SCANNED_BYTES {
            most
        } else {
            most.min(facts.documents / PART)
        };
        let is_random = facts.data <= SCANNED_BYTES || facts.documents > RANDOM_AT_LEAST;
        let (name, size) = (facts.collection(), i64::try_from(wanted.max(1)).unwrap_or(i64::MAX));
        let command = if is_random {
            let stages = [doc! { "$sample": { "size": size } }];
            doc! {
                "aggregate": name, "pipeline": stages.to_vec(), "cursor": { "batchSize": 500 },
                "maxTimeMS": milliseconds(SAMPLE_TIME),
            }
        } else {
            self.note(
                "its few documents are large: those at its beginning were looked at",
                &facts.namespace,
            );
            doc! { "find": name, "limit": size.max(10), "batchSize": 1, "maxTimeMS": milliseconds(SAMPLE_TIME) }
        };
        let mut documents = Vec::new();
        if let Err(error) = read(database, command, &mut documents).await {
            self.note(
                format!("its documents cannot be sampled: {}", reason(&error)),
                &facts.namespace,
            );
            if documents.is_empty() {
                return None;
            }
        }
        let is_whole = count(documents.len()) >= facts.documents;
        Some(Sample::new(documents, is_whole))
    }

    /// How many documents the keys of a candidate have.
    pub(super) async fn sizes(
        &mut self,
        (database, facts): (&Database, &Facts),
        sample: &Sample,
        candidate: &Candidate,
    ) -> Sizes {
        let groups = sample.groups(&candidate.key);
        if sample.is_whole {
            return Sizes::whole(&groups);
        }
        let counted = match &candidate.index {
            Some(index) => self.count(database, facts, (sample, candidate, index)).await,
            None => Vec::new(),
        };
        if counted.is_empty() {
            Sizes::guessed(&groups, facts.documents)
        } else {
            Sizes::counted(&counted)
        }
    }

    /// Counts the keys of some documents in an index.
    async fn count(
        &mut self,
        database: &Database,
        facts: &Facts,
        (sample, candidate, index): (&Sample, &Candidate, &str),
    ) -> Vec<u64> {
        let mut counted = Vec::new();
        let end = Instant::now() + KEYS_TIME;
        // A sample comes in no order: its first documents are as good as any.
        let with_key = |document: &&RawDocumentBuf| candidate.key.iter().all(|field| get(document, field).is_some());
        for document in sample.documents.iter().filter(with_key).take(KEYS) {
            let mut filter = RawDocumentBuf::new();
            for field in &candidate.key {
                put(
                    &mut filter,
                    field,
                    single("$eq", get(document, field).unwrap_or(RawBsonRef::Null)),
                );
            }
            let mut command = single("count", facts.collection());
            command.append(cstr!("query"), filter);
            command.append(cstr!("hint"), index);
            command.append(cstr!("limit"), i64::try_from(Sizes::COUNTED).unwrap_or(i64::MAX));
            command.append(cstr!("maxTimeMS"), milliseconds(KEY_TIME));
            let answer = database.run_raw_command(command).selection_criteria(sampled()).await;
            let number = match answer.map(RawDocumentBuf::try_from) {
                Ok(Ok(answer)) => get(&answer, "n").and_then(as_whole_number),
                Ok(Err(_)) => None,
                Err(error) => {
                    self.note(format!("keys cannot be counted: {}", reason(&error)), &facts.namespace);
                    None
                }
            };
            // Keys that take too long are the largest: what was counted without them would be wrong.
            let Some(number) = number.and_then(|number| u64::try_from(number).ok()) else {
                return Vec::new();
            };
            counted.push(number);
            if Instant::now() > end {
                break;
            }
        }
        counted
    }

    /// All that a question about traffic is answered. That of the primary is worth the most.
    async fn all(&self, database: &Database, command: Document) -> Result<Vec<Document>, Error> {
        let primary = ReadPreference::PrimaryPreferred { options: None };
        let criteria = SelectionCriteria::ReadPreference(primary);
        database
            .run_cursor_command(command)
            .selection_criteria(criteria)
            .await?
            .try_collect()
            .await
    }
}

/// Reads until there are enough bytes. What was read stays, also after an error.
async fn read(database: &Database, command: Document, documents: &mut Vec<RawDocumentBuf>) -> Result<(), Error> {
    let cursor = database
        .run_cursor_command(command)
        .selection_criteria(sampled())
        .await?;
    let mut cursor = cursor.with_type::<RawDocumentBuf>();
    let mut bytes = 0;
    while let Some(document) = cursor.try_next().await? {
        bytes += count(document.as_bytes().len());
        documents.push(document);
        if bytes >= SAMPLE_BYTES {
            break;
        }
    }
    Ok(())
}

/// Documents are read where that disturbs least.
fn sampled() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { options: None })
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// Why, without the server's words: these may quote the command, and with it values.
pub(super) fn reason(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) if command.code == 13 => "this user lacks the privilege".to_owned(),
        ErrorKind::Command(command) => format!("{} ({})", command.code_name, command.code),
        ErrorKind::Authentication { .. } => "authentication failed".to_owned(),
        _ => "the server did not answer".to_owned(),
    }
}
