//! A [change stream](crate::session::change_stream) on a bucket collection.

use bson::raw::RawDocumentBuf;

use super::command::BucketCommand;
use crate::command::aggregate::Aggregate;
use crate::session::change_stream::{Watched, open, unsupported};
use crate::session::error::RunError;
use crate::session::metrics::{RefusalReason, Strategy};

pub(super) async fn run(run: &mut BucketCommand<'_>, aggregate: &Aggregate<'_>) -> Result<RawDocumentBuf, RunError> {
    let without = "a change stream without `change_streams = true` in the shape";
    let is_refused = (!run.shape.change_streams()).then_some(without);
    if let Some(what) = is_refused.or_else(|| unsupported(aggregate)) {
        return Err(run.refuse(RefusalReason::ChangeStream, what).into());
    }
    run.ensure_readable(None).await?;
    if run.collection.as_ref().is_some_and(|collection| !collection.has_images) {
        // Enables the images, with the client's rights.
        run.context
            .settings
            .catalog
            .for_writing(&mut run.catalog_session())
            .await?;
    }
    run.record_read(Strategy::ChangeStream);
    let watched = Watched::collection(run.context.settings.shapes.clone());
    open(&mut run.context, run.namespace, aggregate, watched).await
}
