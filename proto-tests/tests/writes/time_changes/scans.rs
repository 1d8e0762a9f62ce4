//! Page scans with open cursors while items on those pages get other times.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::ItemIds;
use proto_tests::measure::rows;
use proto_tests::raw::Connection;
use rand::rngs::ChaCha8Rng;
use rand::seq::SliceRandom as _;
use rand::{RngExt as _, SeedableRng as _};

use crate::time_changes::fixture::{COLLECTION, Sides, at, check_order, item, set_time, shape};

const ITEMS: i32 = 60;

/// What a cursor brings, when something is done behind each of its first batches.
fn read(
    connection: &mut Connection,
    find: &Document,
    mut between: impl FnMut(&mut Connection) -> Result<()>,
) -> Result<Vec<Document>> {
    let database = find.get_str("$db")?.to_owned();
    let mut reply = connection.command_ok(find)?;
    let mut read: Vec<Document> = Vec::new();
    loop {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        read.extend(batch.iter().filter_map(|item| item.as_document().cloned()));
        let id = cursor.get_i64("id")?;
        if id == 0 {
            return Ok(read);
        }
        between(connection)?;
        let more = doc! { "getMore": id, "collection": COLLECTION, "batchSize": 5, "$db": &database };
        reply = connection.command_ok(&more)?;
    }
}

/// Every item with an unchanged time is returned once, and the returned items are in time order.
#[test]
fn item_with_unchanged_time_is_returned_once() -> Result<()> {
    let mut combinations = 0..;
    for direction in [1, -1] {
        for (skip, from) in [(0, None), (0, Some(10)), (7, None), (5, Some(10))] {
            // An ordinary run has one seed for each combination.
            for seed in rows(0..12, 12, combinations.next().unwrap_or_default()) {
                one(seed, direction, (skip, from))
                    .with_context(|| format!("seed {seed}, {direction}, skip {skip}, from {from:?}"))?;
            }
        }
    }
    Ok(())
}

fn one(seed: u64, direction: i32, (skip, from): (i32, Option<i32>)) -> Result<()> {
    let mut sides = Sides::on_a_standalone(shape(ItemIds::Unique))?;
    let database = sides.shaped_database();
    let items: Vec<Document> = (0..ITEMS).map(|n| item(0, n)).collect();
    sides
        .shaped
        .command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": &database })?;
    let mut random = ChaCha8Rng::seed_from_u64(seed);
    let mut numbers: Vec<i32> = (0..ITEMS).collect();
    numbers.shuffle(&mut random);
    // How many change their times is different each time: few, or whole pages.
    let (touched, untouched) = numbers.split_at(random.random_range(1..ITEMS as usize - 10));
    let mut filter = doc! { "k": 0 };
    if let Some(from) = from {
        filter.insert("at", doc! { "$gte": at(i64::from(from) * 1000), "$lt": at(50_000) });
    }
    let find = doc! {
        "find": COLLECTION, "filter": filter, "sort": { "at": direction }, "skip": skip, "batchSize": 5, "$db": &database,
    };
    let inserted = std::cell::Cell::new(ITEMS);
    let returned = read(&mut sides.shaped, &find, |connection| {
        for _ in 0..3 {
            let number = touched[random.random_range(0..touched.len())];
            let mut update = set_time(doc! { "n": number }, random.random_range(-5_000..65_000));
            update.insert("$db", &database);
            let reply = connection.command_ok(&update)?;
            ensure!(reply.get_i32("n")? == 1, "{reply}");
        }
        if random.random_bool(0.3) {
            let insert = doc! { "insert": COLLECTION, "documents": [item(0, inserted.get())], "$db": &database };
            inserted.set(inserted.get() + 1);
            connection.command_ok(&insert)?;
        }
        Ok(())
    })?;
    check_order(&returned, direction)?;
    let returned: Vec<i32> = returned.iter().flat_map(|item| item.get_i32("n")).collect();
    let mut expected: Vec<i32> = (0..ITEMS)
        .filter(|n| from.is_none_or(|from| (from..50).contains(n)))
        .collect();
    if direction < 0 {
        expected.reverse();
    }
    for number in expected.into_iter().skip(usize::try_from(skip)?) {
        ensure!(
            returned.contains(&number) || !untouched.contains(&number),
            "{number} is not among {returned:?}"
        );
    }
    sides.check_layout()
}
