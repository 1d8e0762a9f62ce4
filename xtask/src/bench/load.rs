//! A load generator with little overhead: a request that is built once, blocking sockets, a thread per
//! connection.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::raw;

use super::statistics;

/// How long a connection runs before it is measured.
pub(super) const WARM_UP: Duration = Duration::from_millis(50);
const MICROSECOND: Duration = Duration::from_micros(1);

/// One measurement.
#[derive(Debug, Clone, Copy)]
pub(super) struct Figures {
    pub(super) per_second: f64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
}

impl Figures {
    /// The median of each figure by itself.
    pub(super) fn median(rounds: &[Self]) -> Self {
        let middle = |figure: fn(&Self) -> f64| statistics::median(rounds.iter().map(figure));
        Self {
            per_second: middle(|f| f.per_second),
            p50_us: middle(|f| f.p50_us),
            p99_us: middle(|f| f.p99_us),
        }
    }
}

/// How many times as much of a figure one variant has as another, in the same rounds.
pub(super) fn ratio(one: &[Figures], other: &[Figures], figure: fn(&Figures) -> f64) -> f64 {
    let of = |rounds: &[Figures]| rounds.iter().map(figure).collect::<Vec<_>>();
    statistics::ratio(&of(one), &of(other))
}

/// Sends `command` again and again over `connections` connections, each waiting for its reply before the
/// next.
pub(super) fn run(address: SocketAddr, command: &Document, connections: usize, length: Duration) -> Result<Figures> {
    let barrier = Barrier::new(connections);
    let measured = thread::scope(|scope| {
        let start = || scope.spawn(|| measure(address, command, length, &barrier));
        let threads: Vec<_> = (0..connections).map(|_| start()).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let mut latencies = measured.concat();
    latencies.sort_unstable();
    Ok(figures(&latencies, length))
}

fn measure(address: SocketAddr, command: &Document, length: Duration, barrier: &Barrier) -> Result<Vec<Duration>> {
    let prepared = prepare(address, command);
    // A failed thread must still reach the barrier, or the others would wait for ever.
    barrier.wait();
    let (mut connection, request) = prepared?;
    let mut frame = Vec::new();
    let mut latencies = Vec::with_capacity(1 << 16);
    let started = Instant::now();
    let mut before = started;
    while before - started < WARM_UP + length {
        connection.send(&request)?;
        connection.read_frame(&mut frame)?;
        let now = Instant::now();
        if before - started >= WARM_UP {
            latencies.push(now - before);
        }
        before = now;
    }
    Ok(latencies)
}

/// A connection that has sent `hello`, as a driver does, and has had a correct reply to the command.
fn prepare(address: SocketAddr, command: &Document) -> Result<(raw::Connection, Vec<u8>)> {
    let mut connection = raw::Connection::open(address)?;
    connection.command_ok(&doc! { "hello": 1, "$db": "admin" })?;
    let reply = connection.command_ok(command)?;
    if command.contains_key("find") {
        let found = reply.get_document("cursor")?.get_array("firstBatch")?;
        ensure!(found.len() == 1, "found {} documents", found.len());
    }
    let request = raw::request(1, command).context("the request")?;
    Ok((connection, request))
}

/// The figures of operations that took so long each, from the least, and `length` together.
#[expect(clippy::cast_precision_loss, reason = "counts of a few seconds are far below 2^52")]
pub(super) fn figures(sorted: &[Duration], length: Duration) -> Figures {
    let percentile = |percent: usize| {
        let at = sorted.len() * percent / 100;
        sorted
            .get(at)
            .map_or(f64::NAN, |taken| taken.div_duration_f64(MICROSECOND))
    };
    Figures {
        per_second: sorted.len() as f64 / length.as_secs_f64(),
        p50_us: percentile(50),
        p99_us: percentile(99),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn shown(
        Figures {
            per_second,
            p50_us,
            p99_us,
        }: Figures,
    ) -> String {
        format!("{per_second} {p50_us} {p99_us}")
    }

    #[test]
    fn figures_are_medians_and_percentiles() {
        let taken: Vec<_> = (1..=1000).map(Duration::from_micros).collect();
        let of_one = figures(&taken, Duration::from_secs(2));
        assert_eq!(shown(of_one), "500 501 991");
        let rounds = [3.0, 1.0, 2.0].map(|per_second| Figures { per_second, ..of_one });
        assert_eq!(shown(Figures::median(&rounds)), "2 501 991");
    }
}
