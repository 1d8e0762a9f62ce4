//! The same application on the Rust driver.

use anyhow::{Context as _, Result};
use bson::{Bson, DateTime, Document, doc};
use mongodb::options::FindOptions;
use mongodb::{Client, Collection};

fn trade(number: i32) -> Document {
    doc! {
        "_id": number,
        "ticker": if number % 2 == 0 { "MDB" } else { "GOOG" },
        "customerId": if number % 5 < 3 { 123 } else { 456 },
        "type": if number % 3 == 0 { "buy" } else { "sell" },
        "quantity": 10 * number,
        "date": DateTime::from_millis(1_698_335_223_434 + i64::from(number) * 60_000),
    }
}

/// Inserts, pages and counts, and returns all that it sees. The order of an item's fields is not significant.
pub(super) async fn trades(client: &Client) -> Result<Vec<Bson>> {
    let trades = client
        .default_database()
        .context("the connection string names one")?
        .collection::<Document>("trades");
    let mut seen = Vec::new();
    for number in 0..5 {
        seen.push(trades.insert_one(trade(number)).await?.inserted_id);
    }
    let rest: Vec<_> = (5..25).map(trade).collect();
    let inserted = trades.insert_many(rest).await?.inserted_ids;
    seen.push((0..20).map(|index| inserted[&index].clone()).collect::<Vec<_>>().into());

    for customer in [123, 456, 789] {
        let of_customer = doc! { "customerId": customer };
        for page in 1..=3 {
            let options = FindOptions::builder().skip(10 * (page - 1)).limit(10).build();
            seen.push(find(&trades, of_customer.clone(), options).await?);
        }
        seen.push(count(trades.count_documents(of_customer.clone()).await?)?);
        seen.push(find(&trades, of_customer, FindOptions::builder().batch_size(7).build()).await?);
    }

    let first = trades
        .find_one(doc! { "customerId": 456 })
        .projection(doc! { "_id": 0 })
        .await?;
    seen.push(sorted(first.context("a trade of 456")?));
    let latest = FindOptions::builder().sort(doc! { "date": -1 }).limit(3).build();
    seen.push(find(&trades, doc! { "customerId": 123 }, latest).await?);
    let by_id = FindOptions::builder().sort(doc! { "_id": 1 }).build();
    seen.push(find(&trades, doc! { "type": "sell", "quantity": { "$gte": 150 } }, by_id).await?);
    seen.push(count(trades.count_documents(doc! {}).await?)?);
    seen.push(count(trades.estimated_document_count().await?)?);
    Ok(seen)
}

async fn find(trades: &Collection<Document>, filter: Document, options: FindOptions) -> Result<Bson> {
    let mut cursor = trades.find(filter).with_options(options).await?;
    let mut found = Vec::new();
    while cursor.advance().await? {
        found.push(sorted(cursor.deserialize_current()?));
    }
    Ok(found.into())
}

fn sorted(document: Document) -> Bson {
    let mut fields: Vec<_> = document.into_iter().collect();
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    Bson::Document(fields.into_iter().collect())
}

fn count(count: u64) -> Result<Bson> {
    Ok(Bson::Int64(i64::try_from(count)?))
}
