//! Records refused unique indexes in the database `mongoshape`, in the background of `serve`. Reads the
//! records of all proxies for the operator's page and for `check`.

use std::sync::Arc;
use std::time::SystemTime;

use bson::{DateTime, Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use mongodb::{Client, Collection};
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::background::{LastError, OnDemandClient};
use super::upstream::{explain, indexes_of, raw_specs};
use crate::command::namespace::Namespace;
use crate::config::UpstreamConfig;
use crate::pattern::bucket::item_index::{is_unique, name};
use crate::pattern::shapes::Mode;
use crate::session::Shared;
use crate::session::refused_unique_indexes::{EndedIndexes, IndexId, MAX_INDEXES, RefusedUniqueIndex, WhichIndexes};

const DATABASE: &str = "mongoshape";
const COLLECTION: &str = "refused_unique_indexes";

/// The task.
pub(crate) struct UniqueIndexRecord {
    /// The server, and the credentials.
    pub(crate) upstream: UpstreamConfig,
    pub(crate) shared: Arc<Shared>,
    pub(crate) stop: CancellationToken,
}

impl UniqueIndexRecord {
    /// Records and reads until the proxy stops: at once when there is something to record, and in the
    /// interval of the deletion of expired items.
    pub(crate) async fn run(self) {
        let refused = self.shared.refused_unique_indexes();
        let mut client = OnDemandClient::default();
        let mut last_error = LastError::default();
        loop {
            let has_failed = last_error.is_some();
            tokio::select! {
                () = sleep(self.upstream.expire_interval) => {}
                () = refused.changed(), if !has_failed => {}
                () = self.stop.cancelled() => break,
            }
            let round = tokio::select! {
                round = self.round(&mut client) => round,
                () = self.stop.cancelled() => break,
            };
            if let Some(reason) = last_error.replace(round.err().map(|error| explain(&error))) {
                let what = format!(
                    "refused unique indexes cannot be recorded in {DATABASE}.{COLLECTION} for `mongoshape check`"
                );
                tracing::warn!(reason, "{what}");
            }
        }
        client.close().await;
    }

    async fn round(&self, client: &mut OnDemandClient) -> Result<(), Error> {
        let Some(client) = client.get(&self.upstream).await else {
            return Ok(());
        };
        let refused = self.shared.refused_unique_indexes();
        let mut pending = refused.pending();
        let records = collection(client);
        let mut before = match recorded(client).await {
            // Usually the user lacks the right, which matters only if there is something to record.
            Err(_) if pending.refused.is_empty() => return Ok(()),
            read => read?,
        };
        for ended in &pending.ended {
            if before.iter().any(|index| ended.includes(index)) {
                records.delete_many(filter_of_ended(ended)).await?;
                before.retain(|index| !ended.includes(index));
            }
        }
        // Without room for its record, an index stays on the page of this proxy.
        let has_room = |index: &RefusedUniqueIndex| {
            before.len() < MAX_INDEXES || before.iter().any(|before| before.id == index.id)
        };
        pending.refused.retain(has_room);
        for index in &pending.refused {
            if !exists(client, &index.id).await {
                let fields = doc! {
                    "key": &index.key,
                    "message": &index.message,
                    "at": DateTime::from_system_time(index.at),
                };
                let update = doc! { "$set": fields };
                records.update_one(filter_of(&index.id), update).upsert(true).await?;
            }
        }
        let mut now = recorded(client).await?;
        let shapes = self.shared.shapes();
        now.retain(|index| {
            let shape = Namespace::parse(&index.id.namespace).and_then(|namespace| shapes.lookup(namespace));
            shape.is_some_and(|shape| matches!(shape.mode(), Mode::Rewrite | Mode::Auto))
        });
        refused.recorded(&pending, now);
        Ok(())
    }
}

/// The records of all proxies.
pub(crate) async fn recorded(client: &Client) -> Result<Vec<RefusedUniqueIndex>, Error> {
    let limit = i64::try_from(MAX_INDEXES).unwrap_or(i64::MAX);
    let found = collection(client).find(doc! {}).limit(limit).await?;
    let records: Vec<Document> = found.try_collect().await?;
    Ok(records.iter().filter_map(parsed).collect())
}

/// Whether a unique index of that name exists. `false` if the indexes cannot be listed.
pub(crate) async fn exists(client: &Client, id: &IndexId) -> bool {
    let Some(namespace) = Namespace::parse(&id.namespace) else {
        return false;
    };
    let listed = indexes_of(&client.database(namespace.database), namespace.collection).await;
    let there = raw_specs(&listed.unwrap_or_default());
    there.iter().any(|spec| name(spec) == id.name && is_unique(spec))
}

fn collection(client: &Client) -> Collection<Document> {
    client.database(DATABASE).collection(COLLECTION)
}

fn filter_of(id: &IndexId) -> Document {
    doc! { "_id": { "namespace": &id.namespace, "name": &id.name } }
}

fn filter_of_ended(ended: &EndedIndexes) -> Document {
    let mut filter = doc! { "_id.namespace": &ended.namespace };
    match &ended.which {
        WhichIndexes::All => {}
        WhichIndexes::Named(names) => {
            filter.insert("_id.name", doc! { "$in": names });
        }
        WhichIndexes::WithKey(key) => {
            filter.insert("key", key);
        }
    }
    filter
}

fn parsed(record: &Document) -> Option<RefusedUniqueIndex> {
    let id = record.get_document("_id").ok()?;
    let text = |of: &Document, field| of.get_str(field).map(ToOwned::to_owned).ok();
    Some(RefusedUniqueIndex {
        id: IndexId {
            namespace: text(id, "namespace")?,
            name: text(id, "name")?,
        },
        key: text(record, "key")?,
        message: text(record, "message")?,
        at: record
            .get_datetime("at")
            .map_or(SystemTime::UNIX_EPOCH, |at| at.to_system_time()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn filters_select_what_has_ended() {
        let check = |which, expected: Document| {
            let namespace = "d.c".to_owned();
            assert_eq!(filter_of_ended(&EndedIndexes { namespace, which }), expected);
        };
        check(WhichIndexes::All, doc! { "_id.namespace": "d.c" });
        check(
            WhichIndexes::Named(vec!["a".to_owned()]),
            doc! { "_id.namespace": "d.c", "_id.name": { "$in": ["a"] } },
        );
        check(
            WhichIndexes::WithKey("{ a: 1 }".to_owned()),
            doc! { "_id.namespace": "d.c", "key": "{ a: 1 }" },
        );
        assert_eq!(parsed(&doc! { "_id": 1 }), None);
    }
}
