//! A change stream, read and resumed.

use std::time::Duration;

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};
use futures_util::TryStreamExt as _;
use mongodb::Collection;
use mongodb::change_stream::event::ChangeStreamEvent;
use mongodb::options::FullDocumentType;

use crate::Script;
use crate::transcript::{item, show};

type Event = ChangeStreamEvent<Document>;

impl Script {
    pub(crate) async fn changes(&self) -> Result<()> {
        let watched: Collection<Document> = self.database.collection("watched");
        let lookup = watched.watch().full_document(FullDocumentType::UpdateLookup);
        let mut stream = lookup.max_await_time(Duration::from_millis(500)).await?;
        show("change stream", stream.next_if_any().await?.as_ref().map(event));
        watched.insert_one(item(1)).await?;
        let one = doc! { "$set": { "name": "one" }, "$unset": { "price": 1 } };
        watched.update_one(doc! { "_id": 1 }, one).await?;
        watched.insert_one(doc! { "_id": 2 }).await?;
        watched.delete_one(doc! { "_id": 2 }).await?;
        let mut seen = Vec::new();
        while seen.len() < 4 {
            seen.push(stream.try_next().await?.context("the stream ended")?);
        }
        show("changes", seen.iter().map(event).collect::<Vec<_>>());
        drop(stream);
        let mut resumed = watched.watch().resume_after(seen[0].id.clone()).await?;
        show("resumed", resumed.try_next().await?.as_ref().map(event));
        Ok(())
    }
}

/// What two runs have in common.
fn event(event: &Event) -> Bson {
    let update = event.update_description.as_ref();
    let namespace = event
        .ns
        .as_ref()
        .map(|ns| format!("{}.{}", ns.db, ns.coll.as_deref().unwrap_or_default()));
    doc! {
        "operationType": format!("{:?}", event.operation_type),
        "ns": namespace,
        "documentKey": event.document_key.clone(),
        "fullDocument": event.full_document.clone(),
        "updatedFields": update.map(|update| update.updated_fields.clone()),
        "removedFields": update.map(|update| update.removed_fields.clone()),
    }
    .into()
}
