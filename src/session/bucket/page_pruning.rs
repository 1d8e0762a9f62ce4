//! Page pruning: a pipeline on one key and a range of time reads only the pages that may have such items.
//!
//! A pipeline cannot read pages by their time bounds, because the entries of those indexes move
//! ([decision](../../../docs/decisions/0010-pages-are-read-by-number.md)). Page numbers do not change. So the
//! numbers at both ends of the range are read first, and page 0 behind them. If page 0 does not record a
//! late page, all pages are in the order of time, and the pipeline reads the numbers between. An item that is
//! inserted late after that is concurrent to the command, which may miss it as an index scan may.
//!
//! Costs one round trip, so the pages of a short key are not pruned. If it is not known whether a key is
//! short, the pipeline is sent for its first pages, together with a query for the highest one.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::upstream_query::{ask_all, complete, documents, kill_all};
use crate::command::arguments::with_replaced;
use crate::command::document::{get, put, single};
use crate::command::reply::succeeded;
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::predicate_pushdown::{BucketPredicate, KeyAndRange};
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::read::range::TimeRange;
use crate::session::error::RunError;
use crate::session::first_page_cache::FirstPageKey;
use crate::session::upstream_connection::UpstreamRequest;

/// The least number of pages of a long key.
const LONG_KEY_PAGES: u64 = 20;

/// The filter and the collation of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterAndCollation<'a> {
    pub(super) filter: Option<&'a RawDocument>,
    pub(super) collation: Option<&'a RawDocument>,
}

/// Runs an `aggregate` on pages. It has its options already.
pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    command: &RawDocument,
    query: FilterAndCollation<'_>,
) -> Result<RawDocumentBuf, RunError> {
    if let Some(reply) = of_short_key(run, command, query).await? {
        return Ok(reply);
    }
    let command = pruned(run, command, query).await?;
    run.context.link.run(&command).await
}

/// The reply to an `aggregate` on pages, if the key of the query is not known to be long or short, and turns
/// out to be short. The command is sent for the first pages, together with a query for the highest one.
/// `None` otherwise.
pub(super) async fn of_short_key(
    run: &mut BucketCommand<'_>,
    command: &RawDocument,
    query: FilterAndCollation<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(pruning) = Pruning::of(run, query).filter(|pruning| pruning.is_long.is_none()) else {
        return Ok(None);
    };
    let first_pages = single(
        path::PAGE,
        single("$lt", i64::try_from(LONG_KEY_PAGES).unwrap_or(i64::MAX)),
    );
    let first_pages = behind(&single("$match", &first_pages), command);
    // Behind the other: if the highest page is one of the first now, there were no others.
    let highest = completed(run, pruning.queries(run).highest(run.shape));
    let requests = [&first_pages, &highest].map(|request| UpstreamRequest::plain(request));
    let replies = run.context.link.call_all(&requests).await?;
    let Ok([reply, highest]) = <[_; 2]>::try_from(replies) else {
        return Ok(None);
    };
    let highest = succeeded(highest).ok();
    let page = highest.as_deref().and_then(|reply| documents(reply).next());
    let is_long = match page {
        Some(page) => Bucket::open(run.shape, page).map(|page| page.page.saturating_add(1) >= LONG_KEY_PAGES),
        None => highest.is_some().then_some(false),
    };
    if let Some(is_long) = is_long {
        run.context.settings.key_lengths.learn(pruning.cached, is_long);
    }
    if is_long == Some(false) {
        return Ok(Some(succeeded(reply)?));
    }
    if let Ok(reply) = succeeded(reply) {
        kill_all(run, &[reply]).await?;
    }
    Ok(None)
}

/// The command, an `aggregate` on pages, with a `$match` of page numbers in front if pages can be excluded.
pub(super) async fn pruned(
    run: &mut BucketCommand<'_>,
    command: &RawDocument,
    query: FilterAndCollation<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let stage = stage(run, query).await?;
    Ok(stage.map_or_else(|| command.to_owned(), |stage| behind(&stage, command)))
}

/// The command with a stage in front of its pipeline.
fn behind(stage: &RawDocument, command: &RawDocument) -> RawDocumentBuf {
    let mut stages = RawArrayBuf::new();
    stages.push(stage.to_owned());
    let pipeline = get(command, "pipeline").and_then(RawBsonRef::as_array);
    for stage in pipeline.into_iter().flatten().flatten() {
        stages.push(stage);
    }
    with_replaced(command, &[("pipeline", Some(RawBsonRef::Array(&stages)))])
}

/// The `$match` that excludes pages by their numbers. `None` if the filter does not demand one key and a
/// range of time, if the key is short, or if its pages are not in the order of time.
async fn stage(run: &mut BucketCommand<'_>, query: FilterAndCollation<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(pruning) = Pruning::of(run, query).filter(|pruning| pruning.is_long != Some(false)) else {
        return Ok(None);
    };
    let queries = pruning.queries(run);
    let Some(numbers) = PageNumbers::read(run, queries, pruning.range, pruning.is_long.is_none()).await? else {
        return Ok(None);
    };
    if let Some(highest) = numbers.highest {
        let is_long = highest.saturating_add(1) >= LONG_KEY_PAGES;
        run.context.settings.key_lengths.learn(pruning.cached, is_long);
    }
    Ok(numbers
        .in_range()
        .map(|pages| single("$match", single(path::PAGE, &pages))))
}

/// A query whose pages may be pruned.
struct Pruning {
    /// The condition that matches the pages of the key.
    key: RawDocumentBuf,
    range: TimeRange,
    /// The key in the cache of lengths.
    cached: FirstPageKey,
    /// Whether the key has many pages. `None`: unknown.
    is_long: Option<bool>,
}

impl Pruning {
    /// `None` if the filter does not demand one key and a range of time, or if several queries cannot answer
    /// it.
    fn of(run: &BucketCommand<'_>, query: FilterAndCollation<'_>) -> Option<Self> {
        // Several queries do not read the same snapshot.
        let needs_snapshot = run.context.head.wants_snapshot() && !run.context.head.in_transaction();
        // Of several commands, the first one begins the client's transaction.
        let begins = get(run.context.head.body(), "startTransaction").is_some();
        let is_one_command = needs_snapshot || begins || run.context.link.is_dry_run();
        if run.collection.is_none() || is_one_command || query.collation.is_some() {
            return None;
        }
        let KeyAndRange { key, range } = BucketPredicate::of(run.shape, query.filter).key_and_range()?;
        let source = run.source();
        let identity = Queries { source, key: &key }.identity(run.shape)?;
        let cached = FirstPageKey::new(run.namespace, identity);
        let is_long = run.context.settings.key_lengths.is_long(&cached);
        Some(Self {
            key,
            range,
            cached,
            is_long,
        })
    }

    fn queries<'q>(&'q self, run: &BucketCommand<'q>) -> Queries<'q> {
        Queries {
            source: run.source(),
            key: &self.key,
        }
    }
}

/// A query with the inherited options. The `txnNumber` of a retryable write is not for a query.
fn completed(run: &BucketCommand<'_>, mut query: RawDocumentBuf) -> RawDocumentBuf {
    if !run.context.head.is_retryable_write() {
        return complete(run, query);
    }
    run.context.inherited().append_to_internal_read(&mut query);
    query
}

/// Page numbers of a key.
struct PageNumbers {
    /// Whether all pages are in the order of time.
    is_ascending: bool,
    /// The highest page that ends before the range, if any.
    before: Option<u64>,
    /// The lowest page that begins after the range, if any.
    after: Option<u64>,
    /// The highest page of the key, if it was read.
    highest: Option<u64>,
}

impl PageNumbers {
    /// Reads the numbers in one round trip, that of the highest page with `reads_highest`. `None` if mongod
    /// refuses a query.
    async fn read(
        run: &mut BucketCommand<'_>,
        queries: Queries<'_>,
        range: TimeRange,
        reads_highest: bool,
    ) -> Result<Option<Self>, RunError> {
        let shape = run.shape;
        let optional = [
            queries.last_before(shape, range),
            queries.first_after(shape, range),
            reads_highest.then(|| queries.highest(shape)),
        ];
        let is_sent = optional.each_ref().map(Option::is_some);
        // Behind the others: a page that is late now was marked here before its items were stored.
        let requests = optional.into_iter().flatten().chain([queries.first(shape)]);
        let requests = requests.map(|request| completed(run, request)).collect();
        let Some(replies) = ask_all(run, requests).await? else {
            return Ok(None);
        };
        let mut pages = replies
            .iter()
            .map(|reply| Bucket::open(shape, documents(reply).next()?));
        let [before, after, highest] = is_sent.map(|is_sent| {
            let page = is_sent.then(|| pages.next().flatten()).flatten();
            page.map(|page| page.page)
        });
        Ok(Some(Self {
            is_ascending: pages.next().flatten().is_some_and(|first| first.says_ascending()),
            before,
            after,
            highest,
        }))
    }

    /// The condition on the numbers of pages that may have items in the range. `None`: all pages may. The
    /// page before the range is included, because it may be the open page, to which later items are added.
    fn in_range(&self) -> Option<RawDocumentBuf> {
        let ends = [("$gte", self.before), ("$lt", self.after)];
        let mut condition = RawDocumentBuf::new();
        for (operator, page) in ends {
            if let Some(page) = page {
                put(&mut condition, operator, i64::try_from(page).ok()?);
            }
        }
        (self.is_ascending && !condition.is_empty()).then_some(condition)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn pages_between_the_ends_of_the_range_may_have_its_items() {
        let in_range = |is_ascending, before, after| {
            let numbers = PageNumbers {
                is_ascending,
                before,
                after,
                highest: None,
            };
            numbers.in_range()
        };
        assert_eq!(in_range(true, None, None), None);
        assert_eq!(in_range(false, Some(3), None), None);
        assert_eq!(in_range(true, Some(3), None), Some(rawdoc! { "$gte": 3_i64 }));
        assert_eq!(
            in_range(true, Some(3), Some(5)),
            Some(rawdoc! { "$gte": 3_i64, "$lt": 5_i64 })
        );
    }
}
