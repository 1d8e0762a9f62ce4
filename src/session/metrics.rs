//! What sessions count. Labels are closed sets or configured namespaces, never a client's data.

mod inserts;

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry, exponential_buckets,
};

pub use self::inserts::{HintUse, InsertMetrics, Placing};

/// Commands that have a label of their own, sorted; every other one counts as `other`.
const COMMANDS: &[&str] = &[
    "abortTransaction",
    "aggregate",
    "buildInfo",
    "collMod",
    "collStats",
    "commitTransaction",
    "count",
    "create",
    "createIndexes",
    "dbStats",
    "delete",
    "distinct",
    "drop",
    "dropDatabase",
    "dropIndexes",
    "endSessions",
    "explain",
    "find",
    "findAndModify",
    "getMore",
    "hello",
    "insert",
    "isMaster",
    "killCursors",
    "listCollections",
    "listDatabases",
    "listIndexes",
    "mapReduce",
    "ping",
    "renameCollection",
    "saslContinue",
    "saslStart",
    "update",
    "validate",
];

/// What became of a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Outcome {
    /// Its bytes were passed on.
    Relayed,
    /// It was rewritten and answered.
    Rewritten,
    /// It was refused by the proxy.
    Rejected,
    /// It could not be answered: a peer went away.
    Failed,
}

impl Outcome {
    const ALL: [Self; 4] = [Self::Relayed, Self::Rewritten, Self::Rejected, Self::Failed];

    fn label(self) -> &'static str {
        match self {
            Self::Relayed => "relayed",
            Self::Rewritten => "rewritten",
            Self::Rejected => "rejected",
            Self::Failed => "failed",
        }
    }
}

/// The way a read was answered.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Strategy {
    /// By looking at the pages that hold the answer.
    Page,
    /// By unpacking buckets as they come, batch after batch.
    Stream,
    /// By a pipeline that unpacks in mongod.
    Pipeline,
}

impl Strategy {
    const ALL: [Self; 3] = [Self::Page, Self::Stream, Self::Pipeline];

    /// What it is called.
    #[must_use]
    pub fn label(self) -> &'static str {
        match self {
            Self::Page => "page",
            Self::Stream => "stream",
            Self::Pipeline => "pipeline",
        }
    }
}

/// What a peer wanted more of than it may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Limit {
    /// Connections at a time.
    Connections,
    /// Bytes in one message.
    MessageBytes,
    /// Bytes in one message once it is inflated.
    InflatedBytes,
    /// Room for long messages, which all clients share.
    LongMessages,
    /// Time until the first message, or for the TLS handshake.
    HandshakeTimeout,
    /// Time for a message that has begun.
    FrameTimeout,
    /// Time between two messages.
    IdleTimeout,
    /// Time in which a reply is not read.
    SendTimeout,
}

impl Limit {
    const ALL: [Self; 8] = [
        Self::Connections,
        Self::MessageBytes,
        Self::InflatedBytes,
        Self::LongMessages,
        Self::HandshakeTimeout,
        Self::FrameTimeout,
        Self::IdleTimeout,
        Self::SendTimeout,
    ];

    fn label(self) -> &'static str {
        match self {
            Self::Connections => "connections",
            Self::MessageBytes => "message_bytes",
            Self::InflatedBytes => "inflated_bytes",
            Self::LongMessages => "long_messages",
            Self::HandshakeTimeout => "handshake_timeout",
            Self::FrameTimeout => "frame_timeout",
            Self::IdleTimeout => "idle_timeout",
            Self::SendTimeout => "send_timeout",
        }
    }
}

/// Which way bytes went.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// From clients.
    Received,
    /// To clients.
    Sent,
}

/// The handles.
#[derive(Clone, Debug)]
pub struct SessionMetrics {
    /// By the position of the name in [`COMMANDS`], the last for others, and by outcome: looked up for every command.
    commands: Vec<[IntCounter; Outcome::ALL.len()]>,
    durations: [Histogram; Outcome::ALL.len()],
    bytes_received: IntCounter,
    bytes_sent: IntCounter,
    /// Client connections open now.
    pub connections: IntGauge,
    /// Client connections accepted.
    pub connections_total: IntCounter,
    items_inserted: IntCounterVec,
    reads: IntCounterVec,
    rejected: IntCounterVec,
    observed: IntCounterVec,
    limits_hit: IntCounterVec,
    /// What inserts on bucket collections count.
    pub inserts: InsertMetrics,
}

impl SessionMetrics {
    /// Registers the handles.
    ///
    /// # Errors
    /// A name that is registered already.
    pub fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let counter =
            |name: &str, help: &str| registered(registry, IntCounter::new(format!("mongoshape_{name}"), help)?);
        let counters = |name: &str, help: &str, labels: &[&str]| {
            registered(
                registry,
                IntCounterVec::new(Opts::new(format!("mongoshape_{name}"), help), labels)?,
            )
        };
        let bytes = counters("bytes_total", "Bytes from and to clients.", &["direction"])?;
        let metrics = Self {
            commands: command_counters(&counters(
                "commands_total",
                "Commands by name and by what became of them.",
                &["command", "outcome"],
            )?),
            durations: durations(registry)?,
            bytes_received: bytes.with_label_values(&["received"]),
            bytes_sent: bytes.with_label_values(&["sent"]),
            connections: registered(
                registry,
                IntGauge::new("mongoshape_client_connections", "Client connections open now.")?,
            )?,
            connections_total: counter("client_connections_total", "Client connections accepted.")?,
            items_inserted: counters(
                "bucket_items_inserted_total",
                "Items inserted, by shape.",
                &["namespace"],
            )?,
            reads: counters(
                "reads_total",
                "Reads of shaped collections, by the way they were answered.",
                &["namespace", "strategy"],
            )?,
            rejected: counters(
                "rejected_total",
                "Commands on shaped collections that were refused.",
                &["namespace", "reason"],
            )?,
            observed: counters(
                "observed_total",
                "Commands that a shape in observe mode would have rewritten.",
                &["namespace"],
            )?,
            limits_hit: counters(
                "limits_hit_total",
                "Connections closed or refused because a client wanted more than it may have.",
                &["limit"],
            )?,
            inserts: InsertMetrics::register(registry)?,
        };
        metrics.begin_at_zero();
        Ok(metrics)
    }

    /// Every series of a closed set exists before its first event.
    fn begin_at_zero(&self) {
        for limit in Limit::ALL {
            self.limits_hit.with_label_values(&[limit.label()]);
        }
    }

    /// Lets every series of a shape exist at zero. `namespace` is the shape's, as configured.
    pub fn expect_namespace(&self, namespace: &str) {
        self.items_inserted.with_label_values(&[namespace]);
        self.observed.with_label_values(&[namespace]);
        for strategy in Strategy::ALL {
            self.reads.with_label_values(&[namespace, strategy.label()]);
        }
        self.rejected.with_label_values(&[namespace, "unsupported"]);
    }

    /// Counts a command that ended.
    pub fn command(&self, name: &str, outcome: Outcome, seconds: f64) {
        let position = COMMANDS.binary_search(&name).unwrap_or(COMMANDS.len());
        if let Some(counters) = self.commands.get(position) {
            counters[outcome as usize].inc();
        }
        self.durations[outcome as usize].observe(seconds);
    }

    /// Counts the bytes of a frame.
    pub fn bytes(&self, direction: Direction, bytes: usize) {
        let counter = match direction {
            Direction::Received => &self.bytes_received,
            Direction::Sent => &self.bytes_sent,
        };
        counter.inc_by(u64::try_from(bytes).unwrap_or(u64::MAX));
    }

    /// Counts items that were stored.
    pub fn inserted(&self, namespace: &str, items: u64) {
        self.items_inserted.with_label_values(&[namespace]).inc_by(items);
    }

    /// Counts a read.
    pub fn read(&self, namespace: &str, strategy: Strategy) {
        self.reads.with_label_values(&[namespace, strategy.label()]).inc();
    }

    /// Counts a refusal.
    pub fn rejected(&self, namespace: &str) {
        self.rejected.with_label_values(&[namespace, "unsupported"]).inc();
    }

    /// Counts a connection that a limit ended.
    pub fn limit_hit(&self, limit: Limit) {
        self.limits_hit.with_label_values(&[limit.label()]).inc();
    }

    /// Counts a command that was only observed.
    pub fn observed(&self, namespace: &str) {
        self.observed.with_label_values(&[namespace]).inc();
    }
}

fn command_counters(commands: &IntCounterVec) -> Vec<[IntCounter; Outcome::ALL.len()]> {
    let names = COMMANDS.iter().copied().chain(["other"]);
    let of_name = |name| Outcome::ALL.map(|outcome| commands.with_label_values(&[name, outcome.label()]));
    names.map(of_name).collect()
}

fn durations(registry: &Registry) -> Result<[Histogram; Outcome::ALL.len()], prometheus::Error> {
    let help = "Seconds from a command's last byte to its answer's, by what became of it.";
    let options = HistogramOpts::new("mongoshape_command_duration_seconds", help)
        .buckets(exponential_buckets(0.000_05, 2.0, 20)?);
    let durations = registered(registry, HistogramVec::new(options, &["outcome"])?)?;
    Ok(Outcome::ALL.map(|outcome| durations.with_label_values(&[outcome.label()])))
}

fn registered<C: prometheus::core::Collector + Clone + 'static>(
    registry: &Registry,
    collector: C,
) -> Result<C, prometheus::Error> {
    registry.register(Box::new(collector.clone()))?;
    Ok(collector)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn commands_are_sorted_and_outcomes_in_their_places() {
        assert!(COMMANDS.is_sorted());
        for (place, outcome) in Outcome::ALL.into_iter().enumerate() {
            assert_eq!(outcome as usize, place);
        }
    }
}
