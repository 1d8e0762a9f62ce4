//! `convert`: changes the layout of a collection while applications use it.
//!
//! A copy in the new layout is filled, and then follows the changes of the collection, which a change stream
//! returns: the documents that an event names are read again and made equal in the copy. When all documents
//! have been compared, the names are swapped ([`swap_names`]). The conversion reads and writes pages through
//! a proxy of its own, so every layout is the same to it: documents with an `_id`. See
//! `docs/decisions/0042-a-conversion-mirrors-documents.md`.

mod changes;
mod checksum;
mod definition;
mod fill;
mod ids;
mod layout;
mod mirror;
mod preflight;
mod prepare;
mod record;
mod side;
mod swap_names;
mod verify;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bson::Timestamp;
use bson::raw::{RawDocumentBuf, cstr};
use mongodb::Client;
use tokio_util::sync::CancellationToken;

use self::changes::{Changes, Progress};
use self::ids::Ids;
use self::mirror::Mirror;
use self::record::{Phase, Record};
use super::check::server;
use super::compact::stopped_by_signals;
use super::finding::{Finding, Findings};
pub(crate) use super::inspect::MissingFields;
use super::swap::{Freezing, Halt, SwapKind, concurrent_runs};
use super::upstream::{self, ShapedCollection};
use crate::config::Config;

/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);
/// Interval in which the position in the change stream is recorded.
const RECORD_EVERY: Duration = Duration::from_secs(2);
/// The longest time for which a document is refused by a unique index of the copy although no changes are
/// left.
const MAX_REFUSED: Duration = Duration::from_secs(10);
/// The longest expected time for the changes that are left when writers are stopped.
const MAX_REST: Duration = Duration::from_millis(300);
/// Documents that may be compared while writers wait.
const FEW: usize = 1000;

/// The work of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ConvertTask {
    /// To the shape in the configuration.
    ToShape,
    /// To plain documents.
    ToPlain,
    /// Back to the layout before the last conversion, or ends one that has not swapped yet.
    Back,
    /// Drops the collection in its former layout.
    Finish,
    /// Compares a collection with its copy, or with the one that is kept.
    Verify,
}

/// The options of `convert`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ConvertOptions<'a> {
    /// The collection, as `database.collection`.
    pub(crate) namespace: &'a str,
    pub(crate) task: ConvertTask,
    /// Whether all writers are stopped, so that no change stream is needed.
    pub(crate) is_offline: bool,
    /// Whether nothing is written.
    pub(crate) is_dry_run: bool,
    /// The handling of fields of the shape that no plain document has.
    pub(crate) missing: MissingFields,
}

/// Converts a collection and prints the result.
///
/// # Errors
/// If the upstream cannot be reached.
pub(crate) async fn run(config: &Config, options: ConvertOptions<'_>) -> anyhow::Result<ExitCode> {
    let stop = stopped_by_signals()?;
    let name = concurrent_runs::own_name(SwapKind::ConvertPlain, options.namespace);
    let client = upstream::named_client(&config.upstream, &name).await?;
    let mut findings = Findings::default();
    findings.extend(server::check(&client, config).await?);
    let is_alone = options.task == ConvertTask::Verify || options.is_dry_run;
    if !findings.failed() && !is_alone {
        let other = concurrent_runs::look(&client, SwapKind::ConvertPlain, options.namespace, &name).await;
        findings.extend(other);
    }
    if !findings.failed() {
        let request = Request {
            client: &client,
            name: &name,
            config,
            options,
            stop: &stop,
        };
        if let Err(halt) = request.execute(&mut findings).await {
            findings.add(&halt.finding(SwapKind::ConvertPlain, options.namespace));
        }
    }
    upstream::close(client).await;
    Ok(findings.exit_code())
}

/// A run, before anything is known of the collection.
#[derive(Clone, Copy)]
struct Request<'a> {
    /// Of the server itself.
    client: &'a Client,
    /// The application's name, by which another run finds this one.
    name: &'a str,
    config: &'a Config,
    options: ConvertOptions<'a>,
    stop: &'a CancellationToken,
}

/// A conversion in progress.
struct Conversion<'a> {
    client: &'a Client,
    /// The collection that is converted.
    target: &'a ShapedCollection,
    mirror: Mirror,
    record: Record,
    /// The indexes of the application when the conversion began.
    indexes: Vec<RawDocumentBuf>,
    /// Options that the copy gets at the end: arguments of `collMod`.
    late_options: Vec<RawDocumentBuf>,
    /// `None`: no writer works.
    changes: Option<Changes>,
    is_renamed: bool,
    /// Whether the rename of the copy was sent.
    is_committing: bool,
    /// Changed documents that are not applied yet.
    pending: Ids,
    /// Documents that were changed in the copy since the comparison began.
    touched: Ids,
    /// The time of the last change, or of the opening of the stream. The collection is not read at an earlier
    /// time: a new primary may return an older state.
    last: Option<Timestamp>,
    /// The number of documents at the last comparison.
    compared: u64,
    recorded: Instant,
    findings: &'a mut Findings,
    stop: &'a CancellationToken,
}

impl<'a> Conversion<'a> {
    /// Copies, compares and swaps.
    async fn run(&mut self) -> Result<(), Halt> {
        if self.changes.is_some() {
            if self.record.phase == Phase::Copying {
                self.fill().await?;
                self.enter(Phase::Following).await?;
            }
            self.catch_up().await?;
            self.compare_and_report().await?;
            self.approach().await?;
        }
        self.swap().await
    }

    fn by(&self) -> Freezing<'a> {
        Freezing {
            client: self.client,
            target: self.target,
            work: self.record.from.swap_kind(),
        }
    }

    fn say(&mut self, text: impl Into<String>) {
        self.findings.add(&Finding::note(self.target.namespace(), text));
    }

    fn report(&mut self, reported: &mut Instant, text: String) {
        if reported.elapsed() >= REPORT_EVERY {
            *reported = Instant::now();
            self.say(text);
        }
    }

    async fn enter(&mut self, phase: Phase) -> Result<(), Halt> {
        self.record.phase = phase;
        self.record.write(&self.target.database, &self.target.collection).await
    }

    /// Applies the next changes.
    async fn follow(&mut self) -> Result<Progress, Halt> {
        if self.stop.is_cancelled() && !self.is_renamed {
            return Err(Halt::Stopped);
        }
        let Some(changes) = self.changes.as_mut().filter(|_| !self.is_renamed) else {
            return Ok(Progress::NoneLeft);
        };
        let batch = changes.next().await?;
        let position = changes.position();
        self.is_renamed = batch.is_renamed;
        self.last = batch.last.or(self.last);
        self.touched.extend(batch.ids.clone());
        self.pending.extend(batch.ids);
        let pending = std::mem::take(&mut self.pending);
        self.pending = self.mirror.apply(pending, self.last).await?;
        // A resumed run would not know the documents that are pending.
        let may_record = self.pending.is_empty() && !self.is_renamed && self.record.phase == Phase::Following;
        if may_record && self.recorded.elapsed() >= RECORD_EVERY {
            self.recorded = Instant::now();
            self.record.token = position;
            self.enter(self.record.phase).await?;
        }
        Ok(batch.progress)
    }

    /// Applies all changes that exist now. Returns the time that it took.
    async fn catch_up(&mut self) -> Result<Duration, Halt> {
        if self.changes.is_none() {
            return Ok(Duration::ZERO);
        }
        let (begun, mut reported) = (Instant::now(), Instant::now());
        let now = changes::cluster_time(self.client).await?;
        let mut refused_since = None;
        loop {
            let is_done = self.follow().await? == Progress::NoneLeft || self.last >= now;
            if is_done && self.pending.is_empty() {
                return Ok(begun.elapsed());
            }
            if is_done && refused_since.get_or_insert_with(Instant::now).elapsed() > MAX_REFUSED {
                let words = format!(
                    "a unique index of the copy refuses {} documents, which are in the collection",
                    self.pending.len()
                );
                return Err(Halt::Words(words));
            }
            let behind = now.map_or(0, |now| {
                now.time.saturating_sub(self.last.map_or(now.time, |last| last.time))
            });
            self.report(&mut reported, format!("applies changes, {behind} s behind"));
        }
    }

    /// Applies changes until the remaining ones take a short time.
    async fn approach(&mut self) -> Result<(), Halt> {
        let mut reported = Instant::now();
        loop {
            let took = self.catch_up().await?;
            if took <= MAX_REST && self.touched.len() <= FEW {
                return Ok(());
            }
            self.compare_touched().await?;
            let rest = took.as_millis();
            self.report(&mut reported, format!("writers are ahead by {rest} ms of work"));
        }
    }

    /// Compares all documents, and ends the run if one differs.
    async fn compare_and_report(&mut self) -> Result<(), Halt> {
        self.touched = Ids::default();
        let comparison = self.compare().await?;
        self.compared = comparison.documents();
        self.findings.extend(comparison.findings(&self.target.namespace()));
        if comparison.differing.is_empty() {
            return Ok(());
        }
        // The next run compares and corrects all documents.
        self.enter(Phase::Copying).await?;
        Err(Halt::Words("the copy is not equal".to_owned()))
    }

    /// Compares the documents that changed since the comparison. Those that differ may have changed
    /// meanwhile, and are compared again later.
    async fn compare_touched(&mut self) -> Result<(), Halt> {
        let touched = std::mem::take(&mut self.touched);
        self.catch_up().await?;
        let differing = self.mirror.differing(&touched, self.last).await?;
        self.touched.extend(differing);
        Ok(())
    }

    /// Gives the copy the options that would have hindered its filling.
    async fn finish_options(&self) -> Result<(), Halt> {
        for options in &self.late_options {
            let mut options = options.clone();
            if self.mirror.copy.is_replicated {
                options.append(cstr!("writeConcern"), bson::rawdoc! { "w": "majority" });
            }
            self.mirror.copy.run("collMod", &options).await?;
        }
        Ok(())
    }
}
