//! Commands that are on no shaped collection and reference some: pipelines, views, `renameCollection`,
//! `listCollections`, `dbStats` and `killCursors`. The reply is mongod's. A cursor belongs to the collection
//! of the command, and its `getMore` is relayed.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::referenced_shapes::{ReferencedShapes, refuse};
use super::{cursor, db_stats, list_collections, rename_collection};
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{array_of, as_flag, get, single};
use crate::command::error::CommandError;
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::pattern::pipeline::{PipelinePosition, Pipelines, ReferencedCollection, documents};
use crate::pattern::shapes::{Mode, Shapes};
use crate::session::error::RunError;
use crate::session::metrics::RefusalReason;
use crate::session::outlier::put_together;
use crate::session::upstream::UpstreamKind;
use crate::session::upstream_connection::UpstreamConnection;
use crate::session::{Settings, Shared};

/// One command on a plain collection that names shaped ones.
pub(in crate::session) struct CrossCollectionCommand<'a> {
    pub(in crate::session) shared: &'a Shared,
    pub(in crate::session) settings: &'a Settings,
    pub(in crate::session) link: &'a mut UpstreamConnection,
    pub(in crate::session) upstream: UpstreamKind,
    pub(in crate::session) head: &'a CommandHeader<'a>,
}

/// What of a command on a view is its definition.
struct View<'a> {
    on: Option<String>,
    stages: Option<Vec<&'a RawDocument>>,
}

impl<'a> CrossCollectionCommand<'a> {
    /// Which commands there are of this kind.
    pub(in crate::session) fn has(name: &str) -> bool {
        matches!(name, "aggregate" | "create" | "collMod" | "renameCollection")
    }

    /// Whether a command may tell of what the proxy keeps beside shaped collections.
    pub(in crate::session) fn may_tell_of_ours(shapes: &Shapes, head: &CommandHeader<'_>) -> bool {
        match head.name {
            "listCollections" => list_collections::may_tell_of_ours(shapes, head.database, head.body()),
            name => db_stats::may_count_buckets(shapes, name, head.database),
        }
    }

    /// Whether a command may turn what is stored of a view into something else without naming it.
    pub(in crate::session) fn changes_half_a_view(head: &CommandHeader<'_>) -> bool {
        let given = |name| get(head.body(), name).is_some();
        head.name == "collMod" && given("viewOn") != given("pipeline")
    }

    /// Runs it and gives the reply. Not cancel safe: the link is of no use after.
    pub(in crate::session) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        self.head.validate()?;
        match self.head.name {
            "listCollections" => return list_collections::run(&mut self).await,
            "renameCollection" => return rename_collection::run(&mut self).await,
            "dbStats" | "dbstats" => return db_stats::run(&mut self).await,
            "killCursors" => return cursor::kill(self.shared, self.link, self.head).await,
            _ => {}
        }
        let body = self.head.body();
        let view = self.view(body).await?;
        let Some(stages) = view.stages else {
            // mongod refuses it.
            return self.link.run(body).await;
        };
        let mut pipelines = Pipelines::new(&self.settings.shapes, self.head.database);
        let stages = match view.on {
            Some(on) => pipelines.on(&on, &stages),
            None => pipelines.stages(&stages, PipelinePosition::Open),
        };
        let stages = stages.map_err(|refused| refuse(&self.shared.metrics, &refused))?;
        let reached = pipelines.into_reached();
        if let Some(first) = reached.first() {
            self.check(body, first)?;
        }
        let mut reaching = ReferencedShapes {
            shared: self.shared,
            settings: self.settings,
            link: self.link,
            head: self.head,
        };
        reaching.prepare(&reached).await?;
        let reply = put_together(reaching.link, &with_pipeline(body, &stages)).await?;
        if self.head.name != "aggregate" {
            reaching.keep_views(&reached).await?;
        }
        Ok(reply)
    }

    /// Refuses what cannot be done with a shaped collection at all.
    fn check(&self, body: &RawDocument, reached: &ReferencedCollection) -> Result<(), CommandError> {
        let (what, reason) = if self.upstream == UpstreamKind::Mongos {
            ("a sharded cluster", RefusalReason::Cluster)
        } else if self.head.name == "aggregate" && get(body, "explain").and_then(as_flag).unwrap_or(false) {
            ("explain", RefusalReason::Mention)
        } else {
            return Ok(());
        };
        self.shared.metrics.rejected(&reached.configured(), reason, what);
        let namespace = Namespace::new(self.head.database, &reached.collection);
        Err(CommandError::unsupported((namespace, reached.pattern()), what))
    }

    /// The definition that a view is to have; of an `aggregate`, its stages.
    async fn view(&mut self, body: &'a RawDocument) -> Result<View<'a>, RunError> {
        let given = get(body, "viewOn").and_then(RawBsonRef::as_str).map(ToOwned::to_owned);
        let view = View {
            on: given,
            stages: match get(body, "pipeline") {
                None if self.head.name == "create" => Some(Vec::new()),
                pipeline => documents(pipeline),
            },
        };
        if !Self::changes_half_a_view(self.head) {
            return Ok(view);
        }
        // mongod 6.0.5 lets the other half as it is, where nobody has to have rights.
        let found = self.view_on().await?;
        if view.on.is_none() {
            return Ok(View { on: found, ..view });
        }
        for collection in view.on.iter().chain(&found) {
            let namespace = Namespace::new(self.head.database, collection);
            let shape = self.settings.shapes.lookup(namespace);
            if let Some(shape) = shape.filter(|shape| shape.mode() == Mode::Rewrite) {
                let label = shape.namespace().to_string();
                let what = "collMod of a view without its pipeline";
                self.shared.metrics.rejected(&label, RefusalReason::Mention, what);
                return Err(CommandError::unsupported((namespace, shape.pattern()), what).into());
            }
        }
        Ok(view)
    }

    /// What the view that the command is on is on now.
    async fn view_on(&mut self) -> Result<Option<String>, RunError> {
        let mut command = single("listCollections", 1);
        command.append(cstr!("filter"), single("name", self.head.target.unwrap_or_default()));
        InheritedOptions::of(self.head.body()).append_identity(&mut command);
        let reply = self.link.run(&command).await?;
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
