//! What a client's command asks of the proxy.

use std::sync::Arc;

use super::Shared;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::head::Head;
use crate::command::mentions;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::{BucketShape, Mode, Shape};

/// Where a command goes.
pub(super) enum Route<'a> {
    /// To mongod as it is.
    Relay,
    /// To mongod as it is, with the reply looked at: it introduces the server.
    Handshake,
    /// To the code that rewrites it.
    Run(Arc<Shape>, Namespace<'a>),
    /// Back, with an error.
    Refuse(CommandError),
}

/// Names under which a client asks who the server is.
pub(super) fn is_handshake(name: &str) -> bool {
    matches!(name, "hello" | "isMaster" | "ismaster")
}

/// Decides. Costs one look-up for a command that touches no shaped collection and may touch no other than its own.
pub(super) fn decide<'a>(shared: &Shared, head: &Head<'a>) -> Route<'a> {
    if is_handshake(head.name) {
        return Route::Handshake;
    }
    if shared.shapes.is_empty() {
        return Route::Relay;
    }
    let mut refused = None;
    mentions::for_each(head, &mut |namespace| {
        if refused.is_none() && rewritten(shared, namespace).is_some() {
            refused = Some(reached_by_side_door(shared, head.name, namespace));
        }
    });
    if let Some(error) = refused {
        return Route::Refuse(error);
    }
    match head
        .namespace()
        .and_then(|namespace| Some((rewritten(shared, namespace)?, namespace)))
    {
        Some((shape, namespace)) => Route::Run(shape, namespace),
        None => Route::Relay,
    }
}

/// The shape of a namespace whose commands are to be rewritten.
fn rewritten(shared: &Shared, namespace: Namespace<'_>) -> Option<Arc<Shape>> {
    let shape = shared.shapes.lookup(namespace)?;
    if shape.mode() == Mode::Observe {
        shared.metrics.observed(&shape.namespace().to_string());
        return None;
    }
    Some(Arc::clone(shape))
}

fn reached_by_side_door(shared: &Shared, command: &str, namespace: Namespace<'_>) -> CommandError {
    if let Some(shape) = shared.shapes.lookup(namespace) {
        shared.metrics.rejected(&shape.namespace().to_string());
    }
    let message = format!("mongoshape stores {namespace} in the bucket pattern: {command} cannot name it here yet");
    CommandError::new(ErrorCode::CommandNotSupported, message)
}

/// The bucket shape of a shape; the outlier pattern is not rewritten yet, which configuration says.
pub(super) fn bucket(shape: &Shape) -> Option<&BucketShape> {
    match shape {
        Shape::Bucket(shape) => Some(shape),
        Shape::Outlier(_) => None,
    }
}
