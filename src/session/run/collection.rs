//! `create` and `drop`: the collection with its shape's indexes.

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::{Run, indexes};
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
    let there = indexes::there(run).await?.unwrap_or_default();
    let reply = run.link.run(run.head.body()).await?;
    let was = indexes::without_others(&reply, "nIndexesWas", there.others.len());
    Ok(with_replaced(&reply, &[("nIndexesWas", Some(RawBsonRef::Int32(was)))]))
}
