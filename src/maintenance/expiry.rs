//! Deletes expired items: for each collection the task of one proxy at a time, in the background of `serve`.
//!
//! The task finds TTL indexes with the credentials of `upstream.uri`, and takes a [lease] of their
//! collection. It then deletes through the proxy itself, by a listener of its own, like an application:
//! `delete` of a range of dates. See [`expiry`](crate::pattern::bucket::expiry) and
//! `docs/decisions/0034-a-proxy-deletes-expired-items.md`.

mod lease;

use std::net::SocketAddr;
use std::time::Instant;

use anyhow::anyhow;
use bson::{Bson, DateTime, Document, doc};
use mongodb::error::{Error, ErrorKind};
use mongodb::{Client, Database};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::lease::Leases;
use super::background::LastError;
use super::upstream::{self, ShapedCollection, as_integer, explain, raw_specs};
use crate::config::UpstreamConfig;
use crate::pattern::bucket::expiry::ExpiringIndex;
use crate::pattern::shapes::Shapes;
use crate::session::metrics::ExpiryMetrics;

/// The most deletes of one index in a round, each of an equal part of the range of dates.
const MAX_PARTS: i64 = 20;
/// The server's code for a missing collection.
const NAMESPACE_NOT_FOUND: i32 = 26;

/// The task.
pub(crate) struct Expiry {
    /// The server, and the credentials.
    pub(crate) upstream: UpstreamConfig,
    /// The proxy's own listener for this task, without TLS.
    pub(crate) listener: SocketAddr,
    /// The text that the listener demands of its clients.
    pub(crate) secret: String,
    pub(crate) shapes: watch::Receiver<Shapes>,
    pub(crate) metrics: ExpiryMetrics,
    pub(crate) stop: CancellationToken,
}

/// The clients of the task.
struct Clients {
    /// To mongod.
    direct: Client,
    /// Through the proxy.
    proxy: Client,
}

/// A TTL index, and its collection through the proxy.
struct Expiring {
    database: Database,
    collection: String,
    /// The namespace of the shape, as configured.
    label: String,
    index: ExpiringIndex,
}

impl Expiry {
    /// Deletes expired items until the proxy stops.
    pub(crate) async fn run(self) {
        let mut clients = None;
        let leases = Leases::new(self.upstream.expire_interval);
        let mut last_error = LastError::default();
        loop {
            tokio::select! {
                () = sleep(self.upstream.expire_interval) => {}
                () = self.stop.cancelled() => break,
            }
            let round = tokio::select! {
                round = self.round(&mut clients, &leases) => round,
                () = self.stop.cancelled() => break,
            };
            if round.is_err() {
                self.metrics.failed();
                close(clients.take()).await;
            }
            if let Some(reason) = last_error.replace(round.err().map(|error| format!("{error:#}"))) {
                tracing::warn!(reason, "expired items are not deleted");
            }
        }
        close(clients.take()).await;
    }

    /// Deletes the expired items of the collections whose lease this proxy has or takes.
    async fn round(&self, clients: &mut Option<Clients>, leases: &Leases) -> anyhow::Result<()> {
        if clients.is_none() {
            // The topology monitor reports an upstream that is not available.
            *clients = self.connect().await.ok();
        }
        let Some(open) = clients else {
            return Ok(());
        };
        let shapes = self.shapes.borrow().clone();
        let Ok(targets) = upstream::targets(&open.direct, &shapes).await else {
            return Ok(());
        };
        let mut held = 0;
        let mut failed = Ok(());
        for target in &targets {
            let expiring = expiring(target, &open.proxy).await;
            if expiring.is_empty() || !leases.take(&open.direct, &target.namespace()).await? {
                continue;
            }
            held += 1;
            // A collection that cannot be read must not keep the items of the others.
            let expired = self.expire_all(&expiring, &open.direct, leases).await;
            failed = failed.and(expired);
        }
        self.metrics.holds(held);
        failed
    }

    async fn expire_all(&self, expiring: &[Expiring], direct: &Client, leases: &Leases) -> anyhow::Result<()> {
        for index in expiring {
            self.expire(index, direct, leases).await?;
        }
        Ok(())
    }

    async fn connect(&self) -> anyhow::Result<Clients> {
        let direct = upstream::named_client(&self.upstream, "mongoshape expiry").await?;
        let proxy =
            upstream::client_of_listener(&self.upstream, self.listener, &self.secret, "mongoshape expiry").await?;
        Ok(Clients { direct, proxy })
    }

    /// Deletes the expired items of one index, in parts. After each part, pauses for as long as it took.
    async fn expire(&self, expiring: &Expiring, direct: &Client, leases: &Leases) -> anyhow::Result<()> {
        let now = DateTime::now();
        let Some(oldest) = expiring.oldest(now).await? else {
            return Ok(());
        };
        let last = expiring.index.until(now).timestamp_millis();
        let range = last.saturating_sub(oldest.timestamp_millis()).max(0);
        let parts = MAX_PARTS.min(range.saturating_add(1));
        for part in 1..=parts {
            let until = last.saturating_sub(range / parts * (parts - part));
            let begun = Instant::now();
            let deleted = expiring.delete(DateTime::from_millis(until)).await?;
            self.metrics.expired(&expiring.label, deleted);
            if deleted > 0 {
                sleep(begun.elapsed()).await;
            }
            if !leases.take(direct, &expiring.namespace()).await? {
                return Ok(());
            }
        }
        Ok(())
    }
}

async fn close(clients: Option<Clients>) {
    if let Some(Clients { direct, proxy }) = clients {
        upstream::close(direct).await;
        upstream::close(proxy).await;
    }
}

/// The TTL indexes of a collection. Empty if it cannot be read.
async fn expiring(target: &ShapedCollection, proxy: &Client) -> Vec<Expiring> {
    let Some(shape) = target.bucket() else {
        return Vec::new();
    };
    let Ok(there) = upstream::indexes(target).await else {
        return Vec::new();
    };
    let indexes = ExpiringIndex::all(shape, &raw_specs(&there)).into_iter();
    let of_index = |index| Expiring {
        database: proxy.database(target.database.name()),
        collection: target.collection.clone(),
        label: shape.namespace().to_string(),
        index,
    };
    indexes.map(of_index).collect()
}

impl Expiring {
    fn namespace(&self) -> String {
        format!("{}.{}", self.database.name(), self.collection)
    }

    /// The oldest expired date.
    async fn oldest(&self, now: DateTime) -> anyhow::Result<Option<DateTime>> {
        let path = &self.index.path;
        let command = doc! {
            "aggregate": &self.collection,
            "pipeline": [
                { "$match": self.index.expired(now) },
                { "$sort": { path: 1 } },
                { "$limit": 1 },
                { "$project": { "_id": 0, "dates": format!("${path}") } },
            ],
            "cursor": {},
        };
        let reply = match self.database.run_command(command).await {
            Err(error) if is_missing(&error) => return Ok(None),
            reply => reply.map_err(|error| self.failed(&error))?,
        };
        let batch = reply
            .get_document("cursor")
            .and_then(|cursor| cursor.get_array("firstBatch"));
        let first = batch
            .ok()
            .and_then(|batch| batch.first()?.as_document()?.get("dates").cloned());
        Ok(first.as_ref().and_then(earliest))
    }

    /// Deletes the items of this date and earlier. Returns their number.
    async fn delete(&self, until: DateTime) -> anyhow::Result<u64> {
        let filter = doc! { &self.index.path: { "$lte": until } };
        let command = doc! {
            "delete": &self.collection,
            "deletes": [{ "q": filter, "limit": 0 }],
            "comment": "mongoshape expiry",
        };
        let reply: Document = self
            .database
            .run_command(command)
            .await
            .map_err(|error| self.failed(&error))?;
        if let Some(error) = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            return Err(anyhow!("{}: {error}", self.namespace()));
        }
        let deleted = reply.get("n").and_then(as_integer).unwrap_or(0);
        Ok(u64::try_from(deleted).unwrap_or(0))
    }

    fn failed(&self, error: &Error) -> anyhow::Error {
        anyhow!("{}: {}", self.namespace(), explain(error))
    }
}

/// The earliest date of a value: a date, or an array that may contain dates.
fn earliest(value: &Bson) -> Option<DateTime> {
    match value {
        Bson::DateTime(date) => Some(*date),
        Bson::Array(values) => values.iter().filter_map(earliest).min(),
        _ => None,
    }
}

fn is_missing(error: &Error) -> bool {
    matches!(error.kind.as_ref(), ErrorKind::Command(command) if command.code == NAMESPACE_NOT_FOUND)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_earliest_date_of_an_array_counts() {
        let at = |millis| Bson::DateTime(DateTime::from_millis(millis));
        assert_eq!(earliest(&at(5)), Some(DateTime::from_millis(5)));
        let several = Bson::Array(vec![at(7), Bson::Int32(1), Bson::Array(vec![at(3)]), at(4)]);
        assert_eq!(earliest(&several), Some(DateTime::from_millis(3)));
        assert_eq!(earliest(&Bson::Null), None);
    }
}
