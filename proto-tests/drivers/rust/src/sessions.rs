//! Sessions, retries, and reads and writes with concerns.

use anyhow::Result;
use bson::{Bson, Document, doc};
use mongodb::options::{CollectionOptions, ReadConcern, ReadPreference, SelectionCriteria, WriteConcern};
use mongodb::{ClientSession, Collection};

use crate::Script;
use crate::transcript::{attempt, count, field, found, item, show, updated};

impl Script {
    pub(crate) async fn sessions(&self) -> Result<()> {
        let said: Collection<Document> = self.database.collection("said");
        let mut session = self.client.start_session().causal_consistency(true).await?;
        said.insert_one(doc! { "_id": 1 }).session(&mut session).await?;
        show("session", found(said.find_one(doc! {}).session(&mut session).await?));
        self.fail_once("find").await;
        attempt("retried read", self.items.find_one(doc! { "_id": 9 }), found).await;
        self.fail_once("insert").await;
        attempt("retried write", said.insert_one(doc! { "_id": 2 }), |result| {
            result.inserted_id
        })
        .await;
        show("retried write read", count(said.count_documents(doc! {}).await?));
        Ok(())
    }

    /// The server closes the connection on the next such command of this application.
    pub(crate) async fn fail_once(&self, command: &str) {
        let data = doc! { "failCommands": [command], "closeConnection": true, "appName": self.database.name() };
        let fail_point = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data };
        let admin = self.client.database("admin");
        attempt(&format!("fail {command}"), admin.run_command(fail_point), |reply| {
            field(Some(&reply), "ok")
        })
        .await;
    }

    pub(crate) async fn concerns(&self) -> Result<()> {
        let mut session = self.client.start_session().causal_consistency(true).await?;
        let options = CollectionOptions::builder()
            .read_concern(ReadConcern::majority())
            .write_concern(WriteConcern::majority())
            .selection_criteria(SelectionCriteria::ReadPreference(ReadPreference::SecondaryPreferred {
                options: None,
            }))
            .build();
        let anywhere: Collection<Document> = self.database.collection_with_options("items", options);
        let thirteen = doc! { "_id": 13 };
        let renamed = anywhere.update_one(thirteen.clone(), doc! { "$set": { "name": "thirteen" } });
        show("majority", updated(renamed.session(&mut session).await?));
        let read = anywhere.find_one(thirteen.clone()).session(&mut session).await?;
        show("secondaryPreferred", field(read.as_ref(), "name"));
        show(
            "secondaryPreferred batches",
            in_batches(&anywhere, doc! {}, &mut session).await?,
        );
        let linearizable = self.items.find_one(thirteen).read_concern(ReadConcern::linearizable());
        show("linearizable", field(linearizable.await?.as_ref(), "name"));
        Ok(())
    }

    pub(crate) async fn snapshot(&self) -> Result<()> {
        let mut session = self.client.start_session().snapshot(true).await?;
        let before = self.items.count_documents(doc! {}).session(&mut session).await?;
        self.items
            .insert_one(item(310))
            .write_concern(WriteConcern::majority())
            .await?;
        let after = self.items.count_documents(doc! {}).session(&mut session).await?;
        show("snapshot", count(after - before));
        Ok(())
    }

    pub(crate) async fn on_standalone(&self) -> Result<()> {
        let mut session = self.client.start_session().await?;
        match session.start_transaction().await {
            Ok(()) => {
                let inserted = self.items.insert_one(item(300)).session(&mut session);
                attempt("transaction", inserted, |result| result.inserted_id).await;
            }
            Err(error) => show("transaction", crate::transcript::failure(&error)),
        }
        let watched: Collection<Document> = self.database.collection("watched");
        attempt("change stream", watched.watch(), |_| Bson::Null).await;
        Ok(())
    }
}

/// How many documents a find in a session returns, one after the other.
pub(crate) async fn in_batches(
    collection: &Collection<Document>,
    filter: Document,
    session: &mut ClientSession,
) -> Result<Bson> {
    let mut cursor = collection.find(filter).batch_size(7).session(&mut *session).await?;
    let mut documents = 0;
    while cursor.next(session).await.transpose()?.is_some() {
        documents += 1;
    }
    Ok(count(documents))
}
