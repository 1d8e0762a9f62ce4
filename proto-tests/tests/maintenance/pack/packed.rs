//! A packed collection has the documents of the original.

use anyhow::{Result, ensure};
use bson::{DateTime, Decimal128, Document, Timestamp, bson, doc};
use proto_tests::mongod::Options;
use proto_tests::{ItemIds, Proxy, ProxyOptions, Shape, client, mongod};

use super::fixture::{COLLECTION, Fixture, KEPT, documents, thawed, with_time};

#[test]
fn documents_become_items_and_are_kept() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let documents = documents(1000, 7);
        let mut fixture = Fixture::with(mongod, with_time(), &documents)?;
        let checked = fixture.output("check")?;
        ensure!(
            checked.contains("contains 1000 plain documents: `mongoshape setup --pack` moves them to pages"),
            "{checked}"
        );
        let before = fixture.catalog()?;
        ensure!(
            fixture.output("setup")?.contains("contains 1000 plain documents"),
            "setup does not report them"
        );
        ensure!(fixture.catalog()? == before, "setup has changed it");
        let uuid = fixture.uuid(COLLECTION)?;
        let printed = fixture.pack()?;
        ensure!(printed.contains("packed: 1000 documents"), "{printed}");
        ensure!(
            printed
                .trim_end()
                .lines()
                .last()
                .is_some_and(|last| last.contains(KEPT)),
            "{printed}"
        );
        ensure!(fixture.uuid(KEPT)? == uuid, "what is kept is another");
        // 1000 by 7 keys is 142 or 143 each.
        ensure!(fixture.stored(COLLECTION)?.len() == 7 * 15, "pages are not full");
        fixture.check_packed(&documents)?;
        let again = fixture.pack()?;
        ensure!(again.contains("all 6 indexes exist"), "{again}");
        let checked = fixture.output("check")?;
        ensure!(checked.contains("contains buckets, and has their indexes"), "{checked}");
    }
    Ok(())
}

#[test]
fn a_keys_items_come_by_time_and_pages_are_in_order() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents(300, 2))?;
    fixture.pack()?;
    let late = doc! { "find": COLLECTION, "filter": { "control.late": true }, "$db": &fixture.database };
    let late = fixture.direct.all(&late)?;
    ensure!(late.is_empty(), "{late:?}");
    let find = doc! { "find": COLLECTION, "filter": { "k": 1 }, "$db": &fixture.database };
    let times: Vec<DateTime> = fixture
        .application()?
        .all(&find)?
        .iter()
        .filter_map(|item| item.get_datetime("at").ok().copied())
        .collect();
    ensure!(times.len() == 150 && times.is_sorted(), "{times:?}");
    Ok(())
}

/// Values that compare equal, or as nothing else does, and keys of one text.
fn odd() -> Result<Vec<Document>> {
    let decimal: Decimal128 = "1.00".parse()?;
    let at = |seconds: i64| DateTime::from_millis(seconds * 1000);
    Ok(vec![
        doc! { "_id": 1, "k": 1, "at": at(9) },
        doc! { "_id": 2, "k": 1.0, "at": at(3), "quantity": -0.0, "qty": f64::INFINITY },
        doc! { "_id": 3, "k": 1_i64, "at": "no date", "n": Timestamp { time: 0, increment: 0 } },
        doc! { "_id": 4, "k": decimal, "n": decimal },
        doc! { "_id": 5, "k": "1", "at": bson::Bson::Null },
        doc! { "_id": 6, "k": bson::Bson::Null, "at": [at(1), at(2)] },
        doc! { "_id": 7, "at": at(1), "": { "": 1 } },
        doc! { "_id": 8, "k": { "a": 1 }, "at": at(1) },
        doc! { "_id": 9, "k": { "a": 1.0 }, "at": at(1) },
        doc! { "_id": 10, "k": { "b": 1 }, "at": at(1) },
        doc! { "_id": 11, "k": -0.0, "at": at(1) },
        doc! { "_id": 12, "k": 0, "at": at(1), "$dollar": 1, "a.b": 2 },
        doc! { "_id": 13, "k": bson::Bson::MinKey, "z": bson::Bson::Undefined },
        doc! { "_id": 14, "k": true, "control": "none" },
        doc! { "_id": 15, "k": "x".repeat(300), "at": at(-1) },
        doc! { "_id": 16, "k": "x".repeat(301), "at": at(-1) },
        doc! { "_id": { "a": 1 }, "k": DateTime::MAX, "at": DateTime::MAX },
    ])
}

/// A `2dsphere` index accepts a null or empty location only beside documents without a location.
#[test]
fn locations_that_an_index_refuses_together_come_on_pages_of_their_own() -> Result<()> {
    let location = |n: i32| match n / 8 % 5 {
        0 => Some(bson!([f64::from(n) / 4.0, 5])),
        1 => Some(bson::Bson::Null),
        2 => Some(bson!({ "type": "Point", "coordinates": [5, f64::from(n) / 4.0] })),
        3 => Some([bson!([]), bson!({})][usize::from(n % 3 == 0)].clone()),
        _ => None,
    };
    let mut documents = documents(300, 2);
    for (n, document) in (0..).zip(&mut documents) {
        document.extend(location(n).map(|location| ("place".to_owned(), location)));
    }
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let index = doc! { "key": { "place": "2dsphere", "n": 1 }, "name": "geo" };
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": [&index] })?;
    fixture.pack()?;
    fixture.check_packed(&documents)?;
    let near = doc! { "$near": { "$geometry": { "type": "Point", "coordinates": [3.1, 4.7] } } };
    let mut find =
        doc! { "find": COLLECTION, "filter": { "place": near, "n": { "$gt": 9 } }, "$db": &fixture.database };
    find.insert("projection", doc! { "n": 1, "place": 1 });
    let items = fixture.application()?.all(&find)?;
    find.insert("find", KEPT);
    ensure!(items == fixture.direct.all(&find)? && items.len() > 100, "{items:?}");
    Ok(())
}

#[test]
fn every_value_is_kept_in_every_bit() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored] {
        for time in [None, Some("at".to_owned())] {
            let shape = Shape {
                time,
                item_ids,
                ..with_time()
            };
            let mut fixture = Fixture::with(mongod::shared(), shape, &odd()?)?;
            let documents = fixture.stored(COLLECTION)?;
            fixture.pack()?;
            fixture.check_packed(&documents)?;
        }
    }
    Ok(())
}

#[test]
fn ids_that_are_dropped_are_dropped() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        ..with_time()
    };
    let mut fixture = Fixture::with(mongod::shared(), shape, &documents(50, 3))?;
    fixture.pack()?;
    let find = doc! { "find": COLLECTION, "sort": { "n": 1 }, "$db": &fixture.database };
    let items = fixture.application()?.all(&find)?;
    ensure!(
        items.len() == 50 && items.iter().all(|item| !item.contains_key("_id")),
        "{items:?}"
    );
    ensure!(fixture.stored(KEPT)?.len() == 50, "what is kept has them");
    Ok(())
}

#[test]
fn pages_are_closed_by_their_size_and_keys_may_have_several_fields() -> Result<()> {
    let shape = Shape {
        max_bytes: 1024,
        ..Shape::new(&["k", "n"])
    };
    let documents: Vec<Document> = (0..100_i32)
        .map(|n| doc! { "_id": n, "k": n % 2, "n": n % 3, "text": "x".repeat(usize::try_from(n % 5).unwrap_or(0) * 150) })
        .collect();
    let mut fixture = Fixture::with(mongod::shared(), shape, &documents)?;
    fixture.pack()?;
    fixture.check_packed(&documents)
}

#[test]
fn the_applications_indexes_and_the_options_are_taken_over() -> Result<()> {
    let documents = documents(100, 3);
    let mut fixture = Fixture::open(mongod::shared(), with_time())?;
    let clustered = doc! { "key": { "_id": 1 }, "unique": true };
    fixture.past(doc! { "create": COLLECTION, "clusteredIndex": clustered })?;
    fixture.past(doc! { "insert": COLLECTION, "documents": &documents })?;
    let indexes = [
        doc! { "key": { "k": 1, "at": -1 }, "name": "k_at" },
        doc! { "key": { "quantity": 1 }, "name": "quantity", "hidden": true },
    ];
    fixture.past(doc! { "createIndexes": COLLECTION, "indexes": indexes.to_vec() })?;
    let listed = doc! { "listIndexes": COLLECTION, "$db": &fixture.database };
    let before = fixture.direct.all(&listed)?;
    fixture.pack()?;
    let after = fixture.application()?.all(&listed)?;
    ensure!(after == before, "{after:?}");
    let options = |catalog: Vec<Document>| catalog[0].get_document("options").cloned();
    let options = options(fixture.catalog()?)?;
    ensure!(
        options.contains_key("clusteredIndex") && options.len() == 1,
        "{options}"
    );
    let explained = doc! { "find": COLLECTION, "filter": { "quantity": 5 } };
    ensure!(fixture.run(explained)?.get_f64("ok")? > 0.0, "it is read");
    fixture.check_packed(&documents)
}

#[test]
fn kept_original_can_be_renamed_back() -> Result<()> {
    let documents = documents(100, 3);
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents)?;
    let before = fixture.catalog()?;
    fixture.pack()?;
    let (database, to) = (fixture.database.clone(), format!("{}.{COLLECTION}", fixture.database));
    fixture.past(doc! { "drop": COLLECTION })?;
    let rename = doc! { "renameCollection": format!("{database}.{KEPT}"), "to": to, "$db": "admin" };
    fixture.direct.command_ok(&rename)?;
    fixture.past(doc! { "collMod": COLLECTION, "validator": {} })?;
    ensure!(thawed(fixture.catalog()?) == before, "{:?}", fixture.catalog()?);
    ensure!(fixture.stored(COLLECTION)? == documents, "other documents");
    fixture.pack()?;
    fixture.check_packed(&documents)
}

#[test]
fn copy_is_not_listed_and_kept_original_is() -> Result<()> {
    let mut fixture = Fixture::with(mongod::shared(), with_time(), &documents(10, 3))?;
    fixture.pack()?;
    fixture.past(doc! { "create": super::fixture::COPY })?;
    let list = doc! { "listCollections": 1, "nameOnly": true, "$db": &fixture.database };
    let listed = fixture.application()?.all(&list)?;
    let mut names: Vec<&str> = listed.iter().filter_map(|listed| listed.get_str("name").ok()).collect();
    names.sort_unstable();
    ensure!(names == [COLLECTION, KEPT], "{names:?}");
    Ok(())
}

#[tokio::test]
async fn read_write_and_db_admin_are_enough() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let all = client(&mongod.uri()).await?;
    let roles = bson!([{ "role": "readWrite", "db": "d" }, { "role": "dbAdmin", "db": "d" }]);
    let user = doc! { "createUser": "packer", "pwd": "word", "roles": roles };
    all.database("admin").run_command(user).await?;
    let insert = doc! { "insert": COLLECTION, "documents": documents(100, 3) };
    all.database("d").run_command(insert).await?;
    let toml = with_time().toml(&format!("d.{COLLECTION}"));
    let proxy = Proxy::start_with_misfits(&ProxyOptions::new(&mongod.uri_as("packer", "word")).config(&toml))?;
    let output = proxy.run_with("setup", &["--pack"])?;
    let printed = String::from_utf8_lossy(&output.stdout);
    ensure!(
        output.status.success() && printed.contains("packed: 100 documents"),
        "{printed}"
    );
    Ok(())
}
