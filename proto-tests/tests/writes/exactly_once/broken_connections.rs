//! The connection to mongod breaks at each internal command in turn. Then the command is resent through
//! another proxy.

use std::collections::BTreeMap;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::breaking_relay::Moment;
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Shape, database_name, invariants, mongod, replies};

use super::two_proxies::TwoProxies;

const COLLECTION: &str = "items";

struct Fixture {
    shape: Shape,
    proxies: TwoProxies,
}

impl Fixture {
    fn new(item_ids: ItemIds) -> Result<Self> {
        let shape = Shape {
            item_ids,
            time: Some("date".to_owned()),
            max_items: 4,
            ..Shape::new(&["k"])
        };
        let proxies = TwoProxies::start(&shape.toml(&format!("*.{COLLECTION}")))?;
        Ok(Self { shape, proxies })
    }
}

/// A command to be cut, what was there before it, and what another client does between its attempts.
struct Case {
    before: Vec<Document>,
    items: Vec<Document>,
    ordered: bool,
    between: Vec<Document>,
}

impl Case {
    /// Items over keys that have no page, one with room and one without; enough of one key for several pages.
    fn plain(ordered: bool) -> Self {
        let keys = [
            "a", "b", "a", "c", "a", "a", "d", "a", "b", "a", "a", "a", "a", "c", "a", "a",
        ];
        Self {
            before: items(1000, &["a", "b", "b", "b", "b"]),
            items: items(0, &keys),
            ordered,
            between: items(2000, &["a", "a", "a", "b", "e"]),
        }
    }

    /// One of the items has an `_id` that is taken.
    fn with_duplicate(ordered: bool, index: usize) -> Self {
        let mut case = Self::plain(ordered);
        let mut taken = case.items[index].clone();
        taken.insert("k", "z");
        case.before.push(taken);
        case
    }
}

fn items(first: i32, keys: &[&str]) -> Vec<Document> {
    let item = |(id, key): (i32, &&str)| {
        let date = bson::DateTime::from_millis(i64::from(id) * 1000);
        doc! { "_id": id, "k": *key, "n": id, "date": date }
    };
    (first..).zip(keys).map(item).collect()
}

fn insert(database: &str, items: &[Document]) -> Document {
    doc! { "insert": COLLECTION, "documents": items, "$db": database }
}

/// The result of the command on a plain collection.
struct Expected {
    reply: Document,
    /// The number of documents for each `n`.
    stored: BTreeMap<i32, usize>,
}

fn expected(case: &Case) -> Result<Expected> {
    let database = database_name();
    let mut mongod = Connection::open(mongod::shared_replica_set().address())?;
    mongod.command_ok(&insert(&database, &case.before))?;
    let mut command = insert(&database, &case.items);
    command.insert("ordered", case.ordered);
    let reply = mongod.command_ok(&command)?;
    mongod.command_ok(&insert(&database, &case.between))?;
    let stored = mongod.find(&database, COLLECTION, doc! {})?;
    Ok(Expected {
        reply: comparable(&reply, &database),
        stored: numbers(&stored)?,
    })
}

/// What matters of a reply.
fn comparable(reply: &Document, database: &str) -> Document {
    replies::comparable(reply, &["n", "writeErrors", "ok"], database)
}

fn numbers(items: &[Document]) -> Result<BTreeMap<i32, usize>> {
    let mut numbers = BTreeMap::new();
    for item in items {
        *numbers.entry(item.get_i32("n")?).or_default() += 1;
    }
    Ok(numbers)
}

/// Cuts the command at the writing command number `at`; whether there was one.
fn cut_at(fixture: &Fixture, case: &Case, expected: &Expected, moment: Moment, at: usize) -> Result<bool> {
    let Expected { reply, stored } = expected;
    let database = database_name();
    let mut other = Connection::open(fixture.proxies.second.address())?;
    other.command_ok(&insert(&database, &case.before))?;
    let mut command = insert(&database, &case.items);
    command.insert("ordered", case.ordered);
    command.insert("lsid", lsid(&database));
    command.insert("txnNumber", 1_i64);
    // Known to the first proxy, so that what is counted is the command's own.
    let mut first = Connection::open(fixture.proxies.first.address())?;
    first.command_ok(&doc! { "find": COLLECTION, "$db": &database })?;
    fixture.proxies.relay.arm(moment, at);
    let answer = first.command(&command);
    let broke = fixture.proxies.relay.disarm();
    ensure!(broke == answer.is_err(), "broke: {broke}, and answered {answer:?}");
    other.command_ok(&insert(&database, &case.between))?;
    for _ in 0..2 {
        let again = other.command_ok(&command)?;
        ensure!(
            comparable(&again, &database) == *reply,
            "replied {again}, undisturbed {reply}"
        );
    }
    let mut mongod = Connection::open(mongod::shared_replica_set().address())?;
    invariants::check(&mut mongod, &database, COLLECTION, &fixture.shape)?;
    let found = numbers(&other.find(&database, COLLECTION, doc! {})?)?;
    ensure!(found == *stored, "stored {found:?}, undisturbed {stored:?}");
    mongod.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;
    Ok(broke)
}

/// Cuts at every writing command that there is, of which there are to be so many at least.
fn cut_everywhere(fixture: &Fixture, name: &str, case: &Case, moment: Moment, least: usize) -> Result<()> {
    let expected = expected(case)?;
    let mut at = 1;
    while cut_at(fixture, case, &expected, moment, at).with_context(|| format!("{name}, command {at}"))? {
        at += 1;
    }
    ensure!(at > least, "{name}: only {at} commands were cut");
    Ok(())
}

/// Whether a run takes the combination of this number. An ordinary run takes every third. Without `_id`s it
/// takes those that the run with stored `_id`s leaves out.
fn is_taken(item_ids: ItemIds, number: usize) -> bool {
    let is_third = number.is_multiple_of(3);
    is_full("MONGOSHAPE_CRASHES") || is_third != (item_ids == ItemIds::Dropped)
}

fn check(item_ids: ItemIds) -> Result<()> {
    let fixture = Fixture::new(item_ids)?;
    let duplicates: &[Option<usize>] = if item_ids == ItemIds::Unique {
        &[None, Some(0), Some(5), Some(15)]
    } else {
        &[None]
    };
    let mut numbers = 0..;
    for ordered in [true, false] {
        for duplicate in duplicates {
            for moment in [Moment::Before, Moment::After] {
                if !numbers.next().is_some_and(|number| is_taken(item_ids, number)) {
                    continue;
                }
                let name = format!("{item_ids:?}, ordered: {ordered}, duplicate at {duplicate:?}, {moment:?}");
                // Of an ordered command whose first item is taken nothing is written.
                let (case, least) = match duplicate {
                    Some(index) => (Case::with_duplicate(ordered, *index), 0),
                    None => (Case::plain(ordered), 3),
                };
                cut_everywhere(&fixture, &name, &case, moment, least)?;
            }
        }
    }
    Ok(())
}

#[test]
fn unique_items_are_stored_once_after_any_connection_failure() -> Result<()> {
    check(ItemIds::Unique)
}

#[test]
fn items_with_stored_ids_are_stored_once_after_any_connection_failure() -> Result<()> {
    check(ItemIds::Stored)
}

#[test]
fn items_without_ids_are_stored_once_after_any_connection_failure() -> Result<()> {
    check(ItemIds::Dropped)
}
