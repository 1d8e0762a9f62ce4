//! Commands on plain collections, databases or the server that reference or return shaped collections:
//! pipelines, views, `renameCollection`, `shardCollection`, `refineCollectionShardKey`, `listCollections`,
//! `dbStats` and `killCursors`. The reply is mongod's. A cursor belongs to the collection of the command, and
//! its `getMore` is relayed.

pub(super) mod collection_lookup;
mod db_stats;
mod list_collections;
mod referenced_collections;
mod rename_collection;
mod shard_collection;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

pub(super) use self::referenced_collections::ReferencedCollections;
use super::change_stream;
use super::collection_catalog::CatalogSession;
use super::command_context::CommandContext;
use super::error::RunError;
use super::kill_cursors;
use super::metrics::RefusalReason;
use super::outlier::merged_read::put_together;
use super::refusal::{RefusedCollection, refuse_stage};
use crate::command::aggregate::Aggregate;
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{array_of, as_flag, get, single};
use crate::command::error::CommandError;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::reply::CursorReply;
use crate::pattern::pipeline::{PipelinePosition, Pipelines, ReferencedCollection, documents};
use crate::pattern::shapes::{BucketShape, Mode, Shapes};

pub(super) struct CrossCollectionCommand<'a> {
    pub(super) context: CommandContext<'a>,
}

/// The definition of a view in a command.
struct View<'a> {
    on: Option<String>,
    stages: Option<Vec<&'a RawDocument>>,
}

impl<'a> CrossCollectionCommand<'a> {
    /// Whether commands of this kind are executed here if they reference a shaped collection.
    pub(super) fn has(command: Command) -> bool {
        matches!(
            command,
            Command::Aggregate
                | Command::Create
                | Command::CollMod
                | Command::RefineCollectionShardKey
                | Command::RenameCollection
                | Command::ShardCollection
        )
    }

    /// Whether the reply could contain collections, views or indexes of the proxy.
    pub(super) fn may_reveal_own(shapes: &Shapes, head: &CommandHeader<'_>) -> bool {
        match head.command {
            Command::ListCollections => list_collections::may_reveal_own(shapes, head.database, head.body()),
            Command::GetMore if list_collections::is_continued_by(head) => {
                list_collections::may_reveal_own(shapes, head.database, head.body())
            }
            Command::DbStats => db_stats::may_count_buckets(shapes, head.database),
            _ => false,
        }
    }

    /// Whether a `collMod` changes only the collection or only the pipeline of a view, so that the
    /// other part may reference a shaped collection that the command does not name.
    pub(super) fn changes_half_a_view(head: &CommandHeader<'_>) -> bool {
        let given = |name| get(head.body(), name).is_some();
        head.command == Command::CollMod && given("viewOn") != given("pipeline")
    }

    /// Executes the command and returns its reply. Not cancel safe: after a cancellation the
    /// upstream connection is unusable.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        self.context.head.validate()?;
        match self.context.head.command {
            Command::ListCollections => return list_collections::run(&mut self).await,
            Command::RenameCollection => return rename_collection::run(&mut self).await,
            Command::ShardCollection | Command::RefineCollectionShardKey => {
                return shard_collection::run(&mut self).await;
            }
            Command::DbStats => return db_stats::run(&mut self).await,
            Command::KillCursors => return kill_cursors::run(&mut self.context).await,
            Command::GetMore if list_collections::is_continued_by(self.context.head) => {
                return list_collections::run(&mut self).await;
            }
            Command::GetMore => return change_stream::get_more_on_database(&mut self.context).await,
            Command::Aggregate if self.context.head.target.is_none() => {
                if let Ok(aggregate) = Aggregate::parse(self.context.head.body())
                    && change_stream::options(&aggregate).is_some()
                {
                    return change_stream::open_on_database(&mut self.context, &aggregate).await;
                }
            }
            _ => {}
        }
        let body = self.context.head.body();
        let view = self.view(body).await?;
        let Some(stages) = view.stages else {
            // mongod refuses the command.
            return self.context.link.run(body).await;
        };
        let mut pipelines = Pipelines::new(&self.context.settings.shapes, self.context.head.database);
        let stages = match view.on {
            Some(on) => pipelines.on(&on, &stages),
            None => pipelines.stages(&stages, PipelinePosition::Open),
        };
        let stages = stages.map_err(|refused| refuse_stage(self.context.refusals(), &refused))?;
        let reached = pipelines.into_reached();
        if let Some(first) = reached.first() {
            self.check(body, first)?;
        }
        let mut referenced = ReferencedCollections {
            context: &mut self.context,
        };
        referenced.prepare(&reached).await?;
        let reply = put_together(referenced.context.link, &with_pipeline(body, &stages)).await?;
        if referenced.context.head.command != Command::Aggregate {
            referenced.keep_views(&reached).await?;
        }
        Ok(reply)
    }

    /// Refuses commands that are impossible with any shaped collection.
    fn check(&self, body: &RawDocument, reached: &ReferencedCollection) -> Result<(), CommandError> {
        let is_explained =
            self.context.head.command == Command::Aggregate && get(body, "explain").and_then(as_flag).unwrap_or(false);
        if !is_explained {
            return Ok(());
        }
        let collection = RefusedCollection {
            namespace: Namespace::new(self.context.head.database, &reached.collection),
            configured: &reached.configured(),
            pattern: reached.pattern(),
        };
        Err(collection.refuse(self.context.refusals(), RefusalReason::Mention, "explain"))
    }

    /// The error for a part of a command on a shaped collection that is not supported. Counts the refusal.
    fn refuse(&self, namespace: Namespace<'_>, reason: RefusalReason, what: &str) -> CommandError {
        let shape = self.context.settings.shapes.lookup(namespace);
        if let Some(shape) = shape {
            self.context.refusals().record(shape.namespace(), reason, what);
        }
        let pattern = shape.map_or(BucketShape::PATTERN, |shape| shape.pattern());
        CommandError::unsupported(namespace, pattern, what)
    }

    /// The catalog session for a collection of another database than the command's. `there`: the command's body
    /// [in that database](in_database).
    fn catalog_session<'b>(
        &'b mut self,
        shape: &'b BucketShape,
        namespace: Namespace<'b>,
        there: &'b RawDocument,
    ) -> CatalogSession<'b> {
        CatalogSession {
            refusals: Some(self.context.refusals()),
            link: self.context.link,
            upstream: self.context.upstream,
            thaws: self.context.settings.catalog.thaws(),
            shape,
            namespace,
            carried: InheritedOptions::of(there),
            transaction: None,
        }
    }

    /// The view's new definition, or the stages of an `aggregate`.
    async fn view(&mut self, body: &'a RawDocument) -> Result<View<'a>, RunError> {
        let given = get(body, "viewOn").and_then(RawBsonRef::as_str).map(ToOwned::to_owned);
        let view = View {
            on: given,
            stages: match get(body, "pipeline") {
                None if self.context.head.command == Command::Create => Some(Vec::new()),
                pipeline => documents(pipeline),
            },
        };
        if !Self::changes_half_a_view(self.context.head) {
            return Ok(view);
        }
        // mongod 6.0.5 keeps the other part, unless authorization requires both.
        let found = self.view_on().await?;
        if view.on.is_none() {
            return Ok(View { on: found, ..view });
        }
        for collection in view.on.iter().chain(&found) {
            let namespace = Namespace::new(self.context.head.database, collection);
            let shape = self.context.settings.shapes.lookup(namespace);
            if let Some(shape) = shape.filter(|shape| shape.mode() == Mode::Rewrite) {
                let what = "collMod of a view without its pipeline";
                let collection = RefusedCollection {
                    namespace,
                    configured: shape.namespace(),
                    pattern: shape.pattern(),
                };
                return Err(collection
                    .refuse(self.context.refusals(), RefusalReason::Mention, what)
                    .into());
            }
        }
        Ok(view)
    }

    /// The current `viewOn` of the view.
    async fn view_on(&mut self) -> Result<Option<String>, RunError> {
        let mut command = single("listCollections", 1);
        command.append(
            cstr!("filter"),
            single("name", self.context.head.target.unwrap_or_default()),
        );
        InheritedOptions::of(self.context.head.body()).append_identity(&mut command);
        let reply = self.context.link.run(&command).await?;
        let found = CursorReply::parse(&reply).and_then(|cursor| cursor.documents().next());
        let options = found.and_then(|found| get(found, "options")?.as_document());
        Ok(options.and_then(|options| Some(options.get_str("viewOn").ok()?.to_owned())))
    }
}

fn with_pipeline(body: &RawDocument, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let stages = array_of(stages);
    if get(body, "pipeline").is_some() {
        return with_replaced(body, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
    }
    let mut body = body.to_owned();
    body.append(cstr!("pipeline"), &stages);
    body
}

/// The command's body with another `$db`, for internal commands in that database.
fn in_database(body: &RawDocument, database: &str) -> RawDocumentBuf {
    with_replaced(body, &[("$db", Some(RawBsonRef::String(database)))])
}
