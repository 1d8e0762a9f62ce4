//! Compares the events of two streams.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::Operation;
use crate::differential::compare::{Canon, GENERATED_ID};
use crate::differential::sides::{Side, field, show};

const DESCRIPTION: &str = "updateDescription";
const OPERATION: &str = "operationType";
/// In place of the description of a document that got its fields in another order.
const REORDERED: &[u8] = b"reordered";
/// Events by their document.
pub(super) type Events = BTreeMap<Vec<u8>, Vec<Event>>;

#[derive(Debug, Clone)]
pub(super) struct Event {
    /// Fields by name, in a form that is equal for equal ones.
    comparable: Vec<(String, Vec<u8>)>,
    /// For a person.
    text: String,
}

/// The updates of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Updates {
    ByPipeline,
    Others,
}

impl Updates {
    /// The kind of several writes together.
    pub(super) fn of_any<'a>(mut writes: impl Iterator<Item = &'a dyn Operation>) -> Self {
        let has_pipeline = writes.any(|write| Self::of(write) == Self::ByPipeline);
        if has_pipeline { Self::ByPipeline } else { Self::Others }
    }

    fn of(write: &dyn Operation) -> Self {
        let commands = write.commands();
        let statements = commands
            .iter()
            .filter_map(|command| command.get_array("updates").ok())
            .flatten();
        let of_statements = statements.filter_map(|statement| statement.as_document()?.get("u"));
        let mut changes = of_statements.chain(commands.iter().filter_map(|command| command.get("update")));
        let has_pipeline = changes.any(|change| change.as_array().is_some());
        if has_pipeline { Self::ByPipeline } else { Self::Others }
    }
}

impl Event {
    /// Whether the plain document got its fields in another order, so that mongod describes nearly all of them as
    /// updated, the `_id` among them. A shaped collection does not keep that order.
    fn is_reordered(&self) -> bool {
        let description = self.comparable.iter().find(|(name, _)| name == DESCRIPTION);
        description.is_some_and(|(_, bytes)| bytes == REORDERED)
    }

    fn is_like(&self, plain: &Self, updates: Updates) -> bool {
        let is_reordered = plain.is_reordered();
        let operation = |event: &Self| event.comparable.iter().find(|(name, _)| name == OPERATION).cloned();
        // mongod logs the result of a pipeline as a replacement if that is shorter than the difference.
        let is_other_form = updates == Updates::ByPipeline && operation(self) != operation(plain);
        let compared = |event: &Self| -> Vec<(String, Vec<u8>)> {
            let fields = event.comparable.iter().filter(|(name, _)| match name.as_str() {
                DESCRIPTION => !is_reordered && !is_other_form,
                OPERATION | "fullDocument" => !is_other_form,
                _ => true,
            });
            fields.cloned().collect()
        };
        compared(self) == compared(plain)
    }
}

/// Fails unless both sides have the same events of each document.
pub(super) fn compare(plain: &Events, shaped: &Events, updates: Updates) -> Result<()> {
    let mut differences = Vec::new();
    for key in plain
        .keys()
        .chain(shaped.keys().filter(|key| !plain.contains_key(*key)))
    {
        let events = |side: &'_ Events| side.get(key).map(Vec::as_slice).unwrap_or_default().to_vec();
        let (expected, found) = (events(plain), events(shaped));
        let is_like = |(plain, shaped): (&Event, &Event)| shaped.is_like(plain, updates);
        if expected.len() != found.len() || !expected.iter().zip(&found).all(is_like) {
            differences.extend(expected.into_iter().map(|event| format!("plain:  {}", event.text)));
            differences.extend(found.into_iter().map(|event| format!("shaped: {}", event.text)));
        }
    }
    ensure!(
        differences.is_empty(),
        "the streams differ\n  {}",
        differences.join("\n  ")
    );
    Ok(())
}

/// The events of each document in their order. The order of several documents of one command is that of the
/// server.
pub(super) fn by_document(canon: Canon, events: Vec<RawDocumentBuf>, side: &Side) -> Events {
    let mut sorted = Events::new();
    for event in events {
        let mut comparable = Vec::new();
        let mut key = Vec::new();
        for (name, value) in event.iter().flatten() {
            let value = match (name.as_str(), value) {
                ("_id" | "clusterTime" | "wallTime" | "lsid" | "txnNumber", _) => continue,
                ("fullDocument" | "fullDocumentBeforeChange" | "documentKey", RawBsonRef::Document(document)) => {
                    canon.of(document)
                }
                (DESCRIPTION, RawBsonRef::Document(description)) => describe(canon, description),
                (_, value) => {
                    let mut document = RawDocumentBuf::new();
                    document.append(name, value);
                    let text = String::from_utf8_lossy(&canon.of(&document)).into_owned();
                    side.neutral(&text).into_bytes()
                }
            };
            if name.as_str() == "documentKey" {
                key.clone_from(&value);
            }
            comparable.push((name.as_str().to_owned(), value));
        }
        let is_in_transaction = field(&event, "txnNumber").is_some() && field(&event, "lsid").is_some();
        comparable.push(("in a transaction".to_owned(), vec![u8::from(is_in_transaction)]));
        let event = Event {
            comparable,
            text: show(&event),
        };
        sorted.entry(key).or_default().push(event);
    }
    // Documents with generated `_id`s cannot be told apart by them.
    let generated = GENERATED_ID.as_bytes();
    let is_generated = |key: &[u8]| key.windows(generated.len()).any(|part| part == generated);
    for (key, events) in &mut sorted {
        if is_generated(key) {
            events.sort_by(|one, other| one.comparable.cmp(&other.comparable));
        }
    }
    sorted
}

/// The event with the `_id` alone as `documentKey`.
pub(super) fn without_shard_key(event: &RawDocument) -> RawDocumentBuf {
    let fields = event.iter().flatten().map(|(name, value)| {
        let key = value.as_document().filter(|_| name.as_str() == "documentKey");
        let value = match key.and_then(|key| field(key, "_id")) {
            Some(id) => RawBson::Document([(cstr!("_id"), id)].into_iter().collect()),
            None => value.into(),
        };
        (name, value)
    });
    fields.collect()
}

fn describe(canon: Canon, description: &RawDocument) -> Vec<u8> {
    let mut parts = Vec::new();
    for (name, value) in description.iter().flatten() {
        parts.extend_from_slice(name.as_str().as_bytes());
        match value {
            RawBsonRef::Document(fields) if field(fields, "_id").is_some() => return REORDERED.to_vec(),
            RawBsonRef::Document(fields) => parts.extend(canon.of(fields)),
            RawBsonRef::Array(values) => {
                let mut values: Vec<String> = values.into_iter().flatten().map(|value| format!("{value:?}")).collect();
                values.sort();
                parts.extend(values.concat().into_bytes());
            }
            other => parts.extend(format!("{other:?}").into_bytes()),
        }
    }
    parts
}
