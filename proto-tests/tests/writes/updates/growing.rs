//! Items that grow until their page would exceed 16 MB: the update moves the item to another page.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, bson, doc};
use proto_tests::sessions::{Transaction, lsid};
use proto_tests::{ItemIds, Shape};

use crate::updates::sides::{COLLECTION, Sides, at, update};

/// The length of the texts that two items of a page have. There is no space for one that is not so long.
const LARGE: usize = 8_000_000;
const LESS_LARGE: usize = 1_000_000;

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

/// Five items on one page, of which two are large.
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

/// Updates that make the third item large, by its `_id` or by a filter.
fn changes() -> Vec<Document> {
    let grows = || doc! { "$set": { "text": text("b") }, "$push": { "tags": 7 }, "$inc": { "n": 100 } };
    let third = || doc! { "n": 2 };
    let stages = || bson!([{ "$set": { "text": text("c"), "m": { "$add": ["$n", 1] } } }]);
    let modify = |query: Document, new: bool| {
        doc! {
            "findAndModify": COLLECTION, "query": query, "update": grows(), "new": new, "fields": { "text": 0 },
        }
    };
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
    ]
}

#[test]
fn an_item_that_outgrows_its_page_is_updated() -> Result<()> {
    for (time, most) in [(false, 2), (true, 10)] {
        let mut sides = Sides::open(shape(ItemIds::Unique, time))?;
        for (number, change) in changes().iter().enumerate().take(most) {
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

#[test]
fn a_resent_update_that_has_moved_its_item_is_executed_once() -> Result<()> {
    let mut sides = Sides::open(shape(ItemIds::Unique, false))?;
    for (number, change) in (1_i64..).zip(changes().into_iter().take(2)) {
        fill(&mut sides)?;
        let mut change = change;
        change.extend(doc! { "lsid": lsid("growing"), "txnNumber": number });
        for _ in 0..2 {
            sides.alike(&change)?;
            sides.check()?;
        }
    }
    Ok(())
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
    for ids in [ItemIds::Stored, ItemIds::Dropped] {
        let mut sides = Sides::open(shape(ids, false))?;
        fill(&mut sides)?;
        for command in commands() {
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
    for command in all {
        sides.refused(&command)?;
    }
    // The item itself would be too large.
    let too_large =
        doc! { "$push": { "tags": { "$each": ["c".repeat(LARGE / 2), "d".repeat(LARGE / 2 + LESS_LARGE)] } } };
    let code = |reply: &Document| {
        let error = reply.get_array("writeErrors").ok()?.first()?.as_document()?;
        error.get_i32("code").ok()
    };
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
