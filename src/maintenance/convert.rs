//! `convert`: changes the layout of a collection while applications use it.
//!
//! A copy in the new layout is filled, and then follows the changes of the collection, which a change stream
//! returns: the documents that an event names are read again and made equal in the copy. When all documents
//! have been compared, the names are swapped ([`swap_names`]). The conversion reads and writes items through
//! a proxy of its own, so every layout is the same to it: documents with an `_id`. Only the change stream of
//! pages ([`changes`]) and changed items of pages (`mirror::stored_pages`) are read from the server itself. See
//! `docs/decisions/0042-a-conversion-mirrors-documents.md`.

mod backlog;
mod changes;
mod definition;
mod fill;
mod follow;
mod hold;
mod ids;
mod layout;
mod mirror;
mod outlier;
mod pace;
mod page_definition;
mod preflight;
mod prepare;
mod progress;
mod record;
mod rights;
mod shadow_check;
mod shadow_copy;
mod subject;
mod swap_names;
mod task;
mod verify;
mod way_back;
mod write_delay;

use std::process::ExitCode;
use std::time::{Duration, Instant};

use bson::Timestamp;
use bson::raw::{RawDocumentBuf, cstr};
use mongodb::Client;
use tokio_util::sync::CancellationToken;

use self::changes::Changes;
pub(crate) use self::changes::time_of_position;
use self::ids::Ids;
use self::mirror::Mirror;
pub(crate) use self::pace::PaceLimits;
use self::pace::throttle::Throttle;
use self::progress::Stage;
use self::progress::observer::RunObserver;
pub(crate) use self::progress::status::{ConversionFigures, ConversionStage, ConversionStatus, status};
use self::record::{Phase, Record};
pub(crate) use self::shadow_copy::ShadowCopy;
use self::swap_names::Swapped;
pub(crate) use self::task::ConvertTask;
use super::check::server;
use super::compact::stopped_by_signals;
use super::finding::{Finding, Findings};
pub(crate) use super::inspect::MissingFields;
use super::swap::{Freezing, Frozen, Halt, SwapKind, concurrent_runs};
use super::upstream::{self, ShapedCollection};
use crate::config::Config;
use crate::pattern::bucket::validation::Validation;

/// The kind of all runs on a collection, of any task.
const ANY_RUN: SwapKind = SwapKind::ConvertPlain("mongoshape convert");
/// The application's name of runs that write nothing. Others do not wait for their end.
const READER: &str = "mongoshape verify";
/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(10);

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
    pub(crate) pace: PaceLimits,
}

/// Converts a collection and prints the result.
///
/// # Errors
/// If the upstream cannot be reached.
pub(crate) async fn run(config: &Config, options: ConvertOptions<'_>) -> anyhow::Result<ExitCode> {
    let stop = stopped_by_signals()?;
    let only_reads = options.task == ConvertTask::Verify || options.is_dry_run;
    let name = if only_reads {
        READER.to_owned()
    } else {
        concurrent_runs::own_name(ANY_RUN, options.namespace)
    };
    let client = upstream::named_client(&config.upstream, &name).await?;
    let mut findings = Findings::default();
    findings.extend(server::check(&client, config, server::Purpose::Exchange).await?);
    if !findings.failed() && !only_reads {
        let other = concurrent_runs::look(&client, ANY_RUN, options.namespace, &name).await;
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
            let work = SwapKind::ConvertPlain(options.task.command());
            findings.add(&halt.finding(work, options.namespace));
        }
    }
    upstream::close(client).await;
    Ok(findings.exit_code())
}

/// The finding about a collection's conversion, if one is recorded.
pub(crate) async fn recorded(target: &ShapedCollection) -> Option<Finding> {
    match Record::read(&target.database, &target.collection).await {
        Ok(record) => Some(record?.finding(&target.namespace(), &target.collection)),
        Err(halt) => Some(halt.finding(ANY_RUN, &target.namespace())),
    }
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
    task: ConvertTask,
    mirror: Mirror,
    record: Record,
    /// The indexes and the validation of the application when the run began.
    indexes: Vec<RawDocumentBuf>,
    validation: Validation,
    /// Options that the copy gets when it is equal: arguments of `collMod`.
    late_options: Vec<RawDocumentBuf>,
    /// `None`: no writer works.
    changes: Option<Changes>,
    is_renamed: bool,
    /// A time before the rename by this run, once it begins.
    renamed_since: Option<Timestamp>,
    /// Whether the rename of the copy was sent.
    is_committing: bool,
    /// The fence, once it was put up.
    fence: Option<Frozen<'a>>,
    /// Whether proxies hold writes to the frozen collection. Other writers would get an error.
    may_hold: bool,
    /// How often writers were held because they were faster.
    holds: u32,
    /// The duration of the last thaw.
    last_thaw: Duration,
    /// The time since which a unique index of the copy refuses a document. `None`: it refuses none.
    refused_since: Option<Instant>,
    /// The end of the last hold.
    released: Option<Instant>,
    /// Changed documents that are not applied yet.
    pending: Ids,
    /// Documents that were changed in the copy since the comparison began, and were not compared again since.
    touched: Ids,
    /// The time of the opening of the stream.
    opened: Option<Timestamp>,
    /// The time of the last change.
    last: Option<Timestamp>,
    /// The number of documents at the last comparison.
    compared: u64,
    recorded: Instant,
    /// The time of the last report of changes that are applied.
    reported: Instant,
    /// The time at which changes were read last, and at which they were applied last.
    read: Instant,
    applied: Instant,
    observer: RunObserver,
    throttle: Throttle,
    findings: &'a mut Findings,
    stop: &'a CancellationToken,
}

impl<'a> Conversion<'a> {
    /// Copies, compares and swaps.
    async fn run(&mut self) -> Result<(), Halt> {
        self.must_fit()?;
        if self.changes.is_some() && self.record.phase == Phase::Copying {
            self.fill().await?;
            self.enter(Phase::Following).await?;
        }
        if self.record.is_way_back() {
            return self.keep_up().await;
        }
        if self.changes.is_some() {
            self.begin(Stage::Following).await;
            self.converge().await?;
            self.compare_and_report().await?;
        }
        if self.task == ConvertTask::Shadow {
            self.begin(Stage::Following).await;
            return self.keep_up().await;
        }
        if self.changes.is_some() && !self.mirror.copy.is_plain {
            // The proxy and mongod read all pages for these options, so writers are not held. From here on a
            // document that does not satisfy the validator is refused.
            self.finish_options().await?;
        }
        loop {
            // Applications go on while mongod builds the fence, and their changes are applied after it.
            self.fenced().await?;
            if self.changes.is_some() {
                self.begin(Stage::Following).await;
                self.approach().await?;
            }
            self.begin(Stage::Swapping).await;
            if self.swap().await? == Swapped::Yes {
                return Ok(());
            }
            self.lengthen_write_delay().await;
            let (pending, touched) = (self.pending.len(), self.touched.len());
            self.report(format!(
                "when writers had waited long enough, {pending} changes were not applied and {touched} changed documents not compared: \
                 the swap is tried again"
            ));
        }
    }

    fn by(&self) -> Freezing<'a> {
        Freezing {
            client: self.client,
            target: self.target,
            work: self.record.from.swap_kind(self.task),
        }
    }

    fn say(&mut self, text: impl Into<String>) {
        self.findings.add(&Finding::note(self.target.namespace(), text));
    }

    /// Reports at intervals, if no progress bar does.
    fn report(&mut self, text: String) {
        let has_bar = self.observer.screen.bar().is_some();
        if !has_bar && self.reported.elapsed() >= REPORT_EVERY {
            self.reported = Instant::now();
            self.say(text);
        }
    }

    async fn enter(&mut self, phase: Phase) -> Result<(), Halt> {
        self.record.phase = phase;
        self.record.write(&self.target.database, &self.target.collection).await
    }

    /// Compares all documents, and ends the run if one differs.
    async fn compare_and_report(&mut self) -> Result<(), Halt> {
        self.touched = Ids::default();
        let comparison = self.compare(None).await?;
        self.compared = comparison.documents();
        self.findings.extend(comparison.findings(&self.target.namespace()));
        if comparison.differing.is_empty() {
            return Ok(());
        }
        // The next run compares and corrects all documents.
        self.enter(Phase::Copying).await?;
        Err(Halt::Words("the copy is not equal".to_owned()))
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
