//! `create` and `drop`: the collection with its shape's indexes.

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::Run;
use crate::command::arguments::with_replaced;
use crate::command::collection::create_options;
use crate::command::error::{CommandError, ErrorCode};
use crate::session::error::RunError;

pub(super) async fn create(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    if let Some(option) = create_options(run.head.body())?.first() {
        let namespace = run.namespace;
        let message =
            format!("mongoshape stores {namespace} in the bucket pattern: it cannot be created with '{option}'");
        return Err(CommandError::new(ErrorCode::InvalidOptions, message).into());
    }
    let reply = run.link.run(run.head.body()).await?;
    run.settings.readiness.for_writing(&mut run.asker()).await?;
    Ok(reply)
}

pub(super) async fn drop(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    run.settings.readiness.forget(run.namespace);
    let reply = run.link.run(run.head.body()).await?;
    // The application knows of no index but the one on `_id`.
    Ok(with_replaced(&reply, &[("nIndexesWas", Some(RawBsonRef::Int32(1)))]))
}
