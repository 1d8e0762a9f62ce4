//! Deletes of items, on a plain collection and on a shaped one: the replies, the remaining items, and their
//! pages.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::measure::{fixed_seed, is_full};
use proto_tests::raw::Connection;
use proto_tests::replies::succeeded;
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::sides::{ALL_IDS, COLLECTION, Sides};
use proto_tests::{ItemIds, Shape};
use rand::rngs::ChaCha8Rng;
use rand::seq::IndexedRandom as _;
use rand::{RngExt as _, SeedableRng as _};

fn item(n: i32) -> Document {
    doc! {
        "_id": n, "k": n % 3, "at": DateTime::from_millis(1_700_000_000_000 + i64::from(n) * 1000), "n": n,
        "type": if n % 2 == 0 { "buy" } else { "sell" }, "quantity": n / 4, "name": format!("Name {}", n % 5),
    }
}

/// Forty items of three keys, on pages of four.
fn sides(item_ids: ItemIds) -> Result<Sides> {
    let mut sides = Sides::open(Shape {
        time: Some("at".to_owned()),
        max_items: 4,
        items_change: true,
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        item_ids,
        ..Shape::new(&["k"])
    })?;
    let items: Vec<Document> = (0..40).map(item).collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(sides)
}

fn delete(filter: Document, limit: i32) -> Document {
    doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] }
}

#[test]
fn one_or_all_that_match_are_deleted() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let collation = doc! { "locale": "en", "strength": 2 };
        let commands = [
            delete(doc! { "n": 7 }, 1),
            delete(doc! { "n": 7 }, 1),
            delete(doc! { "n": { "$gte": 30 }, "type": "buy" }, 0),
            delete(doc! { "k": 1, "n": { "$lt": 10 } }, 0),
            delete(doc! { "quantity": 3, "k": 2 }, 0),
            delete(doc! { "$or": [{ "n": 1 }, { "k": 0, "n": 9 }] }, 0),
            delete(doc! { "$expr": { "$eq": ["$n", 12] } }, 0),
            delete(doc! { "$expr": { "$gt": ["$quantity", { "$add": ["$k", 6] }] } }, 0),
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "name": "NAME 3" }, "limit": 0, "collation": collation }] },
            doc! { "delete": COLLECTION, "deletes": [
                { "q": { "n": 15 }, "limit": 1 }, { "q": { "n": { "$in": [16, 17] } }, "limit": 0 }, { "q": { "n": 99 }, "limit": 1 },
            ] },
            doc! { "delete": COLLECTION, "let": { "x": 21 }, "deletes": [
                { "q": { "$expr": { "$eq": ["$n", "$$x"] } }, "limit": 1 },
            ] },
            delete(doc! { "k": 5 }, 0),
            delete(doc! { "k": { "$in": [0, 1] } }, 0),
            delete(doc! {}, 0),
        ];
        for command in &commands {
            sides.alike(command)?;
            sides.check().with_context(|| format!("{command} {item_ids:?}"))?;
        }
        ensure!(sides.buckets()?.is_empty());
    }
    Ok(())
}

#[test]
fn invalid_delete_has_mongods_error() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let commands = [
        delete(doc! { "$foo": 1 }, 1),
        delete(doc! { "n": { "$bar": 1 } }, 0),
        delete(doc! {}, 2),
        doc! { "delete": COLLECTION, "deletes": [{ "q": {} }] },
        doc! { "delete": COLLECTION, "deletes": [] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 3 }, "limit": 1, "hint": "nothing" }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 3 }, "limit": 1 }], "let": { "Limit": 3 } },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 0 }], "let": { "x": { "$foo": 1 } } },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": 3 }, "limit": 0 }], "let": { "x": "$field" } },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 3 }, "remove": true, "let": { "x": "$field" } },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 3 }, "update": [{ "$set": { "m": { "$toInt": "x" } } }] },
        doc! { "delete": COLLECTION, "ordered": true, "deletes": [
            { "q": { "n": 3 }, "limit": 1 }, { "q": { "$foo": 3 }, "limit": 1 }, { "q": { "n": 4 }, "limit": 1 },
        ] },
        doc! { "delete": COLLECTION, "ordered": false, "deletes": [
            { "q": { "n": 5 }, "limit": 1 }, { "q": { "$foo": 3 }, "limit": 1 }, { "q": { "n": 6 }, "limit": 1 },
        ] },
    ];
    for command in &commands {
        let [plain, shaped] = sides.run(command)?;
        let comparable = |reply: &Document| {
            let errors = reply.get_array("writeErrors").cloned().unwrap_or_default();
            let errors = errors.iter().filter_map(Bson::as_document);
            let errors: Vec<_> = errors
                .map(|error| [error.get("index").cloned(), error.get("code").cloned()])
                .collect();
            let fields = ["n", "code", "codeName"].map(|field| reply.get(field).cloned());
            (fields, errors)
        };
        ensure!(
            comparable(&plain) == comparable(&shaped),
            "{command}\n  plain:  {plain}\n  shaped: {shaped}"
        );
    }
    sides.check()
}

/// Items by their `_id`: each page shrinks, and goes with its last item if none is behind it.
#[test]
fn deletes_shrink_and_remove_pages() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let mut numbers: Vec<i32> = (0..40).collect();
    let mut rng = ChaCha8Rng::seed_from_u64(5);
    while let Some(n) = numbers.choose(&mut rng).copied() {
        numbers.retain(|other| *other != n);
        sides.alike(&delete(doc! { "_id": n }, 1))?;
        sides
            .check()
            .with_context(|| format!("without {n}; {numbers:?} left"))?;
        // Some come back.
        if n % 5 == 0 && n < 200 {
            sides.alike(&doc! { "insert": COLLECTION, "documents": [item(100 + n)] })?;
            numbers.push(100 + n);
        }
    }
    ensure!(sides.buckets()?.is_empty());
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..9).map(item).collect::<Vec<_>>() })?;
    sides.check()
}

#[test]
fn delete_of_a_whole_key_removes_its_pages() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    sides.alike(&delete(doc! { "k": 1 }, 0))?;
    let buckets = sides.buckets()?;
    ensure!(buckets.iter().all(|bucket| bucket.get("k") != Some(&Bson::Int32(1))));
    sides.alike(&doc! { "insert": COLLECTION, "documents": [item(1), item(4)] })?;
    sides.check()
}

#[test]
fn a_delete_that_is_sent_again_is_done_once() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let second = sides.another_proxy()?;
        let mut other = Connection::open(second.address())?;
        let session = lsid(&format!("again {item_ids:?}"));
        let database = sides.shaped_database();
        let mut number = 0_i64;
        for filter in [
            doc! { "_id": 3 },
            doc! { "n": 6 },
            doc! { "k": 2, "type": "buy" },
            doc! { "n": 38 },
        ] {
            if item_ids == ItemIds::Dropped && filter.contains_key("_id") {
                continue;
            }
            number += 1;
            let mut command = delete(filter, 1);
            command.extend(doc! { "lsid": &session, "txnNumber": number, "$db": &database });
            let before = sides.items(true)?.len();
            for connection in [&mut sides.shaped, &mut other] {
                let reply = connection.command_ok(&command)?;
                ensure!(reply.get_i32("n")? == 1, "{command}: {reply}");
            }
            ensure!(sides.items(true)?.len() == before - 1, "{command}");
        }
        let plain = sides.plain_database();
        let left: Vec<Bson> = sides
            .items(true)?
            .iter()
            .filter_map(|item| item.get("n").cloned())
            .collect();
        sides.plain.command_ok(&doc! {
            "delete": COLLECTION, "deletes": [{ "q": { "n": { "$nin": left } }, "limit": 0 }], "$db": plain,
        })?;
        sides.check()?;
    }
    Ok(())
}

#[test]
fn aborted_transaction_undoes_deletes() -> Result<()> {
    let mut sides = sides(ItemIds::Unique)?;
    let before = sides.buckets()?;
    let database = sides.shaped_database();
    for commit in [false, true] {
        let end = if commit {
            "commitTransaction"
        } else {
            "abortTransaction"
        };
        let mut transaction = Transaction::new(end, &database);
        let filters = [
            (doc! { "_id": 39 }, 1),
            (doc! { "_id": 36 }, 1),
            (doc! { "k": 1 }, 0),
            (doc! { "n": { "$gt": 30 } }, 0),
        ];
        for (filter, limit) in filters {
            let mut command = delete(filter, limit);
            succeeded(transaction.run(&mut sides.shaped, &command)?)?;
            if commit {
                command.insert("$db", sides.plain_database());
                sides.plain.command_ok(&command)?;
            }
        }
        succeeded(transaction.end(&mut sides.shaped, end)?)?;
        if !commit {
            ensure!(sides.buckets()? == before);
        }
        sides.check()?;
    }
    Ok(())
}

/// Deletes and inserts at random: the seed is in the error.
#[test]
fn random_deletes_equal_a_plain_collection() -> Result<()> {
    let seed = fixed_seed();
    at_random(seed).with_context(|| format!("to see it again: MONGOSHAPE_SEED={seed}"))
}

fn at_random(seed: u64) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    let item_ids = *ALL_IDS.choose(&mut rng).context("some")?;
    let mut sides = sides(item_ids)?;
    let mut next = 40;
    let steps = if is_full("MONGOSHAPE_TABLES") { 250 } else { 80 };
    for step in 0..steps {
        let n = rng.random_range(0..next);
        let command = match rng.random_range(0..10) {
            0..=2 => {
                let many: Vec<Document> = (next..next + rng.random_range(1..9)).map(item).collect();
                next += i32::try_from(many.len())?;
                doc! { "insert": COLLECTION, "documents": many, "ordered": rng.random_bool(0.5) }
            }
            3..=5 if item_ids != ItemIds::Dropped => delete(doc! { "_id": n }, 1),
            6 => delete(doc! { "k": n % 3, "n": { "$gte": n, "$lt": n + 15 } }, 0),
            7 => delete(doc! { "name": format!("Name {}", n % 5), "n": { "$gt": n } }, 0),
            8 if rng.random_bool(0.2) => delete(doc! { "k": n % 3 }, 0),
            _ => delete(doc! { "n": n }, rng.random_range(0..2)),
        };
        sides
            .alike(&command)
            .with_context(|| format!("step {step} {item_ids:?}"))?;
        sides
            .check()
            .with_context(|| format!("step {step} {item_ids:?}: {command}"))?;
    }
    Ok(())
}
