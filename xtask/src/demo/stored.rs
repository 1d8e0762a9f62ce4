//! The stored documents of the application's trades.

use anyhow::Result;
use bson::{Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::Client;

use super::print::{document, section};

pub(super) async fn show(uri: &str) -> Result<()> {
    section("What mongod holds in shop.trades: one document a page");
    let trades = Client::with_uri_str(uri)
        .await?
        .database("shop")
        .collection::<Document>("trades");
    let buckets: Vec<_> = trades.find(doc! {}).await?.try_collect().await?;
    buckets.iter().for_each(document);
    Ok(())
}
