//! The same changes on a plain collection and on a shaped one.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::ItemIds;
use proto_tests::measure::{fixed_seed, rows};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

use crate::time_changes::fixture::{ALL_IDS, COLLECTION, Sides, at, item, set_time, shape};

fn sides(item_ids: ItemIds) -> Result<Sides> {
    let mut sides = Sides::on_a_standalone(shape(item_ids))?;
    for k in 0..2 {
        let items: Vec<Document> = (0..22).map(|n| item(k, n)).collect();
        sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    }
    Ok(sides)
}

/// Reads by time from either end and from within, and in the order of insertion.
fn reads(k: i32) -> Vec<Document> {
    let projection = doc! { "_id": 0, "n": 1, "at": 1 };
    let find = |filter: Document, more: Document| {
        let mut find = doc! { "find": COLLECTION, "filter": filter, "projection": projection.clone() };
        find.extend(more);
        find
    };
    let dated = |range: Document| doc! { "k": k, "at": range };
    let mut reads = vec![find(doc! { "k": k }, doc! {})];
    for direction in [1, -1] {
        for (skip, limit) in [(0, 5), (0, 50), (3, 6), (9, 4), (15, 30)] {
            let more = doc! { "sort": { "at": direction }, "skip": skip, "limit": limit };
            reads.push(find(doc! { "k": k }, more.clone()));
            reads.push(find(dated(doc! { "$gte": at(4_500), "$lt": at(13_700) }), more.clone()));
            reads.push(find(dated(doc! { "$gt": at(9_000) }), more.clone()));
            reads.push(find(dated(doc! { "$lte": at(9_000) }), more));
        }
        reads.push(find(
            dated(doc! { "$type": "date" }),
            doc! { "sort": { "at": direction } },
        ));
    }
    reads
}

/// An ordinary run sends every fifth of the reads. `number` of the check: five checks in a row have all
/// reads.
fn check(sides: &mut Sides, number: usize) -> Result<()> {
    for k in 0..2 {
        for mut read in rows(reads(k), 5, number) {
            let mut found = Vec::new();
            for (connection, database) in [(0, sides.plain_database()), (1, sides.shaped_database())] {
                read.insert("$db", database);
                let connection = if connection == 0 {
                    &mut sides.plain
                } else {
                    &mut sides.shaped
                };
                found.push(connection.all(&read)?);
            }
            ensure!(
                found[0] == found[1],
                "{read}\n  plain:  {:?}\n  shaped: {:?}",
                found[0],
                found[1]
            );
        }
    }
    sides.check()
}

#[test]
fn time_change_equals_a_plain_collection() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let changes: Vec<(i32, Bson)> = vec![
            // To the end, to the front, and elsewhere; back; on the first page, and on the last; the same
            // again.
            (9, at(90_000).into()),
            (10, at(-5_000).into()),
            (13, at(2_500).into()),
            (9, at(9_000).into()),
            (0, at(17_100).into()),
            (21, at(6_600).into()),
            (21, at(70_000).into()),
            (13, at(2_500).into()),
        ];
        for (number, (n, time)) in changes.into_iter().enumerate() {
            for k in 0..2 {
                let change = doc! { "$set": { "at": &time }, "$inc": { "n": 100 * k } };
                let update = doc! { "update": COLLECTION, "updates": [{ "q": { "k": k, "n": n }, "u": change }] };
                sides.alike(&update).with_context(|| format!("{item_ids:?}"))?;
            }
            check(&mut sides, number).with_context(|| format!("{n} to {time}, {item_ids:?}"))?;
        }
    }
    Ok(())
}

fn every_kind(item_ids: ItemIds) -> Vec<Document> {
    let update = |filter: Document, change: Bson, multi: bool| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": multi }] }
    };
    let kept = doc! { "n": 1, "at": 1, "_id": 0 };
    let mut commands = vec![
        update(
            doc! { "n": 5, "k": 0 },
            doc! { "k": 0, "n": 5, "at": at(19_500), "x": { "y": 1 } }.into(),
            false,
        ),
        update(
            doc! { "n": 6, "k": 0 },
            vec![doc! { "$set": { "at": { "$add": ["$at", 8_500_000] }, "y": "$n" } }].into(),
            false,
        ),
        update(
            doc! { "n": 7, "k": 0 },
            doc! { "$max": { "at": at(11_111) } }.into(),
            false,
        ),
        update(
            doc! { "n": 8, "k": 0 },
            doc! { "$min": { "at": at(222) }, "$unset": { "x": 1 } }.into(),
            false,
        ),
        update(
            doc! { "k": 1, "n": { "$in": [2, 3, 11, 20] } },
            vec![doc! { "$set": { "at": { "$subtract": [at(30_000), { "$multiply": ["$n", 1_000_007] }] } } }].into(),
            true,
        ),
        doc! { "findAndModify": COLLECTION, "query": { "k": 0 }, "sort": { "at": 1 }, "update": { "$set": { "at": at(40_000) } }, "fields": &kept },
        doc! { "findAndModify": COLLECTION, "query": { "k": 0 }, "sort": { "at": -1 }, "update": { "$set": { "at": at(-40_000) } }, "new": true, "fields": &kept },
        doc! { "findAndModify": COLLECTION, "query": { "k": 1, "n": 4 }, "update": [{ "$set": { "at": at(333) } }], "new": true, "fields": &kept },
        doc! { "update": COLLECTION, "ordered": false, "updates": [
            { "q": { "k": 1, "n": 14 }, "u": { "$set": { "at": at(1_444) } } },
            { "q": { "k": 1, "n": 15 }, "u": { "$inc": { "n": 0 } } },
            { "q": { "k": 1, "n": 99 }, "u": { "$set": { "at": at(5) } } },
            { "q": { "k": 0, "n": 16 }, "u": { "$set": { "at": at(1_555) } }, "upsert": true },
        ] },
        // What is no date, and a date again.
        update(
            doc! { "n": 12, "k": 0 },
            doc! { "$set": { "at": "noon" } }.into(),
            false,
        ),
        update(doc! { "n": 13, "k": 1 }, doc! { "$unset": { "at": 1 } }.into(), false),
        update(
            doc! { "n": 12, "k": 0 },
            doc! { "$set": { "at": at(12_000) } }.into(),
            false,
        ),
        update(
            doc! { "n": 13, "k": 1 },
            doc! { "$set": { "at": at(13_000) } }.into(),
            false,
        ),
    ];
    if item_ids != ItemIds::Dropped {
        commands.push(set_time(doc! { "_id": 18 }, 3_333));
        commands.push(update(
            doc! { "_id": 19 },
            doc! { "_id": 19, "k": 0, "n": 19, "at": at(4_444) }.into(),
            false,
        ));
    }
    commands
}

#[test]
fn time_change_by_every_update_operator_equals_a_plain_collection() -> Result<()> {
    for item_ids in ALL_IDS {
        let mut sides = sides(item_ids)?;
        let parts = if item_ids == ItemIds::Unique { 1 } else { 3 };
        for (number, command) in rows(every_kind(item_ids), parts, 0).enumerate() {
            sides.alike(&command).with_context(|| format!("{item_ids:?}"))?;
            check(&mut sides, number).with_context(|| format!("{command} {item_ids:?}"))?;
        }
    }
    Ok(())
}

/// Of random changes; all is looked at after each.
const ROUNDS: u32 = 1;

/// Changes of times beside inserts and deletes, at random; no two items have the same time.
#[test]
fn random_time_changes_equal_a_plain_collection() -> Result<()> {
    let seed = fixed_seed();
    at_random(seed).with_context(|| format!("to see it again: MONGOSHAPE_SEED={seed}"))
}

fn at_random(seed: u64) -> Result<()> {
    let mut rng = ChaCha8Rng::seed_from_u64(seed);
    for _ in 0..ROUNDS {
        let mut sides = sides(ItemIds::Unique)?;
        let mut next = 22;
        for (step, number) in (0_i64..40).enumerate() {
            let k = rng.random_range(0..2);
            let n = rng.random_range(0..next);
            let time = rng.random_range(-3..i64::from(next) + 3) * 1000 + number + 1;
            let command = match rng.random_range(0..10) {
                0..5 => set_time(doc! { "k": k, "n": n }, time),
                5 => doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": k, "n": n }, "limit": 1 }] },
                // Mostly from the end, where pages are removed.
                6 => doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": k, "n": { "$gte": n } }, "limit": 0 }] },
                7 => doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": k * 10_000 + n }, "limit": 1 }] },
                8 => {
                    let items = (0..rng.random_range(1..6)).map(|more| item(k, next + more));
                    let items: Vec<Document> = items.collect();
                    next += 6;
                    doc! { "insert": COLLECTION, "documents": items }
                }
                _ => {
                    next += 1;
                    let mut late = item(k, next - 1);
                    late.insert("at", at(time));
                    doc! { "insert": COLLECTION, "documents": [late] }
                }
            };
            sides.alike(&command)?;
            check(&mut sides, step).with_context(|| format!("after {command}"))?;
        }
        sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
        ensure!(sides.buckets()?.is_empty(), "{:?}", sides.buckets()?);
    }
    Ok(())
}
