//! The collection of a run, and the collections beside it.

use std::sync::Arc;

use bson::{Binary, Document, doc};
use mongodb::Database;

use super::layout::{Layout, PagesOf};
use super::mirror::Mirror;
use super::mirror::side::Side;
use super::record::{Direction, Phase, Record};
use crate::command::collection::IMAGES;
use crate::maintenance::check::collection::has_images;
use crate::maintenance::embedded_proxy::EmbeddedProxy;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::swap::{Halt, uuid_of};
use crate::maintenance::upstream::{ShapedCollection, description, is_missing};

/// A collection that may be converted.
pub(super) struct Subject {
    pub(super) database: Database,
    pub(super) collection: String,
    pub(super) namespace: String,
    /// The collection with its shape in the configuration.
    pub(super) configured: Option<ShapedCollection>,
    pub(super) is_replicated: bool,
}

/// The layouts of a conversion.
pub(super) struct Plan {
    pub(super) from: Layout,
    pub(super) to: Layout,
}

impl Subject {
    /// Whether a killed run has held writers, or has begun to swap. A late command may have overwritten its
    /// record.
    pub(super) async fn may_be_frozen(&self, record: &Record) -> Result<bool, Halt> {
        if record.is_done() {
            return Ok(false);
        }
        if record.phase == Phase::Swapping || record.phase.after_holding().is_some() {
            return Ok(true);
        }
        Ok(uuid_named(&self.database, &self.collection).await?.as_ref() != Some(&record.source))
    }

    /// The collection as listed.
    pub(super) async fn described(&self) -> Result<Document, Halt> {
        let described = description(&self.database, &self.collection).await?;
        described.ok_or_else(|| Halt::Words("does not exist".to_owned()))
    }

    /// The record of the way back of a conversion.
    pub(super) async fn way_back(&self, record: Record) -> Result<Record, Halt> {
        let described = self.described().await?;
        let source = uuid_of(&described)?;
        if record.is_way_back() && record.source == source {
            return Ok(record);
        }
        if record.is_way_back() {
            // `compact` has replaced the collection.
            return Ok(Record {
                phase: Phase::Copying,
                source,
                token: None,
                ..record
            });
        }
        Ok(Record {
            phase: Phase::Copying,
            from: record.to,
            to: record.from,
            source,
            copy: record.source,
            had_images: has_images(&described),
            token: None,
            direction: Direction::WayBack,
            swap_number: record.swap_number,
        })
    }

    /// Reports a conversion that has swapped.
    pub(super) fn report_converted(&self, record: &Record, findings: &mut Findings) {
        let text = format!("converted: contains {} now", record.to);
        findings.add(&Finding::fine(&self.namespace, text));
        findings.add(&record.finding(&self.namespace, &self.collection));
    }

    /// Ends the storage of images that the conversion has enabled.
    pub(super) async fn disable_images(&self, record: &Record) -> Result<(), Halt> {
        if !record.from.is_plain() && !record.had_images {
            let images = doc! { "collMod": &self.collection, IMAGES: { "enabled": false } };
            match self.database.run_command(images).await {
                Err(error) if is_missing(&error) => {}
                disabled => drop(disabled?),
            }
        }
        Ok(())
    }

    /// The collection with the shape of its pages, or of those that it will have.
    pub(super) fn target(&self, from: &Layout, to: &Layout) -> Result<ShapedCollection, Halt> {
        let of = PagesOf {
            database: &self.database,
            collection: &self.collection,
            has_change_streams: false,
            rejects_direct_writes: false,
        };
        let shape = match from.shape(&of)? {
            Some(shape) => Some(shape),
            None => to.shape(&of)?,
        };
        let shape = shape.ok_or_else(|| Halt::Words("is plain before and after".to_owned()))?;
        Ok(ShapedCollection::with_shape(
            self.database.clone(),
            self.collection.clone(),
            Arc::new(shape),
        ))
    }

    pub(super) fn mirror(&self, proxy: &EmbeddedProxy, plan: &Plan, copy: &str) -> Mirror {
        let through = proxy.client().database(self.database.name());
        Mirror {
            source: self.side(&through, &self.collection, &plan.from),
            copy: self.side(&through, copy, &plan.to),
            placing: plan.to.placing(),
            source_pages: None,
            copy_pages: None,
        }
    }

    fn side(&self, through: &Database, collection: &str, layout: &Layout) -> Side {
        let is_plain = layout.is_plain();
        Side {
            server: self.database.clone(),
            database: if is_plain {
                self.database.clone()
            } else {
                through.clone()
            },
            collection: collection.to_owned(),
            is_plain,
            is_replicated: self.is_replicated,
            uuid: None,
            batch_size: None,
        }
    }
}

/// The UUID of the collection with this name.
pub(super) async fn uuid_named(database: &Database, name: &str) -> Result<Option<Binary>, Halt> {
    let described = description(database, name).await?;
    described.map(|described| uuid_of(&described)).transpose()
}
