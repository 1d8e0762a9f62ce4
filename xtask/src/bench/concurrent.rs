//! Many connections that share a sequence of commands: each takes the next one.

use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::client::{Client, Prepared, Reply};
use super::load::{self, Figures};
use super::place::Place;

/// Commands of each connection before the clock starts.
const WARM_UP: usize = 3;
/// Commands of each connection at least: of fewer, most would be those with which it begins and ends.
const LEAST: usize = 100;

/// How many commands to send for so many to be measured.
pub(super) fn commands(measured: usize, connections: usize) -> usize {
    measured.max(connections * LEAST) + connections * WARM_UP
}

/// Sends commands over so many connections, to these addresses in turn. [`commands`] computes how
/// many commands are needed.
pub(super) fn measure(
    place: &Place,
    mut commands: Vec<Prepared>,
    (connections, addresses): (usize, &[SocketAddr]),
) -> Result<Figures> {
    let warm_up: Vec<_> = commands.drain(..connections * WARM_UP).collect();
    let senders = warm_up.chunks(WARM_UP).zip(addresses.iter().cycle());
    let senders = senders.map(|(commands, address)| Sender::prepare(place, *address, commands));
    let senders = senders.collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(connections);
    let queue = Queue {
        commands,
        next: AtomicUsize::new(0),
    };
    let sent = thread::scope(|scope| {
        let start = |sender: Sender| scope.spawn(|| sender.run(&barrier, &queue));
        let threads: Vec<_> = senders.into_iter().map(start).collect();
        threads
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect::<Result<Vec<_>>>()
    })?;
    let started = sent.iter().map(|sent| sent.started).min().context("no connection")?;
    let ended = sent.iter().map(|sent| sent.ended).max().context("no connection")?;
    let mut latencies: Vec<_> = sent.into_iter().flat_map(|sent| sent.latencies).collect();
    latencies.sort_unstable();
    Ok(load::figures(&latencies, ended - started))
}

/// What is to be sent by all connections together.
struct Queue {
    commands: Vec<Prepared>,
    next: AtomicUsize,
}

impl Queue {
    fn take(&self) -> Option<&Prepared> {
        self.commands.get(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// A connection.
struct Sender {
    client: Client,
}

/// What a connection has sent.
struct Sent {
    started: Instant,
    ended: Instant,
    latencies: Vec<Duration>,
}

impl Sender {
    /// Connects, and sends a few before the clock starts.
    fn prepare(place: &Place, address: SocketAddr, commands: &[Prepared]) -> Result<Self> {
        let mut client = place.client_at(address)?;
        for command in commands {
            let request = client.number(command);
            client.exchange_all(&[request])?;
        }
        Ok(Self { client })
    }

    fn run(mut self, barrier: &Barrier, queue: &Queue) -> Result<Sent> {
        let mut exchanged = Vec::new();
        let mut latencies = Vec::new();
        barrier.wait();
        let started = Instant::now();
        while let Some(command) = queue.take() {
            let request = self.client.number(command);
            let mut reply = Reply::default();
            let latency = self.client.exchange(&request, &mut reply)?;
            latencies.push(latency);
            exchanged.push((request, reply));
        }
        let ended = Instant::now();
        exchanged.iter().try_for_each(|(request, reply)| reply.judge(request))?;
        Ok(Sent {
            started,
            ended,
            latencies,
        })
    }
}
