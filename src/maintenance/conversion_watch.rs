//! Reads the progress of conversions, in the background of `serve`, for the operator's page and the metrics.
//! A proxy also forgets what it knows of a collection when its conversion begins, has swapped or ends: the
//! collection may get its former UUID back before the next command. And it delays writes as long as the
//! progress says.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::{Duration, Instant, SystemTime};

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
use crate::session::write_delay::WriteDelay;

/// Interval of reads, and that during a conversion.
const READ_EVERY: Duration = Duration::from_secs(5);
const READ_RUNNING_EVERY: Duration = Duration::from_secs(1);
/// The time for which writes are delayed after the last progress. Then the run has ended.
const DELAY_FOR: Duration = Duration::from_secs(10);
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
        let mut delays = RecordedDelays::default();
        loop {
            let round = tokio::select! {
                round = self.round(&mut client, &mut delays) => round,
                () = self.stop.cancelled() => break,
            };
            if let Some(reason) = last_error.replace(round.err().map(|error| explain(&error))) {
                tracing::info!(reason, "the progress of conversions cannot be read");
            }
            tokio::select! {
                () = sleep(self.interval()) => {}
                () = self.stop.cancelled() => break,
            }
        }
        client.close().await;
    }

    /// The time until the next read.
    fn interval(&self) -> Duration {
        let found = self.found.load();
        let mut stages = found.iter().map(|one| &one.status.stage);
        if stages.any(|stage| matches!(stage, ConversionStage::Running(_))) {
            READ_RUNNING_EVERY
        } else {
            READ_EVERY
        }
    }

    async fn round(&self, client: &mut OnDemandClient, delays: &mut RecordedDelays) -> Result<(), Error> {
        let Some(client) = client.get(&self.upstream).await else {
            return Ok(());
        };
        let shapes = self.shapes.borrow().clone();
        let found = read(client, &shapes).await?;
        let delays = delays.update(&found, Instant::now());
        self.publish(found, delays);
        Ok(())
    }

    fn publish(&self, found: Vec<WatchedConversion>, delays: BTreeMap<String, WriteDelay>) {
        let metrics = &self.shared.metrics().conversions;
        let now: BTreeSet<&str> = found.iter().map(|one| one.namespace.as_str()).collect();
        let before = self.found.load();
        let ended = before.iter().filter(|one| !now.contains(one.namespace.as_str()));
        for one in ended {
            metrics.progress(&one.namespace, ConversionProgress::default());
        }
        for one in &found {
            let delay = delays.get(&one.namespace).map(|delay| delay.of_statement);
            metrics.progress(&one.namespace, gauges(&one.status, delay.unwrap_or_default()));
        }
        for namespace in changed(&before, &found).into_iter().filter_map(Namespace::parse) {
            self.shared.list_again(namespace);
        }
        self.shared.write_delays().replace(delays);
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

/// The delays that were read, by namespace.
#[derive(Default)]
struct RecordedDelays(BTreeMap<String, RecordedDelay>);

/// A delay that a run has recorded with its progress.
#[derive(Clone, Copy)]
struct RecordedDelay {
    delay: WriteDelay,
    /// The time of the progress, by the clock of the run.
    updated_at: SystemTime,
}

impl RecordedDelays {
    /// Takes the progress of all conversions. Returns the delays of those whose progress has changed in the
    /// last seconds: another one may have been stopped, and records nothing any more. The clocks of proxies
    /// and of runs are not compared.
    fn update(&mut self, found: &[WatchedConversion], now: Instant) -> BTreeMap<String, WriteDelay> {
        let recorded = found.iter().filter_map(|one| {
            let ConversionStage::Running(Some(figures)) = &one.status.stage else {
                return None;
            };
            let before = self.0.get(&one.namespace);
            let same = before.filter(|before| before.updated_at == figures.updated_at).copied();
            let recorded = same.unwrap_or(RecordedDelay {
                delay: WriteDelay {
                    of_statement: figures.write_delay,
                    end: now + DELAY_FOR,
                },
                updated_at: figures.updated_at,
            });
            Some((one.namespace.clone(), recorded))
        });
        self.0 = recorded.collect();
        let delays = self
            .0
            .iter()
            .filter(|(_, recorded)| recorded.delay.of_statement > Duration::ZERO && now < recorded.delay.end);
        delays
            .map(|(namespace, recorded)| (namespace.clone(), recorded.delay))
            .collect()
    }
}

/// The values of the gauges. An unknown value is 0. After the swap all values are 0.
fn gauges(status: &ConversionStatus, write_delay: Duration) -> ConversionProgress {
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
        write_delay_seconds: write_delay.as_secs_f64(),
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

    #[test]
    fn writes_are_delayed_while_the_progress_of_the_run_changes() {
        let begun = Instant::now();
        let running = |milliseconds, updated_at| {
            let figures = ConversionFigures {
                phase: "following".to_owned(),
                ratio: None,
                lag: None,
                remaining: None,
                compared: None,
                differing: None,
                write_delay: Duration::from_millis(milliseconds),
                // Another clock.
                updated_at: SystemTime::UNIX_EPOCH + Duration::from_secs(updated_at),
            };
            [watched("there", ConversionStage::Running(Some(figures)))]
        };
        let mut delays = RecordedDelays::default();
        let mut check = |found: &[WatchedConversion], at: Duration, expected: Option<u64>| {
            let updated = delays.update(found, begun + at);
            let delay = updated.get("shop.trades").map(|delay| delay.of_statement);
            assert_eq!(delay, expected.map(Duration::from_millis), "{found:?} {at:?}");
        };
        let second = Duration::from_secs(1);
        check(&running(0, 10), second, None);
        check(&running(4, 12), 3 * second, Some(4));
        check(&running(4, 12), 12 * second, Some(4));
        check(&running(4, 12), 13 * second, None);
        check(&running(8, 20), 14 * second, Some(8));
        check(&[watched("there", ConversionStage::Kept)], 15 * second, None);
        check(&[], 16 * second, None);
    }
}
