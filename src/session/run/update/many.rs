//! An update of all items that match.
//!
//! They are read in batches. A bucket is met once: what is read of it again, since an index that it was found by has changed with
//! it, is left out. An item that was changed by others in between is looked for again, and left alone where it matches no more.

use std::collections::HashMap;

use bson::raw::{RawBson, RawDocumentBuf};

use super::again::find_again;
use super::one::none_matched;
use super::outcome::Outcome;
use super::statement::{send, send_all, settle};
use crate::command::document::{get, single};
use crate::command::error::WriteError;
use crate::pattern::bucket::place::{Elsewhere, Planned, Wish};
use crate::pattern::bucket::resolve::Found;
use crate::session::error::RunError;
use crate::session::run::elsewhere::{self, Went};
use crate::session::run::relocate::may_relocate;
use crate::session::run::resolve::Matches;
use crate::session::run::task::{Task, given_up, in_words_of_the_application};
use crate::session::run::{MAX_ATTEMPTS, Run, pause};
use crate::session::upstream::UpstreamKind;

/// Bytes of items that are kept before the first of them is changed.
const MAX_BYTES: usize = 64 << 20;
/// Statements that are sent back to back: where one fails, those behind it are not all left out.
const MAX_IN_FLIGHT: usize = 64;
/// Bytes of items from which a pipeline makes others at once.
const MAX_MADE_AT_ONCE: usize = 1 << 20;

pub(super) async fn run(
    run: &mut Run<'_>,
    task: &Task<'_>,
    (upserts, judged): (bool, Outcome),
) -> Result<Outcome, RunError> {
    let known_concern = get(run.head.body(), "writeConcern").is_some();
    let mut many = Many {
        at_once: known_concern && run.upstream == UpstreamKind::Member && !run.head.in_transaction(),
        sum: judged,
        elsewhere: Vec::new(),
        fails: None,
        task,
    };
    let mut matches = Matches::of(run, task.wanted()).await?;
    let mut met = Met::default();
    let mut kept: Vec<Found> = Vec::new();
    let mut bytes = 0_usize;
    while let Some(batch) = matches.next_batch(run).await? {
        for found in batch {
            if met.is_new(&found) {
                bytes = bytes.saturating_add(found.bytes());
                kept.push(found);
            }
        }
        if bytes > MAX_BYTES {
            if may_be_refused(task) || task.may_relocate(run.shape) {
                matches.close(run).await?;
                let what =
                    format!("an update of more than {MAX_BYTES} bytes of items that may change their key or time");
                return Err(run.unsupported(&what).into());
            }
            many.change(run, std::mem::take(&mut kept)).await?;
            bytes = 0;
            if many.has_failed() {
                matches.close(run).await?;
                return many.end(run).await;
            }
        }
    }
    many.change(run, kept).await?;
    many.relocate(run).await?;
    if upserts && met.is_empty() {
        // Where another has made the one that is meant, it is as if it had matched.
        return match none_matched(run, task, (true, &many.sum)).await? {
            Some(outcome) => Ok(outcome),
            None => Box::pin(self::run(run, task, (upserts, many.sum))).await,
        };
    }
    many.end(run).await
}

/// Whether only the items themselves tell if the update can be done: then all are looked at before any is changed.
fn may_be_refused(task: &Task<'_>) -> bool {
    !matches!(Wish::of(task.asked.change), Some(Wish::Operators(operators)) if get(operators, "$rename").is_none())
}

/// The buckets that were met: the last of their items.
#[derive(Default)]
struct Met {
    buckets: HashMap<Vec<u8>, usize>,
    last: Option<RawBson>,
}

impl Met {
    fn is_empty(&self) -> bool {
        self.buckets.is_empty()
    }

    fn is_new(&mut self, found: &Found) -> bool {
        let name = single("", &found.bucket).into_bytes();
        let goes_on = self.last.as_ref() == Some(&found.bucket);
        let before = self.buckets.get(&name).copied();
        let is_new = before.is_none_or(|place| goes_on && place < found.place);
        if is_new {
            self.buckets.insert(name, found.place);
            self.last = Some(found.bucket.clone());
        }
        is_new
    }
}

/// The items that have left their pages: those behind them have moved up.
#[derive(Default)]
struct Gone {
    of_bucket: HashMap<Vec<u8>, usize>,
}

impl Gone {
    fn name(found: &Found) -> Vec<u8> {
        single("", &found.bucket).into_bytes()
    }

    /// Items of a bucket come in the order of their places.
    fn close_ranks(&self, found: &mut Found) {
        let gone = self.of_bucket.get(&Self::name(found)).copied().unwrap_or_default();
        found.place = found.place.saturating_sub(gone);
        found.count = found.count.saturating_sub(u32::try_from(gone).unwrap_or(u32::MAX));
    }

    fn add(&mut self, found: &Found) {
        let gone = self.of_bucket.entry(Self::name(found)).or_default();
        *gone = gone.saturating_add(1);
    }
}

struct Many<'t> {
    task: &'t Task<'t>,
    /// Whether what the client waits for is waited for at the end.
    at_once: bool,
    sum: Outcome,
    /// Items that get another key or time: when all are read, or they would be met again.
    elsewhere: Vec<(Found, Elsewhere)>,
    /// What mongod says of an item, before which the others are still changed.
    fails: Option<WriteError>,
}

/// An item that was found, the statement that changes it, and whether mongod counts it as modified whatever it says.
type Statement = (Found, RawDocumentBuf, bool);

impl Many<'_> {
    fn has_failed(&self) -> bool {
        self.fails.is_some() || self.sum.failed.is_some()
    }

    /// Changes items, after all were planned.
    async fn change(&mut self, run: &mut Run<'_>, found: Vec<Found>) -> Result<(), RunError> {
        let statements = self.plan(run, found).await?;
        if self.fails.is_some() && run.head.in_transaction() {
            // Which ends, and all that was done in it.
            self.elsewhere.clear();
            return Ok(());
        }
        let goes_away = |(_, to): &(Found, Elsewhere)| matches!(to, Elsewhere::Key(_));
        if self.elsewhere.iter().any(goes_away) {
            may_relocate(run)?;
        }
        for part in statements.chunks(MAX_IN_FLIGHT) {
            self.send(run, part).await?;
            if self.sum.failed.is_some() {
                break;
            }
        }
        Ok(())
    }

    /// What is to be done, up to the first item of which mongod says that it cannot be.
    async fn plan(&mut self, run: &mut Run<'_>, found: Vec<Found>) -> Result<Vec<Statement>, RunError> {
        let mut statements = Vec::new();
        for part in parts(found) {
            let planned = self.task.plan_all(run, &part).await?;
            for (found, planned) in part.into_iter().zip(planned) {
                match planned {
                    Planned::InPlace(change) => {
                        let statement = change.statement(run.shape, &found);
                        let statement = statement.map_err(|what| run.unsupported(&what))?;
                        statements.push((found, statement, change.counted));
                    }
                    Planned::Unchanged { counted } => self.is_unchanged(counted),
                    Planned::Elsewhere(where_to) => self.elsewhere.push((found, where_to)),
                    Planned::Failed(error) => {
                        self.fails = Some(error);
                        return Ok(statements);
                    }
                }
            }
        }
        Ok(statements)
    }

    fn is_unchanged(&mut self, counted: bool) {
        self.sum.matched = self.sum.matched.saturating_add(1);
        self.sum.modified = self.sum.modified.saturating_add(i64::from(counted));
    }

    async fn send(&mut self, run: &mut Run<'_>, part: &[Statement]) -> Result<(), RunError> {
        let statements: Vec<RawDocumentBuf> = part.iter().map(|(_, statement, _)| statement.clone()).collect();
        let outcomes = send_all(run, self.task, (&statements, self.at_once)).await?;
        let mut missed = Vec::new();
        for ((found, _, counted), outcome) in part.iter().zip(outcomes) {
            if outcome.matched == 0 && outcome.failed.is_none() {
                missed.push(found);
            }
            self.add(run, (found, *counted), outcome);
        }
        for found in missed {
            if self.sum.failed.is_none() {
                self.again(run, found).await?;
            }
        }
        Ok(())
    }

    fn add(&mut self, run: &Run<'_>, (found, counted): (&Found, bool), mut outcome: Outcome) {
        outcome.failed = outcome
            .failed
            .map(|error| in_words_of_the_application(run, error, found));
        if counted && outcome.matched > 0 {
            outcome.modified = 1;
        }
        self.sum.add(outcome);
    }

    /// Changes an item that was not as it had been found.
    async fn again(&mut self, run: &mut Run<'_>, missed: &Found) -> Result<(), RunError> {
        for round in 0..=MAX_ATTEMPTS {
            let Some(found) = find_again(run, self.task, missed).await? else {
                return Ok(());
            };
            let Some(found) = found else {
                break;
            };
            let change = match self.task.plan(run, &found).await? {
                Planned::InPlace(change) => change,
                Planned::Unchanged { counted } => {
                    self.is_unchanged(counted);
                    return Ok(());
                }
                Planned::Elsewhere(where_to) => {
                    if self.go(run, &found, where_to).await?.is_some() {
                        return Ok(());
                    }
                    pause(round).await;
                    continue;
                }
                Planned::Failed(error) => {
                    self.sum.failed = Some(error);
                    return Ok(());
                }
            };
            let statement = change
                .statement(run.shape, &found)
                .map_err(|what| run.unsupported(&what))?;
            let outcome = send(run, self.task, &statement).await?;
            if outcome.matched > 0 || outcome.failed.is_some() {
                self.add(run, (&found, change.counted), outcome);
                return Ok(());
            }
            pause(round).await;
        }
        self.sum.failed = Some(given_up(run));
        Ok(())
    }

    /// Gives those that get one another key or time.
    async fn relocate(&mut self, run: &mut Run<'_>) -> Result<(), RunError> {
        let mut gone = Gone::default();
        for (mut found, where_to) in std::mem::take(&mut self.elsewhere) {
            if self.sum.failed.is_some() {
                return Ok(());
            }
            gone.close_ranks(&mut found);
            match self.go(run, &found, where_to).await? {
                Some(true) => gone.add(&found),
                Some(false) => {}
                None => self.again(run, &found).await?,
            }
        }
        Ok(())
    }

    /// The same of one: whether it has left its page; `None` where it was not as it had been found.
    async fn go(&mut self, run: &mut Run<'_>, found: &Found, where_to: Elsewhere) -> Result<Option<bool>, RunError> {
        match elsewhere::go(run, self.task, found, (where_to, true)).await? {
            Went::Stayed(_, answer) => self.sum.add(Outcome::of_one(answer)),
            Went::Away(_, answer) => {
                self.sum.add(Outcome::of_one(answer));
                return Ok(Some(true));
            }
            Went::Failed(error) => self.sum.failed = Some(error),
            Went::Before | Went::Missed => return Ok(None),
        }
        Ok(Some(false))
    }

    async fn end(mut self, run: &mut Run<'_>) -> Result<Outcome, RunError> {
        if self.at_once && self.sum.modified > 0 {
            self.sum.answer = settle(run).await?;
        }
        self.sum.failed = self.sum.failed.or(self.fails);
        Ok(self.sum)
    }
}

/// Parts of which a pipeline makes others at once.
fn parts(found: Vec<Found>) -> Vec<Vec<Found>> {
    let mut parts: Vec<Vec<Found>> = Vec::new();
    let mut bytes = usize::MAX;
    for found in found {
        bytes = bytes.saturating_add(found.bytes());
        match parts.last_mut() {
            Some(part) if bytes <= MAX_MADE_AT_ONCE => part.push(found),
            _ => {
                bytes = found.bytes();
                parts.push(vec![found]);
            }
        }
    }
    parts
}
