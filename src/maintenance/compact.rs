//! `compact`: packs short pages again, in a copy that replaces the collection.
//!
//! The copy is filled while clients work, and compared with the collection in passes until few keys
//! differ. Then the collection is frozen, the remaining differences are fixed, and the copy is renamed
//! over the collection, which is one step in mongod. If a run ends before that, the collection is
//! unchanged. A run that is stopped before it has frozen the collection leaves its copy to the next
//! run. See `docs/decisions/0016-short-pages-are-packed-in-a-copy.md`, and `0027-late-messages-are-fenced.md`
//! for messages that arrive late.

mod copy;
mod estimate;
mod page_cursor;
mod sync_pass;

use std::process::ExitCode;

use bson::{Binary, Document};
use mongodb::Client;
use mongodb::error::Error;
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use self::copy::Copy;
pub(crate) use self::page_cursor::given;
use self::sync_pass::SyncPass;
use super::check::{collection, server};
use super::finding::{Finding, Findings};
use super::inspect::{ContentsCheck, SCAN_TIMEOUT, first_foreign};
use super::swap::{CollectionRename, Freezing, Frozen, Halt, SwapKind as Kind, concurrent_runs};
use super::upstream::{self, ShapedCollection, description, indexes};
use crate::config::Config;
use crate::pattern::bucket::compact::copy_name;
use crate::pattern::bucket::index;
use crate::pattern::shapes::BucketShape;

/// Maximum number of passes while clients work.
const MAX_PASSES: u32 = 8;
/// The collection is frozen when at most one in this many keys differs, or at most the number below.
const FEW: u64 = 1000;
const FEW_AT_LEAST: u64 = 100;

/// Compacts every collection with a bucket shape, or one, and prints the results. After an error it
/// continues with the next collection.
///
/// # Errors
/// If the upstream cannot be reached, or its databases cannot be listed.
pub(crate) async fn run(config: &Config, namespace: Option<&str>) -> anyhow::Result<ExitCode> {
    let stop = stopped_by_signals()?;
    let client = upstream::client(&config.upstream).await?;
    let findings = through(&client, config, namespace, &stop).await;
    upstream::close(client).await;
    Ok(findings?.exit_code())
}

/// A token that SIGTERM and SIGINT cancel.
pub(crate) fn stopped_by_signals() -> std::io::Result<CancellationToken> {
    let stop = CancellationToken::new();
    let (mut terminate, mut interrupt) = (signal(SignalKind::terminate())?, signal(SignalKind::interrupt())?);
    let stopping = stop.clone();
    tokio::spawn(async move {
        tokio::select! {
            _ = terminate.recv() => {}
            _ = interrupt.recv() => {}
        }
        stopping.cancel();
    });
    Ok(stop)
}

async fn through(
    client: &Client,
    config: &Config,
    namespace: Option<&str>,
    stop: &CancellationToken,
) -> anyhow::Result<Findings> {
    let mut findings = Findings::default();
    findings.extend(server::check(client, config, server::Purpose::Exchange).await?);
    if findings.failed() {
        return Ok(findings);
    }
    let mut targets = upstream::targets(client, &config.shapes).await?;
    targets.retain(|target| target.bucket().is_some());
    targets.retain(|target| namespace.is_none_or(|namespace| namespace == target.namespace()));
    if targets.is_empty() {
        let text = "there is no such collection with a shape in mode = \"rewrite\"";
        findings.add(&match namespace {
            Some(namespace) => Finding::error(namespace, text),
            None => Finding::note("compact", text),
        });
    }
    for target in targets {
        let name = concurrent_runs::own_name(Kind::Compact, &target.namespace());
        match upstream::named_client(&config.upstream, &name).await {
            Ok(client) => {
                compact(
                    &client,
                    &Run {
                        target: &target.through(&client),
                        name: &name,
                    },
                    stop,
                    &mut findings,
                )
                .await;
                upstream::close(client).await;
            }
            Err(error) => findings.add(&Finding::error(target.namespace(), format!("{error:#}"))),
        }
        if stop.is_cancelled() {
            break;
        }
    }
    Ok(findings)
}

struct Run<'a> {
    target: &'a ShapedCollection,
    /// The run's name, which the server returns to other runs as the application's name.
    name: &'a str,
}

async fn compact(client: &Client, Run { target, name }: &Run<'_>, stop: &CancellationToken, findings: &mut Findings) {
    let Some(shape) = target.bucket() else { return };
    let namespace = target.namespace();
    if let Some(finding) = concurrent_runs::look(client, Kind::Compact, &namespace, name).await {
        findings.add(&finding);
        if finding.is_error() {
            return;
        }
    }
    let mut work = Compaction {
        client,
        target,
        shape,
        stop,
        findings,
        copy: None,
        has_frozen: false,
    };
    if let Err(halt) = work.compact().await {
        findings.add(&halt.finding(Kind::Compact, &namespace));
    }
}

/// The state of a run on one collection.
struct Compaction<'a> {
    client: &'a Client,
    target: &'a ShapedCollection,
    shape: &'a BucketShape,
    stop: &'a CancellationToken,
    findings: &'a mut Findings,
    /// UUID of this run's copy.
    copy: Option<Binary>,
    /// Whether the run has sent a command that freezes the collection.
    has_frozen: bool,
}

impl Compaction<'_> {
    async fn compact(&mut self) -> Result<(), Halt> {
        let Some(described) = description(&self.target.database, &self.target.collection).await? else {
            copy::drop_if_there(self.target).await?;
            self.say("does not exist");
            return Ok(());
        };
        let is_frozen = collection::is_frozen(&described);
        if !self.is_fit(&described, is_frozen).await? {
            return Ok(());
        }
        if !is_frozen && !estimate::is_worth_it(self.target, self.shape, self.stop).await? {
            copy::drop_if_there(self.target).await?;
            self.findings.add(&Finding::fine(
                self.target.namespace(),
                "there are no short pages to pack",
            ));
            return Ok(());
        }
        let by = Freezing {
            client: self.client,
            target: self.target,
            work: Kind::Compact,
        };
        let frozen = Frozen::fence(by, &described, self.stop).await?;
        let done = self.fenced(&frozen, &described).await;
        let pages = match done {
            Ok(pages) => pages,
            Err(halt) => return Err(self.take_back(&frozen, halt).await),
        };
        let text = format!("packed: {} pages, previously {}", pages.after, pages.before);
        self.findings.add(&Finding::fine(self.target.namespace(), text));
        Ok(())
    }

    /// The part of the run that the fence protects.
    async fn fenced(&mut self, frozen: &Frozen<'_>, described: &Document) -> Result<sync_pass::PassTally, Halt> {
        // A killed run may still send writes to its copy, or rename it. Dropping the copy makes them
        // fail.
        let by = frozen.by();
        by.drop(&copy_name(&self.target.collection), None).await?;
        if collection::is_frozen(described) {
            self.say("an earlier run was interrupted while the collection was frozen; packing starts again");
            frozen.thaw_for_now().await?;
        }
        let (mut copy, is_new) = Copy::open(self.target, self.shape, frozen, described).await?;
        self.copy = Some(copy.uuid().clone());
        // Another run can create or drop this copy only under its own fence.
        frozen.is_fenced().await?;
        copy.take_over_indexes().await?;
        if !is_new {
            self.say("continues with the copy of an earlier run");
        }
        self.while_clients_work(&mut copy, is_new).await?;
        self.replace(frozen, &mut copy).await
    }

    /// Restores the collection. Returns the reason why the run ends, and reports the parts that could not be
    /// restored.
    async fn take_back(&mut self, frozen: &Frozen<'_>, halt: Halt) -> Halt {
        let taken_back = self.put_away_and_thaw(frozen, &halt).await;
        match taken_back {
            Ok(()) => halt,
            Err(other) => {
                self.findings
                    .add(&halt.finding(Kind::Compact, &self.target.namespace()));
                other
            }
        }
    }

    async fn put_away_and_thaw(&self, frozen: &Frozen<'_>, halt: &Halt) -> Result<(), Halt> {
        // If a run is stopped by a signal, all commands on its copy have been answered.
        let may_stay = matches!(halt, Halt::Stopped) && !self.has_frozen;
        let is_aside = match &self.copy {
            Some(uuid) if may_stay => copy::put_aside(self.target, frozen, uuid).await.is_ok(),
            _ => false,
        };
        if !is_aside {
            // After the copy is dropped, no late rename can replace the collection.
            let name = copy_name(&self.target.collection);
            frozen.by().drop(&name, self.copy.as_ref()).await?;
        }
        frozen.thaw().await
    }

    fn say(&mut self, text: impl Into<String>) {
        self.findings.add(&Finding::note(self.target.namespace(), text));
    }

    /// Whether the collection contains pages and has their indexes. If not, findings have been
    /// reported.
    async fn is_fit(&mut self, described: &Document, is_frozen: bool) -> Result<bool, Error> {
        let mut unfit = if is_frozen {
            Vec::new()
        } else {
            collection::unfit(self.target, described)
        };
        let there = indexes(self.target).await?;
        unfit.extend(collection::index_findings(self.target, self.shape, &there));
        let is_page = |found: &Document| found.get_str("name").is_ok_and(|name| name == index::PAGE);
        if unfit.is_empty() && !there.iter().any(is_page) {
            let text = format!("has no index named {}; run `mongoshape setup`", index::PAGE);
            unfit.push(Finding::error(self.target.namespace(), text));
        }
        if unfit.is_empty() && !is_frozen {
            match first_foreign(self.target, self.shape, SCAN_TIMEOUT).await? {
                ContentsCheck::Pages | ContentsCheck::Unfinished(_) => {}
                ContentsCheck::Foreign(id) => {
                    let text = format!("contains a document that is not a page, with _id {id}; run `mongoshape setup`");
                    unfit.push(Finding::error(self.target.namespace(), text));
                }
            }
        }
        let is_fit = unfit.is_empty();
        self.findings.extend(unfit);
        if !is_fit {
            let text = "is unchanged: compact requires a collection without findings; run `mongoshape check`";
            self.findings.add(&Finding::error(self.target.namespace(), text));
        }
        Ok(is_fit)
    }

    /// Fills the copy until few keys differ.
    async fn while_clients_work(&mut self, copy: &mut Copy<'_>, is_new: bool) -> Result<(), Halt> {
        for number in 1..=MAX_PASSES {
            copy.take_over_indexes().await?;
            let verb = if is_new && number == 1 { "copied" } else { "compared" };
            let tally = self.pass(copy, verb).await?;
            let few = (tally.keys / FEW).max(FEW_AT_LEAST);
            if tally.differences <= few && verb == "compared" {
                return Ok(());
            }
        }
        Ok(())
    }

    async fn pass(&mut self, copy: &mut Copy<'_>, verb: &'static str) -> Result<sync_pass::PassTally, Halt> {
        let namespace = self.target.namespace();
        let pass = SyncPass::new(self.target, self.shape, copy, self.stop);
        let mut progress = sync_pass::Progress::new(&namespace, verb, self.findings);
        let tally = pass.go(&mut progress).await?;
        self.say(format!(
            "{verb} {} keys, {} pages; {} keys written",
            tally.keys, tally.before, tally.differences
        ));
        Ok(tally)
    }

    /// Freezes the collection, fixes the remaining differences, and swaps.
    async fn replace(&mut self, frozen: &Frozen<'_>, copy: &mut Copy<'_>) -> Result<sync_pass::PassTally, Halt> {
        self.has_frozen = true;
        frozen.freeze(self.stop).await?;
        self.say("frozen: writes wait");
        copy.wait_for_the_majority();
        copy.take_over_indexes().await?;
        loop {
            let tally = self.pass(copy, "compared").await?;
            // A key that made room for another may itself have been correct, so the pass is repeated.
            if !copy.has_evicted() {
                copy.set_validator(frozen).await?;
                self.exchange(frozen, copy).await?;
                return Ok(tally);
            }
        }
    }

    /// Renames the copy over the collection in one step. mongod checks the UUIDs of both.
    async fn exchange(&self, frozen: &Frozen<'_>, copy: &Copy<'_>) -> Result<(), Halt> {
        let renamed = CollectionRename {
            from: copy.name(),
            uuid: copy.uuid(),
            to: &self.target.collection,
            dropped: Some(frozen.uuid()),
        };
        let Err(halt) = frozen.by().rename(renamed).await else {
            return Ok(());
        };
        // The rename may have succeeded, or may still arrive. After no copy has that
        // name, a late rename fails.
        frozen.by().drop(copy.name(), Some(copy.uuid())).await?;
        if frozen.by().is_replaced(copy.uuid()).await? {
            Ok(())
        } else {
            Err(halt)
        }
    }
}
