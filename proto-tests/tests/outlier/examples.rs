//! The examples of the outlier pattern: the application's commands, their replies, and the stored documents.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};

use crate::fixture::{BOOKS, EXTRAS, Fixture, buyers, on_each, typical, wooden_amulet};

/// A stored document without the proxy's fields, which the invariants check.
fn bare(mut stored: Document, control: &str) -> Result<Document> {
    stored.remove(control).context("no control")?;
    Ok(stored)
}

/// The documents are those of the pattern, and the application sees all buyers in order.
fn check_books(fixture: &mut Fixture) -> Result<()> {
    let stored = fixture.stored(BOOKS)?;
    ensure!(stored.len() == 2, "{} books", stored.len());
    ensure!(stored[0] == typical(), "{}", stored[0]);
    let mut base = wooden_amulet(50);
    base.insert("has_extras", true);
    let is_base = bare(stored[1].clone(), "has_extras_control")?;
    ensure!(is_base == base, "{is_base}");
    let pages = fixture.stored(EXTRAS)?;
    ensure!(pages.len() == 1, "{} pages", pages.len());
    let mut page = bare(pages[0].clone(), "control")?;
    page.remove("_id");
    ensure!(
        page == doc! { "book_id": 2, "customers_purchased_extra": buyers(50..1000), "count": 950 },
        "{page}"
    );
    let found = fixture.find(doc! {})?;
    ensure!(
        found == [typical(), wooden_amulet(1000)],
        "the application does not see its books"
    );
    let sorted = doc! { "find": BOOKS, "sort": { "year": -1 }, "limit": 1 };
    let cursor = fixture.run(sorted)?;
    let first = cursor.get_document("cursor")?.get_array("firstBatch")?;
    ensure!(*first == [wooden_amulet(1000).into()], "sorted");
    ensure!(fixture.find(doc! { "customers_purchased": "user777" })? == [wooden_amulet(1000)]);
    ensure!(fixture.find(doc! { "customers_purchased": "user1000" })?.is_empty());
    Ok(())
}

#[test]
fn a_book_with_very_many_buyers_inserted_whole() -> Result<()> {
    on_each(|fixture| {
        fixture.run(doc! { "insert": BOOKS, "documents": [typical(), wooden_amulet(1000)] })?;
        check_books(fixture)
    })
}

#[test]
fn a_book_whose_buyers_come_one_by_one() -> Result<()> {
    on_each(|fixture| {
        fixture.run(doc! { "insert": BOOKS, "documents": [typical(), wooden_amulet(0)] })?;
        for (number, buyer) in buyers(0..1000).into_iter().enumerate() {
            let push = doc! { "q": { "_id": 2 }, "u": { "$push": { "customers_purchased": buyer } } };
            let reply = fixture.run(doc! { "update": BOOKS, "updates": [push] })?;
            ensure!((reply.get_i32("n")?, reply.get_i32("nModified")?) == (1, 1), "{reply}");
            if number == 49 {
                let stored = fixture.stored(BOOKS)?;
                ensure!(
                    stored[1] == wooden_amulet(50),
                    "fifty are a typical book: {}",
                    stored[1]
                );
                ensure!(fixture.stored(EXTRAS)?.is_empty(), "fifty have no extras");
            }
        }
        fixture.rest()?;
        check_books(fixture)
    })
}

#[test]
fn typical_books_are_never_touched() -> Result<()> {
    on_each(|fixture| {
        fixture.run(doc! { "insert": BOOKS, "documents": [typical()] })?;
        let push = doc! { "q": { "_id": 1 }, "u": { "$push": { "customers_purchased": "user03" } } };
        let year = doc! { "q": { "_id": 1 }, "u": { "$inc": { "year": 1 } } };
        fixture.run(doc! { "update": BOOKS, "updates": [push, year] })?;
        let mut expected = typical();
        expected.insert("customers_purchased", buyers(0..4));
        expected.insert("year", 1973);
        ensure!(fixture.stored(BOOKS)? == [expected.clone()]);
        ensure!(fixture.find(doc! {})? == [expected]);
        Ok(())
    })
}

#[test]
fn extras_are_deleted_with_their_document_and_dropped_with_the_collection() -> Result<()> {
    on_each(|fixture| {
        let books = doc! { "insert": BOOKS, "documents": [typical(), wooden_amulet(2500)] };
        fixture.run(books.clone())?;
        ensure!(fixture.stored(EXTRAS)?.len() == 3, "1000, 1000 and 450 are three pages");
        let deleted = fixture.run(doc! { "delete": BOOKS, "deletes": [{ "q": { "_id": 2 }, "limit": 1 }] })?;
        ensure!(deleted.get_i32("n")? == 1, "{deleted}");
        ensure!(fixture.stored(EXTRAS)?.is_empty(), "its extras are left");
        ensure!(fixture.stored(BOOKS)? == [typical()]);

        fixture.run(doc! { "drop": BOOKS })?;
        ensure!(fixture.find(doc! {})?.is_empty());
        fixture.run(books)?;
        fixture.run(doc! { "drop": BOOKS })?;
        let [books, extras] = [BOOKS, EXTRAS].map(|name| fixture.stored(name));
        ensure!(
            books?.is_empty() && extras?.is_empty(),
            "something is left of what was dropped"
        );
        Ok(())
    })
}

/// Where `reads = "base"` a listing costs no extras: the first fifty, and the flag.
#[test]
fn base_documents_are_returned_if_configured() -> Result<()> {
    on_each(|fixture| {
        fixture.run(doc! { "insert": BOOKS, "documents": [typical(), wooden_amulet(1000)] })?;
        let (_proxy, mut application) = fixture.of_bases()?;
        let mut base = wooden_amulet(50);
        base.insert("has_extras", true);
        let seen = application.find(&fixture.database, BOOKS, doc! {})?;
        ensure!(seen == [typical(), base.clone()], "{seen:?}");
        let seen = application.find(&fixture.database, BOOKS, doc! { "has_extras": true })?;
        ensure!(seen == [base], "{seen:?}");
        // Writes are exact all the same.
        let push = doc! { "q": { "_id": 2 }, "u": { "$push": { "customers_purchased": "user1000" } } };
        let push = doc! { "update": BOOKS, "updates": [push], "$db": &fixture.database };
        ensure!(application.command_ok(&push)?.get_i32("nModified")? == 1);
        ensure!(fixture.find(doc! { "_id": 2 })? == [wooden_amulet(1001)]);
        Ok(())
    })
}

#[test]
fn the_proxys_own_fields_are_refused() -> Result<()> {
    on_each(|fixture| {
        fixture.run(doc! { "insert": BOOKS, "documents": [typical(), wooden_amulet(60)] })?;
        for field in ["has_extras", "has_extras_control"] {
            let update = |change: bson::Bson| doc! { "update": BOOKS, "updates": [{ "q": { "_id": 2 }, "u": change }] };
            let commands = [
                doc! { "insert": BOOKS, "documents": [{ "_id": 3, field: true }] },
                update(bson::bson!({ "$set": { field: false } })),
                update(bson::bson!({ "$unset": { field: 1 } })),
                update(bson::bson!({ "$rename": { "title": field } })),
                update(bson::bson!({ field: 1 })),
                update(bson::bson!([{ "$set": { field: 1 } }])),
                update(bson::bson!([{ "$unset": field }])),
                update(bson::bson!([{ "$set": { "title": format!("${field}") } }])),
                doc! { "findAndModify": BOOKS, "query": { "_id": 2 }, "update": { "$set": { field: 1 } } },
            ];
            for command in commands {
                let message = fixture.refused(command.clone())?;
                ensure!(message.contains("has_extras"), "{command}: {message}");
            }
        }
        ensure!(fixture.find(doc! {})? == [typical(), wooden_amulet(60)]);
        Ok(())
    })
}
