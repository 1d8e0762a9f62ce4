//! Applications that write, and send again what was not answered until it is.

use std::net::SocketAddr;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use rand::rngs::StdRng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

/// Applications at a time.
const WRITERS: u64 = 8;
/// Keys that they share.
const KEYS: i32 = 20;
/// How long a command is sent again for.
const PATIENCE: Duration = Duration::from_secs(90);
/// How long an answer may take.
const ANSWER_LIMIT: Duration = Duration::from_secs(20);

/// What the writers were told is stored, and how many commands had to be sent again.
#[derive(Debug, Default)]
pub(crate) struct Written {
    /// (collection, number of the item).
    pub(crate) items: Vec<(String, i64)>,
    /// Commands sent more than once.
    pub(crate) resent: u64,
}

/// Who writes where.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Writers<'a> {
    pub(crate) address: SocketAddr,
    pub(crate) database: &'a str,
    pub(crate) collections: &'a [&'a str],
    pub(crate) seed: u64,
}

impl Writers<'_> {
    /// Writes for as long as `disturb` takes, which is told how many commands have been answered.
    pub(crate) fn write_while(self, disturb: impl FnOnce(&AtomicU64) -> Result<()>) -> Result<Written> {
        let (done, answered) = (AtomicBool::new(false), AtomicU64::new(0));
        thread::scope(|scope| {
            let writers: Vec<_> = (0..WRITERS)
                .map(|number| {
                    let (done, answered) = (&done, &answered);
                    scope.spawn(move || self.write(number, done, answered))
                })
                .collect();
            let disturbed = disturb(&answered);
            done.store(true, Ordering::Relaxed);
            let mut written = Written::default();
            for writer in writers {
                let of_writer = writer.join().map_err(|_| anyhow::anyhow!("a writer panicked"))??;
                written.items.extend(of_writer.items);
                written.resent += of_writer.resent;
            }
            disturbed.map(|()| written)
        })
    }

    fn write(self, number: u64, done: &AtomicBool, answered: &AtomicU64) -> Result<Written> {
        let mut random = StdRng::seed_from_u64(self.seed.wrapping_mul(1000) + number);
        let lsid = lsid(&format!("{}{number}", self.database));
        let mut written = Written::default();
        let mut connection = None;
        let mut next = i64::try_from(number)? * 1_000_000_000;
        for transaction in 1_i64.. {
            if done.load(Ordering::Relaxed) {
                break;
            }
            let collection = *self.collections.choose(&mut random).context("no collection")?;
            let count = if random.random_ratio(2, 5) {
                1
            } else {
                random.random_range(2..30)
            };
            let items: Vec<Document> = (next..next + count).map(|item| document(item, &mut random)).collect();
            let command = doc! {
                "insert": collection,
                "documents": &items,
                "ordered": random.random_bool(0.5),
                "lsid": lsid.clone(),
                "txnNumber": transaction,
                "$db": self.database,
            };
            let sent = self.send(&mut connection, &command, count)?;
            written.resent += u64::from(sent > 1);
            written
                .items
                .extend((next..next + count).map(|item| (collection.to_owned(), item)));
            next += count;
            answered.fetch_add(1, Ordering::Relaxed);
        }
        Ok(written)
    }

    /// Sends a command until it is answered with success; how often it was sent.
    fn send(self, connection: &mut Option<Connection>, command: &Document, count: i64) -> Result<u32> {
        let deadline = Instant::now() + PATIENCE;
        for sent in 1.. {
            let answer = open(connection, self.address).and_then(|open| open.command(command));
            match answer {
                Ok(answer) if answer.get_f64("ok")? > 0.0 && !answer.contains_key("writeConcernError") => {
                    ensure!(!answer.contains_key("writeErrors"), "{command} was answered {answer}");
                    ensure!(
                        answer.get_i32("n").is_ok_and(|n| i64::from(n) == count),
                        "{command} was answered {answer}"
                    );
                    return Ok(sent);
                }
                // What a driver sends again.
                Ok(answer) => {
                    let labels = answer.get_array("errorLabels").map(Vec::as_slice).unwrap_or_default();
                    ensure!(
                        labels.iter().any(|label| label.as_str() == Some("RetryableWriteError")),
                        "{command} was answered {answer}"
                    );
                    *connection = None;
                }
                Err(_) => *connection = None,
            }
            ensure!(Instant::now() < deadline, "{command} was not answered in {PATIENCE:?}");
            thread::sleep(Duration::from_millis(20));
        }
        bail!("never sent")
    }
}

fn open(connection: &mut Option<Connection>, address: SocketAddr) -> Result<&mut Connection> {
    if connection.is_none() {
        let opened = Connection::open(address)?;
        opened.stream().set_read_timeout(Some(ANSWER_LIMIT))?;
        *connection = Some(opened);
    }
    connection.as_mut().context("just opened")
}

fn document(number: i64, random: &mut StdRng) -> Document {
    let date = DateTime::from_millis(random.random_range(0..100_000_i64) * 1000);
    doc! { "_id": number, "k": random.random_range(0..KEYS), "n": number, "date": date }
}
