//! Writes of all kinds on one collection.

use anyhow::Result;
use bson::{Bson, Document, doc};
use mongodb::options::{
    DeleteManyModel, DeleteOneModel, InsertOneModel, ReplaceOneModel, ReturnDocument, UpdateOneModel, WriteModel,
};

use crate::Script;
use crate::transcript::{attempt, count, found, item, show, updated};

impl Script {
    pub(crate) async fn writes(&self) -> Result<()> {
        show("insertOne", self.items.insert_one(item(0)).await?.inserted_id);
        let inserted = self.items.insert_many((1..100).map(item)).await?.inserted_ids;
        show(
            "insertMany",
            (0..99).map(|index| inserted[&index].clone()).collect::<Vec<_>>(),
        );
        attempt("duplicate", self.items.insert_one(item(0)), |result| result.inserted_id).await;
        let again = [item(0), item(1), item(100)];
        let ordered = self.items.insert_many(&again);
        attempt("insertMany ordered", ordered, |result| {
            count(result.inserted_ids.len() as u64)
        })
        .await;
        let unordered = self.items.insert_many(&again).ordered(false);
        attempt("insertMany unordered", unordered, |result| {
            count(result.inserted_ids.len() as u64)
        })
        .await;
        show(
            "insertMany deleted",
            count(self.items.delete_one(doc! { "_id": 100 }).await?.deleted_count),
        );
        Ok(())
    }

    /// The driver's own bulk writes are a command of MongoDB 8: before, they fail, and the same is done one
    /// by one.
    pub(crate) async fn bulk_writes(&self) -> Result<()> {
        let namespace = self.items.namespace();
        let bulk = doc! { "$set": { "bulk": true } };
        let models: Vec<WriteModel> = vec![
            InsertOneModel::builder()
                .namespace(namespace.clone())
                .document(item(200))
                .build()
                .into(),
            UpdateOneModel::builder()
                .namespace(namespace.clone())
                .filter(doc! { "_id": 1 })
                .update(bulk.clone())
                .build()
                .into(),
            ReplaceOneModel::builder()
                .namespace(namespace.clone())
                .filter(doc! { "_id": 2 })
                .replacement(item(2))
                .build()
                .into(),
            DeleteOneModel::builder()
                .namespace(namespace.clone())
                .filter(doc! { "_id": 3 })
                .build()
                .into(),
            DeleteManyModel::builder()
                .namespace(namespace)
                .filter(doc! { "_id": 200 })
                .build()
                .into(),
        ];
        attempt("bulkWrite", self.client.bulk_write(models), |result| {
            let counts = [
                result.inserted_count,
                result.matched_count,
                result.modified_count,
                result.deleted_count,
            ];
            counts.map(|count| Bson::Int64(count)).to_vec().into()
        })
        .await;
        attempt("insertOne 200", self.items.insert_one(item(200)), |result| {
            result.inserted_id
        })
        .await;
        attempt(
            "updateOne 1",
            self.items.update_one(doc! { "_id": 1 }, bulk.clone()),
            updated,
        )
        .await;
        attempt("deleteOne 3", self.items.delete_one(doc! { "_id": 3 }), |result| {
            count(result.deleted_count)
        })
        .await;
        attempt(
            "updateOne 210",
            self.items.update_one(doc! { "_id": 210 }, bulk).upsert(true),
            updated,
        )
        .await;
        Ok(())
    }

    pub(crate) async fn updates(&self) -> Result<()> {
        let five = doc! { "$set": { "name": "five" }, "$push": { "tags": "new" } };
        show(
            "updateOne",
            updated(self.items.update_one(doc! { "_id": 5 }, five).await?),
        );
        let raised = vec![doc! { "$set": { "price": { "$add": ["$price", 1] } } }];
        show(
            "updateMany",
            updated(self.items.update_many(doc! { "group": 1 }, raised).await?),
        );
        show(
            "replaceOne",
            updated(self.items.replace_one(doc! { "_id": 6 }, doc! { "group": 6 }).await?),
        );
        let seven = doc! { "$set": { "group": 7 } };
        show(
            "upsert",
            updated(self.items.update_one(doc! { "_id": 220 }, seven).upsert(true).await?),
        );
        let next = self
            .items
            .find_one_and_update(doc! { "_id": 7 }, doc! { "$inc": { "group": 1 } });
        show(
            "findOneAndUpdate",
            found(next.return_document(ReturnDocument::After).await?),
        );
        let replaced = self.items.find_one_and_replace(doc! { "_id": 8 }, doc! { "group": 8 });
        show(
            "findOneAndReplace",
            found(replaced.projection(doc! { "tags": 0 }).await?),
        );
        let deleted: Option<Document> = self
            .items
            .find_one_and_delete(doc! { "group": 4 })
            .sort(doc! { "_id": -1 })
            .await?;
        show("findOneAndDelete", found(deleted));
        show(
            "deleteOne",
            count(self.items.delete_one(doc! { "_id": 220 }).await?.deleted_count),
        );
        let many = self.items.delete_many(doc! { "_id": { "$gte": 200 } }).await?;
        show("deleteMany", count(many.deleted_count));
        Ok(())
    }
}
