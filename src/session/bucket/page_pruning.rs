//! Page pruning: a pipeline on one key and a range of time reads only the pages that may have such items.
//!
//! A pipeline cannot read pages by their time bounds, because the entries of those indexes move
//! ([decision](../../../docs/decisions/0010-pages-are-read-by-number.md)). Page numbers do not change. So the
//! numbers at both ends of the range are read first, and page 0 behind them. If page 0 does not record a
//! late page, all pages are in the order of time, and the pipeline reads the numbers between. An item that is
//! inserted late after that is concurrent to the command, which may miss it as an index scan may.
//!
//! Costs one round trip, so a key that is known to be short is not pruned.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::upstream_query::{ask_all, complete, documents};
use crate::command::arguments::with_replaced;
use crate::command::document::{get, put, single};
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::predicate_pushdown::{BucketPredicate, KeyAndRange};
use crate::pattern::bucket::read::Queries;
use crate::pattern::bucket::read::bucket::Bucket;
use crate::pattern::bucket::read::range::TimeRange;
use crate::session::error::RunError;
use crate::session::first_page_cache::FirstPageKey;

/// The least number of pages of a long key.
const LONG_KEY_PAGES: u64 = 20;

/// The filter and the collation of a query.
#[derive(Clone, Copy, Debug)]
pub(super) struct FilterAndCollation<'a> {
    pub(super) filter: Option<&'a RawDocument>,
    pub(super) collation: Option<&'a RawDocument>,
}

/// The command, an `aggregate` on pages, with a `$match` of page numbers in front if pages can be excluded.
pub(super) async fn pruned(
    run: &mut BucketCommand<'_>,
    command: RawDocumentBuf,
    query: FilterAndCollation<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let Some(stage) = stage(run, query).await? else {
        return Ok(command);
    };
    let mut stages = RawArrayBuf::new();
    stages.push(stage);
    let pipeline = get(&command, "pipeline").and_then(RawBsonRef::as_array);
    for stage in pipeline.into_iter().flatten().flatten() {
        stages.push(stage);
    }
    Ok(with_replaced(
        &command,
        &[("pipeline", Some(RawBsonRef::Array(&stages)))],
    ))
}

/// The `$match` that excludes pages by their numbers. `None` if the filter does not demand one key and a
/// range of time, if the key is short, or if its pages are not in the order of time.
pub(super) async fn stage(
    run: &mut BucketCommand<'_>,
    query: FilterAndCollation<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    // Several queries do not read the same snapshot.
    let needs_snapshot = run.context.head.wants_snapshot() && !run.context.head.in_transaction();
    if run.collection.is_none() || run.context.link.is_dry_run() || needs_snapshot || query.collation.is_some() {
        return Ok(None);
    }
    let predicate = BucketPredicate::of(run.shape, query.filter);
    let Some(KeyAndRange { key, range }) = predicate.key_and_range() else {
        return Ok(None);
    };
    let queries = Queries {
        source: run.source(),
        key: &key,
    };
    let Some(identity) = queries.identity(run.shape) else {
        return Ok(None);
    };
    let settings = run.context.settings;
    let cached = FirstPageKey::new(run.namespace, identity);
    let is_long = settings.key_lengths.is_long(&cached);
    if is_long == Some(false) {
        return Ok(None);
    }
    let Some(numbers) = PageNumbers::read(run, queries, range, is_long.is_none()).await? else {
        return Ok(None);
    };
    if let Some(highest) = numbers.highest {
        settings
            .key_lengths
            .learn(cached, highest.saturating_add(1) >= LONG_KEY_PAGES);
    }
    Ok(numbers
        .in_range()
        .map(|pages| single("$match", single(path::PAGE, &pages))))
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
