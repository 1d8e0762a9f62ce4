//! Reads from the server, with commands that only read and have a time limit. What is refused or
//! missing becomes a note.

mod documents;
mod runs;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::{Error, ErrorKind};
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};

use super::change_streams::{Watched, watched};
use super::collection_stats::CollectionStats;

/// Time limit of a command in mongod.
const TIME: Duration = Duration::from_secs(5);
/// Number of profile entries to read, the newest first.
const PROFILED: i64 = 2000;
/// Reads from one server, and collects notes.
pub(super) struct Ask<'a> {
    client: &'a Client,
    /// Each note, with the namespaces that it applies to.
    notes: BTreeMap<String, BTreeSet<String>>,
}

impl<'a> Ask<'a> {
    pub(super) fn new(client: &'a Client) -> Self {
        Self {
            client,
            notes: BTreeMap::new(),
        }
    }

    /// Records that something is unknown for a namespace.
    pub(super) fn note(&mut self, text: impl Into<String>, namespace: &str) {
        self.notes.entry(text.into()).or_default().insert(namespace.to_owned());
    }

    /// All notes, one line each.
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

    /// The collections of a database, as `listCollections` returns them.
    pub(super) async fn collections(&self, database: &Database) -> Result<Vec<Document>, Error> {
        let command = doc! { "listCollections": 1, "maxTimeMS": milliseconds(TIME) };
        let found = database
            .run_cursor_command(command)
            .selection_criteria(sampled())
            .await?;
        found.try_collect().await
    }

    /// Adds sizes and indexes.
    pub(super) async fn add_facts(&self, database: &Database, facts: &mut CollectionStats) -> Result<(), Error> {
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
                "system.profile does not exist, so no commands are known; db.setProfilingLevel creates it",
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

    /// The uses of indexes, and the cached plans.
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

    /// The scopes of all change streams.
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
                    "$currentOp is not available, so change streams are not known: {}",
                    reason(&error)
                );
                self.note(text, "all");
                return Vec::new();
            }
        };
        found.iter().filter_map(watched).collect()
    }

    /// All documents that a command about queries returns. Sent to the primary if possible, because
    /// most queries are there.
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

/// Reads documents from a secondary if possible, to disturb clients least.
fn sampled() -> SelectionCriteria {
    SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred { options: None })
}

fn milliseconds(time: Duration) -> i64 {
    i64::try_from(time.as_millis()).unwrap_or(i64::MAX)
}

/// The reason without the server's message, which may quote the command and its values.
pub(super) fn reason(error: &Error) -> String {
    match error.kind.as_ref() {
        ErrorKind::Command(command) if command.code == 13 => "this user lacks the privilege".to_owned(),
        ErrorKind::Command(command) => format!("{} ({})", command.code_name, command.code),
        ErrorKind::Authentication { .. } => "authentication failed".to_owned(),
        _ => "the server did not answer".to_owned(),
    }
}
