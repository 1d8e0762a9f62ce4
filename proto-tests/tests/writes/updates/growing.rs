//! Items that grow until their page would exceed 16 MB: the update moves the item to another page.

use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, bson, doc};
use proto_tests::altering_relay::AlteringRelay;
use proto_tests::measure::rows;
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::stopping_relay::StoppingRelay;
use proto_tests::{ItemIds, Shape, mongod};

use crate::updates::sides::{COLLECTION, Sides, WRITERS, at, update, write_concurrently};

/// The length of the texts that two items of a page have. There is no space for one that is not so long.
const LARGE: usize = 8_000_000;
const LESS_LARGE: usize = 1_000_000;
/// The updates of each writer. All items together then have more than 16 MB.
const UPDATES: i32 = 9;

fn shape(item_ids: ItemIds, time: bool) -> Shape {
    Shape {
        item_ids,
        time: time.then(|| "at".to_owned()),
        max_items: 10,
        items_change: true,
        ..Shape::new(&["k"])
    }
}

fn text(letter: &str) -> String {
    letter.repeat(LESS_LARGE)
}

/// Five items on one page. Two of them are large.
fn fill(sides: &mut Sides) -> Result<()> {
    sides.alike(&doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] })?;
    let item = |id: i32| doc! { "_id": id, "k": 1, "at": at(i64::from(id)), "n": id, "tags": [id] };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..5).map(item).collect::<Vec<_>>() })?;
    for id in [0, 1] {
        sides.alike(&update(
            doc! { "n": id },
            doc! { "$set": { "text": "a".repeat(LARGE) } },
        ))?;
    }
    Ok(())
}

fn many(change: Document) -> Document {
    let statement = doc! { "q": { "n": { "$gte": 2 } }, "u": change, "multi": true };
    doc! { "update": COLLECTION, "updates": [statement] }
}

fn grows() -> Document {
    doc! { "$set": { "text": text("b") }, "$push": { "tags": 7 }, "$inc": { "n": 100 } }
}

fn modify(query: Document, new: bool) -> Document {
    doc! { "findAndModify": COLLECTION, "query": query, "update": grows(), "new": new }
}

/// Updates that make the third item large, by its `_id` or by a filter.
fn changes() -> Vec<Document> {
    let third = || doc! { "n": 2 };
    // The first of several items that match.
    let third_of_several = || doc! { "n": { "$gte": 2 } };
    let stages = || bson!([{ "$set": { "text": text("c"), "m": { "$add": ["$n", 1] } } }]);
    let upsert = |query: Document| doc! { "q": query, "u": grows(), "upsert": true };
    // Between the times of the items beside it.
    let time = doc! { "$set": { "at": DateTime::from_millis(1_700_000_002_500), "text": text("i") } };
    let mut modify_time = modify(third(), true);
    modify_time.insert("update", time.clone());
    let mut modify_or_insert = modify(third(), true);
    modify_or_insert.insert("upsert", true);
    vec![
        update(doc! { "_id": 2 }, grows()),
        update(third(), grows()),
        update(third(), doc! { "k": 1, "at": at(2), "n": 2, "text": text("d") }),
        update(doc! { "_id": 2 }, doc! { "$set": { "at": at(2), "text": text("e") } }),
        update(doc! { "_id": 2 }, doc! { "$set": { "at": at(9), "text": text("f") } }),
        update(doc! { "_id": 2 }, doc! { "$set": { "k": 2, "text": text("g") } }),
        doc! { "update": COLLECTION, "updates": [{ "q": third(), "u": stages() }] },
        many(doc! { "$set": { "text": text("h") } }),
        modify(doc! { "_id": 2 }, true),
        modify(third(), false),
        update(third_of_several(), grows()),
        modify(third_of_several(), true),
        modify(third_of_several(), false),
        update(doc! { "_id": 2 }, time),
        modify_time,
        modify_or_insert,
        doc! { "update": COLLECTION, "updates": [upsert(doc! { "_id": 2 })] },
        doc! { "update": COLLECTION, "updates": [upsert(third())] },
    ]
}

/// The code of the first error in a reply.
fn code(reply: &Document) -> Option<i32> {
    let errors = reply.get_array("writeErrors").ok();
    let error = errors.and_then(|errors| errors.first()?.as_document());
    error.unwrap_or(reply).get_i32("code").ok()
}

#[test]
fn an_item_that_outgrows_its_page_is_updated() -> Result<()> {
    for (time, most, first) in [(false, 2, 1), (true, usize::MAX, 2)] {
        let mut sides = Sides::open(shape(ItemIds::Unique, time))?;
        for (number, change) in rows(changes().iter().enumerate().take(most), 4, first) {
            fill(&mut sides)?;
            sides
                .alike(change)
                .and_then(|_| sides.check())
                .with_context(|| format!("number {number}, time: {time}"))?;
        }
    }
    Ok(())
}

#[test]
fn items_that_outgrow_their_page_are_updated_in_one_command() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, true))?;
    for ordered in [false, true] {
        fill(&mut sides)?;
        let change = doc! { "$set": { "text": text("b") }, "$inc": { "n": 1 } };
        let statement = |id: i32| doc! { "q": { "_id": id }, "u": &change };
        let updates: Vec<Document> = [3, 2, 99, 4, 2].into_iter().map(statement).collect();
        sides.alike(&doc! { "update": COLLECTION, "updates": updates, "ordered": ordered })?;
        sides.check()?;
    }
    Ok(())
}

/// Names the end of a move.
fn is_commit(command: &Document) -> Option<String> {
    let is_commit = command.contains_key("commitTransaction");
    is_commit.then(|| "commit".to_owned())
}

/// 40 items of 400 kB grow by 50 kB each. The page has space for 15 of these changes, and for 7 more without
/// one of the items.
#[test]
fn an_unordered_update_moves_as_many_items_as_needed() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = StoppingRelay::to(set.address(), is_commit)?;
    let shape = Shape {
        max_items: 50,
        ..shape(ItemIds::Unique, false)
    };
    let mut sides = Sides::at(shape, (relay.uri(), set.address()))?;
    let item = |id: i32| doc! { "_id": id, "k": 1 };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..40).map(item).collect::<Vec<_>>() })?;
    let text = doc! { "$set": { "text": "a".repeat(400_000) } };
    let all = doc! { "q": {}, "u": text, "multi": true };
    sides.alike(&doc! { "update": COLLECTION, "updates": [all] })?;
    ensure!(sides.buckets()?.len() == 1, "the items are on several pages");
    relay.arm(None);
    let statement = |id: i32| doc! { "q": { "_id": id }, "u": { "$set": { "more": "b".repeat(50_000) } } };
    let updates: Vec<Document> = (0..40).map(statement).collect();
    sides.alike(&doc! { "update": COLLECTION, "updates": updates, "ordered": false })?;
    let moves = relay.commands().len();
    ensure!((1..=6).contains(&moves), "{moves} items were moved");
    sides.check()
}

/// Denies the first write after mongod has refused a page that would be too large: the move of an item.
fn deny_move(reply: &mut Document) -> bool {
    static IS_REFUSED: AtomicBool = AtomicBool::new(false);
    if matches!(code(reply), Some(10334 | 17419)) {
        IS_REFUSED.store(true, Ordering::Relaxed);
        return false;
    }
    let is_move = reply.contains_key("nModified") && IS_REFUSED.swap(false, Ordering::Relaxed);
    if is_move {
        *reply = doc! { "ok": 0.0, "errmsg": "not authorized", "code": 13, "codeName": "Unauthorized" };
    }
    is_move
}

#[test]
fn an_error_of_a_move_is_that_of_its_statement() -> Result<()> {
    let set = mongod::shared_replica_set();
    let relay = AlteringRelay::to(set.address(), deny_move)?;
    let mut sides = Sides::at(shape(ItemIds::Unique, false), (relay.uri(), set.address()))?;
    fill(&mut sides)?;
    let statement = |id: i32, change: Document| doc! { "q": { "_id": id }, "u": change };
    let updates = vec![statement(3, doc! { "$inc": { "n": 1 } }), statement(2, grows())];
    let command = doc! { "update": COLLECTION, "updates": updates, "ordered": false, "$db": sides.shaped_database() };
    let reply = sides.shaped.command_ok(&command)?;
    ensure!(reply.get_i32("n")? == 1 && code(&reply) == Some(13), "{reply}");
    sides.check_layout()
}

#[test]
fn a_resent_update_that_has_moved_its_item_is_executed_once() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    let resent = [
        update(doc! { "_id": 2 }, grows()),
        update(doc! { "n": 2 }, grows()),
        modify(doc! { "_id": 2 }, true),
        modify(doc! { "_id": 2 }, false),
        modify(doc! { "n": 2 }, true),
        modify(doc! { "n": 2 }, false),
        modify(doc! { "n": { "$gte": 2 } }, false),
    ];
    for (number, mut change) in rows((1_i64..).zip(resent), 4, 0) {
        fill(&mut sides)?;
        change.extend(doc! { "lsid": lsid("growing"), "txnNumber": number });
        for _ in 0..2 {
            sides.alike(&change)?;
            sides.check()?;
        }
    }
    Ok(())
}

/// A reply of mongod has space for the page, but not for a large item beside it.
#[test]
fn a_resent_change_of_a_large_item_of_a_full_page_is_executed_once() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    let of_one = |query: Document| doc! { "findAndModify": COLLECTION, "query": query };
    let mut updated = of_one(doc! { "n": 0 });
    updated.insert("update", doc! { "$inc": { "n": 100 } });
    let mut removed = of_one(doc! { "n": 1 });
    removed.insert("remove", true);
    for (number, mut change) in (1_i64..).zip([updated, removed]) {
        fill(&mut sides)?;
        change.extend(doc! { "lsid": lsid("large"), "txnNumber": number });
        for _ in 0..2 {
            sides.alike(&change)?;
            sides.check()?;
        }
    }
    Ok(())
}

/// The items have more bytes than are read before the first is changed, so items move to pages that are read
/// later.
#[test]
fn an_update_of_many_changes_each_moved_item_once() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    let item = |id: i32| doc! { "_id": id, "k": id / 2, "at": at(i64::from(id)), "n": 0, "tags": [id] };
    sides.alike(&doc! { "insert": COLLECTION, "documents": (0..8).map(item).collect::<Vec<_>>() })?;
    for id in 0..8 {
        sides.alike(&update(
            doc! { "_id": id },
            doc! { "$set": { "text": "a".repeat(LARGE - LESS_LARGE / 2) } },
        ))?;
    }
    let change = doc! { "$push": { "tags": "b".repeat(2 * LESS_LARGE) }, "$inc": { "n": 1 } };
    let statement = doc! { "q": {}, "u": change, "multi": true };
    sides.alike(&doc! { "update": COLLECTION, "updates": [statement] })?;
    sides.check()
}

/// Writers of two proxies let three items of one page grow.
#[test]
fn items_that_grow_concurrently_keep_every_change() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, true))?;
    let database = sides.shaped_database();
    let items: Vec<Document> = (0..3)
        .map(|id: i32| doc! { "_id": id, "k": 1, "at": at(i64::from(id)), "u": id, "n": 0, "tags": [] })
        .collect();
    let insert = doc! { "insert": COLLECTION, "documents": items, "$db": &database };
    sides.shaped.command_ok(&insert)?;
    let second = sides.another_proxy()?;
    write_concurrently(&sides, &second, UPDATES, |writer, number| {
        growth(writer + number, number)
    })?;
    let found = sides.items(true)?;
    ensure!(found.len() == 3, "{} items", found.len());
    for item in &found {
        let (n, tags) = (item.get_i32("n")?, item.get_array("tags")?.len());
        let expected = WRITERS * UPDATES / 3;
        ensure!(
            n == expected && i32::try_from(tags)? == expected,
            "{n} and {tags} instead of {expected}"
        );
    }
    sides.check_layout()
}

/// The update number `number` of a writer, of one of three items.
fn growth(item: i32, number: i32) -> Document {
    let id = item % 3;
    let change = doc! { "$push": { "tags": "c".repeat(LESS_LARGE / 2) }, "$inc": { "n": 1 } };
    match number % 4 {
        0 => update(doc! { "_id": id }, change),
        1 => update(doc! { "u": id }, change),
        2 => doc! { "update": COLLECTION, "updates": [{ "q": { "u": id }, "u": change, "multi": true }] },
        _ => {
            let fields = doc! { "_id": 1 };
            doc! { "findAndModify": COLLECTION, "query": { "_id": id }, "update": change, "fields": fields }
        }
    }
}

#[test]
fn an_item_moves_beside_a_unique_index_and_a_validator() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    sides.alike(&doc! { "create": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    let index = doc! { "key": { "n": 1 }, "name": "n_1", "unique": true };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    let refused = |mut change: Document| {
        change.insert("text", text("b"));
        update(doc! { "_id": 2 }, doc! { "$set": change })
    };
    let moving = [
        update(doc! { "_id": 2 }, grows()),
        update(doc! { "n": 2 }, grows()),
        modify(doc! { "_id": 2 }, true),
    ];
    let refused = [refused(doc! { "n": 3 }), refused(doc! { "n": -1 })];
    for command in rows(moving, 3, 1).chain(refused) {
        fill(&mut sides)?;
        let [plain, shaped] = sides.run(&command)?;
        ensure!(code(&plain) == code(&shaped), "plain: {plain}, shaped: {shaped}");
        sides.check()?;
    }
    Ok(())
}

/// The error is that of a plain collection, and the item stays on its page.
#[test]
fn an_item_that_is_too_large_for_a_document_does_not_move() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    fill(&mut sides)?;
    let pages = sides.buckets()?.len();
    let too_large = || doc! { "$set": { "more": "c".repeat(LARGE + LESS_LARGE) } };
    let by_id = || update(doc! { "_id": 0 }, too_large());
    let statement = |id: i32, change: Document| doc! { "q": { "_id": id }, "u": change };
    let statements = [statement(2, doc! { "$inc": { "m": 1 } }), statement(0, too_large())];
    // The transaction below has the first one, too.
    let commands = [
        by_id(),
        doc! { "findAndModify": COLLECTION, "query": { "_id": 0 }, "update": too_large() },
        doc! { "update": COLLECTION, "updates": statements.to_vec(), "ordered": true },
        doc! { "update": COLLECTION, "updates": statements.to_vec(), "ordered": false },
    ];
    for command in rows(commands, 2, 1) {
        sides.alike(&command)?;
        sides.check()?;
    }
    let databases = [sides.plain_database(), sides.shaped_database()];
    let connections = [&mut sides.plain, &mut sides.shaped];
    let mut codes = Vec::new();
    for (connection, database) in connections.into_iter().zip(databases) {
        let mut transaction = Transaction::new(&format!("too large {database}"), &database);
        codes.push(code(&transaction.run(connection, &by_id())?));
        codes.push(code(&transaction.end(connection, "commitTransaction")?));
    }
    ensure!(codes[0].is_some() && codes[..2] == codes[2..], "{codes:?}");
    ensure!(sides.buckets()?.len() == pages, "an item has moved");
    sides.check()
}

/// The page has room by the sizes that its items had when they were inserted. It has space for one of the new
/// items.
#[test]
fn an_insert_in_a_transaction_finds_room_beside_grown_items() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, true))?;
    let few: Vec<Document> = (0..3)
        .map(|id: i32| doc! { "_id": id, "k": 1, "at": at(i64::from(id)), "n": id })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": few })?;
    for id in [0, 1] {
        sides.alike(&update(
            doc! { "_id": id },
            doc! { "$set": { "text": "a".repeat(LARGE) } },
        ))?;
    }
    let new = |id: i32| doc! { "_id": id, "k": 1, "at": at(i64::from(id)), "n": id, "text": "c".repeat(500_000) };
    let insert = doc! { "insert": COLLECTION, "documents": [new(7), new(8)] };
    for (connection, database) in [
        (&mut sides.plain, format!("{}_n", sides.database)),
        (&mut sides.shaped, format!("{}_s", sides.database)),
    ] {
        let mut transaction = Transaction::new(&database, &database);
        let reply = transaction.run(connection, &insert)?;
        ensure!(reply.get_i32("n").ok() == Some(2), "{reply}");
        let committed = transaction.end(connection, "commitTransaction")?;
        ensure!(committed.get_f64("ok")? > 0.0, "{committed}");
    }
    sides.check()
}

#[test]
fn an_update_is_refused_where_no_item_can_be_moved() -> Result<()> {
    let change = || doc! { "$set": { "text": text("b") } };
    let commands = || {
        vec![
            update(doc! { "n": 2 }, change()),
            many(change()),
            doc! { "findAndModify": COLLECTION, "query": { "n": 2 }, "update": change() },
        ]
    };
    for (place, ids) in [ItemIds::Stored, ItemIds::Dropped].into_iter().enumerate() {
        let mut sides = Sides::open(shape(ids, false))?;
        fill(&mut sides)?;
        for command in rows(commands(), 3, 2 * place) {
            sides.refused(&command)?;
        }
    }
    let mut sides = Sides::on_a_standalone(shape(ItemIds::Unique, true))?;
    fill(&mut sides)?;
    let mut all = commands();
    all.push(update(doc! { "_id": 2 }, change()));
    all.push(update(
        doc! { "_id": 2 },
        doc! { "$set": { "at": at(9), "text": text("b") } },
    ));
    all.push(doc! { "findAndModify": COLLECTION, "query": { "_id": 2 }, "update": change() });
    for command in rows(all, 3, 1) {
        sides.refused(&command)?;
    }
    // The item itself would be too large.
    let too_large =
        doc! { "$push": { "tags": { "$each": ["c".repeat(LARGE / 2), "d".repeat(LARGE / 2 + LESS_LARGE)] } } };
    let [plain, shaped] = sides.run(&update(doc! { "_id": 0 }, too_large))?;
    ensure!(
        code(&plain).is_some() && code(&plain) == code(&shaped),
        "{:?}",
        code(&shaped)
    );
    sides.check()
}

#[test]
fn an_update_in_a_transaction_is_refused_and_ends_it() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    fill(&mut sides)?;
    let before = sides.items(true)?;
    let database = sides.shaped_database();
    for (number, filter) in [doc! { "_id": 2 }, doc! { "n": 2 }].into_iter().enumerate() {
        let mut transaction = Transaction::new(&format!("growing {number} {database}"), &database);
        let change = update(filter, doc! { "$set": { "text": text("b") } });
        let reply = transaction.run(&mut sides.shaped, &change)?;
        ensure!(reply.get_i32("code").ok() == Some(115), "{reply}");
        let committed = transaction.end(&mut sides.shaped, "commitTransaction")?;
        ensure!(committed.get_i32("code").ok() == Some(251), "{committed}");
    }
    ensure!(sides.items(true)? == before);
    Ok(())
}
