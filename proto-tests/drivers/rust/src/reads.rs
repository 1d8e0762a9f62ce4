//! Reads of all kinds on one collection.

use anyhow::Result;
use bson::{Bson, doc};
use futures_util::TryStreamExt as _;
use mongodb::options::Collation;

use crate::Script;
use crate::transcript::{all, count, found, ids, show};

impl Script {
    pub(crate) async fn reads(&self) -> Result<()> {
        let page = self
            .items
            .find(doc! { "group": { "$lt": 3 } })
            .projection(doc! { "name": 1, "at": 1 })
            .sort(doc! { "price": -1 })
            .skip(5)
            .limit(4);
        show("find", all(page.await?).await?);
        show("findOne", found(self.items.find_one(doc! { "_id": "none" }).await?));
        let by_id = doc! { "_id": 1 };
        let batches = self.items.find(doc! {}).sort(by_id.clone()).batch_size(7);
        show("batches", ids(batches.await?).await?);
        let mut cursor = self.items.find(doc! {}).sort(by_id).batch_size(5).await?;
        let mut first = Vec::new();
        while let Some(item) = cursor.try_next().await? {
            first.push(item.get("_id").cloned().unwrap_or(Bson::Null));
            if first.len() == 7 {
                break;
            }
        }
        drop(cursor);
        show("closed early", first);
        let numeric = Collation::builder().locale("en").numeric_ordering(true).build();
        let named = self.items.find(doc! { "_id": { "$lt": 30 } }).sort(doc! { "name": 1 });
        show("collation", ids(named.collation(numeric).await?).await?);
        Ok(())
    }

    pub(crate) async fn aggregates(&self) -> Result<()> {
        let by_group = [
            doc! { "$group": { "_id": "$group", "price": { "$sum": "$price" }, "count": { "$sum": 1 } } },
            doc! { "$sort": { "_id": 1 } },
        ];
        show("aggregate", all(self.items.aggregate(by_group).await?).await?);
        let tagged = [
            doc! { "$unwind": "$tags" },
            doc! { "$sort": { "_id": 1, "tags": 1 } },
            doc! { "$project": { "tags": 1 } },
        ];
        show(
            "aggregate in batches",
            all(self.items.aggregate(tagged).batch_size(7).await?).await?,
        );
        let mut tags = self.items.distinct("tags", doc! {}).await?;
        tags.sort_by_key(ToString::to_string);
        show("distinct", tags);
        show(
            "countDocuments",
            count(self.items.count_documents(doc! { "group": 2 }).await?),
        );
        show(
            "estimatedDocumentCount",
            count(self.items.estimated_document_count().await?),
        );
        Ok(())
    }
}
