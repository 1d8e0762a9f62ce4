//! Two attempts at one command: the first breaks at each of the proxy's commands in turn, or is held up there while the second,
//! through another proxy, is done, and goes on then, though nobody waits for it any more.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::cut::{Cut, Moment};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Level, Proxy, ProxyOptions, Shape, database_name, invariants, mongod};

const COLLECTION: &str = "items";
/// Commands of the proxy for one of the client's, at most.
const MOST: usize = 40;
/// What the values of one run are away from those of the next.
const APART: i64 = 100;
/// The proxy's code for a `findAndModify` that was done and whose answer is not known any more.
const ILLEGAL_OPERATION: i32 = 20;

/// What happens to the first attempt.
#[derive(Debug, Clone, Copy)]
enum Disturbance {
    IsHeldUp,
    Breaks(Moment),
}

fn at(second: i64) -> DateTime {
    DateTime::from_millis(1_698_335_223_434 + second * 1000)
}

/// Twelve items of one key and one of another.
fn items(base: i64) -> Vec<Document> {
    let item = |number: i64| {
        let key = base + i64::from(number == 12);
        doc! { "_id": base + number, "k": key, "u": base + number, "at": at(number), "run": base, "n": 0 }
    };
    (0..13).map(item).collect()
}

/// Each adds to `n` what must not be added twice.
fn commands(base: i64) -> Vec<Document> {
    let add = doc! { "n": 1 };
    let update = |filter: Document, change: Bson, upsert: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": upsert }] }
    };
    let modify = |fields: Document| {
        let mut command = doc! { "findAndModify": COLLECTION };
        command.extend(fields);
        command
    };
    let moved = doc! { "$inc": &add, "$set": { "k": base + 1 } };
    let later = doc! { "$inc": &add, "$set": { "at": at(40) } };
    let stages = vec![doc! { "$set": { "n": { "$add": ["$n", 1] }, "k": base + 1 } }];
    let (id, u) = (doc! { "_id": base + 4 }, doc! { "u": base + 4 });
    let (new_id, new_u) = (doc! { "_id": base + 50 }, doc! { "u": base + 50 });
    let made = doc! { "$inc": &add, "$setOnInsert": { "k": base, "run": base } };
    let replacement = doc! { "k": base + 1, "u": base + 4, "at": at(4), "run": base, "n": 1 };
    vec![
        update(id.clone(), doc! { "$inc": &add }.into(), false),
        update(u.clone(), doc! { "$inc": &add }.into(), false),
        update(id.clone(), moved.clone().into(), false),
        update(u.clone(), moved.clone().into(), false),
        update(u.clone(), stages.into(), false),
        update(u.clone(), doc! { "$inc": { "k": 1 } }.into(), false),
        update(id.clone(), later.clone().into(), false),
        update(doc! { "u": base + 1 }, later.clone().into(), false),
        update(id.clone(), replacement.into(), false),
        update(new_id, made.clone().into(), true),
        update(new_u.clone(), made.clone().into(), true),
        modify(doc! { "query": &id, "update": &moved }),
        modify(doc! { "query": &u, "update": &moved, "new": true }),
        modify(doc! { "query": &u, "update": &later }),
        modify(doc! { "query": new_u, "update": made, "upsert": true, "new": true }),
        modify(doc! { "query": &id, "remove": true }),
        modify(doc! { "query": { "k": base, "n": 0 }, "remove": true }),
        modify(doc! { "query": { "u": base + 12 }, "remove": true }),
        doc! { "delete": COLLECTION, "deletes": [{ "q": id, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": base, "n": 0 }, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": base + 12 }, "limit": 1 }] },
    ]
}

struct World {
    cut: Arc<Cut>,
    ours: Proxy,
    other: Proxy,
    shape: Shape,
    database: String,
    runs: i64,
}

impl World {
    fn new() -> Result<Self> {
        let shape = Shape {
            time: Some("at".to_owned()),
            items_change: true,
            ..Shape::new(&["k"])
        };
        let set = mongod::shared_replica_set();
        let cut = Arc::new(Cut::counting_all(set.address())?);
        let database = database_name();
        let config = shape.toml(&format!("{database}.{COLLECTION}"));
        let start = |address| {
            let uri = format!("mongodb://{address}/?directConnection=true");
            Proxy::start(&ProxyOptions::new(&uri).config(&config))
        };
        let (ours, other) = (start(cut.address())?, start(set.address())?);
        for expected in [
            "the upstream is gone",
            "the upstream's primary",
            "the upstream has no primary",
        ] {
            ours.expect_log(Level::Warn, expected);
        }
        Ok(Self {
            cut,
            ours,
            other,
            shape,
            database,
            runs: 0,
        })
    }

    /// Does one command, disturbed at the proxy's command of that number; the reply and what is there then, and whether it
    /// was disturbed.
    fn run(&mut self, kind: usize, disturbed: Option<(Disturbance, usize)>) -> Result<(Document, Vec<Document>, bool)> {
        self.runs += 1;
        let base = self.runs * APART;
        let mut other = Connection::open(self.other.address())?;
        other.command_ok(&doc! { "insert": COLLECTION, "documents": items(base), "$db": &self.database })?;
        let mut command = commands(base).swap_remove(kind);
        let session = lsid(&format!("{} {base}", self.database));
        command.extend(doc! { "lsid": session, "txnNumber": 1_i64, "$db": &self.database });
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
                    Err(_) => (other.command(&command)?, broke),
                }
            }
        };
        let mut there = other.find(&self.database, COLLECTION, doc! { "run": base })?;
        there.sort_by_key(|item| item.get_i64("u").unwrap_or_default());
        let there = there.into_iter().map(|item| relative(&item, base)).collect();
        let reply = told(&reply, base);
        Ok((reply, there, is_disturbed))
    }

    fn connect(&self) -> Result<Connection> {
        let mut ours = Connection::open(self.ours.address())?;
        // Whatever a proxy asks first.
        ours.find(&self.database, COLLECTION, doc! { "_id": -1 })?;
        Ok(ours)
    }

    fn hold_up(&self, command: &Document, number: usize) -> Result<(Document, bool)> {
        let mut ours = self.connect()?;
        let second = Arc::new(std::sync::Mutex::new(None));
        let (result, address, sent) = (Arc::clone(&second), self.other.address(), command.clone());
        let held = Arc::new(AtomicBool::new(false));
        let is_held = Arc::clone(&held);
        self.cut.meanwhile(number, move || {
            is_held.store(true, Ordering::Relaxed);
            let reply = Connection::open(address).and_then(|mut other| other.command(&sent));
            *result.lock().expect("nobody panics") = Some(reply);
        });
        // Whatever it says, nobody listens.
        let first = ours.command(command);
        let _ = self.cut.disarm();
        let second = second.lock().expect("nobody panics").take();
        let reply = match second {
            Some(second) => second.context("the second attempt")?,
            None => first?,
        };
        Ok((reply, held.load(Ordering::Relaxed)))
    }
}

/// An item without what differs from run to run.
fn relative(item: &Document, base: i64) -> Document {
    let fields = item.iter().map(|(name, value)| {
        let value = match value {
            Bson::Int64(number) if ["_id", "k", "u", "run"].contains(&name.as_str()) => Bson::Int64(number - base),
            Bson::ObjectId(_) => Bson::Null,
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

/// Disturbs each command at each of the proxy's commands in turn.
fn is_done_once(disturbance: Disturbance) -> Result<()> {
    let mut world = World::new()?;
    let mut wrong = Vec::new();
    for (kind, command) in commands(0).iter().enumerate() {
        let (reply, there, _) = world.run(kind, None)?;
        ensure!(
            reply.get_f64("ok")? > 0.0 && !reply.contains_key("writeErrors"),
            "{reply}"
        );
        for number in 1..=MOST {
            let (said, is_there, is_disturbed) = world.run(kind, Some((disturbance, number)))?;
            let is_forgotten = said.get_i32("code").is_ok_and(|code| code == ILLEGAL_OPERATION);
            let which = format!("{command}, {disturbance:?} {number}");
            if is_there != there {
                wrong.push(format!("{which}:\n  {is_there:?}\n  {there:?}"));
            }
            if said != reply && !is_forgotten {
                wrong.push(format!("{which}:\n  said {said}\n  for  {reply}"));
            }
            if !is_disturbed {
                break;
            }
            ensure!(number < MOST, "{command} takes more than {MOST} commands");
        }
    }
    let mut direct = Connection::open(mongod::shared_replica_set().address())?;
    let found = invariants::violations(&mut direct, &world.database, COLLECTION, &world.shape)?;
    // What an attempt leaves behind that broke.
    wrong.extend(
        found
            .into_iter()
            .filter(|what| !what.contains("the highest page is empty")),
    );
    ensure!(wrong.is_empty(), "{} wrong:\n{}", wrong.len(), wrong.join("\n"));
    Ok(())
}

#[test]
fn an_attempt_that_is_held_up_does_nothing_again() -> Result<()> {
    is_done_once(Disturbance::IsHeldUp)
}

#[test]
fn an_attempt_whose_answers_are_lost_is_taken_up_by_the_next() -> Result<()> {
    is_done_once(Disturbance::Breaks(Moment::After))
}

#[test]
fn an_attempt_that_is_cut_short_is_taken_up_by_the_next() -> Result<()> {
    // Nearly the same as the one before.
    if std::env::var("MONGOSHAPE_CRASHES").as_deref() == Ok("full") {
        is_done_once(Disturbance::Breaks(Moment::Before))?;
    }
    Ok(())
}
