//! Measures one shape: every variant in turn, round by round.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::answer::Comparison;
use super::arguments::Arguments;
use super::counters::{Counters, Reader};
use super::messages::Messages;
use super::query_client::{QueryClient, Request};
use super::servers::{Servers, Variant};
use super::shape::{PlainPlan, Shape};
use crate::bench::load::{self, Figures};
use crate::bench::place::as_f64;
use crate::bench::trades::SplitMix64;

/// Values that a shape is measured with, one after the other.
const ARGUMENTS: usize = 200;
/// Values that answers are compared with before.
const COMPARED: usize = 6;
/// The most time for the comparison of one shape, once two answers were compared.
const COMPARISON_LIMIT: Duration = Duration::from_secs(2);

/// The least number of queries of a turn.
const LEAST_QUERIES: usize = 3;
/// A turn that has lasted so many times its length ends after one query.
const LONG_TURNS: u32 = 5;

/// How often and how long each variant is measured.
#[derive(Debug, Clone, Copy)]
pub(super) struct Rounds {
    pub(super) rounds: usize,
    /// How long a variant repeats a query in a round.
    pub(super) turn: Duration,
}

/// The figures of one variant.
#[derive(Debug, Clone)]
pub(super) struct Measured {
    pub(super) variant: Variant,
    pub(super) rounds: Vec<Figures>,
    queries: f64,
    /// Of all rounds.
    counted: Counters,
    mongod_cpu: Duration,
    proxy_cpu: Duration,
    bytes: f64,
    documents: f64,
}

impl Measured {
    fn new(variant: Variant) -> Self {
        Self {
            variant,
            rounds: Vec::new(),
            queries: 0.0,
            counted: Counters::default(),
            mongod_cpu: Duration::ZERO,
            proxy_cpu: Duration::ZERO,
            bytes: 0.0,
            documents: 0.0,
        }
    }

    /// Index keys that mongod examined, a query.
    pub(super) fn keys(&self) -> f64 {
        self.counted.keys / self.queries
    }

    /// Documents, which may be pages, that mongod examined, a query.
    pub(super) fn examined(&self) -> f64 {
        self.counted.documents / self.queries
    }

    /// Commands that mongod received, a query.
    pub(super) fn commands(&self) -> f64 {
        self.counted.commands / self.queries
    }

    /// Bytes that mongod sent, a query.
    pub(super) fn mongod_bytes(&self) -> f64 {
        self.counted.bytes_sent / self.queries
    }

    /// Bytes between application and server in both directions, a query.
    pub(super) fn bytes(&self) -> f64 {
        self.bytes / self.queries
    }

    /// Documents in the answer, a query.
    pub(super) fn documents(&self) -> f64 {
        self.documents / self.queries
    }

    /// CPU time of mongod, in µs a query.
    pub(super) fn mongod_cpu_us(&self) -> f64 {
        self.mongod_cpu.as_secs_f64() * 1e6 / self.queries
    }

    /// CPU time of the proxy, in µs a query.
    pub(super) fn proxy_cpu_us(&self) -> f64 {
        self.proxy_cpu.as_secs_f64() * 1e6 / self.queries
    }
}

/// What was measured of a shape.
#[derive(Debug, Clone)]
pub(super) struct Row {
    pub(super) name: &'static str,
    pub(super) plan: PlainPlan,
    /// The plain collection first, the shaped one last.
    pub(super) variants: Vec<Measured>,
}

impl Row {
    /// The measurements of a variant.
    pub(super) fn of(&self, variant: Variant) -> Option<&Measured> {
        self.variants.iter().find(|measured| measured.variant == variant)
    }
}

/// A variant with its connection and its requests.
struct VariantRun {
    client: QueryClient,
    requests: Vec<Request>,
    measured: Measured,
}

/// Compares the answers, then measures every variant. `None`: the collection has no key that is long enough.
pub(super) fn run(shape: &Shape, servers: &Servers, messages: &Messages, rounds: Rounds) -> Result<Option<Row>> {
    let mut runs = Vec::new();
    for variant in servers.variants() {
        let Some(run) = prepare(shape, servers, messages, variant)? else {
            return Ok(None);
        };
        runs.push(run);
    }
    compare(shape, &mut runs)?;
    let mut reader = Reader::open(servers.address(Variant::Plain))?;
    for round in 0..rounds.rounds {
        // Each round starts with another variant.
        for turn in 0..runs.len() {
            let at = (round + turn) % runs.len();
            take_turn(&mut runs[at], servers, &mut reader, Turn { round, of: rounds })?;
        }
    }
    Ok(Some(Row {
        name: shape.name,
        plan: shape.plan,
        variants: runs.into_iter().map(|run| run.measured).collect(),
    }))
}

/// Connects to a variant and builds its requests. The values are the same for every variant.
fn prepare(shape: &Shape, servers: &Servers, messages: &Messages, variant: Variant) -> Result<Option<VariantRun>> {
    let client = QueryClient::open(servers.address(variant))?;
    let mut random = SplitMix64::new(messages.all.len() as u64);
    let mut requests = Vec::with_capacity(ARGUMENTS);
    for _ in 0..ARGUMENTS {
        let arguments = Arguments::random(messages, variant.collection(), &mut random)?;
        let Some(command) = shape.command(&arguments) else {
            return Ok(None);
        };
        requests.push(client.request(&command)?);
    }
    Ok(Some(VariantRun {
        client,
        requests,
        measured: Measured::new(variant),
    }))
}

/// Fails unless the first and the last variant return the same documents.
fn compare(shape: &Shape, runs: &mut [VariantRun]) -> Result<()> {
    let [plain, .., shaped] = runs else {
        return Ok(());
    };
    let started = Instant::now();
    for nth in 0..COMPARED {
        let mut comparison = Comparison {
            plain: &mut plain.client,
            plain_request: &plain.requests[nth],
            shaped: &mut shaped.client,
            shaped_request: &shaped.requests[nth],
        };
        comparison.check(shape.order)?;
        if nth > 0 && started.elapsed() > COMPARISON_LIMIT {
            break;
        }
    }
    Ok(())
}

/// A turn of a variant in a round.
#[derive(Debug, Clone, Copy)]
struct Turn {
    round: usize,
    of: Rounds,
}

impl Turn {
    /// Whether so many queries in this time are enough: three in any case, unless they take very long.
    fn is_over(self, queries: usize, elapsed: Duration) -> bool {
        let least = if elapsed < LONG_TURNS * self.of.turn {
            LEAST_QUERIES
        } else {
            1
        };
        queries >= least && elapsed >= self.of.turn
    }
}

/// Repeats the query until the turn is over, and adds up the cost.
fn take_turn(run: &mut VariantRun, servers: &Servers, reader: &mut Reader, turn: Turn) -> Result<()> {
    let VariantRun {
        client,
        requests,
        measured,
    } = run;
    let mut next = turn.round * ARGUMENTS / turn.of.rounds;
    let mut taken = Vec::new();
    let cpu_before = servers.cpu_times(measured.variant)?;
    let before = reader.read()?;
    let started = Instant::now();
    while !turn.is_over(taken.len(), started.elapsed()) {
        let exchange = client.time(&requests[next % ARGUMENTS]).context("an answer")?;
        next += 1;
        taken.push(exchange.taken);
        measured.bytes += as_f64(exchange.bytes);
        measured.documents += as_f64(exchange.documents);
    }
    let counted = reader.read()?;
    let counted = reader.between(before, counted);
    let cpu = servers.cpu_times(measured.variant)?;
    measured.mongod_cpu += cpu.mongod.saturating_sub(cpu_before.mongod);
    measured.proxy_cpu += cpu.proxy.saturating_sub(cpu_before.proxy);
    measured.queries += as_f64(taken.len());
    measured.counted = measured.counted + counted;
    taken.sort_unstable();
    measured.rounds.push(load::figures(&taken, taken.iter().sum()));
    Ok(())
}
