//! Two proxies, one of which is disturbed.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::books::{BUYERS, Books, COLLECTION};
use proto_tests::cut::{Cut, Moment};
use proto_tests::raw::Connection;
use proto_tests::rest::at_rest;
use proto_tests::sessions::lsid;
use proto_tests::{Level, Proxy, mongod};

use crate::commands::{books, commands};

/// What the values of one run are away from those of the next.
const APART: i64 = 100;

/// What happens to the first attempt.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Disturbance {
    /// It is held up while the second is done, and goes on then, though nobody waits for it any more.
    IsHeldUp,
    /// Its way to mongod breaks.
    Breaks(Moment),
}

pub(crate) struct World {
    pub(crate) books: Books,
    /// Whether the client sends again what was not answered.
    pub(crate) sends_again: bool,
    cut: Arc<Cut>,
    ours: Proxy,
    other: Proxy,
    runs: i64,
}

/// What came of a command.
#[derive(Debug)]
pub(crate) struct Outcome {
    pub(crate) reply: Document,
    pub(crate) there: Vec<Document>,
    pub(crate) is_disturbed: bool,
}

impl World {
    pub(crate) fn new() -> Result<Self> {
        let books = Books::new(5, 4);
        let set = mongod::shared_replica_set();
        let cut = Arc::new(Cut::counting_all(set.address())?);
        let start = |address| books.proxy(&format!("mongodb://{address}/?directConnection=true"));
        let (ours, other) = (start(cut.address())?, start(set.address())?);
        for expected in [
            "the upstream is gone",
            "the upstream's primary",
            "the upstream has no primary",
        ] {
            ours.expect_log(Level::Warn, expected);
        }
        Ok(Self {
            books,
            sends_again: true,
            cut,
            ours,
            other,
            runs: 0,
        })
    }

    /// The books of a run as they are before a command.
    pub(crate) fn before(&mut self) -> Result<Vec<Document>> {
        let base = self.begin()?;
        self.there(base)
    }

    fn begin(&mut self) -> Result<i64> {
        self.runs += 1;
        let base = self.runs * APART;
        let mut other = Connection::open(self.other.address())?;
        other.command_ok(&doc! { "insert": COLLECTION, "documents": books(base), "$db": &self.books.database })?;
        Ok(base)
    }

    fn there(&self, base: i64) -> Result<Vec<Document>> {
        let mut other = Connection::open(self.other.address())?;
        let mut there = other.find(&self.books.database, COLLECTION, doc! { "run": base })?;
        there.sort_by_key(|book| book.get_i64("_id").unwrap_or_default());
        Ok(there.iter().map(|book| relative(book, base)).collect())
    }

    /// Does one command, disturbed at the proxy's command of that number.
    pub(crate) fn run(&mut self, kind: usize, disturbed: Option<(Disturbance, usize)>) -> Result<Outcome> {
        let base = self.begin()?;
        let mut other = Connection::open(self.other.address())?;
        let mut command = commands(base).swap_remove(kind);
        let session = lsid(&format!("{} {base}", self.books.database));
        command.extend(doc! { "lsid": session, "txnNumber": 1_i64, "$db": &self.books.database });
        let (reply, is_disturbed) = match disturbed {
            None => (other.command(&command)?, false),
            Some((Disturbance::IsHeldUp, number)) => self.hold_up(&command, number)?,
            Some((Disturbance::Breaks(moment), number)) => {
                let mut ours = self.connect()?;
                self.cut.arm(moment, number);
                let reply = ours.command(&command);
                let broke = self.cut.disarm();
                match reply {
                    Ok(reply) => (reply, broke),
                    Err(_) if self.sends_again => (other.command(&command)?, broke),
                    Err(_) => (Document::new(), broke),
                }
            }
        };
        Ok(Outcome {
            reply: told(&reply, base),
            there: self.there(base)?,
            is_disturbed,
        })
    }

    fn connect(&self) -> Result<Connection> {
        let mut ours = Connection::open(self.ours.address())?;
        // Whatever a proxy asks first.
        ours.find(&self.books.database, COLLECTION, doc! { "_id": -1 })?;
        Ok(ours)
    }

    fn hold_up(&self, command: &Document, number: usize) -> Result<(Document, bool)> {
        let mut ours = self.connect()?;
        let second = Arc::new(Mutex::new(None));
        let (result, address, sent) = (Arc::clone(&second), self.other.address(), command.clone());
        let held = Arc::new(AtomicBool::new(false));
        let is_held = Arc::clone(&held);
        self.cut.meanwhile(number, move || {
            is_held.store(true, Ordering::Relaxed);
            let reply = Connection::open(address).and_then(|mut other| other.command(&sent));
            *result.lock().unwrap_or_else(PoisonError::into_inner) = Some(reply);
        });
        // Whatever it says, nobody listens.
        let first = ours.command(command);
        let _ = self.cut.disarm();
        let second = second.lock().unwrap_or_else(PoisonError::into_inner).take();
        let reply = match second {
            Some(second) => second.context("the second attempt")?,
            None => first?,
        };
        Ok((reply, held.load(Ordering::Relaxed)))
    }

    /// Pushes to every book of the last run; what is wrong with them then, and what was said.
    pub(crate) fn push_to_all(&mut self) -> Result<(Option<String>, Document)> {
        let base = self.runs * APART;
        let mut other = Connection::open(self.other.address())?;
        let statement = doc! { "q": { "run": base, "title": { "$ne": "nobody" } }, "u": { "$push": { BUYERS: "last" } }, "multi": true };
        let reply =
            other.command_ok(&doc! { "update": COLLECTION, "updates": [statement], "$db": &self.books.database })?;
        let mut direct = Connection::open(mongod::shared_replica_set().address())?;
        let filter = doc! { "run": base, format!("{}.tail.0", proto_tests::books::CONTROL): { "$exists": true } };
        let find = || direct.find(&self.books.database, COLLECTION, filter.clone());
        let tails = at_rest(find, Vec::is_empty)?;
        let books = other.find(&self.books.database, COLLECTION, doc! { "run": base })?;
        for book in &books {
            let last = book.get_array(BUYERS).ok().and_then(|buyers| buyers.last());
            ensure!(
                last == Some(&Bson::String("last".to_owned())),
                "{book} has lost a buyer"
            );
        }
        Ok((tails.first().map(ToString::to_string), reply))
    }

    /// What is wrong with what is stored, but for what crashes may leave.
    pub(crate) fn wrong_layout(&self) -> Result<Vec<String>> {
        let mut direct = Connection::open(mongod::shared_replica_set().address())?;
        Ok(self.books.look(&mut direct)?.wrong)
    }
}

/// A book without what differs from run to run.
fn relative(book: &Document, base: i64) -> Document {
    let fields = book.iter().map(|(name, value)| {
        let value = match value {
            Bson::Int64(number) if ["_id", "run"].contains(&name.as_str()) => Bson::Int64(number - base),
            value => value.clone(),
        };
        (name.clone(), value)
    });
    fields.collect()
}

fn told(reply: &Document, base: i64) -> Document {
    let mut told = Document::new();
    for name in ["ok", "n", "nModified", "code", "errmsg", "writeErrors"] {
        told.extend(reply.get(name).map(|value| (name.to_owned(), value.clone())));
    }
    if let Ok(value) = reply.get_document("value") {
        told.insert("value", relative(value, base));
    }
    told.insert("upserts", reply.contains_key("upserted"));
    told
}
