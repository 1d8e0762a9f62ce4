//! Hand-written outliers, as in MongoDB's documentation.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, COLLECTION, EXTRA_BUYERS, EXTRAS};

use crate::outlier_setup::fixture::{Fixture, book, buyers, expect_output};

/// A book with its first buyers, flagged; and the document of the others.
fn by_hand(id: i32, (first, count): (i32, i32)) -> [Document; 2] {
    let mut base = book(id, first);
    base.insert("has_extras", true);
    [base, doc! { "book_id": id, EXTRA_BUYERS: buyers(first..count) }]
}

/// One as the page shows it, one with a base that is too long, and one without extras yet.
fn leave(fixture: &mut Fixture) -> Result<Vec<Document>> {
    let [one, extras] = by_hand(1, (5, 300));
    let [long, others] = by_hand(2, (9, 40));
    let more = doc! { "book_id": 2, EXTRA_BUYERS: buyers(40..44) };
    let [none, _] = by_hand(3, (5, 5));
    fixture.write(COLLECTION, &[one, long, none, book(4, 2)])?;
    fixture.write(EXTRAS, &[extras, others, more])?;
    Ok(vec![book(1, 300), book(2, 44), book(3, 5), book(4, 2)])
}

#[test]
fn hand_written_outliers_are_adopted_by_setup() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let whole = leave(&mut fixture)?;
    expect_output(&fixture.proxy.run("check")?, 1, &["3 documents were split by hand"])?;
    expect_output(
        &fixture.proxy.run_with("setup", &["--split"])?,
        0,
        &["3 documents split"],
    )?;
    ensure!(fixture.read()? == whole, "they read otherwise");
    expect_output(&fixture.proxy.run("setup")?, 0, &["3 orphans"])?;
    fixture.is_clean()?;
    for id in 1..5 {
        fixture.push(id, "new")?;
        ensure!(
            fixture
                .read()?
                .iter()
                .any(|book| book.get_array(BUYERS).is_ok_and(|buyers| buyers.len() > 2)),
            "lost"
        );
    }
    fixture.is_clean()
}

#[test]
fn hand_written_outliers_are_read_whole_and_adopted_by_the_first_write() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let whole = leave(&mut fixture)?;
    let database = fixture.books.database.clone();
    ensure!(fixture.read()? == whole, "they read otherwise");
    for (buyer, ids) in [("user299", vec![1]), ("user43", vec![1, 2]), ("user04", vec![1, 2, 3])] {
        let found = fixture.shaped.find(&database, COLLECTION, doc! { BUYERS: buyer })?;
        let found: Vec<i32> = found.iter().filter_map(|book| book.get_i32("_id").ok()).collect();
        ensure!(found == ids, "{buyer} has bought {found:?}");
    }
    let stages = vec![doc! { "$unwind": format!("${BUYERS}") }, doc! { "$count": "n" }];
    let counted = doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {}, "$db": &database };
    ensure!(
        fixture.shaped.all(&counted)?[0].get_i32("n")? == 351,
        "not all are counted"
    );
    // What is about other fields alone leaves them as they are.
    let update = |filter: Document, change: Document| doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "multi": true }], "$db": &database };
    fixture
        .shaped
        .command_ok(&update(doc! {}, doc! { "$set": { "title": "one" } }))?;
    expect_output(&fixture.proxy.run("check")?, 1, &["3 documents were split by hand"])?;

    let lengths = |fixture: &mut Fixture| -> Result<Vec<usize>> {
        let books = fixture.read()?;
        books.iter().map(|book| Ok(book.get_array(BUYERS)?.len())).collect()
    };
    fixture.push(1, "new")?;
    ensure!(
        lengths(&mut fixture)? == [301, 44, 5, 2],
        "{:?}",
        lengths(&mut fixture)?
    );
    let pull = update(doc! { "_id": { "$lt": 4 } }, doc! { "$pull": { BUYERS: "user01" } });
    fixture.shaped.command_ok(&pull)?;
    ensure!(
        lengths(&mut fixture)? == [300, 43, 4, 2],
        "{:?}",
        lengths(&mut fixture)?
    );
    expect_output(&fixture.proxy.run("setup")?, 0, &["3 orphans"])?;
    ensure!(
        lengths(&mut fixture)? == [300, 43, 4, 2],
        "{:?}",
        lengths(&mut fixture)?
    );
    fixture.is_clean()
}

#[test]
fn hand_written_outliers_can_be_updated_and_deleted() -> Result<()> {
    let mut fixture = Fixture::new()?;
    leave(&mut fixture)?;
    let database = fixture.books.database.clone();
    let modify = doc! { "findAndModify": COLLECTION, "query": { "_id": 2 }, "update": { "$pop": { BUYERS: 1 } }, "$db": &database };
    let value = fixture.shaped.command_ok(&modify)?;
    ensure!(value.get_document("value")?.get_array(BUYERS)?.len() == 44, "{value}");
    let delete = |filter: Document, limit: i32| doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }], "$db": &database };
    let reply = fixture.shaped.command_ok(&delete(doc! { BUYERS: "user299" }, 1))?;
    ensure!(reply.get_i32("n")? == 1, "{reply}");
    let reply = fixture.shaped.command_ok(&delete(doc! {}, 0))?;
    ensure!(reply.get_i32("n")? == 3 && fixture.read()?.is_empty(), "{reply}");
    Ok(())
}
