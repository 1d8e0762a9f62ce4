//! Reads the progress of conversions, in the background of `serve`, for the operator's page and the metrics.
//! A proxy also forgets what it knows of a collection when its conversion begins, has swapped or ends: the
//! collection may get its former UUID back before the next command.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use arc_swap::ArcSwap;
use bson::{Document, doc};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use mongodb::{Client, Database};
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::background::{LastError, OnDemandClient};
use super::convert::{ConversionFigures, ConversionStage, ConversionStatus, status};
use super::upstream::{self, explain};
use crate::command::namespace::Namespace;
use crate::config::UpstreamConfig;
use crate::pattern::bucket::conversion::record_name;
use crate::pattern::shapes::Shapes;
use crate::session::Shared;
use crate::session::metrics::ConversionProgress;

/// Interval of reads.
const READ_EVERY: Duration = Duration::from_secs(5);
/// The most records that are read.
const MAX_RECORDS: usize = 64;

/// A conversion that is in progress, or whose former collection is kept.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct WatchedConversion {
    /// `database.collection`.
    pub(crate) namespace: String,
    pub(crate) status: ConversionStatus,
}

/// The conversions of the last read, by namespace, shared with the operator's page.
pub(crate) type WatchedConversions = Arc<ArcSwap<Vec<WatchedConversion>>>;

/// The task.
pub(crate) struct ConversionWatch {
    /// The server, and the credentials.
    pub(crate) upstream: UpstreamConfig,
    pub(crate) shapes: watch::Receiver<Shapes>,
    pub(crate) shared: Arc<Shared>,
    pub(crate) found: WatchedConversions,
    pub(crate) stop: CancellationToken,
}

impl ConversionWatch {
    /// Reads until the proxy stops.
    pub(crate) async fn run(self) {
        let mut client = OnDemandClient::default();
        let mut last_error = LastError::default();
        loop {
            let round = tokio::select! {
                round = self.round(&mut client) => round,
                () = self.stop.cancelled() => break,
            };
            if let Some(reason) = last_error.replace(round.err().map(|error| explain(&error))) {
                tracing::info!(reason, "the progress of conversions cannot be read");
            }
            tokio::select! {
                () = sleep(READ_EVERY) => {}
                () = self.stop.cancelled() => break,
            }
        }
        client.close().await;
    }

    async fn round(&self, client: &mut OnDemandClient) -> Result<(), Error> {
        let Some(client) = client.get(&self.upstream).await else {
            return Ok(());
        };
        let shapes = self.shapes.borrow().clone();
        let found = read(client, &shapes).await?;
        self.publish(found);
        Ok(())
    }

    fn publish(&self, found: Vec<WatchedConversion>) {
        let metrics = &self.shared.metrics().conversions;
        let now: BTreeSet<&str> = found.iter().map(|one| one.namespace.as_str()).collect();
        let before = self.found.load();
        let ended = before.iter().filter(|one| !now.contains(one.namespace.as_str()));
        for one in ended {
            metrics.progress(&one.namespace, ConversionProgress::default());
        }
        for one in &found {
            metrics.progress(&one.namespace, gauges(&one.status));
        }
        for namespace in changed(&before, &found).into_iter().filter_map(Namespace::parse) {
            self.shared.list_again(namespace);
        }
        self.found.store(Arc::new(found));
    }
}

/// The conversions of collections with a bucket shape, also in shadow mode, that names the database, by
/// namespace.
///
/// # Errors
/// If a record cannot be read.
async fn read(client: &Client, shapes: &Shapes) -> Result<Vec<WatchedConversion>, Error> {
    let mut collections: BTreeMap<String, Vec<String>> = BTreeMap::new();
    let shadows = upstream::named_shadows(client, shapes);
    for target in upstream::named_targets(client, shapes).into_iter().chain(shadows) {
        if target.bucket().is_some() {
            let database = target.database.name().to_owned();
            collections.entry(database).or_default().push(target.collection);
        }
    }
    let mut found = Vec::new();
    for (database, names) in collections {
        let database = client.database(&database);
        for collection in recorded(&database, names).await? {
            if found.len() == MAX_RECORDS {
                return Ok(found);
            }
            if let Some(status) = status(&database, &collection).await? {
                let namespace = format!("{}.{collection}", database.name());
                found.push(WatchedConversion { namespace, status });
            }
        }
    }
    Ok(found)
}

/// Those of the collections that have a record, sorted. One command for the whole database.
async fn recorded(database: &Database, mut collections: Vec<String>) -> Result<Vec<String>, Error> {
    let records: Vec<String> = collections.iter().map(|name| record_name(name)).collect();
    let list = doc! {
        "listCollections": 1,
        "filter": { "name": { "$in": records } },
        "nameOnly": true,
        "authorizedCollections": true,
    };
    let listed: Vec<Document> = database.run_cursor_command(list).await?.try_collect().await?;
    let there: BTreeSet<&str> = listed.iter().filter_map(|one| one.get_str("name").ok()).collect();
    collections.retain(|name| there.contains(record_name(name).as_str()));
    collections.sort();
    Ok(collections)
}

/// The collections whose conversion has begun, swapped or ended between two reads.
fn changed<'w>(before: &'w [WatchedConversion], now: &'w [WatchedConversion]) -> BTreeSet<&'w str> {
    let state = |one: &'w WatchedConversion| {
        let is_kept = matches!(one.status.stage, ConversionStage::Kept);
        (one.namespace.as_str(), one.status.direction.as_str(), is_kept)
    };
    let before: BTreeSet<_> = before.iter().map(state).collect();
    let now: BTreeSet<_> = now.iter().map(state).collect();
    let changed = before.symmetric_difference(&now);
    changed.map(|(namespace, ..)| *namespace).collect()
}

/// The values of the gauges. An unknown value is 0. After the swap all values are 0.
fn gauges(status: &ConversionStatus) -> ConversionProgress {
    let ConversionStage::Running(Some(figures)) = &status.stage else {
        return ConversionProgress::default();
    };
    let ConversionFigures {
        ratio, lag, remaining, ..
    } = figures;
    ConversionProgress {
        ratio: ratio.unwrap_or_default(),
        lag_seconds: lag.unwrap_or_default().as_secs_f64(),
        remaining_seconds: remaining.unwrap_or_default().as_secs_f64(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn watched(direction: &str, stage: ConversionStage) -> WatchedConversion {
        let direction = direction.to_owned();
        WatchedConversion {
            namespace: "shop.trades".to_owned(),
            status: ConversionStatus { direction, stage },
        }
    }

    #[test]
    fn a_conversion_that_begins_swaps_or_ends_has_changed() {
        let running = || watched("there", ConversionStage::Running(None));
        let kept = || watched("there", ConversionStage::Kept);
        let back = watched("back", ConversionStage::Running(None));
        let check = |before: &[WatchedConversion], now: &[WatchedConversion], has_changed: bool| {
            assert_eq!(
                changed(before, now).contains("shop.trades"),
                has_changed,
                "{before:?} {now:?}"
            );
        };
        check(&[], &[running()], true);
        check(&[running()], &[running()], false);
        check(&[running()], &[kept()], true);
        check(&[kept()], &[back], true);
        check(&[kept()], &[], true);
    }
}
