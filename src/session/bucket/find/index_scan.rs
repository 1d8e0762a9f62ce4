//! A sorted and limited `find`, answered in the order of an index.
//!
//! Costs one round trip if the index answers the whole filter. Otherwise more buckets are read, up to a
//! bound; beyond it mongod sorts.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::item_cursor::BatchLimit;
use super::{DEFAULT_BATCH_SIZE, leaves_open};
use crate::command::batch::{BatchKind, ReplyBatch};
use crate::command::document::single;
use crate::command::find::Find;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::pattern::bucket::read::documents::DocumentBuffer;
use crate::pattern::bucket::read::index_scan::{
    IndexScan, IndexScanResult, SortedQuery, has_read_heads, may_have_array,
};
use crate::pattern::bucket::readable_indexes::ReadableIndexes;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::cursor_source::{CursorSource, MaterializedList};
use crate::session::bucket::explanation::Explained;
use crate::session::bucket::indexes;
use crate::session::bucket::upstream_query::{ask_all, complete, documents, kill_all};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// How often more buckets are read, each time [`GROWTH`] times as many.
const MAX_ATTEMPTS: u32 = 3;
const GROWTH: u64 = 4;
/// How often a scan is executed that misses a page.
const MAX_READS: u32 = 3;
/// The most buckets that are read at once.
const MAX_BUCKETS: u64 = 2000;

/// The items of the result, the query that was sent, and its reply.
struct Answer {
    items: DocumentBuffer,
    query: RawDocumentBuf,
    reply: RawDocumentBuf,
}

/// The reply. `None` if no index has the order of the sort, or the proxy cannot compare the values.
pub(in crate::session::bucket) async fn run(
    run: &mut BucketCommand<'_>,
    find: &Find<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(query) = sorted_query(run, find) else {
        return Ok(None);
    };
    let indexes = indexes::stored(run).await?;
    let scans = scans(run, &query, &indexes);
    let Some(mut answer) = read(run, scans).await? else {
        return Ok(None);
    };
    let limit = BatchLimit::of(Some(find.batch_size.unwrap_or(DEFAULT_BATCH_SIZE)));
    let mut batch = ReplyBatch::new(BatchKind::First);
    while let Some(item) = answer.items.first().filter(|_| !limit.is_full(&batch)) {
        if !batch.has_space_for(item.len()) {
            return Ok(None);
        }
        batch.push(item);
        answer.items.advance();
    }
    // A first batch of no documents leaves the cursor open, whether there are any or not.
    let is_at_end = answer.items.is_empty() && !limit.is_nothing();
    let id = if is_at_end || !leaves_open(run, find) {
        0
    } else {
        let mut cluster_time = RawDocumentBuf::new();
        copy_cluster_time(&mut cluster_time, &answer.reply);
        let mut list = MaterializedList::new(listed(answer.items), cluster_time);
        list.collection = run.collection.as_ref().map(|collection| collection.uuid.clone());
        run.keep(CursorSource::Listed(list)).await?
    };
    run.record_read(Strategy::Index);
    // All items are from one reply. It has the time of its snapshot, at which a session continues.
    Ok(Some(batch.into_reply_like(&answer.reply, id)))
}

pub(super) async fn explained(run: &mut BucketCommand<'_>, find: &Find<'_>) -> Result<Option<Explained>, RunError> {
    let Some(query) = sorted_query(run, find) else {
        return Ok(None);
    };
    let indexes = indexes::stored(run).await?;
    let scans = scans(run, &query, &indexes);
    let answer = read(run, scans).await?;
    Ok(answer.map(|answer| Explained {
        strategy: Strategy::Index,
        command: answer.query,
    }))
}

fn sorted_query<'a>(run: &BucketCommand<'_>, find: &Find<'a>) -> Option<SortedQuery<'a>> {
    // The stable API does not have `min` and `max`.
    if run.is_strict() || run.collection.is_none() || run.context.link.is_dry_run() {
        return None;
    }
    // A cursor of the proxy would outlive the transaction.
    let is_one_batch = find.single_batch || find.limit <= find.batch_size.unwrap_or(DEFAULT_BATCH_SIZE);
    if run.context.head.in_transaction() && !is_one_batch {
        return None;
    }
    SortedQuery::of(run.shape, find)
}

/// The scans of indexes that have the order. Those of the shape come first, unless an index on items answers
/// more equalities.
fn scans<'a>(run: &BucketCommand<'_>, query: &'a SortedQuery<'a>, indexes: &'a ReadableIndexes) -> Vec<IndexScan<'a>> {
    let mut scans = query.scans(&indexes.on_items);
    let of_pages = query
        .scan_of_time_bounds(run.shape)
        .or_else(|| query.scan_of_keys(&indexes.on_key_and_time));
    if let Some(of_pages) = of_pages {
        let answered = of_pages.equalities(run.shape);
        if scans.iter().all(|scan| scan.equalities(run.shape) <= answered) {
            scans.insert(0, of_pages);
        }
    }
    scans
}

/// The result of one round trip.
enum Trial {
    Done(Answer),
    /// More buckets are needed. Has the number of items that are known.
    TooFew(usize),
    /// The scan does not answer the query.
    Failed,
}

async fn read(run: &mut BucketCommand<'_>, mut scans: Vec<IndexScan<'_>>) -> Result<Option<Answer>, RunError> {
    // mongod refuses `explain` in a transaction and with a snapshot.
    let explains = !run.context.head.in_transaction() && !run.context.head.wants_snapshot();
    scans.retain(|scan| explains || scan.unless_array(run.shape).is_none());
    if run.is_behind_mongos() {
        scans.retain(IndexScan::is_sorted);
    }
    if run.context.head.wants_new_snapshot() {
        // A query for late pages would not read the snapshot of the scan.
        scans.retain(|scan| scan.late_pages(run.namespace.collection).is_none());
    }
    let Some(mut buckets) = scans.first().map(|scan| scan.buckets(run.shape)) else {
        return Ok(None);
    };
    for _ in 0..MAX_ATTEMPTS {
        if buckets > MAX_BUCKETS {
            break;
        }
        let mut best: Option<(usize, IndexScan<'_>)> = None;
        for scan in scans {
            match attempt(run, &scan, buckets).await? {
                Trial::Done(answer) => return Ok(Some(answer)),
                Trial::TooFew(found) if scan.can_grow() && best.as_ref().is_none_or(|(most, _)| found > *most) => {
                    best = Some((found, scan));
                }
                Trial::TooFew(_) | Trial::Failed => {}
            }
        }
        let Some((_, scan)) = best else { break };
        scans = vec![scan];
        buckets = buckets.saturating_mul(GROWTH);
    }
    Ok(None)
}

/// Reads this number of buckets, again if the scan has missed a page.
async fn attempt(run: &mut BucketCommand<'_>, scan: &IndexScan<'_>, buckets: u64) -> Result<Trial, RunError> {
    for _ in 0..MAX_READS {
        if let Some(trial) = read_once(run, scan, buckets).await? {
            return Ok(trial);
        }
    }
    Ok(Trial::Failed)
}

/// Reads this number of buckets in one round trip. `None`: the scan has missed a page whose entry in the index
/// has moved.
async fn read_once(run: &mut BucketCommand<'_>, scan: &IndexScan<'_>, buckets: u64) -> Result<Option<Trial>, RunError> {
    let collection = run.namespace.collection;
    let find = scan.query(run.shape, collection, buckets);
    let array_path = scan.unless_array(run.shape);
    let head_pages = scan.head_pages(run.shape, collection);
    let late_pages = scan.late_pages(collection);
    let mut queries: Vec<RawDocumentBuf> = head_pages.iter().map(|query| complete(run, query.clone())).collect();
    queries.push(complete(run, find.clone()));
    queries.extend(array_path.is_some().then(|| explanation(run, &find)));
    queries.extend(late_pages.map(|query| complete(run, query)));
    let Some(mut replies) = ask_all(run, queries).await? else {
        indexes::forget(run);
        return Ok(Some(Trial::Failed));
    };
    let check = replies.split_off(if head_pages.is_some() { 2 } else { 1 });
    let Some(reply) = replies.pop() else {
        return Ok(Some(Trial::Failed));
    };
    let has_more = CursorReply::parse(&reply).is_none_or(|cursor| cursor.id != 0);
    let is_disturbed = check.first().is_some_and(|check| match &array_path {
        Some(path) => may_have_array(run.shape, check, path),
        None => documents(check).next().is_some(),
    });
    if has_more || is_disturbed {
        // The buckets exceed one reply, or arrays or moved bounds make the order different.
        kill_all(run, &[reply]).await?;
        return Ok(Some(Trial::Failed));
    }
    let pages: Vec<&RawDocument> = documents(&reply).collect();
    let is_all = u64::try_from(pages.len()).unwrap_or(u64::MAX) < buckets;
    let heads = replies.first().into_iter().flat_map(|heads| documents(heads));
    if !has_read_heads(run.shape, &pages, is_all, heads) {
        return Ok(None);
    }
    Ok(Some(match scan.items(run.shape, pages.into_iter(), is_all) {
        IndexScanResult::Items(items) => Trial::Done(Answer {
            items,
            query: find,
            reply,
        }),
        IndexScanResult::TooFew(found) => Trial::TooFew(found),
        IndexScanResult::NotComparable => Trial::Failed,
    }))
}

/// The `explain` that reports on which paths the index has arrays. It is executed after the query. An index
/// keeps that mark when the array is removed, so the report includes every array that the query read.
fn explanation(run: &BucketCommand<'_>, find: &RawDocument) -> RawDocumentBuf {
    let mut command = single("explain", find);
    command.append(cstr!("verbosity"), "queryPlanner");
    run.context.inherited().append_to_read(&mut command);
    command
}

fn listed(mut items: DocumentBuffer) -> Vec<RawDocumentBuf> {
    let mut listed = Vec::new();
    while let Some(item) = items.first() {
        listed.extend(RawDocumentBuf::from_bytes(item.to_vec()).ok());
        items.advance();
    }
    listed
}
