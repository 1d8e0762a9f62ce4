//! Metrics of every command: outcome, duration, and mongod's part of it.

use crate::command::registry::Command;
use std::time::Duration;

use prometheus::{Histogram, HistogramOpts, HistogramVec, IntCounter, Registry, exponential_buckets};

use super::label::CommandOutcome;
use super::registration::{counters, registered};

/// Bounds in seconds: from the proxy's part of a relayed command to that of a command that waits
/// for other writers.
const OVERHEAD_BOUNDS: [f64; 13] = [
    0.000_01, 0.000_02, 0.000_05, 0.000_1, 0.000_2, 0.000_5, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1,
];

/// The duration of a command.
#[derive(Clone, Copy, Debug)]
pub struct Spent {
    /// Total.
    pub whole: Duration,
    /// Waiting for mongod.
    pub upstream: Duration,
}

#[derive(Clone, Debug)]
pub(super) struct CommandMetrics {
    /// By the command's position in the registry, and by outcome.
    commands: Vec<[IntCounter; CommandOutcome::ALL.len()]>,
    durations: [Histogram; CommandOutcome::ALL.len()],
    upstream: UpstreamDurations,
    overhead: Histogram,
    /// By the shape's namespace, as configured.
    by_shape: HistogramVec,
}

impl CommandMetrics {
    pub(super) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let commands = counters(
            registry,
            "commands_total",
            "Commands that ended, by name (other: names without a label of their own) and by outcome. relayed: passed on unchanged; \
             rewritten: sent as internal commands of a shape; rejected: answered with an error of the proxy; failed: the client or the \
             server closed the connection. An awaitable hello that its driver cancels counts as relayed. When commands move from \
             relayed to rewritten, shapes are in effect; when rejected grows, see mongoshape_rejected_total and the application's log; \
             when failed grows, the proxy's log names the closed connections.",
            &["command", "outcome"],
        )?;
        let of_name = |name| CommandOutcome::ALL.map(|outcome| commands.with_label_values(&[name, outcome.label()]));
        Ok(Self {
            commands: Command::all().map(|command| of_name(command.name())).collect(),
            durations: durations(registry)?,
            upstream: UpstreamDurations::register(registry)?,
            overhead: histogram(
                registry,
                "proxy_overhead_seconds",
                "Seconds of a command outside of mongod: to read and rewrite it, to wait for other writers of its key, to send its \
                 reply. When it grows for relayed commands, the proxy lacks CPU (see process_cpu_seconds_total) or clients read slowly; \
                 otherwise many writers of one key wait for each other.",
                OVERHEAD_BOUNDS.to_vec(),
            )?,
            by_shape: shape_durations(registry)?,
        })
    }

    pub(super) fn expect_namespace(&self, namespace: &str) {
        self.by_shape.with_label_values(&[namespace]);
    }

    pub(super) fn of_shape(&self, namespace: &str, duration: Duration) {
        let seconds = self.by_shape.with_label_values(&[namespace]);
        seconds.observe(duration.as_secs_f64());
    }

    pub(super) fn ended(&self, command: Command, outcome: CommandOutcome, spent: Option<Spent>) {
        if let Some(counters) = self.commands.get(command.position()) {
            counters[outcome as usize].inc();
        }
        let Some(spent) = spent else {
            return;
        };
        self.durations[outcome as usize].observe(spent.whole.as_secs_f64());
        if !spent.upstream.is_zero() {
            self.upstream.of(command).observe(spent.upstream.as_secs_f64());
        }
        self.overhead
            .observe(spent.whole.saturating_sub(spent.upstream).as_secs_f64());
    }
}

/// The time that commands waited for mongod.
#[derive(Clone, Debug)]
struct UpstreamDurations {
    /// Of `getMore`, apart because a tailable cursor waits for new documents.
    more: Histogram,
    other: Histogram,
}

impl UpstreamDurations {
    fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let help = "Seconds that a command waited for mongod, summed over its requests; not observed for a command without requests, or \
                    for an awaitable hello. The time of a message that is streamed to mongod counts as waiting. getMore has its own \
                    series: on a change stream or another tailable cursor it waits for new data. When it grows for other commands, \
                    check mongod: slow queries, missing indexes, a busy disk; explain shows how many requests a rewritten command needs.";
        let options = HistogramOpts::new("mongoshape_upstream_duration_seconds", help)
            .buckets(exponential_buckets(0.000_05, 2.0, 20)?);
        let durations = registered(registry, HistogramVec::new(options, &["command"])?)?;
        Ok(Self {
            more: durations.with_label_values(&[Command::GetMore.name()]),
            other: durations.with_label_values(&[Command::Other.name()]),
        })
    }

    fn of(&self, command: Command) -> &Histogram {
        if command == Command::GetMore {
            &self.more
        } else {
            &self.other
        }
    }
}

fn durations(registry: &Registry) -> Result<[Histogram; CommandOutcome::ALL.len()], prometheus::Error> {
    let help = "Seconds from a command's last byte to the end of its reply, by outcome (for a streamed message from its first byte); \
                not observed for an awaitable hello. For a getMore on a change stream it is mostly waiting. When it grows, \
                mongoshape_upstream_duration_seconds and mongoshape_proxy_overhead_seconds show where the time is spent.";
    let options = HistogramOpts::new("mongoshape_command_duration_seconds", help)
        .buckets(exponential_buckets(0.000_05, 2.0, 20)?);
    let durations = registered(registry, HistogramVec::new(options, &["outcome"])?)?;
    Ok(CommandOutcome::ALL.map(|outcome| durations.with_label_values(&[outcome.label()])))
}

fn shape_durations(registry: &Registry) -> Result<HistogramVec, prometheus::Error> {
    let help = "Seconds of rewritten commands, by the shape of their collection. Without getMore, which on a change stream waits for new \
                data, and without commands on outlier collections that are relayed. When it grows, mongoshape_reads_total shows the access \
                paths of the shape, and explain the requests of a command.";
    let options =
        HistogramOpts::new("mongoshape_shape_duration_seconds", help).buckets(exponential_buckets(0.000_05, 2.0, 20)?);
    registered(registry, HistogramVec::new(options, &["namespace"])?)
}

fn histogram(registry: &Registry, name: &str, help: &str, bounds: Vec<f64>) -> Result<Histogram, prometheus::Error> {
    let options = HistogramOpts::new(format!("mongoshape_{name}"), help).buckets(bounds);
    registered(registry, Histogram::with_opts(options)?)
}
