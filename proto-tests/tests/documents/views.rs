//! The views of `docs/storage-layout.md`: mongod's replies through them equal the proxy's, byte by byte.

use anyhow::{Result, ensure};
use bson::oid::ObjectId;
use bson::raw::RawDocumentBuf;
use bson::{DateTime, Document, doc};
use proto_tests::invariants::read_all;
use proto_tests::raw::Connection;

use crate::session::Session;

const DATABASE: &str = "shop";

/// Adds what the document's own example does not have, and compares.
pub(crate) fn compare(session: &Session) -> Result<()> {
    let (mut proxied, mut direct) = (session.proxied()?, session.direct()?);
    proxied.command_ok(&doc! { "insert": "trades", "documents": odd_trades(), "$db": DATABASE })?;
    proxied.command_ok(&doc! { "insert": "sales", "documents": odd_sales(), "$db": DATABASE })?;
    for (name, on) in [("trades_plain", "trades"), ("sales_plain", "sales")] {
        proxied.command_ok(&doc! { "create": name, "viewOn": on, "pipeline": [], "$db": DATABASE })?;
    }
    left_by_crashes(&mut direct)?;

    let all = doc! { "_id": 1 };
    for view in ["sales_whole", "sales_plain"] {
        same((&mut direct, view, &all), (&mut proxied, "sales", &all))?;
    }
    // docs/getting-started.md has this for the return to a plain collection.
    let out = doc! { "aggregate": "sales", "pipeline": [{ "$out": "sales_copy" }], "cursor": {}, "$db": DATABASE };
    proxied.command_ok(&out)?;
    same((&mut direct, "sales_copy", &all), (&mut proxied, "sales", &all))?;
    // Where the proxy itself reads by pipeline, renamed fields come first, as in the view that it makes.
    same((&mut direct, "trades_plain", &all), (&mut proxied, "trades", &all))?;
    same(
        (&mut direct, "trades_items", &doc! {}),
        (&mut proxied, "trades", &doc! {}),
    )?;
    // Unsorted, too, where a key's items are in the order of their insertion.
    let filter = doc! { "customerId": 7 };
    let of_key = |view: &str| doc! { "find": view, "filter": &filter, "$db": DATABASE };
    ensure!(
        read_all(&mut direct, &of_key("trades_items"))? == read_all(&mut proxied, &of_key("trades"))?,
        "one key"
    );
    Ok(())
}

/// All types, fields of both names of a rename, fields missing, times that go back, keys of another type than
/// the page's.
fn odd_trades() -> Vec<Document> {
    let date = |seconds: i64| DateTime::from_millis(1_698_335_223_000 + seconds * 1000);
    vec![
        doc! { "_id": 10, "quantity": 1, "customerId": 7, "qty": "both names", "date": date(9) },
        doc! { "_id": 11, "customerId": 7, "date": date(8), "qty": 2.5, "empty": {}, "nested": { "quantity": 3 } },
        doc! { "_id": 12, "customerId": 7.0, "date": date(7), "array": [1, { "qty": 1 }], "id": ObjectId::new() },
        doc! { "_id": 13, "customerId": 7_i64, "date": date(6), "n": f64::NAN, "zero": -0.0, "none": bson::Bson::Null },
        doc! { "_id": "x", "customerId": "7", "quantity": 1 },
        doc! { "_id": { "a": 1 }, "date": date(1), "$field": 1, "a.b": 2 },
        doc! { "_id": 14, "customerId": { "a": 1 }, "date": "no date" },
    ]
}

fn odd_sales() -> Vec<Document> {
    let buyers = |count: i32| (0..count).collect::<Vec<_>>();
    vec![
        doc! { "_id": 20, "customers_purchased": buyers(3) },
        doc! { "_id": 21, "customers_purchased": buyers(4), "behind": 1 },
        doc! { "_id": "x", "customers_purchased": buyers(40), "year": 2 },
        doc! { "_id": 22, "customers_purchased": "none" },
        doc! { "_id": 23, "year": 3 },
    ]
}

/// A tail, elements of a page that are not counted, and an orphan. A reader must treat each correctly.
fn left_by_crashes(direct: &mut Connection) -> Result<()> {
    let mut update = |collection: &str, filter: Document, change: Document| -> Result<()> {
        let statement = doc! { "q": filter, "u": change };
        let reply = direct.command_ok(&doc! { "update": collection, "updates": [statement], "$db": DATABASE })?;
        ensure!(reply.get_i32("n")? == 1, "{reply}");
        Ok(())
    };
    update(
        "sales",
        doc! { "_id": "x" },
        doc! { "$push": { "has_extras_control.tail": "the newest" } },
    )?;
    let more = doc! { "$push": { "customers_purchased_extra": "uncounted" }, "$inc": { "count": 1 } };
    update("extra_sales", doc! { "book_id": 21 }, more)?;
    let control = doc! { "v": 1, "generation": ObjectId::new(), "from": 0_i64 };
    let nobodys =
        doc! { "_id": "nobody's", "book_id": 2, "customers_purchased_extra": [1], "count": 1, "control": control };
    direct.command_ok(&doc! { "insert": "extra_sales", "documents": [nobodys], "$db": DATABASE })?;
    Ok(())
}

fn read(connection: &mut Connection, collection: &str, sort: &Document) -> Result<Vec<RawDocumentBuf>> {
    read_all(connection, &doc! { "find": collection, "sort": sort, "$db": DATABASE })
}

/// Compares what a view on mongod has with what the collection has through the proxy, in any order.
fn same(viewed: (&mut Connection, &str, &Document), wanted: (&mut Connection, &str, &Document)) -> Result<()> {
    let (view, collection) = (viewed.1, wanted.1);
    let sorted = |(connection, collection, sort): (&mut Connection, &str, &Document)| -> Result<Vec<_>> {
        let mut read = read(connection, collection, sort)?;
        read.sort_by(|one, other| one.as_bytes().cmp(other.as_bytes()));
        Ok(read)
    };
    let (viewed, wanted) = (sorted(viewed)?, sorted(wanted)?);
    for (viewed, wanted) in viewed.iter().zip(&wanted) {
        ensure!(viewed == wanted, "{view} has\n{viewed:?}, {collection} has\n{wanted:?}");
    }
    ensure!(
        viewed.len() == wanted.len() && wanted.len() > 6,
        "{view} has {}, not {}",
        viewed.len(),
        wanted.len()
    );
    Ok(())
}
