//! Reads during concurrent writes, their `explain`, and reads compared with a plain collection.

mod comparison;
mod cursors;
mod options;
mod ranges;
mod values;

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::shaped::{COLLECTION, Shaped};

/// How long writers and readers work against each other.
const DURATION: Duration = Duration::from_secs(4);
const BEGIN: i64 = 1_700_000_000_000;

/// One client that appends to the key, and how many of its items are known to be stored. Item `n` of writer
/// `w` has the `_id` `w * 1,000,000 + n`.
struct Writer {
    number: i64,
    stored: AtomicI64,
}

impl Writer {
    /// Inserts items until stopped, a few at a time, each later than the one before it by some of
    /// `steps`.
    fn write(&self, shaped: &Shaped, steps: &[i64], stop: &AtomicBool) -> Result<()> {
        let mut connection = shaped.application()?;
        let mut time = BEGIN;
        let mut next = 0;
        while !stop.load(Ordering::Relaxed) {
            let few = 1 + next % 7;
            let item = |number: i64| {
                time += steps[usize::try_from(number).unwrap_or_default() % steps.len()];
                doc! { "_id": self.number * 1_000_000 + number, "k": 1, "at": DateTime::from_millis(time) }
            };
            let items: Vec<Document> = (next..next + few).map(item).collect();
            connection.command_ok(&shaped.insert(&items))?;
            next += few;
            self.stored.store(next, Ordering::SeqCst);
        }
        Ok(())
    }
}

/// How the key's items are read: by one `find`, or by one for each page.
#[derive(Clone, Debug)]
enum Reading {
    Cursor(Document),
    Pages(Document),
}

impl Reading {
    fn read(&self, connection: &mut Connection, shaped: &Shaped) -> Result<Vec<Document>> {
        let find = |more: &Document| {
            let mut find = doc! { "find": COLLECTION, "$db": &shaped.database };
            find.extend(more.clone());
            find
        };
        match self {
            Self::Cursor(more) => connection.all(&find(more)),
            Self::Pages(more) => {
                let mut items = Vec::new();
                loop {
                    let mut page = find(more);
                    page.insert("skip", i64::try_from(items.len())?);
                    page.insert("limit", 10);
                    let page = connection.all(&page)?;
                    if page.is_empty() {
                        return Ok(items);
                    }
                    items.extend(page);
                }
            }
        }
    }

    fn order(&self) -> i32 {
        let (Self::Cursor(find) | Self::Pages(find)) = self;
        find.get_document("sort")
            .and_then(|sort| sort.get_i32("at"))
            .unwrap_or(0)
    }
}

/// Everything that was stored before is there, nothing twice, and in order.
fn check(items: &[Document], before: &[(i64, i64)], order: i32) -> Result<()> {
    let mut times = BTreeMap::new();
    for item in items {
        let twice = times.insert(item.get_i64("_id")?, item.get_datetime("at")?.timestamp_millis());
        ensure!(twice.is_none(), "{item} came twice");
    }
    for (writer, stored) in before {
        for number in 0..*stored {
            ensure!(
                times.contains_key(&(writer * 1_000_000 + number)),
                "item {number} of writer {writer} is missing"
            );
        }
    }
    let time = |item: &Document| {
        item.get_datetime("at")
            .map(|at| at.timestamp_millis() * i64::from(order))
    };
    for pair in items.windows(2) {
        ensure!(
            time(&pair[0])? <= time(&pair[1])?,
            "{} came before {}",
            pair[0],
            pair[1]
        );
    }
    Ok(())
}

/// Writers whose times go on in these steps, and readers, at once.
fn readers_beside_writers(steps: &[i64], writers: i64, readings: &[Reading]) -> Result<()> {
    let shaped = Shaped::start("time = \"at\"\nmax_items = 4")?;
    let second = shaped.another_proxy("time = \"at\"\nmax_items = 4")?;
    let writers: Vec<Writer> = (0..writers)
        .map(|number| Writer {
            number,
            stored: AtomicI64::new(0),
        })
        .collect();
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let mut writing = Vec::new();
        for writer in &writers {
            let (shaped, stop) = (&shaped, &stop);
            writing.push(scope.spawn(move || writer.write(shaped, steps, stop)));
        }
        let mut reading = Vec::new();
        for (number, form) in readings.iter().enumerate() {
            let (shaped, second, writers) = (&shaped, &second, &writers);
            reading.push(scope.spawn(move || -> Result<()> {
                // Half of the readers through the other proxy, which has written nothing.
                let mut connection = if number % 2 == 0 {
                    shaped.application()?
                } else {
                    Connection::open(second.address())?
                };
                let begun = Instant::now();
                let mut times = 0;
                while begun.elapsed() < DURATION || times < 3 {
                    let before: Vec<(i64, i64)> = writers
                        .iter()
                        .map(|writer| (writer.number, writer.stored.load(Ordering::SeqCst)))
                        .collect();
                    let items = form.read(&mut connection, shaped)?;
                    check(&items, &before, form.order()).with_context(|| format!("{form:?}, {before:?}"))?;
                    times += 1;
                }
                Ok(())
            }));
        }
        let read: Result<Vec<()>> = reading
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .collect();
        stop.store(true, Ordering::Relaxed);
        for thread in writing {
            thread.join().expect("no panic")?;
        }
        read.map(drop)
    })
}

fn cursors() -> Vec<Reading> {
    let filter = doc! { "k": 1 };
    let since = doc! { "k": 1, "at": { "$gte": DateTime::from_millis(BEGIN - 1_000_000_000) } };
    vec![
        Reading::Cursor(doc! { "filter": &filter, "sort": { "at": 1 } }),
        Reading::Cursor(doc! { "filter": &filter, "sort": { "at": -1 }, "batchSize": 7 }),
        Reading::Cursor(doc! { "filter": &filter, "batchSize": 9 }),
        Reading::Cursor(doc! { "filter": &filter, "sort": { "at": 1 }, "limit": 10_000_000, "batchSize": 10_000_000 }),
        Reading::Cursor(doc! { "filter": &filter, "sort": { "at": -1 }, "limit": 10_000_000, "batchSize": 10_000_000 }),
        Reading::Cursor(doc! { "filter": &since, "sort": { "at": 1 }, "batchSize": 100 }),
        Reading::Cursor(doc! { "filter": &since, "sort": { "at": -1 } }),
        Reading::Cursor(doc! { "filter": { "k": { "$in": [0, 1] } } }),
        Reading::Cursor(doc! {}),
    ]
}

#[test]
fn scan_returns_each_item_once_during_appends() -> Result<()> {
    let mut readings = cursors();
    readings.push(Reading::Pages(doc! { "filter": { "k": 1 }, "sort": { "at": 1 } }));
    readings.push(Reading::Pages(doc! { "filter": { "k": 1 } }));
    readers_beside_writers(&[1, 0, 3], 1, &readings)
}

#[test]
fn scan_returns_each_item_once_during_late_inserts() -> Result<()> {
    // Now and then a step back, and two writers whose times have nothing to do with each other.
    readers_beside_writers(&[5, 5, -3, 9, 2, -20, 40, 1, 1, 1, 1], 2, &cursors())
}

#[test]
fn scan_returns_the_first_late_items_of_a_key() -> Result<()> {
    // Many keys that are in order at first. The test is about the first late item.
    let shaped = Shaped::start("time = \"at\"\nmax_items = 3")?;
    let mut application = shaped.application()?;
    let mut reader = shaped.application()?;
    for key in 0..40 {
        let item = |number: i32, at: i64| doc! { "_id": key * 100 + number, "k": key, "at": DateTime::from_millis(BEGIN + at) };
        let items: Vec<Document> = (0..10 + key % 4)
            .map(|number| item(number, i64::from(number) * 10))
            .collect();
        application.command_ok(&shaped.insert(&items))?;
        application.command_ok(&shaped.insert(&[item(50, 35), item(51, 1_000), item(52, 5)]))?;
        for direction in [1, -1] {
            for limit in [0, 1, 2, 5] {
                for skip in [0, 1, 4] {
                    let find = doc! {
                        "find": COLLECTION, "filter": { "k": key }, "sort": { "at": direction }, "skip": skip, "limit": limit,
                        "$db": &shaped.database,
                    };
                    let found: Vec<i64> = reader
                        .all(&find)?
                        .iter()
                        .map(|item| Ok(item.get_datetime("at")?.timestamp_millis() - BEGIN))
                        .collect::<Result<_>>()?;
                    let mut expected: Vec<i64> = (0..10 + key % 4).map(|number| i64::from(number) * 10).collect();
                    expected.extend([35, 1_000, 5]);
                    expected.sort_unstable();
                    if direction < 0 {
                        expected.reverse();
                    }
                    let limit = if limit == 0 {
                        usize::MAX
                    } else {
                        usize::try_from(limit)?
                    };
                    let expected: Vec<i64> = expected.into_iter().skip(usize::try_from(skip)?).take(limit).collect();
                    assert_eq!(found, expected, "{find}");
                }
            }
        }
    }
    Ok(())
}

/// The access path of a command, and its internal command.
fn explained(application: &mut Connection, shaped: &Shaped, command: Document) -> Result<(String, Document)> {
    let explain = doc! { "explain": command, "verbosity": "executionStats", "$db": &shaped.database };
    let reply = application.command_ok(&explain)?;
    ensure!(
        reply.contains_key("queryPlanner") || reply.contains_key("stages"),
        "no explanation of mongod's: {reply}"
    );
    let plan = reply.get_document("mongoshape").with_context(|| format!("{reply}"))?;
    Ok((
        plan.get_str("strategy")?.to_owned(),
        plan.get_document("command")?.clone(),
    ))
}

#[test]
fn explain_names_the_access_path_and_the_stored_command() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"")?;
    let mut application = shaped.application()?;
    let at = |number: i64| DateTime::from_millis(BEGIN + number);
    let items: Vec<Document> = (0..45)
        .map(|number| doc! { "_id": number, "k": 1, "at": at(number.into()) })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    let find = |more: Document| {
        let mut find = doc! { "find": COLLECTION };
        find.extend(more);
        find
    };
    let cases = [
        (
            find(doc! { "filter": { "k": 1 }, "sort": { "at": 1 }, "skip": 20, "limit": 10 }),
            "page",
            "find",
        ),
        (
            find(doc! { "filter": { "k": 1 }, "sort": { "at": -1 }, "limit": 10 }),
            "page",
            "find",
        ),
        (find(doc! { "filter": { "_id": 7 }, "limit": 1 }), "page", "find"),
        (
            find(doc! { "filter": { "k": 1, "at": { "$gt": at(5) } }, "sort": { "at": 1 } }),
            "stream",
            "find",
        ),
        (find(doc! {}), "stream", "find"),
        (find(doc! { "filter": { "x": 1 } }), "pipeline", "aggregate"),
        (doc! { "count": COLLECTION, "query": { "k": 1 } }, "page", "find"),
        (
            doc! { "count": COLLECTION, "query": { "x": 1 } },
            "pipeline",
            "aggregate",
        ),
        (doc! { "distinct": COLLECTION, "key": "x" }, "pipeline", "distinct"),
        (doc! { "distinct": COLLECTION, "key": "k" }, "pipeline", "aggregate"),
        (
            doc! { "aggregate": COLLECTION, "pipeline": [{ "$group": { "_id": "$x" } }], "cursor": {} },
            "pipeline",
            "aggregate",
        ),
    ];
    for (command, strategy, stored) in cases {
        let (found, sent) = explained(&mut application, &shaped, command.clone())?;
        assert_eq!(
            (found.as_str(), sent.keys().next().map(String::as_str)),
            (strategy, Some(stored)),
            "{command}"
        );
    }
    let aggregate = doc! {
        "aggregate": COLLECTION, "pipeline": [{ "$match": { "x": 1 } }], "explain": true, "$db": &shaped.database,
    };
    let plan = application.command_ok(&aggregate)?;
    assert_eq!(plan.get_document("mongoshape")?.get_str("strategy")?, "pipeline");
    for verbosity in ["queryPlanner", "allPlansExecution"] {
        let explain = doc! { "explain": find(doc! {}), "verbosity": verbosity, "$db": &shaped.database };
        application.command_ok(&explain)?;
    }
    let unknown =
        application.command(&doc! { "explain": find(doc! {}), "verbosity": "nope", "$db": &shaped.database })?;
    assert_eq!(unknown.get("ok"), Some(&Bson::Double(0.0)));
    Ok(())
}

/// The options were left out, and a pipeline that is executed as a `find` was explained as a pipeline.
#[test]
fn explain_of_an_aggregate_has_its_options_and_access_path() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"")?;
    let mut application = shaped.application()?;
    let items: Vec<Document> = (0..45)
        .map(|number| doc! { "_id": number, "k": 1, "x": "a", "at": DateTime::from_millis(BEGIN + i64::from(number)) })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    let aggregate = |pipeline: Vec<Document>, more: Document| {
        let mut aggregate = doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} };
        aggregate.extend(more);
        aggregate
    };
    let newest = vec![
        doc! { "$match": { "k": 1 } },
        doc! { "$sort": { "at": -1 } },
        doc! { "$limit": 5 },
    ];
    let (found, sent) = explained(&mut application, &shaped, aggregate(newest, doc! {}))?;
    assert_eq!((found.as_str(), sent.contains_key("find")), ("page", true), "{sent}");
    let count = || {
        vec![
            doc! { "$match": { "$expr": { "$eq": ["$x", "$$x"] } } },
            doc! { "$count": "n" },
        ]
    };
    let options = doc! { "let": { "x": "A" }, "collation": { "locale": "en", "strength": 2 } };
    let (found, sent) = explained(&mut application, &shaped, aggregate(count(), options.clone()))?;
    assert_eq!(found, "pipeline");
    for name in ["let", "collation"] {
        assert_eq!(sent.get(name), options.get(name), "{sent}");
    }
    let mut wrong = options;
    wrong.insert("nope", 1);
    let explain = doc! { "explain": aggregate(count(), wrong), "$db": &shaped.database };
    let reply = application.command(&explain)?;
    assert_eq!(reply.get_i32("code")?, 40415, "{reply}");
    Ok(())
}

/// The strict stable API has not all that queries of the proxy's own use.
#[test]
fn pages_are_read_under_the_strict_stable_api_too() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"\nmax_items = 4")?;
    let mut application = shaped.application()?;
    let items: Vec<Document> = (0..43)
        .map(|number| doc! { "_id": number, "k": 1, "at": DateTime::from_millis(BEGIN + i64::from(number)) })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    for direction in [1, -1] {
        for skip in [0, 3, 21, 42, 50] {
            let find = doc! {
                "find": COLLECTION, "filter": { "k": 1 }, "sort": { "at": direction }, "skip": skip, "limit": 5,
                "apiVersion": "1", "apiStrict": true, "$db": &shaped.database,
            };
            let found = application.all(&find)?;
            let mut expected = items.clone();
            if direction < 0 {
                expected.reverse();
            }
            let expected: Vec<Document> = expected.into_iter().skip(usize::try_from(skip)?).take(5).collect();
            assert_eq!(found, expected, "{find}");
        }
    }
    let namespace = format!("{}.{COLLECTION}", shaped.database);
    let pages = shaped.proxy.metric(&format!(
        "mongoshape_reads_total{{namespace=\"{namespace}\",strategy=\"page\"}}"
    ));
    ensure!(pages > 9.5, "{pages} of 10 as pages");
    Ok(())
}

/// A key's first page is looked up by its cached `_id`. By now that page may be gone, or have another key.
#[test]
fn cached_first_page_is_verified_after_the_collection_changed() -> Result<()> {
    let shaped = Shaped::start("max_items = 4")?;
    let mut application = shaped.application()?;
    let items = |key: i32, first: i32| -> Vec<Document> {
        let keys = [Bson::Int32(key), Bson::Double(key.into())];
        (first..first + 6)
            .map(|id| doc! { "_id": id, "k": &keys[usize::from(id % 2 == 0)] })
            .collect()
    };
    let first = |application: &mut Connection, key: Bson, limit: i32| {
        application.all(&doc! { "find": COLLECTION, "filter": { "k": key }, "limit": limit, "$db": &shaped.database })
    };
    for (round, keys) in [[1, 2], [2, 1], [1, 1]].into_iter().enumerate() {
        let ids = i32::try_from(round)? * 100;
        for (key, ids) in keys.into_iter().zip([ids, ids + 50]) {
            application.command_ok(&shaped.insert(&items(key, ids)))?;
        }
        for _ in 0..3 {
            for (key, ids) in keys.into_iter().zip([ids, ids + 50]).take(2 - round / 2) {
                for limit in [3, 4] {
                    let expected = items(key, ids)
                        .into_iter()
                        .take(usize::try_from(limit)?)
                        .collect::<Vec<_>>();
                    assert_eq!(first(&mut application, key.into(), limit)?, expected);
                    assert_eq!(first(&mut application, f64::from(key).into(), limit)?, expected);
                }
            }
            assert_eq!(first(&mut application, 3.into(), 4)?, Vec::<Document>::new());
        }
        application.command_ok(&doc! { "drop": COLLECTION, "$db": &shaped.database })?;
        assert_eq!(first(&mut application, 1.into(), 4)?, Vec::<Document>::new());
    }
    Ok(())
}
