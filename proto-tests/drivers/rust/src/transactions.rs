//! Transactions that commit, abort, are run by the driver, and collide.

use anyhow::Result;
use bson::{Bson, doc};

use crate::Script;
use crate::sessions::in_batches;
use crate::transcript::{attempt, count, field, item, show, updated};

impl Script {
    async fn added(&self) -> Result<Bson> {
        Ok(count(
            self.items.count_documents(doc! { "_id": { "$gte": 300 } }).await?,
        ))
    }

    async fn field_of(&self, id: i32, name: &str) -> Result<Bson> {
        let item = self.items.find_one(doc! { "_id": id }).await?;
        Ok(field(item.as_ref(), name))
    }

    pub(crate) async fn transactions(&self) -> Result<()> {
        let added = doc! { "_id": { "$gte": 300 } };
        let mut session = self.client.start_session().await?;
        session.start_transaction().await?;
        self.items
            .insert_many([item(300), item(301)])
            .session(&mut session)
            .await?;
        let ten = doc! { "$set": { "name": "ten" } };
        self.items
            .update_one(doc! { "_id": 10 }, ten)
            .session(&mut session)
            .await?;
        let inside = in_batches(&self.items, added.clone(), &mut session).await?;
        show("transaction", vec![inside, self.added().await?]);
        session.commit_transaction().await?;
        show("committed", vec![self.added().await?, self.field_of(10, "name").await?]);
        session.start_transaction().await?;
        let deleted = self.items.delete_many(added).session(&mut session).await?;
        show("aborted", count(deleted.deleted_count));
        session.abort_transaction().await?;
        show("after abort", self.added().await?);
        session.start_transaction().await?;
        let duplicate = self.items.insert_one(item(300)).session(&mut session);
        attempt("duplicate in transaction", duplicate, |result| result.inserted_id).await;
        session.abort_transaction().await?;
        Ok(())
    }

    pub(crate) async fn with_transaction(&self) -> Result<()> {
        self.fail_once("commitTransaction").await;
        let mut session = self.client.start_session().await?;
        let transferred = session
            .start_transaction()
            .and_run2(async |session| {
                let more = doc! { "$inc": { "group": 100 } };
                self.items
                    .update_one(doc! { "_id": 11 }, more)
                    .session(&mut *session)
                    .await?;
                self.items.find_one(doc! { "_id": 11 }).session(&mut *session).await
            })
            .await?;
        show("withTransaction", field(transferred.as_ref(), "group"));
        show("withTransaction read", self.field_of(11, "group").await?);
        Ok(())
    }

    pub(crate) async fn conflict(&self) -> Result<()> {
        let (mut first, mut second) = (self.client.start_session().await?, self.client.start_session().await?);
        first.start_transaction().await?;
        second.start_transaction().await?;
        let rename = |name: &str| {
            self.items
                .update_one(doc! { "_id": 12 }, doc! { "$set": { "name": name } })
        };
        rename("first").session(&mut first).await?;
        attempt("write conflict", rename("second").session(&mut second), updated).await;
        second.abort_transaction().await?;
        first.commit_transaction().await?;
        show("write conflict read", self.field_of(12, "name").await?);
        Ok(())
    }
}
