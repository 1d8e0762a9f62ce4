//! Indexes and collections, refusals, large documents, writes that nobody waits for.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::options::{CollectionOptions, Hint, IndexOptions, WriteConcern};
use mongodb::{Collection, IndexModel};

use crate::Script;
use crate::transcript::{MANY, attempt, count, found, ids, show};

impl Script {
    pub(crate) async fn administration(&self) -> Result<()> {
        let page = |keys| {
            let options = IndexOptions::builder().name("page".to_owned()).build();
            IndexModel::builder().keys(keys).options(options).build()
        };
        let created = self.items.create_index(page(doc! { "group": 1, "at": -1 })).await?;
        show("createIndex", created.index_name);
        let again = self.items.create_index(page(doc! { "group": 1 }));
        attempt("createIndex again", again, |created| created.index_name.into()).await;
        let indexes: Vec<_> = self.items.list_indexes().await?.try_collect().await?;
        show(
            "listIndexes",
            indexes.into_iter().map(|index| index.keys).collect::<Vec<_>>(),
        );
        let hinted = self.items.find(doc! { "group": 2 }).hint(Hint::Name("page".to_owned()));
        show("hint", ids(hinted.await?).await?);
        self.items.drop_index("page").await?;
        show("dropIndex", self.items.list_index_names().await?);
        let mut names = self.database.list_collection_names().await?;
        names.sort();
        show("listCollections", names);
        let databases = self.client.list_database_names().await?;
        show(
            "listDatabases",
            databases.iter().any(|name| name == self.database.name()),
        );
        Ok(())
    }

    pub(crate) async fn refusals(&self) -> Result<()> {
        attempt(
            "no such command",
            self.database.run_command(doc! { "noSuchCommand": 1 }),
            Bson::Document,
        )
        .await;
        attempt(
            "bad filter",
            self.items.find_one(doc! { "group": { "$nothing": 1 } }),
            found,
        )
        .await;
        let create = || self.database.create_collection("checked");
        attempt("create", create().validator(doc! { "size": { "$gt": 0 } }), |()| {
            Bson::Null
        })
        .await;
        attempt("create again", create().capped(true).size(4096), |()| Bson::Null).await;
        let checked: Collection<Document> = self.database.collection("checked");
        attempt(
            "validator",
            checked.insert_one(doc! { "_id": 1, "size": 0 }),
            |result| result.inserted_id,
        )
        .await;
        Ok(())
    }

    pub(crate) async fn large(&self) -> Result<()> {
        let text = "x".repeat(5_000_000);
        let large: Collection<Document> = self.database.collection("large");
        show(
            "large document",
            large.insert_one(doc! { "_id": 1, "text": &text }).await?.inserted_id,
        );
        let read = large.find_one(doc! { "_id": 1 }).await?.context("the large document")?;
        show("large document read", read.get_str("text")? == text);
        let many: Collection<Document> = self.database.collection("many");
        let padding = "y".repeat(500);
        let documents = (0..MANY).map(|number| doc! { "_id": number, "text": &padding });
        show(
            "large bulk",
            count(many.insert_many(documents).await?.inserted_ids.len() as u64),
        );
        let sum: i64 = ids(many.find(doc! {}).await?)
            .await?
            .iter()
            .filter_map(Bson::as_i32)
            .map(i64::from)
            .sum();
        show("large bulk read", sum);
        show(
            "large bulk deleted",
            count(many.delete_many(doc! {}).await?.deleted_count),
        );
        Ok(())
    }

    /// The driver refuses unacknowledged writes.
    pub(crate) async fn unacknowledged(&self) -> Result<()> {
        let options = CollectionOptions::builder()
            .write_concern(WriteConcern::nodes(0))
            .build();
        let careless: Collection<Document> = self.database.collection_with_options("quiet", options);
        let inserted = careless.insert_one(doc! { "_id": 1 });
        attempt("unacknowledged", inserted, |result| result.inserted_id).await;
        Ok(())
    }
}
