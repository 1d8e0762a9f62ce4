//! The `distinct` of an indexed field, without a filter. Costs one round trip for each value.

use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf};

use crate::command::distinct::Distinct;
use crate::pattern::bucket::read::index_scan::value_scan::{BUCKETS_BEHIND_EMPTIED, NextValue, ValueScan};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::indexes;
use crate::session::bucket::upstream_query::{ask, complete, documents};
use crate::session::error::RunError;

/// The most values. A field with more values is read from all pages, at once.
const MAX_VALUES: usize = 32;

/// How many values must have been read before it is cached that reading them one by one was in vain.
const WORTH_CACHING: usize = 16;

/// The values of a field.
pub(super) struct DistinctValues {
    pub(super) values: RawArrayBuf,
    /// The first query.
    pub(super) query: RawDocumentBuf,
    /// The last reply.
    pub(super) reply: RawDocumentBuf,
}

/// The values in ascending order. `None` if no index begins with the field, if there are many values (also if
/// there were some minutes ago), or if an item lacks the field.
pub(super) async fn read(
    run: &mut BucketCommand<'_>,
    wanted: &Distinct<'_>,
) -> Result<Option<DistinctValues>, RunError> {
    // Queries outside of a transaction do not read the same snapshot.
    let needs_snapshot = run.context.head.wants_snapshot() && !run.context.head.in_transaction();
    // A mongos does not merge the results of shards in the order of the index.
    if !wanted.is_of_all() || needs_snapshot || run.is_behind_mongos() || run.context.link.is_dry_run() {
        return Ok(None);
    }
    let Some(collection) = run.collection.as_ref().map(|collection| collection.uuid.clone()) else {
        return Ok(None);
    };
    if run.context.settings.many_values.contains(&collection, wanted.key) {
        return Ok(None);
    }
    let indexes = indexes::stored(run).await?;
    let Some(scan) = ValueScan::of(run.shape, wanted.key, &indexes.on_items) else {
        return Ok(None);
    };
    let mut values: Vec<RawBson> = Vec::new();
    let mut buckets = 1;
    loop {
        let behind = values.last().map(RawBson::as_raw_bson_ref);
        let query = scan.query(run.namespace.collection, behind, buckets);
        let request = complete(run, query.clone());
        let Some([reply]) = ask(run, [request]).await? else {
            indexes::forget(run);
            return Ok(None);
        };
        let read = i64::try_from(documents(&reply).count()).unwrap_or(i64::MAX);
        match scan.next(documents(&reply), behind, read < buckets) {
            NextValue::Value(value) if values.len() < MAX_VALUES => {
                values.push(value);
                buckets = 1;
            }
            NextValue::OnlyEmptied if buckets == 1 => buckets = BUCKETS_BEHIND_EMPTIED,
            NextValue::End => {
                if !scan.is_ascending() {
                    values.reverse();
                }
                let query = scan.query(run.namespace.collection, None, 1);
                let values = values.into_iter().collect();
                return Ok(Some(DistinctValues { values, query, reply }));
            }
            NextValue::Value(_) | NextValue::OnlyEmptied | NextValue::NotComparable => {
                if values.len() >= WORTH_CACHING {
                    run.context.settings.many_values.learn(&collection, wanted.key);
                }
                return Ok(None);
            }
        }
    }
}
