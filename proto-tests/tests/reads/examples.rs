//! The example of the bucket pattern from MongoDB's documentation: the trades of three customers.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use mongodb::Collection;
use proto_tests::{Proxy, ProxyOptions, client, database_name, mongod, raw};

struct Setup {
    proxy: Proxy,
    database: String,
}

impl Setup {
    fn new(item_ids: &str) -> Result<Self> {
        let database = database_name();
        let shape = format!(
            "[[bucket]]\nnamespace = \"{database}.trades\"\nkey = \"customerId\"\ntime = \"date\"\n\
             rename = {{ quantity = \"qty\" }}\nitem_ids = \"{item_ids}\""
        );
        let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&shape))?;
        Ok(Self { proxy, database })
    }

    async fn application(&self) -> Result<Collection<Document>> {
        Ok(client(&self.proxy.uri())
            .await?
            .database(&self.database)
            .collection("trades"))
    }

    /// The pages in the order of `_id`, without their revisions, which are random.
    fn stored(&self) -> Result<Vec<Document>> {
        let mut connection = raw::Connection::open(mongod::shared().address())?;
        let mut pages = connection.all(&doc! { "find": "trades", "sort": { "_id": 1 }, "$db": &self.database })?;
        for page in &mut pages {
            let revision = page.get_document_mut("control")?.remove("revision");
            ensure!(revision.is_some(), "the page has no revision: {page}");
        }
        Ok(pages)
    }
}

fn date(text: &str) -> DateTime {
    DateTime::parse_rfc3339_str(text).unwrap()
}

fn trades() -> Vec<Document> {
    let trade = |ticker: &str, customer: i32, kind: &str, quantity: i32, time: &str| {
        doc! { "ticker": ticker, "customerId": customer, "type": kind, "quantity": quantity, "date": date(time) }
    };
    vec![
        trade("MDB", 123, "buy", 419, "2023-10-26T15:47:03.434Z"),
        trade("MDB", 123, "sell", 29, "2023-10-30T09:32:57.765Z"),
        trade("GOOG", 456, "buy", 50, "2023-10-31T11:16:02.120Z"),
    ]
}

fn msft() -> Document {
    doc! { "ticker": "MSFT", "customerId": 123, "type": "buy", "quantity": 42, "date": date("2023-11-02T11:43:10Z") }
}

/// The items of the example as they are stored, without their `_id`s.
fn histories() -> [Vec<Document>; 2] {
    let item = |ticker: &str, kind: &str, quantity: i32, time: &str| {
        doc! { "ticker": ticker, "type": kind, "qty": quantity, "date": date(time) }
    };
    let of_123 = vec![
        item("MDB", "buy", 419, "2023-10-26T15:47:03.434Z"),
        item("MDB", "sell", 29, "2023-10-30T09:32:57.765Z"),
        item("MSFT", "buy", 42, "2023-11-02T11:43:10Z"),
    ];
    [of_123, vec![item("GOOG", "buy", 50, "2023-10-31T11:16:02.120Z")]]
}

fn bucket(id: &str, customer: i32, history: &[Document], bytes: i32) -> Document {
    let count = i32::try_from(history.len()).unwrap();
    let control = doc! {
        "v": 1, "page": 0, "bytes": bytes,
        "from": history[0].get("date").cloned(), "to": history[history.len() - 1].get("date").cloned(),
    };
    doc! { "_id": id, "customerId": customer, "count": count, "history": history, "control": control }
}

/// Compares field order, types and all.
#[track_caller]
fn assert_same(found: &[Document], expected: &[Document]) {
    let bytes = |documents: &[Document]| documents.iter().map(|d| d.to_vec().unwrap()).collect::<Vec<_>>();
    assert_eq!(
        bytes(found),
        bytes(expected),
        "\nfound    {found:#?}\nexpected {expected:#?}"
    );
}

#[tokio::test]
async fn the_trades_leave_exactly_the_documents_of_the_pattern() -> Result<()> {
    let setup = Setup::new("dropped")?;
    let application = setup.application().await?;
    for trade in trades() {
        application.insert_one(trade).await?;
    }
    let [of_123, of_456] = histories();
    let goog = bucket("456_1698750962", 456, &of_456, 59);
    assert_same(
        &setup.stored()?,
        &[bucket("123_1698335223", 123, &of_123[..2], 117), goog.clone()],
    );
    application.insert_one(msft()).await?;
    assert_same(&setup.stored()?, &[bucket("123_1698335223", 123, &of_123, 176), goog]);
    Ok(())
}

#[tokio::test]
async fn one_command_leaves_the_same_documents_as_one_for_each_trade() -> Result<()> {
    let setup = Setup::new("dropped")?;
    let application = setup.application().await?;
    let mut all = trades();
    all.push(msft());
    application.insert_many(all).await?;
    let [of_123, of_456] = histories();
    let expected = [
        bucket("123_1698335223", 123, &of_123, 176),
        bucket("456_1698750962", 456, &of_456, 59),
    ];
    assert_same(&setup.stored()?, &expected);
    Ok(())
}

#[tokio::test]
async fn the_application_sees_its_own_trades_and_pages() -> Result<()> {
    for item_ids in ["dropped", "stored", "unique"] {
        let setup = Setup::new(item_ids)?;
        let application = setup.application().await?;
        let mut sent = trades();
        sent.push(msft());
        for trade in &mut sent {
            let id = application.insert_one(&*trade).await?.inserted_id;
            let mut seen = Document::new();
            if item_ids != "dropped" {
                seen.insert("_id", id);
            }
            seen.insert("customerId", trade.get("customerId").cloned());
            seen.extend(trade.clone());
            *trade = seen;
        }
        // Compared without the order of an item's fields, which is not significant.
        let of_123 = [sent[0].clone(), sent[1].clone(), sent[3].clone()];
        for sort in [doc! {}, doc! { "date": 1 }] {
            let page = |number: u64| {
                application
                    .find(doc! { "customerId": 123 })
                    .sort(sort.clone())
                    .skip(10 * (number - 1))
            };
            assert_eq!(collect(page(1).limit(10).await?).await?, of_123);
            assert_eq!(collect(page(2).limit(10).await?).await?, []);
            assert_eq!(collect(page(1).await?).await?, of_123);
        }
        let fifty = application.find(doc! { "quantity": 50 }).await?;
        assert_eq!(collect(fifty).await?, sent[2..3]);
        assert_eq!(application.count_documents(doc! {}).await?, 4);
        assert_eq!(application.count_documents(doc! { "customerId": 456 }).await?, 1);
        assert_eq!(application.count_documents(doc! { "qty": 50 }).await?, 0);
    }
    Ok(())
}

#[tokio::test]
async fn a_customers_pages_are_ten_trades_each_and_end() -> Result<()> {
    let setup = Setup::new("dropped")?;
    let application = setup.application().await?;
    let start = date("2023-10-26T15:47:03.434Z").timestamp_millis();
    let trade = |number: i32| {
        doc! { "customerId": 123, "number": number, "date": DateTime::from_millis(start + i64::from(number) * 60_000) }
    };
    application.insert_many((0..25).map(trade)).await?;
    application.insert_many((25..37).map(trade)).await?;
    let stored = setup.stored()?;
    assert_eq!(
        stored
            .iter()
            .map(|bucket| bucket.get_i32("count").unwrap())
            .collect::<Vec<_>>(),
        [10, 10, 10, 7]
    );
    for (page, first) in (0..4_u64).zip([0, 10, 20, 30]) {
        let found = application
            .find(doc! { "customerId": 123 })
            .skip(10 * page)
            .limit(10)
            .await?;
        let expected: Vec<_> = (first..37.min(first + 10)).map(trade).collect();
        assert_same(&collect(found).await?, &expected);
    }
    let past_the_end = application.find(doc! { "customerId": 123 }).skip(40).limit(10).await?;
    assert_same(&collect(past_the_end).await?, &[]);
    let newest = application
        .find(doc! { "customerId": 123 })
        .sort(doc! { "date": -1 })
        .limit(2)
        .await?;
    assert_same(&collect(newest).await?, &[trade(36), trade(35)]);
    Ok(())
}

#[tokio::test]
async fn stored_ids_come_first_and_duplicate_unique_ids_are_refused() -> Result<()> {
    for item_ids in ["stored", "unique"] {
        let setup = Setup::new(item_ids)?;
        let application = setup.application().await?;
        let mut all = trades();
        for (trade, id) in all.iter_mut().zip(["a", "b", "c"]) {
            trade.insert("_id", id);
        }
        application.insert_many(all).await?;
        let [mut of_123, mut of_456] = histories();
        of_123.truncate(2);
        for (item, id) in of_123.iter_mut().chain(&mut of_456).zip(["a", "b", "c"]) {
            let mut named = doc! { "_id": id };
            named.extend(item.clone());
            *item = named;
        }
        // An `_id` of one letter is 11 bytes of an item.
        let expected = [
            bucket("123_1698335223", 123, &of_123, 139),
            bucket("456_1698750962", 456, &of_456, 70),
        ];
        assert_same(&setup.stored()?, &expected);
        let mut again = msft();
        again.insert("_id", "c");
        let again = application.insert_one(again).await;
        if item_ids == "unique" {
            let error = again.unwrap_err().to_string();
            assert!(
                error.contains("E11000") && error.contains("index: _id_ dup key: { _id: \\\"c\\\" }"),
                "{error}"
            );
            assert_same(&setup.stored()?, &expected);
        } else {
            assert_eq!(again?.inserted_id, Bson::from("c"));
            assert_eq!(application.count_documents(doc! { "_id": "c" }).await?, 2);
        }
    }
    Ok(())
}

async fn collect(mut cursor: mongodb::Cursor<Document>) -> Result<Vec<Document>> {
    let mut documents = Vec::new();
    while cursor.advance().await? {
        documents.push(cursor.deserialize_current()?);
    }
    Ok(documents)
}
