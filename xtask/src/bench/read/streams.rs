//! Many slow clients that read very many items: the memory of the proxy.

use std::io::Write as _;
use std::sync::Barrier;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::doc;
use proto_tests::ItemIds;

use super::data::LARGEST;
use super::reader::Reader;
use super::{Loaded, Options};
use crate::bench::model::Model;
use crate::bench::place::Place;
use crate::bench::process::resident_kilobytes;
use crate::bench::servers::Servers;
use crate::bench::trades::KEY;

/// Documents in a first batch by default (`query.h`, `kDefaultBatchSize`).
const FIRST_BATCH: usize = 101;
/// The default size of a `getMore` batch: the maximum size of a document.
const BATCH_BYTES: usize = 16 << 20;
/// Between two looks at the proxy's memory.
const LOOK: Duration = Duration::from_millis(50);
/// Between two lines.
const LINE: Duration = Duration::from_secs(2);

/// Counts the operations of all clients.
#[derive(Debug, Default)]
struct Progress {
    items: AtomicUsize,
    open: AtomicUsize,
    ended: AtomicUsize,
}

/// When clients send `getMore`.
#[derive(Debug, Clone, Copy)]
struct Timetable {
    clients: usize,
    /// Of each client.
    pause: Duration,
}

impl Timetable {
    /// All cursors stay open for so long, if the proxy keeps up: only the last `getMore`s come after it.
    fn new(place: &Place, loaded: &Loaded, options: &Options) -> Result<Self> {
        let bytes = loaded.data.sample.document().to_vec()?.len();
        let batches = loaded
            .data
            .largest
            .saturating_sub(FIRST_BATCH)
            .div_ceil(BATCH_BYTES / bytes);
        let pauses = u32::try_from(batches.saturating_sub(1).max(1)).context("batches")?;
        println!(
            "{} clients, each reading {} items of {bytes} bytes through {}, by default batches, for {} s",
            options.clients, loaded.data.largest, place.variant.name, options.seconds
        );
        Ok(Self {
            clients: options.clients,
            pause: Duration::from_secs_f64(options.seconds) / pauses,
        })
    }

    /// How long after the start a client requests the batch of this number, from 1: they do so one after the
    /// other.
    fn due(&self, client: usize, batch: u32) -> Duration {
        let turn = u32::try_from(client).unwrap_or_default();
        let of = u32::try_from(self.clients).unwrap_or(u32::MAX);
        self.pause * batch + self.pause * turn / of
    }
}

pub(super) fn run(servers: &Servers, loaded: &Loaded, options: &Options) -> Result<()> {
    println!("\nclients that read a whole key slowly, in the order of insertion: resident memory of the proxy");
    let mut places = loaded.places.iter();
    let place = places.find(|place| place.variant.model == Model::Shaped(ItemIds::Stored));
    let place = place.context("no mongoshape")?;
    let process = servers.mongoshape(&place.variant).context("no proxy")?;
    let timetable = Timetable::new(place, loaded, options)?;
    let command = doc! { "find": place.variant.collection, "filter": { KEY: LARGEST } };
    let readers = (0..timetable.clients).map(|_| Reader::open(place, command.clone()));
    let readers = readers.collect::<Result<Vec<_>>>()?;
    let before = resident_kilobytes(process)?;
    let progress = Progress::default();
    let barrier = Barrier::new(timetable.clients);
    let (most, read) = thread::scope(|scope| {
        let start = |(client, reader)| {
            let (progress, barrier) = (&progress, &barrier);
            scope.spawn(move || {
                let read = drain(reader, client, (timetable, barrier, progress));
                progress.ended.fetch_add(1, Ordering::Relaxed);
                read
            })
        };
        let threads: Vec<_> = readers.into_iter().enumerate().map(start).collect();
        let most = watch(process, &progress, timetable.clients);
        let read = threads.into_iter().map(|thread| thread.join().expect("no panic"));
        (most, read.collect::<Result<Vec<usize>>>())
    });
    let (most, read) = (most?, read?);
    let expected = loaded.data.largest;
    ensure!(
        read.iter().all(|items| *items == expected),
        "not {expected} items each: {read:?}"
    );
    println!(
        "at most {} MB, {} MB before, while {} items passed",
        megabytes(most),
        megabytes(before),
        read.iter().sum::<usize>()
    );
    Ok(())
}

/// Reads to the end: how many items there were.
fn drain(
    mut reader: Reader,
    client: usize,
    (timetable, barrier, progress): (Timetable, &Barrier, &Progress),
) -> Result<usize> {
    let begun = reader.begin();
    // A failed thread must still reach the barrier, or the others would wait for ever.
    barrier.wait();
    let started = Instant::now();
    let (mut cursor, mut items) = begun?;
    progress.items.fetch_add(items, Ordering::Relaxed);
    progress.open.fetch_add(1, Ordering::Relaxed);
    for batch in 1.. {
        if cursor == 0 {
            break;
        }
        thread::sleep(timetable.due(client, batch).saturating_sub(started.elapsed()));
        let (next, more) = reader.next(cursor)?;
        cursor = next;
        items += more;
        progress.items.fetch_add(more, Ordering::Relaxed);
    }
    progress.open.fetch_sub(1, Ordering::Relaxed);
    Ok(items)
}

/// Looks at the proxy's memory until all clients have ended: the most that there was, in kB.
fn watch(process: u32, progress: &Progress, clients: usize) -> Result<u64> {
    println!("  seconds  open cursors  items passed  resident MB");
    let started = Instant::now();
    let (mut most, mut line) = (0, Duration::ZERO);
    while progress.ended.load(Ordering::Relaxed) < clients {
        let resident = resident_kilobytes(process)?;
        most = most.max(resident);
        if started.elapsed() >= line {
            println!(
                "{:>9.0}{:>14}{:>14}{:>13}",
                started.elapsed().as_secs_f64(),
                progress.open.load(Ordering::Relaxed),
                progress.items.load(Ordering::Relaxed),
                megabytes(resident)
            );
            std::io::stdout().flush()?;
            line += LINE;
        }
        thread::sleep(LOOK);
    }
    Ok(most)
}

#[expect(clippy::cast_precision_loss, reason = "kilobytes are far below 2^52")]
fn megabytes(kilobytes: u64) -> String {
    format!("{:.1}", kilobytes as f64 / 1024.0)
}
