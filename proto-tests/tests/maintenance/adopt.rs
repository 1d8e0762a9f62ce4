//! BucketWriter-written buckets under `check`, `setup` and the proxy.

mod hand_written;
mod interrupted;
mod refused;
mod strays;

use anyhow::Result;
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use hand_written::{BucketWriter, assert_output, at, bare, bucket, trade};
use proto_tests::shaped::COLLECTION;
use proto_tests::{ItemIds, Names, Shape, buckets};

/// Everything that hand-written software leaves behind: pages full and not, written in order and not, with
/// and without dates, miscounted, empty, and two begun in one second.
fn leave_all_kinds(writer: &mut BucketWriter) -> Result<Vec<Bson>> {
    for number in 0..25 {
        writer.push(123, &trade(number, i64::from(number) * 60_000))?;
    }
    for number in 0..12 {
        // All in the same second: the second bucket has to be named otherwise.
        writer.push(45, &trade(number, i64::from(number)))?;
    }
    for number in [5, 3, 9, 1, 2, 8, 7, 0, 6, 4, 12, 11] {
        writer.push(6, &trade(number, i64::from(number) * 1000))?;
    }
    let text = |id: &str, history: &[Document]| bucket(id, "some%5Fkey", history);
    writer.write(&[
        text("some%255Fkey_1698335230", &[trade(3, 7000), doc! { "type": "sell" }]),
        text("some%255Fkey_1698335224", &[trade(1, 1000)]),
        text("some%255Fkey_1", &[doc! { "type": "sell", "at": "noon" }, doc! {}]),
        text("some%255Fkey_2", &[]),
        text("some%255Fkey_1698335225", &[trade(2, 2000)]),
    ])?;
    let mut miscounted = bucket("7_1698335223", 7, &[trade(1, 0), trade(2, 1)]);
    miscounted.insert("count", 7);
    let mut double = bucket("7_1698335224", 7, &[trade(3, 1000)]);
    double.insert("count", 1.0);
    writer.write(&[miscounted, double])?;
    Ok(vec![
        Bson::Int32(123),
        Bson::Int32(45),
        Bson::Int32(6),
        Bson::String("some%5Fkey".to_owned()),
        Bson::Int32(7),
    ])
}

#[test]
fn hand_written_buckets_are_adopted_and_accept_proxy_writes() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let keys = leave_all_kinds(&mut writer)?;
    let items: Vec<Vec<Document>> = keys
        .iter()
        .map(|key| writer.items_by_hand(key))
        .collect::<Result<_>>()?;
    let before = writer.state()?;
    let found = [
        "error: ",
        "contains 14 hand-written buckets",
        "2 with a wrong number",
        "run `mongoshape setup`",
    ];
    assert_output(&writer.shaped.proxy.run("check")?, 1, &found);
    let refusal = writer.refusal()?;
    assert!(
        refusal.contains("_id \"123_1698335223\"") && refusal.contains("mongoshape setup"),
        "{refusal}"
    );
    assert_eq!(writer.state()?, before);

    let printed = writer.set_up()?;
    let expected = [
        "no other program may write",
        "buckets adopted: 14; wrong numbers of items corrected: 2",
        "5 of 5 indexes created",
    ];
    assert!(expected.iter().all(|part| printed.contains(part)), "{printed}");
    writer.check_layout()?;
    assert_output(
        &writer.shaped.proxy.run("check")?,
        0,
        &["contains buckets, and has their indexes"],
    );
    let again = writer.set_up()?;
    assert!(
        again.contains("all 5 indexes exist") && !again.contains("adopted"),
        "{again}"
    );
    for (key, items) in keys.iter().zip(&items) {
        assert_eq!(&writer.items(key)?, items);
        check_pages(&writer, key, items)?;
    }
    for (key, items) in keys.iter().zip(items) {
        go_on(&mut writer, key, items)?;
    }
    writer.check_layout()
}

/// Pages by position, and in the order of time.
fn check_pages(writer: &BucketWriter, key: &Bson, items: &[Document]) -> Result<()> {
    let mut application = writer.shaped.application()?;
    let find = |part: Document| {
        let mut find = doc! { "find": COLLECTION, "filter": { "k": key }, "$db": &writer.shaped.database };
        find.extend(part);
        find
    };
    for (number, expected) in items.chunks(4).enumerate() {
        let page = doc! { "skip": i64::try_from(number)? * 4, "limit": 4 };
        assert_eq!(application.all(&find(page))?, expected, "page {number} of {key}");
    }
    let mut sorted: Vec<Document> = items
        .iter()
        .filter(|item| item.get_datetime("at").is_ok())
        .cloned()
        .collect();
    sorted.sort_by_key(|item| *item.get_datetime("at").unwrap());
    let newest_first = find(doc! { "sort": { "at": -1 }, "limit": 5 });
    let newest: Vec<Document> = sorted.into_iter().rev().take(5).collect();
    let found = application.all(&newest_first)?;
    let dated: Vec<Document> = found
        .into_iter()
        .filter(|item| item.get_datetime("at").is_ok())
        .collect();
    assert_eq!(dated, newest, "{key}");
    Ok(())
}

/// Inserts behind what was adopted, and reads all of it.
fn go_on(writer: &mut BucketWriter, key: &Bson, mut items: Vec<Document>) -> Result<()> {
    let mut application = writer.shaped.application()?;
    for number in 0..15 {
        let new = doc! { "k": key, "quantity": number, "at": at(10_000_000 + i64::from(number)) };
        application.command_ok(&writer.shaped.insert(std::slice::from_ref(&new)))?;
        items.push(new);
    }
    assert_eq!(writer.items(key)?, items);
    let count = doc! { "count": COLLECTION, "query": { "k": key }, "$db": &writer.shaped.database };
    assert_eq!(
        application.command_ok(&count)?.get_i32("n")?,
        i32::try_from(items.len())?
    );
    writer.check_layout()
}

#[test]
fn the_page_that_was_open_takes_the_next_item() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    for number in 0..12 {
        writer.push(1, &trade(number, i64::from(number)))?;
    }
    writer.set_up()?;
    let item = doc! { "k": 1, "quantity": 12, "at": at(12) };
    writer
        .shaped
        .application()?
        .command_ok(&writer.shaped.insert(&[item]))?;
    let counts: Vec<i32> = writer
        .shaped
        .stored()?
        .iter()
        .map(|bucket| bucket.get_i32("count").unwrap())
        .collect();
    assert_eq!(counts, [10, 3]);
    writer.check_layout()
}

#[test]
fn adoption_keeps_item_ids_and_unknown_bucket_fields() -> Result<()> {
    let mut writer = BucketWriter::start(Shape::new(&["k"]))?;
    let items = [
        doc! { "_id": 1, "k": 5, "x": 1 },
        doc! { "x": 2, "k": 5.0, "_id": 2 },
        doc! { "_id": "three", "x": { "k": 5 } },
    ];
    writer.write(&[bucket("5_1", 5, &items[..2]), bucket("5_2", 5, &items[2..])])?;
    let mut no_key = bucket("null_1", 0, &[doc! { "_id": 4, "k": null }, doc! { "_id": 5 }]);
    no_key.remove("k");
    writer.write(&[no_key])?;
    writer.set_up()?;
    writer.check_layout()?;
    let five = Bson::Int32(5);
    let expected: Vec<Document> = items.iter().map(|item| writer.seen(&five, item)).collect();
    assert_eq!(writer.items(&five)?, expected);
    assert_eq!(
        writer.items(&Bson::Null)?,
        [doc! { "_id": 4, "k": null }, doc! { "_id": 5 }]
    );
    let twice = writer.shaped.insert(&[doc! { "_id": "three", "k": 9 }]);
    let reply = writer.shaped.application()?.command_ok(&twice)?;
    let error = reply.get_array("writeErrors")?[0].as_document().unwrap();
    assert_eq!(error.get_i32("code")?, 11000);
    Ok(())
}

#[test]
fn buckets_may_have_any_name_and_several_key_fields() -> Result<()> {
    let shape = Shape {
        names: Names::Any,
        item_ids: ItemIds::Stored,
        key: vec!["k".to_owned(), "region".to_owned()],
        items: "list".to_owned(),
        count: "n".to_owned(),
        max_items: 2,
        ..Shape::new(&["k"])
    };
    let mut writer = BucketWriter::start(shape)?;
    let bucket = |id: Bson, region: &str, items: &[i32]| {
        let list: Vec<Document> = items.iter().map(|item| doc! { "x": item }).collect();
        doc! { "_id": id, "region": region, "n": i32::try_from(list.len()).unwrap(), "list": list, "k": 1 }
    };
    writer.write(&[
        bucket(ObjectId::from_bytes([9; 12]).into(), "a", &[3]),
        bucket(Bson::Int32(7), "a", &[1]),
        bucket("a_b%".into(), "a", &[2]),
        bucket(doc! { "k": 1 }.into(), "b", &[4, 5]),
    ])?;
    writer.set_up()?;
    writer.check_layout()?;
    let find = doc! { "find": COLLECTION, "filter": { "k": 1, "region": "a" }, "$db": &writer.shaped.database };
    let mut application = writer.shaped.application()?;
    let found = application.all(&find)?;
    let expected: Vec<Document> = [1, 2, 3].map(|x| doc! { "k": 1, "region": "a", "x": x }).into();
    assert_eq!(found, expected);
    for region in ["a", "b", "a", "b"] {
        let item = doc! { "_id": 1, "k": 1, "region": region, "x": 6 };
        application.command_ok(&writer.shaped.insert(&[item]))?;
    }
    assert_eq!(application.all(&find)?.len(), 5);
    writer.check_layout()
}

#[test]
fn a_clustered_collection_is_adopted_like_any() -> Result<()> {
    let shape = Shape {
        names: Names::Any,
        is_clustered: true,
        max_items: 3,
        ..Shape::new(&["k"])
    };
    let mut writer = BucketWriter::start(shape)?;
    let items: Vec<Document> = (0..9).map(|id| doc! { "_id": id, "k": 5 }).collect();
    let ids: [Bson; 5] = [
        Bson::Double(0.5),
        Bson::Int64(1 << 40),
        "5_1".into(),
        doc! { "k": 5 }.into(),
        ObjectId::from_bytes([9; 12]).into(),
    ];
    let written: Vec<Document> = ids
        .into_iter()
        .zip(items.chunks(2))
        .map(|(id, items)| bucket(id, 5, items))
        .collect();
    writer.write(&written)?;
    assert_output(
        &writer.shaped.proxy.run("check")?,
        1,
        &["contains 5 hand-written buckets"],
    );
    assert!(writer.set_up()?.contains("buckets adopted: 5"));
    assert_output(&writer.shaped.proxy.run("check")?, 0, &["contains buckets"]);
    writer.check_layout()?;
    assert_eq!(writer.items(&Bson::Int32(5))?, items);
    let more: Vec<Document> = (9..20).map(|id| doc! { "_id": id, "k": 5 }).collect();
    writer.shaped.application()?.command_ok(&writer.shaped.insert(&more))?;
    assert_eq!(writer.items(&Bson::Int32(5))?, [items, more].concat());
    writer.check_layout()
}

#[test]
fn later_buckets_are_adopted_after_existing_pages() -> Result<()> {
    let mut writer = BucketWriter::start(bare())?;
    let items: Vec<Document> = (0..13)
        .map(|number| doc! { "k": 1, "quantity": number, "at": at(i64::from(number)) })
        .collect();
    writer.shaped.application()?.command_ok(&writer.shaped.insert(&items))?;
    assert_output(&writer.shaped.proxy.run("check")?, 0, &["contains buckets"]);
    writer.write(&[bucket("1_1698335228", 1, &[trade(13, 5000)])])?;
    let found = [
        "contains 1 hand-written bucket, \"1_1698335228\"",
        "run `mongoshape setup`",
    ];
    assert_output(&writer.shaped.proxy.run("check")?, 1, &found);
    let printed = writer.set_up()?;
    assert!(
        printed.contains("buckets adopted: 1") && printed.contains("all 5 indexes exist"),
        "{printed}"
    );
    writer.check_layout()?;
    let mut expected = items;
    expected.push(writer.seen(&Bson::Int32(1), &trade(13, 5000)));
    // The proxy's cache still has the former highest page.
    let last = doc! { "k": 1, "quantity": 14, "at": at(6000) };
    writer
        .shaped
        .application()?
        .command_ok(&writer.shaped.insert(std::slice::from_ref(&last)))?;
    expected.push(last);
    assert_eq!(writer.items(&Bson::Int32(1))?, expected);
    let pages: Vec<i64> = writer.shaped.stored()?.iter().map(buckets::page).collect();
    assert_eq!(pages.len(), 3);
    writer.check_layout()
}
