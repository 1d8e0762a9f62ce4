//! Which `_id`s are stored.

use bson::raw::{RawBson, RawDocumentBuf};

use super::command::BucketCommand;
use super::upstream_query::{documents, more};
use crate::command::document::{length_of, single};
use crate::command::reply::succeeded;
use crate::command::write_batch::lookup_parts;
use crate::pattern::bucket::insert::{IdSet, ids_query};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// `_id`s in one query. mongod reads so few without a pause, in which an item could move.
const MAX_IDS: usize = 100;

/// The `_id`s on the pages that have an item with one of these `_id`s. Costs one round trip: a query looks up
/// 100 `_id`s, and all queries are sent together.
pub(super) async fn stored_ids(run: &mut BucketCommand<'_>, ids: &[&RawBson]) -> Result<IdSet, RunError> {
    let parts = lookup_parts(ids, MAX_IDS, |id| length_of(id.as_raw_bson_ref()));
    let finds = parts.map(|ids| {
        let mut find = single("find", run.namespace.collection);
        ids_query(run.shape, ids.iter().copied(), &mut find);
        run.context.inherited().append_to_read_of_write(&mut find);
        find
    });
    let finds: Vec<RawDocumentBuf> = finds.collect();
    let finds: Vec<UpstreamRequest<'_>> = finds.iter().map(|find| UpstreamRequest::plain(find)).collect();
    let mut stored = IdSet::default();
    for answer in run.context.link.call_all(&finds).await? {
        let mut next = Some(succeeded(answer)?);
        while let Some(answer) = next.take() {
            documents(&answer).for_each(|page| stored.add_of(run.shape, page));
            next = more(run, &answer).await?;
        }
    }
    Ok(stored)
}
