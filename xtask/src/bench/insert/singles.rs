//! One item a command, over one connection and over many at once.

use std::io::Write as _;
use std::net::SocketAddr;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result};

use super::Options;
use crate::bench::client::{Client, Documents, Reply};
use crate::bench::load::{self, Figures};
use crate::bench::place::{self, Place};
use crate::bench::servers::Servers;
use crate::bench::statistics::median;
use crate::bench::table::{Row, print_group, print_heading};
use crate::bench::trades::{Trade, Trades};

/// Customers that trades are spread among.
const KEYS: u32 = 1000;
/// Commands of each connection before the clock starts.
pub(super) const WARM_UP: usize = 3;
/// Commands of each connection at least: of fewer, most would be those with which it begins and ends.
const LEAST: usize = 100;

pub(super) fn run(servers: &mut Servers, options: &Options) -> Result<()> {
    println!(
        "\ninsertOne over {KEYS} keys: operations a second of all connections, latencies, CPU time an operation; µs"
    );
    let ways = servers.ways_with_haproxy();
    print_heading("connections", &["ops/s", "p50", "p99", "mongod", "proxy"], &ways);
    for connections in &options.connections {
        let terms = options.terms(format!("singles_{connections}"), KEYS);
        let mut trades = Trades::new();
        let filling = trades.among(KEYS, options.filling(KEYS));
        let mut places = Vec::new();
        for way in &ways {
            let mut place = Place::make(way.clone(), &terms)?;
            place.fill(&filling).with_context(|| way.name)?;
            places.push(place);
        }
        options.settle(servers)?;
        let mut measured: Vec<_> = places.iter().map(|_| Measured::default()).collect();
        for _ in 0..options.rounds {
            let trades = trades.among(KEYS, options.items.max(connections * LEAST) + connections * WARM_UP);
            for (place, measured) in places.iter_mut().zip(&mut measured) {
                let before = servers.cpu_times(&place.way)?;
                let doors = [place.way.address];
                let figures = measure(place, &trades, (*connections, &doors)).with_context(|| place.way.name)?;
                measured.add(figures, before, servers.cpu_times(&place.way)?, trades.len());
            }
        }
        places.iter().try_for_each(Place::check)?;
        let rows = places.iter().zip(&measured);
        let rows: Vec<_> = rows.map(|(place, measured)| measured.row(place)).collect();
        print_group(&connections.to_string(), &rows);
        std::io::stdout().flush()?;
        place::drop_database(servers.direct(), &terms)?;
    }
    Ok(())
}

/// What was measured of a way.
#[derive(Default)]
struct Measured {
    rounds: Vec<Figures>,
    /// CPU time of mongod and of the proxy for each operation, in microseconds.
    cpu_us: [Vec<f64>; 2],
}

impl Measured {
    fn add(&mut self, figures: Figures, before: [Duration; 2], after: [Duration; 2], operations: usize) {
        self.rounds.push(figures);
        for ((all, before), after) in self.cpu_us.iter_mut().zip(before).zip(after) {
            let used = after.saturating_sub(before);
            all.push(used.as_secs_f64() * 1e6 / place::as_f64(operations));
        }
    }

    fn row(&self, place: &Place) -> Row {
        let Figures {
            per_second,
            p50_us,
            p99_us,
        } = Figures::median(&self.rounds);
        let [mongod, proxy] = [0, 1].map(|of| median(self.cpu_us[of].iter().copied()));
        // A second's share, as times are compared.
        let costs = self.rounds.iter().map(|figures| figures.per_second.recip()).collect();
        Row::of(&place.way, vec![per_second, p50_us, p99_us, mongod, proxy], costs)
    }
}

/// Sends the trades over so many connections, to these addresses in turn, each of which takes the next that there is: so
/// dates ascend, but for those that overtake each other on their way.
pub(super) fn measure(
    place: &mut Place,
    trades: &[Trade],
    (connections, addresses): (usize, &[SocketAddr]),
) -> Result<Figures> {
    let writes = trades.chunks(1).map(|trade| Documents::of(&place.write(trade)));
    let mut writes = writes.collect::<Result<Vec<_>>>()?;
    let warm_up: Vec<_> = writes.drain(..connections * WARM_UP).collect();
    let addresses = addresses.iter().cycle();
    let senders = warm_up.chunks(WARM_UP).zip(addresses);
    let senders = senders.map(|(writes, address)| Sender::prepare(place, *address, writes));
    let senders = senders.collect::<Result<Vec<_>>>()?;
    let barrier = Barrier::new(connections);
    let queue = Queue {
        writes,
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
    place.items += trades.len();
    let started = sent.iter().map(|sent| sent.started).min().context("no connection")?;
    let ended = sent.iter().map(|sent| sent.ended).max().context("no connection")?;
    let mut latencies: Vec<_> = sent.into_iter().flat_map(|sent| sent.latencies).collect();
    latencies.sort_unstable();
    Ok(load::figures(&latencies, ended - started))
}

/// What is to be sent by all connections together.
struct Queue {
    writes: Vec<Documents>,
    next: AtomicUsize,
}

impl Queue {
    fn take(&self) -> Option<&Documents> {
        self.writes.get(self.next.fetch_add(1, Ordering::Relaxed))
    }
}

/// A connection.
struct Sender {
    client: Client,
    body: Vec<u8>,
}

/// What a connection has sent.
struct Sent {
    started: Instant,
    ended: Instant,
    latencies: Vec<Duration>,
}

impl Sender {
    /// Connects, and sends a few before the clock starts.
    fn prepare(place: &Place, address: SocketAddr, writes: &[Documents]) -> Result<Self> {
        let mut client = place.client_at(address)?;
        let mut body = client.body(&place.write(&[]))?;
        for documents in writes {
            let request = client.number(&mut body, documents);
            client.exchange_all(&[request])?;
        }
        Ok(Self { client, body })
    }

    fn run(mut self, barrier: &Barrier, queue: &Queue) -> Result<Sent> {
        let mut exchanged = Vec::new();
        let mut latencies = Vec::new();
        barrier.wait();
        let started = Instant::now();
        while let Some(documents) = queue.take() {
            let request = self.client.number(&mut self.body, documents);
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
