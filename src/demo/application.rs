//! The application: it is written for a plain collection of trades. Only its connection string names mongoshape.

use bson::{DateTime, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::{Client, Database};

use super::print::{document, indented, note, section};

/// This source file, so that the shown code is the executed code.
const SOURCE: &str = include_str!("application.rs");

// begin
async fn application(database: &Database) -> mongodb::error::Result<Vec<Document>> {
    let trades = database.collection::<Document>("trades");
    trades
        .insert_many([
            trade("MDB", 123, "buy", 419, "2023-10-26T15:47:03.434Z"),
            trade("MDB", 123, "sell", 29, "2023-10-30T09:32:57.765Z"),
            trade("GOOG", 456, "buy", 50, "2023-10-31T11:16:02.120Z"),
        ])
        .await?;
    trades
        .insert_one(trade("MSFT", 123, "buy", 42, "2023-11-02T11:43:10Z"))
        .await?;
    let first_page = trades.find(doc! { "customerId": 123 }).skip(0).limit(10).await?;
    first_page.try_collect().await
}
// end

fn trade(ticker: &str, customer_id: i32, kind: &str, quantity: i32, date: &str) -> Document {
    let date = DateTime::parse_rfc3339_str(date).unwrap_or(DateTime::MIN);
    doc! { "ticker": ticker, "customerId": customer_id, "type": kind, "quantity": quantity, "date": date }
}

/// Runs the application, and shows its code and its result.
pub(super) async fn show(proxied: &Client, database: &str) -> anyhow::Result<()> {
    section("An application, unchanged but for its connection string");
    let after = SOURCE.split_once("// begin\n").map_or(SOURCE, |(_, after)| after);
    let program = after.split_once("// end\n").map_or(after, |(program, _)| program);
    indented(program);
    let page = application(&proxied.database(database)).await?;
    println!();
    note("Its result:\n");
    page.iter().for_each(document);
    Ok(())
}
