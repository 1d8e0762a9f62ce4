//! Routes a client's command.

use std::sync::Arc;

use bson::raw::RawBsonRef;

use super::change_stream::OF_DATABASE;
use super::cross_collection::CrossCollectionCommand;
use super::handshake::check_mechanism;
use super::metrics::RefusalReason;
use super::shared::Settings;
use crate::command::change_stream::{StreamScope, scope};
use crate::command::document::{as_flag, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::merge;
use crate::command::namespace::{Namespace, VIEWS};
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::pattern::shapes::{Mode, Shape};

/// The handling of a command.
pub(super) enum Route<'a> {
    /// Relayed.
    Relay,
    /// Relayed, and the reply is edited: it describes the server.
    Handshake,
    /// Executed on a shaped collection.
    Shaped(ShapedTarget<'a>),
    /// Executed on a plain collection, with these settings, because it references shaped
    /// collections.
    CrossCollection(Arc<Settings>),
    /// An `aggregate` whose last stage merges into this shaped collection.
    Merge(ShapedTarget<'a>),
    /// Refused with an error. For the metrics: the shape as configured, and the reason.
    Reject(CommandError, Option<(String, RefusalReason)>),
}

/// A shaped namespace, and the settings with which the command is executed.
pub(super) struct ShapedTarget<'a> {
    pub(super) namespace: Namespace<'a>,
    pub(super) settings: Arc<Settings>,
    shape: Arc<Shape>,
}

impl ShapedTarget<'_> {
    pub(super) fn shape(&self) -> &Shape {
        &self.shape
    }
}

/// Plans the handling of a command. Costs one look-up if the command touches no shaped collection
/// and cannot reference another collection.
pub(super) fn decide<'a>(settings: &Arc<Settings>, head: &CommandHeader<'a>) -> Route<'a> {
    if head.command.is_handshake() {
        return Route::Handshake;
    }
    if let Err(error) = check_mechanism(head.command, head.body()) {
        return Route::Reject(error, None);
    }
    if settings.shapes.is_empty() {
        return Route::Relay;
    }
    let shapes = Lookup { settings };
    let mut refused = by_uuid(&shapes, head);
    match change_stream(&shapes, head) {
        Some(Ok(())) if refused.is_none() => return Route::CrossCollection(Arc::clone(settings)),
        Some(Err(refusal)) => refused = Some(refusal),
        _ => {}
    }
    if refused.is_none() && CrossCollectionCommand::may_reveal_own(&settings.shapes, head) {
        return Route::CrossCollection(Arc::clone(settings));
    }
    if refused.is_none()
        && let Some(into) = merged_into(&shapes, head)
    {
        return Route::Merge(into);
    }
    let mut across = CrossCollectionCommand::changes_half_a_view(head) || head.command == Command::KillCursors;
    referenced_namespaces::for_each(head, &mut |namespace| {
        if refused.is_some() {
            return;
        }
        match shapes.rewritten(namespace) {
            Some(_) if CrossCollectionCommand::has(head.command) => across = true,
            Some(_) if explains_bucket(&shapes, head) => {}
            Some(rewritten) => refused = Some(Lookup::reached_by_side_door(&rewritten, head.name)),
            None => refused = stored_views(&shapes, head, namespace),
        }
    });
    if let Some((error, refused)) = refused {
        return Route::Reject(error, Some(refused));
    }
    match head.namespace().and_then(|namespace| shapes.rewritten(namespace)) {
        Some(rewritten) => Route::Shaped(rewritten),
        None if across => Route::CrossCollection(Arc::clone(settings)),
        None => Route::Relay,
    }
}

/// The shaped collection into which the last stage of an `aggregate` merges. An outlier collection as the
/// source refuses the stage.
fn merged_into<'a>(shapes: &Lookup<'_>, head: &CommandHeader<'a>) -> Option<ShapedTarget<'a>> {
    if head.command != Command::Aggregate || get(head.body(), "explain").and_then(as_flag) == Some(true) {
        return None;
    }
    let into = shapes.rewritten(merge::target(head.database, head.last_stage()?)?)?;
    let source = head.namespace().and_then(|source| shapes.rewritten(source));
    let is_outlier = |of: &ShapedTarget<'_>| matches!(of.shape(), Shape::Outlier(_));
    (!source.as_ref().is_some_and(is_outlier)).then_some(into)
}

/// Whether the command explains one on a bucket collection: its pipeline is rewritten as that of an
/// `aggregate`.
fn explains_bucket(shapes: &Lookup<'_>, head: &CommandHeader<'_>) -> bool {
    let explained = head.namespace().filter(|_| head.command == Command::Explain);
    let explained = explained.and_then(|namespace| shapes.rewritten(namespace));
    explained.is_some_and(|explained| matches!(explained.shape(), Shape::Bucket(_)))
}

/// Whether the command opens or reads a change stream on a database or cluster with shaped collections. The
/// refusal, if one of them has no change streams: the stream would return its raw buckets.
fn change_stream(shapes: &Lookup<'_>, head: &CommandHeader<'_>) -> Option<Result<(), RouteRefusal>> {
    let settings = shapes.settings;
    if head.command == Command::GetMore
        && get(head.body(), "collection").and_then(RawBsonRef::as_str) == Some(OF_DATABASE)
    {
        let mut streams = settings.shapes.iter().filter(|shape| shape.has_change_streams());
        return streams.next().map(|_| Ok(()));
    }
    let mut rewritten: Vec<&Arc<Shape>> = match scope(head)? {
        StreamScope::Collection => return None,
        StreamScope::Database => settings.shapes.rewritten_in(head.database).collect(),
        StreamScope::Cluster => {
            if let Some(everywhere) = settings.shapes.automatic_in_every_database() {
                return Some(Err(unknown_databases(everywhere)));
            }
            settings.shapes.rewritten().collect()
        }
    };
    rewritten.sort_by_key(|shape| shape.namespace().to_string());
    let Some(without) = rewritten.iter().find(|shape| !shape.has_change_streams()) else {
        return (!rewritten.is_empty()).then_some(Ok(()));
    };
    let name = without.namespace().to_string();
    let remedy = match &***without {
        Shape::Bucket(_) => " without `change_streams = true` in its shape",
        Shape::Outlier(_) => "",
    };
    let message = format!(
        "mongoshape stores {name} in the {} pattern: a change stream that includes it is not supported{remedy}",
        without.pattern()
    );
    let error = CommandError::new(ErrorCode::CommandNotSupported, message);
    Some(Err((error, (name, RefusalReason::ChangeStream))))
}

/// The refusal of a change stream on the cluster with an automatic shape for every database: its collections
/// in new databases would be watched before their layout is known.
fn unknown_databases(shape: &Shape) -> RouteRefusal {
    let name = shape.namespace().to_string();
    let message = format!(
        "mongoshape stores {name} in the {} pattern where it contains pages: a change stream on the cluster is not supported with \
         `mode = \"auto\"` for every database; open one on a database, or name the databases in shapes",
        shape.pattern()
    );
    let error = CommandError::new(ErrorCode::CommandNotSupported, message);
    (error, (name, RefusalReason::ChangeStream))
}

/// The refusal of a UUID instead of a name, if it may denote a shaped collection.
fn by_uuid(shapes: &Lookup<'_>, head: &CommandHeader<'_>) -> Option<RouteRefusal> {
    if !referenced_namespaces::names_by_uuid(head) {
        return None;
    }
    let settings = shapes.settings;
    let here = settings.shapes.first_rewritten_in(head.database);
    let anywhere = || settings.shapes.first_rewritten().filter(|_| head.database == "admin");
    let shape = here.or_else(anywhere)?;
    let pattern = shape.pattern();
    let message = format!(
        "mongoshape stores collections of this database in the {pattern} pattern: {} of a collection by its UUID is not supported",
        head.name
    );
    let error = CommandError::new(ErrorCode::CommandNotSupported, message);
    Some((error, (shape.namespace().to_string(), RefusalReason::Uuid)))
}

/// The refusal of a command that may write to the stored definitions of views, such as `applyOps`. A view on
/// a shaped collection would return its raw buckets. mongod itself refuses an `insert`, `update` or `delete`.
fn stored_views(shapes: &Lookup<'_>, head: &CommandHeader<'_>, namespace: Namespace<'_>) -> Option<RouteRefusal> {
    if head.command != Command::Other || namespace.collection != VIEWS {
        return None;
    }
    let (shapes, database) = (&shapes.settings.shapes, namespace.database);
    let automatic = || {
        let name = shapes.automatic_in(database).min()?;
        shapes.lookup(Namespace::new(database, name))
    };
    let shape = shapes.first_rewritten_in(database).or_else(automatic)?;
    let message = format!(
        "mongoshape stores {} in the {} pattern: {} of {namespace}, which defines views, is not supported",
        shape.namespace(),
        shape.pattern(),
        head.name
    );
    let error = CommandError::new(ErrorCode::CommandNotSupported, message);
    Some((error, (shape.namespace().to_string(), RefusalReason::Mention)))
}

/// The error, and for the metrics the shape and the reason.
type RouteRefusal = (CommandError, (String, RefusalReason));

struct Lookup<'a> {
    settings: &'a Arc<Settings>,
}

impl Lookup<'_> {
    /// The shape of a namespace if commands on it are rewritten.
    fn rewritten<'n>(&self, namespace: Namespace<'n>) -> Option<ShapedTarget<'n>> {
        let shape = self.settings.shapes.lookup(namespace)?;
        if shape.mode() != Mode::Rewrite {
            return None;
        }
        Some(ShapedTarget {
            namespace,
            settings: Arc::clone(self.settings),
            shape: Arc::clone(shape),
        })
    }

    /// The refusal of a reference to a shaped collection at a place in the command where none is
    /// supported.
    fn reached_by_side_door(rewritten: &ShapedTarget<'_>, command: &str) -> RouteRefusal {
        let (namespace, shape) = (rewritten.namespace, rewritten.shape());
        let pattern = shape.pattern();
        let message = format!("mongoshape stores {namespace} in the {pattern} pattern: {command} cannot reference it");
        let error = CommandError::new(ErrorCode::CommandNotSupported, message);
        (error, (shape.namespace().to_string(), RefusalReason::Mention))
    }
}
