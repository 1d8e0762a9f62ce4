//! The layout of a collection at the time of an event.

use bson::raw::RawDocument;

use super::cursor::{fatal, token_of};
use super::watched::{EventSource, Watched, namespace_of};
use crate::command::namespace::Namespace;
use crate::pattern::bucket::change_stream::{UpstreamToken, is_of_shape};
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;

/// Fails if the document of an event was stored in another layout than the shape's, because its event would be
/// left out. In a collection that contains pages, a document that is none was not written by a proxy, and no
/// command returns it. Nor does a command return documents of a collection that matches the shape and contains no
/// pages: a stream on its database or the cluster passes over their events.
pub(super) async fn check_layout(
    context: &mut CommandContext<'_>,
    watched: &Watched,
    event: &RawDocument,
) -> Result<(), RunError> {
    let (EventSource::Bucket(shape), Some(namespace)) = (watched.source(event), namespace_of(event)) else {
        return Ok(());
    };
    if is_of_shape(shape, event) {
        return Ok(());
    }
    let settings = context.settings;
    let mut session = context.catalog_session(shape, namespace);
    session.carried = session.carried.in_database(namespace.database);
    // The client gets another error.
    session.refusals = None;
    let of_pages = match settings.catalog.for_reading(&mut session).await {
        Ok(collection) => collection,
        Err(RunError::Command(_) | RunError::LayoutChanged) => None,
        Err(error) => return Err(error),
    };
    let Some(collection) = of_pages else {
        return if watched.is_collection() || watched.is_automatic(event) {
            Err(in_former_layout(namespace))
        } else {
            Ok(())
        };
    };
    let token = token_of(event).and_then(UpstreamToken::parse);
    if token.is_some_and(|token| token.is_of_collection(&collection.uuid)) {
        return Ok(());
    }
    Err(in_former_layout(namespace))
}

fn in_former_layout(namespace: Namespace<'_>) -> RunError {
    let error = fatal(&format!(
        "a document of {namespace} was changed while the collection had another layout, before `mongoshape setup --pack` or `mongoshape \
         convert` replaced it: open a new change stream, and read the documents that were changed in the meantime"
    ));
    error.into()
}
