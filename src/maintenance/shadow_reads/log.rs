//! Log lines about reads that a person should look at.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use super::command;
use super::comparison::{Outcome, ReadTimes};
use crate::session::metrics::ShadowResult;
use crate::session::shadow::ShadowRead;

/// Interval of lines about one command on one collection with one result.
const LOG_EVERY: Duration = Duration::from_mins(1);

/// The times of the last lines.
#[derive(Default)]
pub(super) struct ComparisonLog {
    /// Bounded by the configured shapes.
    last: BTreeMap<(String, &'static str, &'static str), Instant>,
}

impl ComparisonLog {
    /// Logs a result, unless it is as expected or a similar one was logged.
    pub(super) fn add(&mut self, read: &ShadowRead, outcome: Outcome, times: ReadTimes) {
        let message = match outcome.result {
            ShadowResult::Different => "a read has another result on the copy in pages",
            ShadowResult::Refused => "a read has an error on the copy in pages",
            _ => return,
        };
        if !self.is_due(read, outcome.result) {
            return;
        }
        let fields = command::names(read);
        tracing::warn!(
            namespace = read.configured,
            command = read.command.name(),
            fields,
            code = outcome.code,
            plain_ms = times.plain.as_secs_f64() * 1000.0,
            pages_ms = times.pages.as_secs_f64() * 1000.0,
            "{message}"
        );
    }

    fn is_due(&mut self, read: &ShadowRead, result: ShadowResult) -> bool {
        let kind = (read.configured.clone(), read.command.name(), result.label());
        let is_due = self.last.get(&kind).is_none_or(|last| last.elapsed() >= LOG_EVERY);
        if is_due {
            self.last.insert(kind, Instant::now());
        }
        is_due
    }
}
