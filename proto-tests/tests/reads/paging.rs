//! Pages before and after a time, ranges, and pages near the ends of a key: the items of a plain collection, in one
//! query.

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};
use rand::rngs::ChaCha8Rng;
use rand::seq::IteratorRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::proxies::small_pages;

const KEYS: i32 = 6;
/// Items of the keys below are never late, and keep their times.
const FIRST_UNORDERED_KEY: i32 = 3;

/// How many times something is done at random.
fn steps() -> usize {
    if is_full("MONGOSHAPE_TABLES") { 1200 } else { 400 }
}

fn at(millis: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + millis)
}

/// Items of random keys, and the two sides that store them. Every item has its own time.
struct Workload {
    sides: Sides,
    /// Connections of writers to two proxies. The first one answers the reads.
    writers: [Connection; 2],
    random: ChaCha8Rng,
    /// The key and the time of each item, by `_id`.
    items: Vec<(i32, i64)>,
    removed: Vec<bool>,
    /// The newest time.
    now: i64,
}

impl Workload {
    fn write(&mut self, command: &Document) -> Result<()> {
        let mut plain = command.clone();
        plain.insert("$db", self.sides.plain_database());
        let mut shaped = command.clone();
        shaped.insert("$db", self.sides.shaped_database());
        let writer = self.random.random_range(0..2);
        for reply in [
            self.sides.plain.command_ok(&plain)?,
            self.writers[writer].command_ok(&shaped)?,
        ] {
            ensure!(!reply.contains_key("writeErrors"), "{reply}");
        }
        Ok(())
    }

    /// Inserts items. Times are multiples of 10 when items are inserted in order; late items have other times.
    fn insert(&mut self, is_late: bool) -> Result<()> {
        let keys = if is_late { FIRST_UNORDERED_KEY..KEYS } else { 0..KEYS };
        let key = self.random.random_range(keys);
        let count = self.random.random_range(1..6);
        let mut items = Vec::new();
        for _ in 0..count {
            let time = if is_late {
                let place = self.random.random_range(0..self.items.len().max(1));
                self.items.get(place).map_or(5, |(_, time)| time - time % 10) + self.random.random_range(1..10)
            } else {
                self.now += 10 * self.random.random_range(1..4);
                self.now
            };
            if self.items.iter().any(|(_, other)| *other == time) {
                continue;
            }
            items.push(doc! { "_id": i32::try_from(self.items.len())?, "k": key, "at": at(time) });
            self.items.push((key, time));
            self.removed.push(false);
        }
        if items.is_empty() {
            return Ok(());
        }
        self.write(&doc! { "insert": COLLECTION, "documents": items })
    }

    fn delete(&mut self) -> Result<()> {
        let from = self.random.random_range(0..self.items.len().max(1));
        let until = (from + self.random.random_range(1..6)).min(self.items.len());
        for removed in self.removed.iter_mut().take(until).skip(from) {
            *removed = true;
        }
        let filter = doc! { "_id": { "$gte": i32::try_from(from)?, "$lt": i32::try_from(until)? } };
        self.write(&doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] })
    }

    /// Deletes a key. New items of it are stored on other pages with the same numbers.
    fn delete_key(&mut self) -> Result<()> {
        let key = self.random.random_range(0..KEYS);
        for ((own, _), removed) in self.items.iter().zip(&mut self.removed) {
            *removed |= *own == key;
        }
        self.write(&doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": key }, "limit": 0 }] })
    }

    fn change_time(&mut self) -> Result<()> {
        let candidates = self.items.iter().zip(&self.removed).enumerate();
        let candidates = candidates.filter(|(_, ((key, _), removed))| *key >= FIRST_UNORDERED_KEY && !**removed);
        let Some(id) = candidates.map(|(id, _)| id).choose(&mut self.random) else {
            return Ok(());
        };
        let time = self.random.random_range(0..self.now.max(1)) / 10 * 10 + self.random.random_range(1..10);
        if self.items.iter().any(|(_, other)| *other == time) {
            return Ok(());
        }
        self.items[id].1 = time;
        let update = doc! { "q": { "_id": i32::try_from(id)? }, "u": { "$set": { "at": at(time) } } };
        self.write(&doc! { "update": COLLECTION, "updates": [update] })
    }

    fn read(&mut self) -> Result<()> {
        let key = self.random.random_range(0..KEYS);
        let times: Vec<i64> = self
            .items
            .iter()
            .filter(|(own, _)| *own == key)
            .map(|(_, time)| *time)
            .collect();
        let place = times.iter().choose(&mut self.random).copied().unwrap_or_default();
        let place = place + self.random.random_range(-1..2) * i64::from(self.random.random_bool(0.3));
        let operator =
            |random: &mut ChaCha8Rng, operators: [&str; 2]| operators[usize::from(random.random_bool(0.5))].to_owned();
        let (newer, older) = (
            operator(&mut self.random, ["$gt", "$gte"]),
            operator(&mut self.random, ["$lt", "$lte"]),
        );
        let length = self.random.random_range(0..400);
        let mut find = doc! { "find": COLLECTION };
        let (range, sort) = match self.random.random_range(0..5) {
            0 => (doc! { newer: at(place) }, 1),
            1 => (doc! { older: at(place) }, -1),
            2 => (doc! { newer: at(place), older: at(place + length) }, 1),
            3 => (doc! { newer: at(place), older: at(place + length) }, -1),
            _ => (doc! {}, if self.random.random_bool(0.5) { 1 } else { -1 }),
        };
        let mut filter = doc! { "k": key };
        if !range.is_empty() {
            filter.insert("at", range);
        }
        find.insert("filter", filter);
        find.insert("sort", doc! { "at": sort });
        if self.random.random_bool(0.7) {
            find.insert("limit", self.random.random_range(1..9));
        }
        if self.random.random_bool(0.3) {
            find.insert("skip", self.random.random_range(1..12));
        }
        if self.random.random_bool(0.2) {
            find.insert("batchSize", self.random.random_range(0..5));
        }
        self.compare(&find)
    }

    fn compare(&mut self, find: &Document) -> Result<()> {
        let mut plain = find.clone();
        plain.insert("$db", self.sides.plain_database());
        let plain = self.sides.plain.all(&plain)?;
        let mut shaped = find.clone();
        shaped.insert("$db", self.sides.shaped_database());
        let shaped = self.sides.shaped.all(&shaped)?;
        ensure!(plain == shaped, "{find}\n  plain:  {plain:?}\n  shaped: {shaped:?}");
        Ok(())
    }
}

#[test]
fn pages_around_a_time_are_those_of_a_plain_collection_while_others_write() -> Result<()> {
    for seed in [1, 2] {
        let sides = if seed == 1 {
            Sides::open(small_pages())?
        } else {
            Sides::on_a_standalone(small_pages())?
        };
        let other = sides.another_proxy()?;
        let writers = [
            Connection::open(sides.proxy.address())?,
            Connection::open(other.address())?,
        ];
        let random = ChaCha8Rng::seed_from_u64(seed);
        let mut workload = Workload {
            sides,
            writers,
            random,
            items: Vec::new(),
            removed: Vec::new(),
            now: 0,
        };
        for step in 0..steps() {
            let executed = match workload.random.random_range(0..100) {
                0..30 => workload.insert(false),
                30..33 => workload.insert(true),
                33..37 => workload.delete(),
                37..38 => workload.change_time(),
                38..39 => workload.delete_key(),
                _ => workload.read(),
            };
            executed.with_context(|| format!("seed {seed}, step {step}"))?;
        }
        let [plain, shaped] = [workload.sides.items(false)?, workload.sides.items(true)?];
        ensure!(plain == shaped, "\n  plain:  {plain:?}\n  shaped: {shaped:?}");
    }
    Ok(())
}

/// The commands that mongod executes on the collection for one of the client's, and the number of items.
fn commands_for(sides: &mut Sides, find: &Document) -> Result<(usize, usize)> {
    let database = sides.shaped_database();
    let profile = |level: i32| doc! { "profile": level, "$db": &database };
    sides.plain.command_ok(&profile(0))?;
    // The first time there is none.
    sides
        .plain
        .command(&doc! { "drop": "system.profile", "$db": &database })?;
    sides.plain.command_ok(&profile(2))?;
    let mut find = find.clone();
    find.insert("$db", &database);
    let reply = sides.shaped.command_ok(&find)?;
    sides.plain.command_ok(&profile(0))?;
    let commands =
        doc! { "find": "system.profile", "filter": { "ns": format!("{database}.{COLLECTION}") }, "$db": &database };
    let items = reply.get_document("cursor")?.get_array("firstBatch")?.len();
    Ok((sides.plain.all(&commands)?.len(), items))
}

#[test]
fn a_page_near_an_end_or_a_time_needs_one_query() -> Result<()> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    let items: Vec<Document> = (0..100_i32)
        .map(|id| doc! { "_id": id, "k": 1, "at": at(i64::from(id) * 10) })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let find = |filter: Document, sort: i32, skip: i32, limit: i32| {
        doc! { "find": COLLECTION, "filter": filter, "sort": { "at": sort }, "skip": skip, "limit": limit }
    };
    let key = || doc! { "k": 1 };
    for (skip, sort) in [(0, 1), (6, 1), (40, 1), (0, -1), (6, -1), (40, -1)] {
        let one_query = commands_for(&mut sides, &find(key(), sort, skip, 6))?;
        ensure!(one_query == (1, 6), "skip {skip} in order {sort}: {one_query:?}");
    }
    // Each page begins behind the last item of the page before. The first page is read in its place.
    for sort in [-1, 1] {
        commands_for(&mut sides, &find(key(), sort, 0, 6))?;
        for page in 1..10_i64 {
            let place = if sort < 0 {
                at(990 - (page * 6 - 1) * 10)
            } else {
                at((page * 6 - 1) * 10)
            };
            let operator = if sort < 0 { "$lt" } else { "$gt" };
            let next = find(doc! { "k": 1, "at": { operator: place } }, sort, 0, 6);
            let one_query = commands_for(&mut sides, &next)?;
            ensure!(one_query == (1, 6), "page {page} in order {sort}: {one_query:?}");
        }
    }
    let range = doc! { "k": 1, "at": { "$gte": at(300), "$lt": at(600) } };
    let find_range = doc! { "find": COLLECTION, "filter": range };
    commands_for(&mut sides, &find_range)?;
    let again = commands_for(&mut sides, &find_range)?;
    ensure!(again == (1, 30), "a range: {again:?}");
    let any = commands_for(
        &mut sides,
        &doc! { "find": COLLECTION, "limit": 1, "singleBatch": true },
    )?;
    ensure!(any == (1, 1), "any item: {any:?}");
    let by_id = commands_for(&mut sides, &doc! { "find": COLLECTION, "filter": { "_id": 50 } })?;
    ensure!(by_id == (1, 1), "one item: {by_id:?}");
    Ok(())
}

/// Another proxy replaces the items of a key, so that pages with the same numbers have other times.
#[test]
fn a_page_whose_times_have_changed_is_not_taken_for_the_cached_one() -> Result<()> {
    for (sort, operator, place, replaced) in [(1, "$gt", 490, 1000..1100), (-1, "$lt", 490, 0..40)] {
        let mut sides = Sides::on_a_standalone(small_pages())?;
        let proxy = sides.another_proxy()?;
        let mut other = Connection::open(proxy.address())?;
        let items = |times: std::ops::Range<i64>| -> Vec<Document> {
            times
                .map(|time| doc! { "_id": time, "k": 1, "at": at(time * 10) })
                .collect()
        };
        sides.alike(&doc! { "insert": COLLECTION, "documents": items(0..100) })?;
        let range = doc! { operator: at(place) };
        let find = doc! { "find": COLLECTION, "filter": { "k": 1, "at": range }, "sort": { "at": sort }, "limit": 6 };
        commands_for(&mut sides, &find)?;
        ensure!(commands_for(&mut sides, &find)? == (1, 6), "the page is not cached");
        for command in [
            doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] },
            doc! { "insert": COLLECTION, "documents": items(replaced) },
        ] {
            let mut plain = command.clone();
            plain.insert("$db", sides.plain_database());
            sides.plain.command_ok(&plain)?;
            let mut shaped = command;
            shaped.insert("$db", sides.shaped_database());
            other.command_ok(&shaped)?;
        }
        let [plain, shaped] = [sides.plain_database(), sides.shaped_database()].map(|database| {
            let mut find = find.clone();
            find.insert("$db", database);
            find
        });
        let (plain, shaped) = (sides.plain.all(&plain)?, sides.shaped.all(&shaped)?);
        ensure!(plain == shaped, "{find}\n  plain:  {plain:?}\n  shaped: {shaped:?}");
    }
    Ok(())
}
