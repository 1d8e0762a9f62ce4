//! A collection whose items expire: its TTL indexes, its lease, and the commands that count and delete items.

use anyhow::anyhow;
use bson::{DateTime, Document, doc};
use mongodb::error::Error;
use mongodb::{Client, Database};

use super::dates::Dates;
use super::lease::Leases;
use crate::maintenance::upstream::{
    self, ShapedCollection, as_integer, explain, is_missing, is_unavailable, raw_specs,
};
use crate::pattern::bucket::expiry::ExpiringIndex;
use crate::pattern::shapes::BucketShape;

/// The most items of one delete, unless more have the same date. A delete goes on after its index was
/// dropped, so it must be short.
const MAX_ITEMS: i64 = 20_000;

/// A collection whose items may expire.
pub(super) struct Expiring<'a> {
    /// The collection on the server itself.
    target: &'a ShapedCollection,
    shape: &'a BucketShape,
    /// Its database through the proxy.
    database: Database,
    leases: &'a Leases,
}

impl<'a> Expiring<'a> {
    /// The collection, through this client of the proxy. `None`: it has no bucket shape.
    pub(super) fn of(target: &'a ShapedCollection, proxy: &Client, leases: &'a Leases) -> Option<Self> {
        Some(Self {
            target,
            shape: target.bucket()?,
            database: proxy.database(target.database.name()),
            leases,
        })
    }

    /// The namespace of the shape, as configured.
    pub(super) fn label(&self) -> String {
        self.shape.namespace().to_string()
    }

    /// The TTL indexes that exist now. mongod expires nothing by an index that it is building.
    ///
    /// # Errors
    /// If they cannot be read. If the upstream is not available, there are none: the topology monitor reports
    /// that.
    pub(super) async fn indexes(&self) -> anyhow::Result<Vec<ExpiringIndex>> {
        match upstream::ready_indexes(self.target).await {
            Ok(there) => Ok(ExpiringIndex::all(self.shape, &raw_specs(&there))),
            Err(error) if is_missing(&error) || is_unavailable(&error) => Ok(Vec::new()),
            Err(error) => Err(anyhow!(
                "the TTL indexes of {} cannot be read: {}",
                self.target.namespace(),
                explain(&error)
            )),
        }
    }

    /// Whether the server deletes expired documents. An operator can stop that by `ttlMonitorEnabled`.
    pub(super) async fn is_enabled(&self) -> bool {
        let admin = self.target.database.client().database("admin");
        let parameter = admin
            .run_command(doc! { "getParameter": 1, "ttlMonitorEnabled": 1 })
            .await;
        // A mongos has no such parameter, and a user may lack the right to read it.
        !matches!(
            parameter.map(|reply| reply.get_bool("ttlMonitorEnabled")),
            Ok(Ok(false))
        )
    }

    /// Takes or renews the lease. Returns the server's time. `None`: another proxy has the lease.
    pub(super) async fn take_lease(&self) -> anyhow::Result<Option<DateTime>> {
        let direct = self.target.database.client();
        self.leases.take(direct, &self.target.namespace()).await
    }

    /// Shortens the next part until one delete suffices for it. Passes over parts without items. `None`: no
    /// item is left.
    pub(super) async fn part_with_items(
        &self,
        index: &ExpiringIndex,
        mut part: Dates,
    ) -> anyhow::Result<Option<Dates>> {
        loop {
            let count = self.count(index, part.until()).await?;
            if count > MAX_ITEMS
                && let Some(half) = part.halved()
            {
                part = half;
                continue;
            }
            if count > 0 {
                return Ok(Some(part));
            }
            let Some(rest) = part.rest() else {
                return Ok(None);
            };
            part = rest;
        }
    }

    /// The number of items of this date and earlier, as far as one delete may have them.
    async fn count(&self, index: &ExpiringIndex, until: DateTime) -> anyhow::Result<i64> {
        let command = doc! {
            "count": &self.target.collection,
            "query": index.up_to(until),
            "limit": MAX_ITEMS + 1,
            "comment": "mongoshape expiry",
        };
        let reply = match self.database.run_command(command).await {
            Err(error) if is_missing(&error) => return Ok(0),
            reply => reply.map_err(|error| self.failed(&error))?,
        };
        Ok(reply.get("n").and_then(as_integer).unwrap_or(0))
    }

    /// Deletes the items of this date and earlier. Returns their number.
    pub(super) async fn delete(&self, index: &ExpiringIndex, until: DateTime) -> anyhow::Result<u64> {
        let command = doc! {
            "delete": &self.target.collection,
            "deletes": [{ "q": index.up_to(until), "limit": 0 }],
            "comment": "mongoshape expiry",
        };
        let reply: Document = self
            .database
            .run_command(command)
            .await
            .map_err(|error| self.failed(&error))?;
        if let Some(error) = reply.get_array("writeErrors").ok().and_then(|errors| errors.first()) {
            return Err(anyhow!("{}: {error}", self.target.namespace()));
        }
        let deleted = reply.get("n").and_then(as_integer).unwrap_or(0);
        Ok(u64::try_from(deleted).unwrap_or(0))
    }

    fn failed(&self, error: &Error) -> anyhow::Error {
        anyhow!("{}: {}", self.target.namespace(), explain(error))
    }
}
