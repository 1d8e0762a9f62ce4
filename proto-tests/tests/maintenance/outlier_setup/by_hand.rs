//! Hand-written outliers, as in MongoDB's documentation.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, COLLECTION, EXTRA_BUYERS, EXTRAS};

use crate::outlier_setup::world::{World, book, buyers, says};

/// A book with its first buyers, flagged; and the document of the others.
fn by_hand(id: i32, (first, count): (i32, i32)) -> [Document; 2] {
    let mut base = book(id, first);
    base.insert("has_extras", true);
    [base, doc! { "book_id": id, EXTRA_BUYERS: buyers(first..count) }]
}

/// One as the page shows it, one with a base that is too long, and one without extras yet.
fn leave(world: &mut World) -> Result<Vec<Document>> {
    let [one, extras] = by_hand(1, (5, 300));
    let [long, others] = by_hand(2, (9, 40));
    let more = doc! { "book_id": 2, EXTRA_BUYERS: buyers(40..44) };
    let [none, _] = by_hand(3, (5, 5));
    world.write(COLLECTION, &[one, long, none, book(4, 2)])?;
    world.write(EXTRAS, &[extras, others, more])?;
    Ok(vec![book(1, 300), book(2, 44), book(3, 5), book(4, 2)])
}

#[test]
fn hand_written_outliers_are_adopted_by_setup() -> Result<()> {
    let mut world = World::new()?;
    let whole = leave(&mut world)?;
    says(&world.proxy.run("check")?, 1, &["3 documents were split by hand"])?;
    says(&world.proxy.run_with("setup", &["--split"])?, 0, &["3 documents split"])?;
    ensure!(world.read()? == whole, "they read otherwise");
    says(&world.proxy.run("setup")?, 0, &["3 orphans"])?;
    world.is_clean()?;
    for id in 1..5 {
        world.push(id, "new")?;
        ensure!(
            world
                .read()?
                .iter()
                .any(|book| book.get_array(BUYERS).is_ok_and(|buyers| buyers.len() > 2)),
            "lost"
        );
    }
    world.is_clean()
}

#[test]
fn hand_written_outliers_are_read_whole_and_adopted_by_the_first_write() -> Result<()> {
    let mut world = World::new()?;
    let whole = leave(&mut world)?;
    let database = world.books.database.clone();
    ensure!(world.read()? == whole, "they read otherwise");
    for (buyer, ids) in [("user299", vec![1]), ("user43", vec![1, 2]), ("user04", vec![1, 2, 3])] {
        let found = world.shaped.find(&database, COLLECTION, doc! { BUYERS: buyer })?;
        let found: Vec<i32> = found.iter().filter_map(|book| book.get_i32("_id").ok()).collect();
        ensure!(found == ids, "{buyer} has bought {found:?}");
    }
    let stages = vec![doc! { "$unwind": format!("${BUYERS}") }, doc! { "$count": "n" }];
    let counted = doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {}, "$db": &database };
    ensure!(
        world.shaped.all(&counted)?[0].get_i32("n")? == 351,
        "not all are counted"
    );
    // What is about other fields alone leaves them as they are.
    let update = |filter: Document, change: Document| doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": true }], "$db": &database };
    world
        .shaped
        .command_ok(&update(doc! {}, doc! { "$set": { "title": "one" } }))?;
    says(&world.proxy.run("check")?, 1, &["3 documents were split by hand"])?;

    let lengths = |world: &mut World| -> Result<Vec<usize>> {
        let books = world.read()?;
        books.iter().map(|book| Ok(book.get_array(BUYERS)?.len())).collect()
    };
    world.push(1, "new")?;
    ensure!(lengths(&mut world)? == [301, 44, 5, 2], "{:?}", lengths(&mut world)?);
    let pull = update(doc! { "_id": { "$lt": 4 } }, doc! { "$pull": { BUYERS: "user01" } });
    world.shaped.command_ok(&pull)?;
    ensure!(lengths(&mut world)? == [300, 43, 4, 2], "{:?}", lengths(&mut world)?);
    says(&world.proxy.run("setup")?, 0, &["3 orphans"])?;
    ensure!(lengths(&mut world)? == [300, 43, 4, 2], "{:?}", lengths(&mut world)?);
    world.is_clean()
}

#[test]
fn hand_written_outliers_can_be_updated_and_deleted() -> Result<()> {
    let mut world = World::new()?;
    leave(&mut world)?;
    let database = world.books.database.clone();
    let modify = doc! { "findAndModify": COLLECTION, "query": { "_id": 2 }, "update": { "$pop": { BUYERS: 1 } }, "$db": &database };
    let value = world.shaped.command_ok(&modify)?;
    ensure!(value.get_document("value")?.get_array(BUYERS)?.len() == 44, "{value}");
    let delete = |filter: Document, limit: i32| doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }], "$db": &database };
    let reply = world.shaped.command_ok(&delete(doc! { BUYERS: "user299" }, 1))?;
    ensure!(reply.get_i32("n")? == 1, "{reply}");
    let reply = world.shaped.command_ok(&delete(doc! {}, 0))?;
    ensure!(reply.get_i32("n")? == 3 && world.read()?.is_empty(), "{reply}");
    Ok(())
}
