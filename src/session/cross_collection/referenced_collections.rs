//! Checks the shaped collections that a pipeline references, before the pipeline is executed.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::pattern::bucket::items_view;
use crate::pattern::pipeline::ReferencedCollection;
use crate::pattern::shapes::{BucketShape, OutlierShape, Shape};
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;
use crate::session::metrics::{RefusalReason, Strategy};
use crate::session::refusal::RefusedCollection;
use crate::session::upstream::UpstreamKind;

/// Prepares the referenced collections of one command.
pub(in crate::session) struct ReferencedCollections<'a, 'c> {
    pub(in crate::session) context: &'c mut CommandContext<'a>,
}

impl ReferencedCollections<'_, '_> {
    /// Refuses collections with content that their shape cannot read, and creates the item views
    /// that the pipeline needs.
    pub(in crate::session) async fn prepare(&mut self, reached: &[ReferencedCollection]) -> Result<(), RunError> {
        for reached in reached {
            let namespace = Namespace::new(self.context.head.database, &reached.collection);
            let shape = match reached.shape() {
                Shape::Bucket(shape) => shape,
                Shape::Outlier(shape) if self.context.upstream == UpstreamKind::Mongos => {
                    let collection = RefusedCollection {
                        namespace,
                        configured: shape.namespace(),
                        pattern: OutlierShape::PATTERN,
                    };
                    let refusals = self.context.refusals();
                    return Err(collection.refuse(refusals, RefusalReason::Cluster, "a mongos").into());
                }
                Shape::Outlier(shape) => {
                    self.context.check_stored_shape(shape, namespace).await?;
                    continue;
                }
            };
            let settings = self.context.settings;
            settings
                .catalog
                .for_reading(&mut self.context.catalog_session(shape, namespace))
                .await?;
            self.context.record_read(shape.namespace(), Strategy::Pipeline);
            if reached.needs_view {
                self.ensure_view(shape, namespace).await?;
            }
        }
        Ok(())
    }

    /// Creates item views again after the command has created a view: until then no view read them,
    /// so another command may have dropped them.
    pub(super) async fn keep_views(&mut self, reached: &[ReferencedCollection]) -> Result<(), RunError> {
        for reached in reached.iter().filter(|reached| reached.needs_view) {
            let Shape::Bucket(shape) = reached.shape() else {
                continue;
            };
            let namespace = Namespace::new(self.context.head.database, &reached.collection);
            match self.ensure_view(shape, namespace).await {
                // The command has succeeded, so an error is ignored.
                Ok(()) | Err(RunError::Command(_)) => {}
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    async fn ensure_view(&mut self, shape: &BucketShape, namespace: Namespace<'_>) -> Result<(), RunError> {
        // A view has its own collation, which must equal the command's.
        let collation = get(self.context.head.body(), "collation").and_then(RawBsonRef::as_document);
        if collation.is_some_and(|collation| get(collation, "locale") != Some(RawBsonRef::String("simple"))) {
            let what = "a stage that reads it through the view of its items, with a collation,";
            return Err(self.unsupported(shape, namespace, what).into());
        }
        if self.has_view(shape, namespace).await? {
            return Ok(());
        }
        if self.context.head.in_transaction() {
            let what = "a stage that reads it through the view of its items, in a transaction in which the view does not exist,";
            return Err(self.unsupported(shape, namespace, what).into());
        }
        let mut create = items_view::create(shape, namespace.collection);
        self.context.options().append_identity(&mut create);
        match self.context.link.run(&create).await {
            Ok(_) => {
                tracing::info!(%namespace, "created the view of its items");
                Ok(())
            }
            // Another proxy created it first. The view is checked again.
            Err(_) if self.has_view(shape, namespace).await? => Ok(()),
            Err(error) => Err(error),
        }
    }

    async fn has_view(&mut self, shape: &BucketShape, namespace: Namespace<'_>) -> Result<bool, RunError> {
        let name = items_view::name(namespace.collection);
        let mut command = single("listCollections", 1);
        command.append(cstr!("filter"), single("name", name.as_str()));
        self.context.options().append_to_inspect(&mut command);
        let reply: RawDocumentBuf = self.context.link.run(&command).await?;
        let found: Option<&RawDocument> = CursorReply::parse(&reply).and_then(|cursor| cursor.documents().next());
        match found {
            None => Ok(false),
            Some(found) if items_view::is(shape, namespace.collection, found) => Ok(true),
            Some(_) => {
                let message = format!(
                    "mongoshape reads {namespace} through a view of its items here, but {name} is not that view: \
                     drop or rename it"
                );
                Err(CommandError::new(ErrorCode::InvalidOptions, message).into())
            }
        }
    }

    fn unsupported(&self, shape: &BucketShape, namespace: Namespace<'_>, what: &str) -> CommandError {
        let collection = RefusedCollection {
            namespace,
            configured: shape.namespace(),
            pattern: BucketShape::PATTERN,
        };
        collection.refuse(self.context.refusals(), RefusalReason::Mention, what)
    }
}
