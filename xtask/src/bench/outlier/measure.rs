//! Connections that share a sequence of operations: each takes the next one.

use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::raw;

use super::part::{Operation, Part, Turn};
use super::variants::{DATABASE, Variant, Variants};
use crate::bench::client::{Client, Prepared, Reply, Request};
use crate::bench::load::{Figures, figures};
use crate::bench::model::Write;
use crate::bench::place::as_f64;
use crate::bench::statistics::median;
use crate::bench::table::Row;

/// What came of a round.
#[derive(Debug)]
pub(super) struct Taken {
    figures: Figures,
    decoded_us: f64,
    /// Of all replies together.
    bytes: usize,
}

/// The measurements of a variant.
#[derive(Debug, Default)]
pub(super) struct Measured {
    rounds: Vec<Taken>,
    /// CPU time of mongod and of the proxy for each operation, in microseconds.
    cpu_us: [Vec<f64>; 2],
    operations: usize,
}

impl Measured {
    /// A round, with the CPU times before and after it.
    pub(super) fn add(&mut self, taken: Taken, before: [Duration; 2], after: [Duration; 2], turn: Turn) {
        self.rounds.push(taken);
        self.operations = turn.count;
        for ((all, before), after) in self.cpu_us.iter_mut().zip(before).zip(after) {
            let used = after.saturating_sub(before);
            all.push(used.as_secs_f64() * 1e6 / as_f64(turn.count));
        }
    }

    pub(super) fn row(&self, variant: &Variant) -> Row {
        let middle = |figure: &dyn Fn(&Taken) -> f64| median(self.rounds.iter().map(figure));
        let figures = vec![
            middle(&|taken| taken.figures.per_second),
            middle(&|taken| taken.figures.p50_us),
            middle(&|taken| taken.figures.p99_us),
            middle(&|taken| taken.decoded_us),
            middle(&|taken| as_f64(taken.bytes) / as_f64(self.operations)),
            median(self.cpu_us[0].iter().copied()),
            median(self.cpu_us[1].iter().copied()),
        ];
        let costs = self.rounds.iter().map(|taken| taken.figures.per_second.recip());
        Row::named((variant.name, variant.is_ours), figures, costs.collect())
    }
}

/// A command as it is sent.
enum Sending {
    Write(Prepared),
    /// And how many documents it is to find.
    Read(Vec<u8>, usize),
}

/// Executes all operations on a variant.
pub(super) fn run(
    variants: &Variants,
    variant: &Variant,
    part: Part,
    operations: &[Operation],
    turn: Turn,
) -> Result<Taken> {
    let mut client = Client::open(variant.address, DATABASE, variants.retries)?;
    let sendings = operations.iter().map(|operation| sending(&client, variant, operation));
    let sendings = sendings.collect::<Result<Vec<_>>>()?;
    // A connection's first command is no measure of the others.
    client.command(doc! { "ping": 1 })?;
    let next = AtomicUsize::new(0);
    let barrier = Barrier::new(turn.connections);
    let clients = (0..turn.connections).map(|_| {
        let mut client = Client::open(variant.address, DATABASE, variants.retries)?;
        client.command(doc! { "ping": 1 })?;
        Ok(client)
    });
    let clients = clients.collect::<Result<Vec<_>>>()?;
    let sent = thread::scope(|scope| {
        let start = |client: Client| {
            scope.spawn(|| {
                barrier.wait();
                send(client, &sendings, &next, part)
            })
        };
        let threads: Vec<_> = clients.into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let started = sent.iter().map(|sent| sent.started).min().context("no connection")?;
    let ended = sent.iter().map(|sent| sent.ended).max().context("no connection")?;
    let sorted = |of: fn(&Sent) -> &Vec<Duration>| {
        let mut all: Vec<Duration> = sent.iter().flat_map(|sent| of(sent).iter().copied()).collect();
        all.sort_unstable();
        figures(&all, ended - started)
    };
    Ok(Taken {
        figures: sorted(|sent| &sent.latencies),
        decoded_us: sorted(|sent| &sent.decoded).p50_us,
        bytes: sent.iter().map(|sent| sent.bytes).sum(),
    })
}

fn sending(client: &Client, variant: &Variant, operation: &Operation) -> Result<Sending> {
    Ok(match operation {
        Operation::Update(statement) => Sending::Write(Prepared::of(&Write::update(
            variant.collection,
            vec![statement.clone()],
        ))?),
        Operation::Find(rest, found) => {
            let mut command = doc! { "find": variant.collection };
            command.extend(rest.clone());
            Sending::Read(client.frame(command)?, *found)
        }
    })
}

/// What a connection has sent.
struct Sent {
    started: Instant,
    ended: Instant,
    latencies: Vec<Duration>,
    decoded: Vec<Duration>,
    bytes: usize,
}

fn send(mut client: Client, sendings: &[Sending], next: &AtomicUsize, part: Part) -> Result<Sent> {
    let started = Instant::now();
    let mut sent = Sent {
        started,
        ended: started,
        latencies: Vec::new(),
        decoded: Vec::new(),
        bytes: 0,
    };
    let mut written: Vec<(Request, Reply)> = Vec::new();
    let mut reply = Vec::new();
    while let Some(sending) = sendings.get(next.fetch_add(1, Ordering::Relaxed)) {
        match sending {
            Sending::Write(prepared) => {
                let request = client.number(prepared);
                let mut reply = Reply::default();
                let latency = client.exchange(&request, &mut reply)?;
                sent.latencies.push(latency);
                sent.decoded.push(latency);
                sent.bytes += reply.len();
                written.push((request, reply));
            }
            Sending::Read(request, found) => {
                let begun = Instant::now();
                client.exchange_frames(request, &mut reply)?;
                sent.latencies.push(begun.elapsed());
                sent.bytes += reply.len();
                // What is short is looked at once in a while only: the client is to cost little.
                if part.decodes() || sent.latencies.len() % 100 == 1 {
                    judge(&reply, *found)?;
                }
                sent.decoded.push(begun.elapsed());
            }
        }
    }
    sent.ended = Instant::now();
    written.iter().try_for_each(|(request, reply)| reply.judge(request))?;
    Ok(sent)
}

fn judge(reply: &[u8], expected: usize) -> Result<()> {
    let reply = raw::document(reply)?;
    let found = reply.get_document("cursor")?.get_array("firstBatch")?.len();
    ensure!(found == expected, "found {found} documents, not {expected}");
    Ok(())
}
