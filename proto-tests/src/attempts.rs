//! Two attempts at one command. The first attempt is disturbed at one of the proxy's internal commands. The
//! second attempt is sent through another proxy.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};

use crate::breaking_relay::{BreakingRelay, Moment};
use crate::crash::expect_cuts;
use crate::measure::is_full;
use crate::raw::Connection;
use crate::sessions::lsid;
use crate::{Proxy, mongod};

/// The distance between the values of one run and those of the next.
const APART: i64 = 100;
/// The proxy's code for a `findAndModify` that was executed and whose reply is lost.
const ILLEGAL_OPERATION: i32 = 20;

/// What happens to the first attempt.
#[derive(Debug, Clone, Copy)]
pub enum Disturbance {
    /// It is delayed until the second has completed, and continues then, although no client waits for it.
    IsHeldUp,
    /// Its connection to mongod breaks.
    Breaks(Moment),
}

/// The numbers of the proxy's commands that a test disturbs, up to `most`: every `step`th, or all with
/// `MONGOSHAPE_CRASHES=full`. The first one depends on `place`, so that tests of several places together disturb
/// every command.
pub fn disturbed(place: usize, step: usize, most: usize) -> impl Iterator<Item = usize> {
    let step = if is_full("MONGOSHAPE_CRASHES") { 1 } else { step };
    (1 + place % step..=most).step_by(step)
}

/// The documents and commands of a test.
#[derive(Debug, Clone, Copy)]
pub struct Subject {
    /// The collection. Its documents have the number of their run as `run`.
    pub collection: &'static str,
    /// The documents of a run, before its command.
    pub documents: fn(i64) -> Vec<Document>,
    /// The commands. Each run sends one of them.
    pub commands: fn(i64) -> Vec<Document>,
    /// The fields that count from the run's number on.
    pub numbers: &'static [&'static str],
    /// The one of these that documents are compared in the order of.
    pub order: &'static str,
}

/// Two proxies before a replica set. The connections of the first one can be interrupted.
#[derive(Debug)]
pub struct Attempts {
    /// Whether the client resends a command without a reply.
    pub sends_again: bool,
    /// Whether the reply to an attempt that was held up is compared, too.
    pub compares_delayed: bool,
    subject: Subject,
    database: String,
    relay: Arc<BreakingRelay>,
    ours: Proxy,
    other: Proxy,
    runs: i64,
}

/// The outcome of a command.
#[derive(Debug)]
pub struct Outcome {
    /// The reply without values that differ from run to run.
    pub reply: Document,
    /// The same of the attempt that was held up, if it is compared.
    pub delayed: Option<Document>,
    /// The documents after the command.
    pub there: Vec<Document>,
    /// Whether the command had so many internal commands that one was disturbed.
    pub is_disturbed: bool,
}

/// The replies to two attempts at a command. The first attempt was held up.
struct HeldUp {
    /// The reply to the attempt that completed first.
    reply: Document,
    /// The reply to the attempt that was held up, if it is compared.
    delayed: Option<Document>,
    /// Whether the first attempt was held up.
    is_held: bool,
}

impl Attempts {
    /// Of commands on this database, through proxies that `start` starts before the server of a URI.
    pub fn new(subject: Subject, database: &str, start: impl Fn(&str) -> Result<Proxy>) -> Result<Self> {
        let set = mongod::shared_replica_set();
        let relay = Arc::new(BreakingRelay::counting_all(set.address())?);
        let start = |address| start(&format!("mongodb://{address}/?directConnection=true"));
        let (ours, other) = (start(relay.address())?, start(set.address())?);
        expect_cuts(&ours);
        Ok(Self {
            sends_again: true,
            compares_delayed: false,
            subject,
            database: database.to_owned(),
            relay,
            ours,
            other,
            runs: 0,
        })
    }

    /// The number of the last run.
    #[must_use]
    pub fn base(&self) -> i64 {
        self.runs * APART
    }

    /// A connection to the undisturbed proxy.
    pub fn other(&self) -> Result<Connection> {
        Connection::open(self.other.address())
    }

    /// The documents of a run as they are before a command.
    pub fn before(&mut self) -> Result<Vec<Document>> {
        self.begin()?;
        self.there()
    }

    fn begin(&mut self) -> Result<()> {
        self.runs += 1;
        let documents = (self.subject.documents)(self.base());
        let insert = doc! { "insert": self.subject.collection, "documents": documents, "$db": &self.database };
        self.other()?.command_ok(&insert).map(|_| ())
    }

    fn there(&self) -> Result<Vec<Document>> {
        let base = self.base();
        let mut there = self
            .other()?
            .find(&self.database, self.subject.collection, doc! { "run": base })?;
        there.sort_by_key(|document| document.get_i64(self.subject.order).unwrap_or_default());
        Ok(there.iter().map(|document| self.relative(document)).collect())
    }

    /// Executes the command of that kind, disturbed at the internal command of that number.
    pub fn run(&mut self, kind: usize, disturbed: Option<(Disturbance, usize)>) -> Result<Outcome> {
        self.begin()?;
        let mut other = self.other()?;
        let mut command = (self.subject.commands)(self.base()).swap_remove(kind);
        let session = lsid(&format!("{} {}", self.database, self.base()));
        command.extend(doc! { "lsid": session, "txnNumber": 1_i64, "$db": &self.database });
        let mut delayed = None;
        let (reply, is_disturbed) = match disturbed {
            None => (other.command(&command)?, false),
            Some((Disturbance::IsHeldUp, number)) => {
                let held_up = self.hold_up(&command, number)?;
                delayed = held_up.delayed;
                (held_up.reply, held_up.is_held)
            }
            Some((Disturbance::Breaks(moment), number)) => {
                let mut ours = self.connect()?;
                self.relay.arm(moment, number);
                let reply = ours.command(&command);
                let broke = self.relay.disarm();
                match reply {
                    Ok(reply) => (reply, broke),
                    Err(_) if self.sends_again => (other.command(&command)?, broke),
                    Err(_) => (Document::new(), broke),
                }
            }
        };
        Ok(Outcome {
            reply: self.comparable(&reply),
            delayed: delayed.map(|reply| self.comparable(&reply)),
            there: self.there()?,
            is_disturbed,
        })
    }

    fn connect(&self) -> Result<Connection> {
        let mut ours = Connection::open(self.ours.address())?;
        // The proxy's first commands on a collection are sent now, and not counted.
        ours.find(&self.database, self.subject.collection, doc! { "_id": -1 })?;
        Ok(ours)
    }

    fn hold_up(&self, command: &Document, number: usize) -> Result<HeldUp> {
        let mut ours = self.connect()?;
        let second = Arc::new(Mutex::new(None));
        let (result, address, sent) = (Arc::clone(&second), self.other.address(), command.clone());
        let held = Arc::new(AtomicBool::new(false));
        let is_held = Arc::clone(&held);
        self.relay.meanwhile(number, move || {
            is_held.store(true, Ordering::Relaxed);
            let reply = Connection::open(address).and_then(|mut other| other.command(&sent));
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
        });
        let first = ours.command(command);
        let _ = self.relay.disarm();
        let second = second.lock().unwrap_or_else(PoisonError::into_inner).take();
        let (reply, delayed) = match second {
            Some(second) => (
                second.context("the second attempt")?,
                self.compares_delayed.then_some(first).transpose()?,
            ),
            None => (first?, None),
        };
        Ok(HeldUp {
            reply,
            delayed,
            is_held: held.load(Ordering::Relaxed),
        })
    }

    /// Sends a command of each kind, cuts it at the internal commands that `numbers` names, and sends it again. Returns
    /// the commands whose effect is not that of one execution.
    pub fn done_otherwise<N>(&mut self, disturbance: Disturbance, numbers: impl Fn(usize) -> N) -> Result<Vec<String>>
    where
        N: Iterator<Item = usize>,
    {
        let mut wrong = Vec::new();
        for (kind, command) in (self.subject.commands)(0).iter().enumerate() {
            let undisturbed = self.run(kind, None)?;
            let reply = &undisturbed.reply;
            ensure!(
                reply.get_f64("ok").is_ok_and(|ok| ok > 0.0) && !reply.contains_key("writeErrors"),
                "{command}: {reply}"
            );
            let mut is_over = false;
            for number in numbers(kind) {
                let outcome = self.run(kind, Some((disturbance, number)))?;
                let which = format!("{command}, {disturbance:?} {number}");
                if outcome.there != undisturbed.there {
                    wrong.push(format!("{which}:\n  {:?}\n  {:?}", outcome.there, undisturbed.there));
                }
                for other in [Some(&outcome.reply), outcome.delayed.as_ref()].into_iter().flatten() {
                    if other != reply && !is_forgotten(other) {
                        wrong.push(format!("{which}:\n  reply    {other}\n  expected {reply}"));
                    }
                }
                if !outcome.is_disturbed {
                    is_over = true;
                    break;
                }
            }
            ensure!(is_over, "{command} takes more commands than that");
        }
        Ok(wrong)
    }

    /// A document without fields that differ between runs.
    fn relative(&self, document: &Document) -> Document {
        let base = self.base();
        let fields = document.iter().map(|(name, value)| {
            let value = match value {
                Bson::Int64(number) if self.subject.numbers.contains(&name.as_str()) => Bson::Int64(number - base),
                Bson::ObjectId(_) => Bson::Null,
                value => value.clone(),
            };
            (name.clone(), value)
        });
        fields.collect()
    }

    fn comparable(&self, reply: &Document) -> Document {
        let mut fields = Document::new();
        for name in ["ok", "n", "nModified", "code", "errmsg", "writeErrors"] {
            fields.extend(reply.get(name).map(|value| (name.to_owned(), value.clone())));
        }
        if let Ok(value) = reply.get_document("value") {
            fields.insert("value", self.relative(value));
        }
        fields.insert("upserts", reply.contains_key("upserted"));
        fields
    }
}

/// Whether a `findAndModify` was executed and its reply is lost.
fn is_forgotten(reply: &Document) -> bool {
    reply.get_i32("code").is_ok_and(|code| code == ILLEGAL_OPERATION)
}
