//! Deletes expired items: for each collection the task of one proxy at a time, in the background of `serve`.
//!
//! The task finds TTL indexes with the credentials of `upstream.uri`, and takes a [lease] of their
//! collection. It then deletes through the proxy itself, by a listener of its own, like an application:
//! `delete` of a range of dates. See [`expiry`](crate::pattern::bucket::expiry) and
//! `docs/decisions/0034-a-proxy-deletes-expired-items.md`.

mod dates;
mod expiring;
mod lease;

use std::net::SocketAddr;
use std::time::Instant;

use mongodb::Client;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use self::dates::Dates;
use self::expiring::Expiring;
use self::lease::Leases;
use super::background::LastError;
use super::upstream;
use crate::config::UpstreamConfig;
use crate::pattern::bucket::expiry::ExpiringIndex;
use crate::pattern::shapes::Shapes;
use crate::session::metrics::ExpiryMetrics;

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

/// Whether this proxy deletes the expired items of a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Deletes {
    Yes,
    /// Another proxy has the lease, or there is no TTL index.
    No,
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
        let listed = upstream::listed_targets(&open.direct, &shapes).await;
        if listed.is_unavailable() {
            return Ok(());
        }
        // A collection that cannot be read must not keep the items of the others.
        let unlisted = listed.unlisted.into_iter().next();
        let mut failed = unlisted.map_or(Ok(()), |unlisted| Err(unlisted.into()));
        let mut held = 0;
        let targets = listed.targets.iter();
        for expiring in targets.filter_map(|target| Expiring::of(target, &open.proxy, leases)) {
            match self.expire_all(&expiring).await {
                Ok(Deletes::Yes) => held += 1,
                Ok(Deletes::No) => {}
                Err(error) => failed = failed.and(Err(error)),
            }
        }
        self.metrics.holds(held);
        failed
    }

    async fn expire_all(&self, expiring: &Expiring<'_>) -> anyhow::Result<Deletes> {
        let mut deletes = Deletes::No;
        for index in expiring.indexes().await? {
            deletes = self.expire(expiring, &index).await?;
            if deletes == Deletes::No {
                break;
            }
        }
        Ok(deletes)
    }

    async fn connect(&self) -> anyhow::Result<Clients> {
        let direct = upstream::named_client(&self.upstream, "mongoshape expiry").await?;
        let proxy =
            upstream::client_of_listener(&self.upstream, self.listener, &self.secret, "mongoshape expiry").await?;
        Ok(Clients { direct, proxy })
    }

    /// Deletes the expired items of one index, in parts. After each part, pauses for as long as it took.
    async fn expire(&self, expiring: &Expiring<'_>, index: &ExpiringIndex) -> anyhow::Result<Deletes> {
        let mut left: Option<Dates> = None;
        loop {
            let Some(now) = expiring.take_lease().await? else {
                return Ok(Deletes::No);
            };
            // mongod also deletes nothing more by an index that was dropped or got another time.
            if !expiring.is_enabled().await || !expiring.indexes().await?.contains(index) {
                return Ok(Deletes::Yes);
            }
            let begun = Instant::now();
            let next = left.unwrap_or_else(|| Dates::up_to(index.until(now)));
            let Some(part) = expiring.part_with_items(index, next).await? else {
                return Ok(Deletes::Yes);
            };
            let deleted = expiring.delete(index, part.until()).await?;
            self.metrics.expired(&expiring.label(), deleted);
            left = part.rest();
            if left.is_none() {
                return Ok(Deletes::Yes);
            }
            sleep(begun.elapsed()).await;
        }
    }
}

async fn close(clients: Option<Clients>) {
    if let Some(Clients { direct, proxy }) = clients {
        upstream::close(direct).await;
        upstream::close(proxy).await;
    }
}
