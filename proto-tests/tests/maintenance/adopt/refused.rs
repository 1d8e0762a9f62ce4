//! Documents that cannot be adopted: they are reported by `_id` and stay unchanged.

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use proto_tests::shaped::COLLECTION;
use proto_tests::{ItemIds, Shape};

use crate::adopt::hand_written::{BucketWriter, assert_output, at, bare, bucket, trade};

/// A collection with these documents is refused by all, and nothing is changed. `words` is the error text on
/// the document whose `_id` is `odd`.
fn check(shape: &Shape, documents: &[Document], words: &str) -> Result<()> {
    let mut writer = BucketWriter::start(shape.clone())?;
    writer.write(documents)?;
    // It could be adopted, if it stood there alone.
    writer.write(&[bucket("77_1698335223", 77, &[])])?;
    let before = writer.state()?;
    let fault = format!("document with _id \"odd\": {words}");
    let all = [fault.as_str(), "1 document is not a bucket of layout version 1"];
    assert_output(&writer.shaped.proxy.run("check")?, 1, &all);
    assert_output(&writer.shaped.proxy.run("setup")?, 1, &all);
    let refusal = writer.refusal()?;
    let first = documents[0].get_str("_id")?;
    assert!(
        refusal.contains(&format!("the first with _id \"{first}\"")),
        "{refusal}"
    );
    let insert = writer.shaped.insert(&[doc! { "k": 1 }]);
    let reply = writer.shaped.application()?.command(&insert)?;
    assert_eq!(reply.get_i32("code")?, 72, "{reply}");
    assert_eq!(writer.state()?, before);
    Ok(())
}

fn check_one(shape: &Shape, document: &Document, words: &str) -> Result<()> {
    check(shape, std::slice::from_ref(document), words).with_context(|| document.to_string())
}

#[test]
fn documents_that_are_no_buckets() -> Result<()> {
    let shape = bare();
    let odd = |change: Document| {
        let mut document = bucket("odd", 1, &[trade(1, 0)]);
        document.extend(change);
        document
    };
    check_one(
        &shape,
        &doc! { "_id": "odd", "k": 1, "qty": 5, "at": at(0) },
        "it does not have the array 'history'",
    )?;
    check_one(
        &shape,
        &odd(doc! { "history": [{}, "x"] }),
        "element 1 of its 'history' is not a document",
    )?;
    check_one(
        &shape,
        &odd(doc! { "k": [1, 2] }),
        "mongoshape groups this collection's items by 'k'",
    )?;
    check_one(&shape, &odd(doc! { "k": 1.0 }), "its 'k' is of type double")?;
    check_one(&shape, &odd(doc! { "k": null }), "its 'k' is null")?;
    check_one(&shape, &odd(doc! { "count": "1" }), "its 'count' is \"1\"")?;
    check_one(&shape, &odd(doc! { "name": "x" }), "it has the field 'name'")?;
    check_one(
        &shape,
        &odd(doc! { "history": [{ "k": 2 }] }),
        "its item 0 has a different 'k'",
    )?;
    check_one(
        &shape,
        &odd(doc! { "history": [{ "quantity": 2 }] }),
        "its item 0 has the field 'quantity'",
    )?;
    check_one(
        &shape,
        &odd(doc! { "history": [{ "_id": 2 }] }),
        "its item 0 has an _id",
    )?;
    let eleven: Vec<Document> = (0..11).map(|number| trade(number, 0)).collect();
    check_one(
        &shape,
        &odd(doc! { "history": eleven, "count": 11 }),
        "it has 11 items, but max_items is 10",
    )?;
    let mut uncounted = odd(doc! {});
    uncounted.remove("count");
    check_one(&shape, &uncounted, "it does not have the field 'count'")
}

#[test]
fn items_without_ids_of_their_own() -> Result<()> {
    let shape = Shape::new(&["k"]);
    let id = |id: i32| doc! { "_id": id };
    check_one(&shape, &bucket("odd", 1, &[id(1), doc! {}]), "its item 1 has no _id")?;
    check_one(
        &shape,
        &bucket("odd", 1, &[id(1), id(1)]),
        "its item 1 has the same _id 1",
    )?;
    let elsewhere = [
        bucket("1_1", 1, &[id(1), id(2)]),
        bucket("odd", 2, &[id(3), doc! { "_id": 2.0 }]),
    ];
    check(&shape, &elsewhere, "one of its items has the _id ")?;
    // Where they need not be, all of this is taken.
    let shape = Shape {
        item_ids: ItemIds::Stored,
        ..shape
    };
    let mut writer = BucketWriter::start(shape)?;
    writer.write(&elsewhere[..1])?;
    writer.write(&[bucket("2_1", 2, &[id(2), id(2), doc! {}])])?;
    writer.set_up()?;
    writer.check_layout()
}

#[test]
fn pages_with_wrong_headers_are_refused() -> Result<()> {
    let shape = bare();
    let page = |id: &str, control: Document| {
        let mut page = bucket(id, 1, &[trade(1, 0)]);
        let mut whole = doc! { "v": 1, "page": 0, "bytes": 40, "from": at(0), "to": at(0) };
        whole.extend(control);
        page.insert("control", whole);
        page
    };
    check_one(&shape, &page("odd", doc! { "v": 2 }), "its control has the version 2")?;
    check_one(
        &shape,
        &page("odd", doc! { "bytes": "5" }),
        "its control contains no page number, or no number of bytes",
    )?;
    let mut miscounted = page("odd", doc! {});
    miscounted.insert("count", 2);
    check_one(&shape, &miscounted, "its 'count' is 2, but it has 1 items")
}

#[test]
fn pages_that_do_not_follow_each_other_get_no_indexes() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let item = |number: i32| doc! { "k": 1, "quantity": number, "at": at(0) };
    let items: Vec<Document> = (0..25).map(item).collect();
    writer.shaped.application()?.command_ok(&writer.shaped.insert(&items))?;
    let drop = doc! { "dropIndexes": COLLECTION, "index": "*", "$db": &writer.shaped.database };
    writer.direct.command_ok(&drop)?;
    let gone = writer
        .shaped
        .stored()?
        .iter()
        .find(|bucket| proto_tests::buckets::page(bucket) == 1)
        .cloned();
    let gone = gone.context("a second page")?;
    let delete = doc! { "q": { "_id": gone.get("_id") }, "limit": 1 };
    writer
        .direct
        .command_ok(&doc! { "delete": COLLECTION, "deletes": [delete], "$db": &writer.shaped.database })?;
    let fault = "its control.page is 2; the next page of its key should be 1";
    assert_output(&writer.shaped.proxy.run("setup")?, 1, &[fault]);
    assert_eq!(writer.shaped.indexes()?, ["_id_"]);
    writer.write(&[gone])?;
    writer.set_up()?;
    writer.check_layout()
}

#[test]
fn check_reports_a_page_changed_by_hand() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let item = doc! { "k": 1, "quantity": 1, "at": at(0) };
    writer
        .shaped
        .application()?
        .command_ok(&writer.shaped.insert(&[item]))?;
    writer.push(1, &trade(2, 1))?;
    let faults = ["document with _id \"1_1698335223\": its control.from and control.to do not enclose its times"];
    assert_output(&writer.shaped.proxy.run("check")?, 1, &faults);
    let before = writer.state()?;
    assert_output(&writer.shaped.proxy.run("setup")?, 1, &faults);
    assert_eq!(writer.state()?, before);
    Ok(())
}

#[test]
fn conflicting_index_is_reported_before_any_change() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    writer.push(1, &trade(1, 0))?;
    let index = doc! { "key": { "other": 1 }, "name": "mongoshape_page" };
    writer
        .direct
        .command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": &writer.shaped.database })?;
    let before = writer.state()?;
    assert_output(
        &writer.shaped.proxy.run("setup")?,
        1,
        &["index mongoshape_page differs from the shape's index"],
    );
    assert_eq!(writer.state()?, before);
    Ok(())
}
