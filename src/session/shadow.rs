//! Shadow mode: chooses a share of the relayed reads. A background task compares their results with those of
//! the copy in pages.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use tokio::sync::mpsc::Sender;

use super::metrics::{SessionMetrics, ShadowMetrics, ShadowResult};
use super::shared::Settings;
use crate::command::document::{first_field, get};
use crate::command::header::CommandHeader;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::pattern::shapes::Shape;

/// The most reads that wait for their comparison.
pub const MAX_WAITING: usize = 64;
/// The most bytes of a read that is compared. Longer messages are often relayed before they are read
/// completely.
const MAX_BYTES: usize = 64 << 10;
/// First stages whose result is not made of the collection's documents.
const OTHER_SOURCES: [&str; 6] = [
    "$changeStream",
    "$changeStreamSplitLargeEvent",
    "$collStats",
    "$indexStats",
    "$planCacheStats",
    "$listSearchIndexes",
];

/// A read that was relayed and answered, and is compared.
#[derive(Debug)]
pub struct ShadowRead {
    /// The namespace of the shape, as configured.
    pub configured: String,
    /// The collection's database.
    pub database: String,
    /// The collection.
    pub collection: String,
    /// One of [`ShadowMetrics::COMMANDS`].
    pub command: Command,
    /// The client's command.
    pub body: RawDocumentBuf,
}

/// A read that is compared if the server answers it without an error.
pub(super) struct ChosenRead {
    /// The namespace of the shape, as configured.
    configured: String,
}

/// Chooses a command of a client. `None`: it is only relayed. A command that is not chosen costs one look-up.
pub(super) fn choose(settings: &Settings, head: &CommandHeader<'_>) -> Option<ChosenRead> {
    if !ShadowMetrics::COMMANDS.contains(&head.command) {
        return None;
    }
    let shape = settings.shapes.shadow(head.namespace()?)?;
    let Shape::Bucket(bucket) = &**shape else {
        return None;
    };
    let is_chosen = bucket.options().shadow_share.includes(rand::random());
    (is_chosen && is_comparable(head)).then(|| ChosenRead {
        configured: shape.namespace().to_string(),
    })
}

/// Whether the result depends on the collection's committed documents alone.
fn is_comparable(head: &CommandHeader<'_>) -> bool {
    let body = head.body();
    if body.as_bytes().len() > MAX_BYTES
        || head.in_transaction()
        || !head.message.sequences.is_empty()
        || head.expects_no_reply
        || !head.only_reads()
        || get(body, "explain").is_some()
        || get(body, "tailable").is_some()
        || starts_elsewhere(body)
    {
        return false;
    }
    let mut references = false;
    referenced_namespaces::for_each(head, &mut |_| references = true);
    !references
}

fn starts_elsewhere(body: &RawDocument) -> bool {
    let stages = get(body, "pipeline").and_then(RawBsonRef::as_array);
    let first = stages.and_then(|stages| stages.into_iter().flatten().next());
    let first = first.and_then(|stage| first_field(stage.as_document()?));
    first.is_some_and(|(name, _)| OTHER_SOURCES.contains(&name))
}

impl ChosenRead {
    /// Puts the read into the queue. Does not wait: if the queue is full, the read is dropped and counted.
    pub(super) fn send(self, head: &CommandHeader<'_>, queue: &Sender<ShadowRead>, metrics: &SessionMetrics) {
        let Some(namespace) = head.namespace() else {
            return;
        };
        let Ok(permit) = queue.try_reserve() else {
            return metrics
                .shadow
                .read(&self.configured, head.command, ShadowResult::Dropped);
        };
        permit.send(ShadowRead {
            configured: self.configured,
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            command: head.command,
            body: head.body().to_owned(),
        });
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn comparable(body: &RawDocument) -> bool {
        is_comparable(&CommandHeader::of_body(body).unwrap())
    }

    #[test]
    fn a_read_of_the_documents_of_one_collection_is_comparable() {
        let of_pipeline = |stages: Vec<RawDocumentBuf>| {
            let stages: bson::raw::RawArrayBuf = stages.into_iter().collect();
            comparable(&rawdoc! { "aggregate": "c", "pipeline": stages, "cursor": {}, "$db": "d" })
        };
        let group = rawdoc! { "$group": { "_id": "$k" } };
        assert!(of_pipeline(vec![]) && of_pipeline(vec![group.clone()]));
        for stage in [
            rawdoc! { "$changeStream": {} },
            rawdoc! { "$collStats": {} },
            rawdoc! { "$lookup": { "from": "other", "pipeline": [], "as": "x" } },
            rawdoc! { "$unionWith": "other" },
            rawdoc! { "$out": "other" },
            rawdoc! { "$merge": "other" },
        ] {
            assert!(!of_pipeline(vec![stage.clone()]), "{stage:?}");
        }
        assert!(comparable(&rawdoc! { "find": "c", "filter": { "k": 1 }, "$db": "d" }));
        let in_transaction = rawdoc! { "find": "c", "autocommit": false, "txnNumber": 1_i64, "$db": "d" };
        assert!(!comparable(&in_transaction));
        let long = rawdoc! { "find": "c", "filter": { "k": "x".repeat(MAX_BYTES) }, "$db": "d" };
        assert!(!comparable(&long));
    }
}
