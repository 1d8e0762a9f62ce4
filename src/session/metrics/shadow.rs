//! Metrics of shadow mode: reads that are answered by the collection and by its copy in pages.

use std::time::Duration;

use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, Registry, exponential_buckets};

use super::registration::{counters, registered};
use crate::command::registry::Command;

/// The result of the comparison of a read.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum ShadowResult {
    /// Both have the same result, or the same error.
    Equal,
    /// The copy contained all changes, and its result is another one.
    Different,
    /// The collection has a result, and the copy an error.
    Refused,
    /// Whenever the results differed, the collection was changed meanwhile.
    Changing,
    /// No run keeps a copy up to date, or its last changes are too old.
    Behind,
    /// The results differ, but the order or choice of the documents is not defined by the command.
    UndefinedOrder,
    /// The result is too large, or takes too long.
    TooLarge,
    /// Too many reads waited, or the server did not answer.
    Dropped,
}

impl ShadowResult {
    const ALL: [Self; 8] = [
        Self::Equal,
        Self::Different,
        Self::Refused,
        Self::Changing,
        Self::Behind,
        Self::UndefinedOrder,
        Self::TooLarge,
        Self::Dropped,
    ];

    /// The value of the label.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Equal => "equal",
            Self::Different => "different",
            Self::Refused => "refused",
            Self::Changing => "changing",
            Self::Behind => "behind",
            Self::UndefinedOrder => "undefined_order",
            Self::TooLarge => "too_large",
            Self::Dropped => "dropped",
        }
    }
}

/// The layout that a read was answered from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ShadowLayout {
    /// The collection.
    Plain,
    /// Its copy.
    Pages,
}

impl ShadowLayout {
    const ALL: [Self; 2] = [Self::Plain, Self::Pages];

    fn label(self) -> &'static str {
        match self {
            Self::Plain => "plain",
            Self::Pages => "pages",
        }
    }
}

/// Metrics of shadow mode.
#[derive(Clone, Debug)]
pub struct ShadowMetrics {
    reads: IntCounterVec,
    seconds: HistogramVec,
}

impl ShadowMetrics {
    /// The commands that are compared.
    pub const COMMANDS: [Command; 4] = [Command::Find, Command::Aggregate, Command::Count, Command::Distinct];

    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let reads = counters(
            registry,
            "shadow_reads_total",
            READS,
            &["namespace", "command", "result"],
        )?;
        let options = HistogramOpts::new("mongoshape_shadow_read_seconds", SECONDS)
            .buckets(exponential_buckets(0.000_1, 2.0, 20)?);
        Ok(Self {
            reads,
            seconds: registered(registry, HistogramVec::new(options, &["namespace", "layout"])?)?,
        })
    }

    /// Creates every series of a shape in the mode `shadow`, so that it exists at zero. `namespace`: as
    /// configured.
    pub fn expect_namespace(&self, namespace: &str) {
        for command in Self::COMMANDS {
            for result in ShadowResult::ALL {
                self.reads
                    .with_label_values(&[namespace, command.name(), result.label()]);
            }
        }
        for layout in ShadowLayout::ALL {
            self.seconds.with_label_values(&[namespace, layout.label()]);
        }
    }

    /// Counts a read. `namespace`: as configured.
    pub fn read(&self, namespace: &str, command: Command, result: ShadowResult) {
        self.reads
            .with_label_values(&[namespace, command.name(), result.label()])
            .inc();
    }

    /// Observes the duration of a read in one layout. `namespace`: as configured.
    pub fn took(&self, namespace: &str, layout: ShadowLayout, duration: Duration) {
        let seconds = self.seconds.with_label_values(&[namespace, layout.label()]);
        seconds.observe(duration.as_secs_f64());
    }
}

const READS: &str = "Reads of collections in the mode shadow that were chosen to be compared with the copy in pages, by the result. \
                     equal: the results are the same; different: the copy contained all changes and has another result; refused: the copy has an error; \
                     changing: the collection was changed whenever the results differed; behind: no mongoshape convert --shadow keeps a \
                     copy up to date; undefined_order: the results differ, and the command does not define which documents or which order \
                     it returns; too_large: a result of more than 1000 documents or 4 MiB, or a read of more than 10 s; dropped: more reads \
                     than can be compared, or a server without an answer. When different or refused grows, the log names the fields or \
                     stages; do not convert before the cause is known. When behind grows, run mongoshape convert --shadow. When dropped grows, \
                     lower shadow_share.";
const SECONDS: &str = "Seconds in which a read was answered completely by the collection (plain) and by its copy (pages), each measured from the \
                       proxy, one read at a time. When pages takes longer than plain, look for the reads in docs/choosing-shapes.md before the \
                       collection is converted.";
