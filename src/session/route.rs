//! Routes a client's command.

use std::sync::Arc;

use super::cross_collection::CrossCollectionCommand;
use super::handshake::check_mechanism;
use super::metrics::RefusalReason;
use super::shared::Settings;
use crate::command::document::{as_flag, first_field, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::pattern::pipeline::documents;
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
    let mut refused = change_stream(&shapes, head).or_else(|| by_uuid(&shapes, head));
    if refused.is_none() && CrossCollectionCommand::may_reveal_own(&settings.shapes, head) {
        return Route::CrossCollection(Arc::clone(settings));
    }
    let mut across = CrossCollectionCommand::changes_half_a_view(head) || head.command == Command::KillCursors;
    referenced_namespaces::for_each(head, &mut |namespace| {
        if refused.is_none()
            && let Some(rewritten) = shapes.rewritten(namespace)
        {
            if CrossCollectionCommand::has(head.command) {
                across = true;
            } else {
                refused = Some(Lookup::reached_by_side_door(&rewritten, head.name));
            }
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

/// The refusal of a change stream on a database or cluster with a shaped collection, because it
/// would return raw buckets.
fn change_stream(shapes: &Lookup<'_>, head: &CommandHeader<'_>) -> Option<RouteRefusal> {
    if head.command != Command::Aggregate || head.target.is_some() {
        return None;
    }
    let stages = documents(get(head.body(), "pipeline"))?;
    let (_, options) = first_field(stages.first()?).filter(|(name, _)| *name == "$changeStream")?;
    let options = options.as_document();
    let of_cluster = options.and_then(|options| get(options, "allChangesForCluster"));
    let settings = shapes.settings;
    let found = if of_cluster.and_then(as_flag) == Some(true) {
        settings.shapes.first_rewritten()?
    } else {
        settings.shapes.first_rewritten_in(head.database)?
    };
    let name = found.namespace().to_string();
    let message = format!(
        "mongoshape stores {name} in the {} pattern: a change stream that includes it is not supported",
        found.pattern()
    );
    let error = CommandError::new(ErrorCode::CommandNotSupported, message);
    Some((error, (name, RefusalReason::ChangeStream)))
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

/// The error, and for the metrics the shape and the reason.
type RouteRefusal = (CommandError, (String, RefusalReason));

struct Lookup<'a> {
    settings: &'a Arc<Settings>,
}

impl Lookup<'_> {
    /// The shape of a namespace unless the shape is in observe mode.
    fn rewritten<'n>(&self, namespace: Namespace<'n>) -> Option<ShapedTarget<'n>> {
        let shape = self.settings.shapes.lookup(namespace)?;
        if shape.mode() == Mode::Observe {
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
