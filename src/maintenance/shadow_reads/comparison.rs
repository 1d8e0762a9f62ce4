//! Compares one read of a collection with the same read of its copy in pages.
//!
//! The copy is behind the collection. Results that differ are therefore read again in a span of time for
//! which all of this holds, before the difference counts:
//!
//! ```text
//!            copy contains all      copy read, and
//!            changes before it      time of the server
//!  ────────────────┼──────────────────────┼─────────────────────▶
//!                since    no change     until    the run has read
//!                                                all changes
//! ```
//!
//! So both results are those of one state of the collection, and a run has kept the copy up to date all
//! along.

use std::sync::Arc;
use std::time::{Duration, Instant};

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Timestamp, doc, rawdoc};
use mongodb::error::Error;
use mongodb::options::{ReadPreference, SelectionCriteria};
use mongodb::{Client, Database};
use tokio::time::sleep;

use super::answer::{self, ReadAnswer, Timed};
use super::command::on;
use super::defined_result::is_defined;
use crate::maintenance::convert::{ShadowCopy, time_of_position};
use crate::session::metrics::ShadowResult;
use crate::session::shadow::ShadowRead;

/// Comparisons of a read whose results differ.
const ATTEMPTS: u32 = 4;
/// The longest time for which the copy may be behind.
const MAX_BEHIND_SECONDS: u32 = 30;
/// The longest wait until a run records that it has applied later changes, and the interval of looks.
const MAX_WAIT: Duration = Duration::from_secs(15);
const LOOK_EVERY: Duration = Duration::from_millis(100);
/// The longest wait for events of a change stream that has none.
const MAX_AWAIT: Duration = Duration::from_millis(50);
/// The code of a command or option that the proxy refuses, whatever is stored.
const NOT_SUPPORTED: i32 = 115;

/// A read, and where it is executed.
pub(super) struct ShadowComparison {
    /// To mongod.
    pub(super) direct: Client,
    /// Reads the copy's pages as documents.
    pub(super) pages: Client,
    pub(super) read: Arc<ShadowRead>,
    pub(super) copy: ShadowCopy,
}

/// The result of a comparison.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Outcome {
    pub(super) result: ShadowResult,
    /// The code of the copy's error.
    pub(super) code: Option<i32>,
}

impl Outcome {
    fn of(result: ShadowResult) -> Self {
        Self { result, code: None }
    }

    fn differs(self) -> bool {
        matches!(self.result, ShadowResult::Different | ShadowResult::Refused)
    }

    /// Whether the results may differ because the copy is behind.
    pub(super) fn may_be_late(self) -> bool {
        self.differs() && self.code != Some(NOT_SUPPORTED)
    }
}

/// The times of a read in both layouts.
#[derive(Clone, Copy, Debug)]
pub(super) struct ReadTimes {
    pub(super) plain: Duration,
    pub(super) pages: Duration,
}

/// The first read of both.
#[derive(Clone, Copy, Debug)]
pub(super) struct FirstReads {
    /// May be that of a copy that is behind.
    pub(super) outcome: Outcome,
    pub(super) times: ReadTimes,
}

/// Whether the copy is not too far behind the server.
///
/// # Errors
/// If the server does not answer.
pub(super) async fn is_current(direct: &Client, copy: &ShadowCopy) -> Result<bool, Error> {
    let now = cluster_time(direct).await?;
    Ok(now.is_some_and(|now| now.time.saturating_sub(copy.applied_until.time) <= MAX_BEHIND_SECONDS))
}

impl ShadowComparison {
    /// Reads both once, and compares.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(super) async fn first(&self) -> Result<FirstReads, Error> {
        let plain = self.plain(None).await?;
        let pages = self.pages().await?;
        let times = ReadTimes {
            plain: plain.took,
            pages: pages.took,
        };
        Ok(FirstReads {
            outcome: self.outcome(&plain.answer, &pages.answer),
            times,
        })
    }

    fn outcome(&self, plain: &ReadAnswer, pages: &ReadAnswer) -> Outcome {
        let outcome = outcome_of(plain, pages);
        let is_result = outcome.result == ShadowResult::Different && outcome.code.is_none();
        if is_result && !is_defined(self.read.command, &self.read.body) {
            return Outcome::of(ShadowResult::UndefinedOrder);
        }
        outcome
    }

    /// The result in a span of time without changes. Takes some seconds.
    ///
    /// # Errors
    /// If the server does not answer.
    pub(super) async fn confirmed(&self) -> Result<Outcome, Error> {
        let behind = Outcome::of(ShadowResult::Behind);
        let mut last = self.copy.applied_until;
        for _ in 0..ATTEMPTS {
            let Some(since) = self.applied_after(last).await? else {
                return Ok(behind);
            };
            last = since;
            let plain = self.plain(Some(since)).await?.answer;
            let pages = self.pages().await?.answer;
            let outcome = self.outcome(&plain, &pages);
            if !outcome.differs() {
                return Ok(outcome);
            }
            let Some(until) = cluster_time(&self.direct).await? else {
                return Ok(behind);
            };
            // Some results change with the time.
            if self.plain(Some(until)).await?.answer != plain {
                continue;
            }
            // A run that has ended does not keep the copy up to date, and the copy may be dropped.
            if self.applied_after(until).await?.is_none() {
                return Ok(behind);
            }
            if !self.may_have_changed(since, until).await? {
                return Ok(outcome);
            }
        }
        Ok(Outcome::of(ShadowResult::Changing))
    }

    /// Waits until the copy contains all changes up to a time. Returns the time before which it contains all.
    /// `None`: no run keeps this copy up to date.
    async fn applied_after(&self, time: Timestamp) -> Result<Option<Timestamp>, Error> {
        let begun = Instant::now();
        while begun.elapsed() < MAX_WAIT {
            let copy = ShadowCopy::read(&self.database(&self.direct), &self.read.collection).await?;
            let copy = copy.filter(|copy| copy.uuid == self.copy.uuid);
            match copy {
                None => return Ok(None),
                Some(copy) if copy.applied_until > time => return Ok(Some(copy.applied_until)),
                Some(_) => sleep(LOOK_EVERY).await,
            }
        }
        Ok(None)
    }

    fn database(&self, client: &Client) -> Database {
        client.database(&self.read.database)
    }

    /// `since`: the earliest time of the state that is read.
    async fn plain(&self, since: Option<Timestamp>) -> Result<Timed, Error> {
        let mut command = on(&self.read.collection, &self.read);
        if let Some(since) = since {
            command.append(
                cstr!("readConcern"),
                rawdoc! { "level": "majority", "afterClusterTime": since },
            );
        }
        answer::of(&self.database(&self.direct), self.read.command, command).await
    }

    async fn pages(&self) -> Result<Timed, Error> {
        let command = on(self.copy.shape.namespace().collection(), &self.read);
        answer::of(&self.database(&self.pages), self.read.command, command).await
    }

    /// Whether the collection was changed in a span of time, or at its ends. Also if the stream does not pass
    /// the end, which an empty batch alone does not prove: the majority may lack a change.
    async fn may_have_changed(&self, since: Timestamp, until: Timestamp) -> Result<bool, Error> {
        let database = self.database(&self.direct);
        let collection = database.collection::<RawDocumentBuf>(&self.read.collection);
        let parts = doc! { "$project": { "operationType": 1, "clusterTime": 1 } };
        let mut stream = collection
            .watch()
            .pipeline([parts])
            .start_at_operation_time(since)
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::Primary))
            .max_await_time(MAX_AWAIT)
            .await?;
        let begun = Instant::now();
        while begun.elapsed() < MAX_WAIT {
            if let Some(event) = stream.next_if_any().await? {
                return Ok(event.cluster_time.is_none_or(|time| time <= until));
            }
            let passed = stream.resume_token().as_ref().and_then(time_of_position);
            if passed.is_some_and(|passed| passed > until) {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

/// The result of two reads.
fn outcome_of(plain: &ReadAnswer, pages: &ReadAnswer) -> Outcome {
    let (result, code) = match (plain, pages) {
        (ReadAnswer::TooLarge, _) | (_, ReadAnswer::TooLarge) => (ShadowResult::TooLarge, None),
        (one, other) if one == other => (ShadowResult::Equal, None),
        (ReadAnswer::Result(_), ReadAnswer::Refused(code)) => (ShadowResult::Refused, Some(*code)),
        (_, ReadAnswer::Refused(code)) => (ShadowResult::Different, Some(*code)),
        (_, ReadAnswer::Result(_)) => (ShadowResult::Different, None),
    };
    Outcome { result, code }
}

/// The server's current cluster time. `None`: it has none.
async fn cluster_time(direct: &Client) -> Result<Option<Timestamp>, Error> {
    let reply = direct.database("admin").run_command(doc! { "ping": 1 }).await?;
    Ok(reply.get_timestamp("operationTime").ok())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_are_equal_by_their_codes() {
        let documents = |n: u8| ReadAnswer::Result(vec![vec![n]]);
        let check = |plain: ReadAnswer, pages: ReadAnswer, result, code| {
            assert_eq!(outcome_of(&plain, &pages), Outcome { result, code });
        };
        check(documents(1), documents(1), ShadowResult::Equal, None);
        check(documents(1), documents(2), ShadowResult::Different, None);
        check(documents(1), ReadAnswer::Refused(115), ShadowResult::Refused, Some(115));
        check(
            ReadAnswer::Refused(2),
            ReadAnswer::Refused(2),
            ShadowResult::Equal,
            None,
        );
        check(
            ReadAnswer::Refused(2),
            ReadAnswer::Refused(9),
            ShadowResult::Different,
            Some(9),
        );
        check(ReadAnswer::Refused(2), documents(1), ShadowResult::Different, None);
        check(documents(1), ReadAnswer::TooLarge, ShadowResult::TooLarge, None);
    }
}
