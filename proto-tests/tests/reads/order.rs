//! Time order in pages: the time bounds, and the marks on the first and the highest page of a key that say
//! whether its times ascend.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::measure::is_full;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Proxy, Shape, database_name, invariants, mongod};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::proxies::{small_pages, two_proxies};

const COLLECTION: &str = "items";

/// Two proxies, each with its own head page cache, before one replica set.
struct Fixture {
    shape: Shape,
    database: String,
    proxies: [Proxy; 2],
    direct: Connection,
}

impl Fixture {
    fn start() -> Result<Self> {
        let shape = small_pages();
        let database = database_name();
        Ok(Self {
            proxies: two_proxies(&shape, &database, COLLECTION)?,
            direct: Connection::open(mongod::shared_replica_set().address())?,
            shape,
            database,
        })
    }

    fn application(&self, proxy: usize) -> Result<Connection> {
        Connection::open(self.proxies[proxy].address())
    }

    /// Items of the key 1 with these times.
    fn insert(&self, times: &[Bson]) -> Document {
        let items: Vec<Document> = times.iter().map(|time| doc! { "k": 1, "at": time }).collect();
        doc! { "insert": COLLECTION, "documents": items, "$db": &self.database }
    }

    fn store(&self, proxy: usize, times: &[Bson]) -> Result<()> {
        let reply = self.application(proxy)?.command_ok(&self.insert(times))?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(())
    }

    /// The `control` of each page, in order; the layout is checked.
    fn controls(&mut self) -> Result<Vec<Document>> {
        invariants::check(&mut self.direct, &self.database, COLLECTION, &self.shape)?;
        let sort = doc! { "control.page": 1 };
        let find = doc! { "find": COLLECTION, "sort": sort, "$db": &self.database };
        let pages = self.direct.all(&find)?;
        pages
            .iter()
            .map(|page| Ok(page.get_document("control")?.clone()))
            .collect()
    }

    /// The marks of each page, in order.
    fn marks(&mut self) -> Result<Vec<String>> {
        let controls = self.controls()?;
        let marks = controls.iter().map(|control| {
            let marks = ["late", "unordered"]
                .into_iter()
                .filter(|mark| control.contains_key(mark));
            marks.collect::<Vec<_>>().join(" ")
        });
        Ok(marks.collect())
    }
}

fn at(seconds: i64) -> Bson {
    Bson::DateTime(DateTime::from_millis(seconds * 1000))
}

fn ats(seconds: impl IntoIterator<Item = i64>) -> Vec<Bson> {
    seconds.into_iter().map(at).collect()
}

#[test]
fn late_push_marks_the_first_page_and_later_pages() -> Result<()> {
    let mut fixture = Fixture::start()?;
    fixture.store(0, &ats(0..7))?;
    fixture.store(1, &ats([7]))?;
    ensure!(fixture.marks()? == ["", "", ""]);
    // The other has not seen what was stored since.
    fixture.store(0, &ats([3]))?;
    ensure!(fixture.marks()? == ["unordered", "", "late"]);
    fixture.store(1, &ats([8]))?;
    fixture.store(0, &ats(9..12))?;
    ensure!(fixture.marks()? == ["unordered", "", "late", "unordered", "unordered"]);
    fixture.store(1, &ats([1]))?;
    ensure!(fixture.marks()? == ["unordered", "", "late", "unordered", "late unordered"]);
    Ok(())
}

#[test]
fn late_page_marks_the_first_page() -> Result<()> {
    let mut fixture = Fixture::start()?;
    fixture.store(0, &ats(10..13))?;
    fixture.store(1, &ats([5]))?;
    ensure!(fixture.marks()? == ["unordered", "late"]);
    let mut fixture = Fixture::start()?;
    // Of a key that has no page yet.
    fixture.store(0, &ats([1, 2, 3, 4, 5, 6, 2, 7, 8, 9]))?;
    ensure!(fixture.marks()? == ["unordered", "", "late", "unordered"]);
    // A first page that is late has the mark itself.
    let mut fixture = Fixture::start()?;
    fixture.store(0, &ats([1, 2]))?;
    fixture.store(1, &ats([1]))?;
    fixture.store(0, &ats(3..7))?;
    fixture.store(1, &ats([4]))?;
    ensure!(fixture.marks()? == ["late", "unordered", "late unordered"]);
    Ok(())
}

#[test]
fn retryable_inserts_leave_the_same_marks() -> Result<()> {
    let mut fixture = Fixture::start()?;
    for (number, times) in (1_i64..).zip([
        ats(0..4),
        // Late by a push, by a page, and behind.
        ats([2, 5, 6, 7, 8, 4, 9, 10, 11, 12]),
    ]) {
        let mut insert = fixture.insert(&times);
        insert.extend(doc! { "lsid": lsid(&fixture.database), "txnNumber": number });
        for proxy in [0, 1] {
            let reply = fixture.application(proxy)?.command_ok(&insert)?;
            ensure!(usize::try_from(reply.get_i32("n")?)? == times.len(), "{reply}");
        }
    }
    ensure!(fixture.marks()? == ["unordered", "late", "unordered", "late unordered", "unordered"]);
    Ok(())
}

#[test]
fn committed_transaction_leaves_its_marks() -> Result<()> {
    let mut fixture = Fixture::start()?;
    fixture.store(0, &ats(0..4))?;
    for (number, end) in [(1_i64, "abortTransaction"), (2, "commitTransaction")] {
        ensure!(fixture.marks()? == ["", ""]);
        let mut application = fixture.application(0)?;
        for (first, times) in [(true, ats([5, 2])), (false, ats([6, 7]))] {
            let mut insert = fixture.insert(&times);
            insert.extend(doc! { "lsid": lsid(&fixture.database), "txnNumber": number, "autocommit": false });
            insert.extend(first.then(|| ("startTransaction".to_owned(), Bson::Boolean(true))));
            application.command_ok(&insert)?;
            ensure!(fixture.marks()? == ["", ""]);
        }
        let end = doc! {
            end: 1, "lsid": lsid(&fixture.database), "txnNumber": number, "autocommit": false, "$db": "admin",
        };
        application.command_ok(&end)?;
    }
    ensure!(fixture.marks()? == ["unordered", "late", "unordered"]);
    // What an aborted one has marked is not taken for marked.
    let mut fixture = Fixture::start()?;
    fixture.store(0, &ats(0..4))?;
    let mut application = fixture.application(0)?;
    let of_transaction = doc! { "lsid": lsid(&fixture.database), "txnNumber": 1_i64, "autocommit": false };
    let mut insert = fixture.insert(&ats([2]));
    insert.extend(of_transaction.clone());
    insert.insert("startTransaction", true);
    application.command_ok(&insert)?;
    let mut abort = doc! { "abortTransaction": 1, "$db": "admin" };
    abort.extend(of_transaction);
    application.command_ok(&abort)?;
    fixture.store(0, &ats([2]))?;
    ensure!(fixture.marks()? == ["unordered", "late"]);
    Ok(())
}

#[test]
fn page_with_an_undated_item_is_not_excluded_by_time_bounds() -> Result<()> {
    let mut fixture = Fixture::start()?;
    // Begun so, pushed upon so, and each pushed upon with a date then.
    fixture.store(0, &[at(5), at(6), at(7), at(8)])?;
    fixture.store(0, &[Bson::Int32(7)])?;
    fixture.store(1, &[at(9), Bson::Null])?;
    fixture.store(0, &[at(10)])?;
    fixture.store(1, &[at(3), at(11)])?;
    let controls = fixture.controls()?;
    let bounds = controls
        .iter()
        .map(|control| [control.get("from").cloned(), control.get("to").cloned()]);
    let open = [Some(Bson::MinKey), Some(Bson::MaxKey)];
    let dates = |from, to| [Some(at(from)), Some(at(to))];
    ensure!(
        bounds.eq([dates(5, 7), open.clone(), open, dates(11, 11)]),
        "{controls:?}"
    );
    ensure!(fixture.marks()? == ["unordered", "late", "late unordered", "unordered"]);
    let after = |seconds| doc! { "$not": { "$gt": at(seconds) } };
    let before = |seconds| doc! { "$not": { "$lt": at(seconds) } };
    for (path, range, expected) in [
        ("control.from", after(0), [1, 2].as_slice()),
        ("control.to", before(8), &[3, 1, 2]),
        ("control.from", doc! { "$exists": true }, &[1, 2, 0, 3]),
        ("control.to", doc! { "$exists": true }, &[0, 3, 1, 2]),
        // It only compares with what is of its type.
        ("control.to", doc! { "$gte": at(8) }, &[3]),
    ] {
        let index = path.replace("control.", "mongoshape_");
        let find = doc! {
            "find": COLLECTION, "filter": { "k": 1, path: range }, "hint": index,
            "sort": { "k": 1, path: 1, "control.page": 1 }, "$db": &fixture.database,
        };
        let found = fixture.direct.all(&find)?;
        let pages: Vec<i32> = found
            .iter()
            .map(|page| Ok(page.get_document("control")?.get_i32("page")?))
            .collect::<Result<_>>()?;
        ensure!(pages == expected, "{path}: {pages:?}");
    }
    Ok(())
}

/// Twenty pages of almost a mebibyte each: the requested items fit in a reply, their pages do not.
#[test]
fn pages_that_one_reply_does_not_hold_are_all_read() -> Result<()> {
    let mut fixture = Fixture::start()?;
    let text = "x".repeat(320 * 1024);
    // Each page has the next of those before it.
    for page in 0..20_i64 {
        let items = [0, 20, 40].map(|more| doc! { "k": 1, "at": at(page + more), "text": &text });
        let insert = doc! { "insert": COLLECTION, "documents": items.as_slice(), "$db": &fixture.database };
        fixture.application(0)?.command_ok(&insert)?;
    }
    ensure!(fixture.controls()?.len() == 20);
    let mut application = fixture.application(0)?;
    let mut times = |more: Document| -> Result<Vec<Bson>> {
        let mut find = doc! { "find": COLLECTION, "filter": { "k": 1 }, "projection": { "at": 1 } };
        find.extend(more);
        find.insert("$db", &fixture.database);
        let found = application.all(&find)?;
        Ok(found.iter().filter_map(|item| item.get("at").cloned()).collect())
    };
    let sorted = times(doc! { "sort": { "at": 1 }, "limit": 30, "batchSize": 100 })?;
    ensure!(sorted == ats(0..30), "{sorted:?}");
    let inserted = times(doc! { "limit": 58, "batchSize": 100 })?;
    let expected = ats((0..20).flat_map(|page| [page, page + 20, page + 40]))
        .split_at(58)
        .0
        .to_vec();
    ensure!(inserted == expected, "{inserted:?}");
    Ok(())
}

#[test]
fn mark_creates_no_page() -> Result<()> {
    let fixture = Fixture::start()?;
    fixture.store(0, &ats(0..4))?;
    let mut direct = Connection::open(mongod::shared_replica_set().address())?;
    let remove = doc! { "q": { "control.page": 0 }, "limit": 1 };
    direct.command_ok(&doc! { "delete": COLLECTION, "deletes": [remove], "$db": &fixture.database })?;
    let reply = fixture.application(0)?.command_ok(&fixture.insert(&ats([2])))?;
    let errors = reply.get_array("writeErrors").context("nothing failed")?;
    ensure!(reply.get_i32("n")? == 0 && errors.len() == 1, "{reply}");
    let stored = direct.find(&fixture.database, COLLECTION, doc! {})?;
    ensure!(stored.len() == 1 && stored[0].get_i32("count")? == 1, "{stored:?}");
    Ok(())
}

/// Inserts items of some keys at random times.
fn write(mut application: Connection, database: &str, seed: u64) -> Result<()> {
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let inserts = if is_full("MONGOSHAPE_CRASHES") { 150 } else { 60 };
    for number in 0_i64..inserts {
        let items: Vec<Document> = (0..random.random_range(1..6))
            .map(|_| {
                let late = if random.random_bool(0.03) { 1000 } else { 0 };
                // Ten keys of each stretch of the numbers.
                doc! { "k": number / 10 * 10 + random.random_range(0..10), "at": at(number - late) }
            })
            .collect();
        application.command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": database })?;
    }
    Ok(())
}

/// Looks at late pages, and then at the first pages of their keys; how many late ones it saw.
fn watch(database: &str, stop: &AtomicBool) -> Result<usize> {
    let mut direct = Connection::open(mongod::shared_replica_set().address())?;
    let mut seen = 0;
    while !stop.load(Ordering::Relaxed) {
        let late = doc! { "control.late": true, "control.page": { "$gt": 0 } };
        let keys: Vec<Bson> = direct
            .find(database, COLLECTION, late)?
            .iter()
            .filter_map(|page| page.get("k").cloned())
            .collect();
        seen = seen.max(keys.len());
        let silent = doc! {
            "k": { "$in": keys }, "control.page": 0,
            "control.unordered": { "$exists": false }, "control.late": { "$exists": false },
        };
        let silent = direct.find(database, COLLECTION, silent)?;
        ensure!(silent.is_empty(), "{silent:?}");
    }
    Ok(seen)
}

#[test]
fn first_page_is_marked_before_a_late_page_exists() -> Result<()> {
    let mut fixture = Fixture::start()?;
    mongod::create_on_wine(&mut fixture.application(0)?, &fixture.database, COLLECTION)?;
    let stop = AtomicBool::new(false);
    thread::scope(|scope| -> Result<()> {
        let watcher = scope.spawn(|| watch(&fixture.database, &stop));
        let writers: Vec<_> = (0..6_u64)
            .map(|seed| {
                let application = fixture.application(usize::try_from(seed % 2)?)?;
                let database = &fixture.database;
                Ok(scope.spawn(move || write(application, database, seed)))
            })
            .collect::<Result<_>>()?;
        let written: Vec<_> = writers.into_iter().map(thread::ScopedJoinHandle::join).collect();
        stop.store(true, Ordering::Relaxed);
        let seen = watcher.join().expect("the watcher panicked")?;
        for written in written {
            written.expect("a writer panicked")?;
        }
        ensure!(seen > 0, "no page was late");
        Ok(())
    })?;
    fixture.controls()?;
    Ok(())
}
