//! `renameCollection`: only between names with the same stored layout.

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::{CrossCollectionCommand, collection_lookup, in_database};
use crate::command::arguments::InheritedOptions;
use crate::command::document::get;
use crate::command::error::CommandError;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::{BucketShape, Shape};
use crate::session::error::RunError;
use crate::session::metrics::RefusalReason;

pub(super) async fn run(across: &mut CrossCollectionCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = across.context.head.body();
    let named = |field| get(body, field).and_then(RawBsonRef::as_str).and_then(Namespace::parse);
    let (Some(from), Some(to)) = (named("renameCollection"), named("to")) else {
        // mongod refuses the command.
        return across.context.link.run(body).await;
    };
    let settings = across.context.settings;
    let shape = alike(across, from, to)?;
    across.context.check_server_is_known()?;
    // Content other than pages would be served as pages under the new name, so the collection is
    // checked again.
    let there = in_database(body, from.database);
    settings.catalog.forget(from);
    settings
        .catalog
        .for_reading(&mut across.catalog_session(shape, from, &there))
        .await?;
    let renamed = across.context.link.run(body).await;
    settings.catalog.forget(from);
    settings.catalog.forget(to);
    let reply = renamed?;
    collection_lookup::drop_items_view(across.context.link, InheritedOptions::of(&there), shape, from).await?;
    Ok(reply)
}

/// The shape, if both names have the same stored layout.
fn alike<'a>(
    across: &CrossCollectionCommand<'a>,
    from: Namespace<'_>,
    to: Namespace<'_>,
) -> Result<&'a BucketShape, CommandError> {
    let settings = across.context.settings;
    let is_outlier = |namespace: &Namespace<'_>| {
        let shape = settings.shapes.lookup(*namespace);
        shape.is_some_and(|shape| matches!(**shape, Shape::Outlier(_)))
    };
    if let Some(outlier) = [from, to].into_iter().find(is_outlier) {
        // The extras would keep the old name.
        return Err(refuse(across, outlier, "renameCollection"));
    }
    let [shape, other] = [from, to].map(|namespace| settings.shapes.bucket(namespace));
    match (shape, other) {
        (Some(shape), Some(other)) if shape.stored_as() == other.stored_as() => Ok(shape),
        (Some(_), _) => {
            let what = format!("renameCollection to {to}, which has a different layout,");
            Err(refuse(across, from, &what))
        }
        _ => {
            let what = format!("renameCollection from {from}, which has a different layout,");
            Err(refuse(across, to, &what))
        }
    }
}

fn refuse(across: &CrossCollectionCommand<'_>, namespace: Namespace<'_>, what: &str) -> CommandError {
    across.refuse(namespace, RefusalReason::Collection, what)
}
