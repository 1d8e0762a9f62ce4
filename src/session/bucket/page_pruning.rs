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

use std::borrow::Cow;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::upstream_query::{ask_all, complete, documents, kill_all, name_collection};
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

/// Sends an `aggregate` on pages, which includes the inherited options, and returns the reply.
pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    command: &RawDocument,
    query: FilterAndCollation<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let Some(mut pruning) = Pruning::of(run, query) else {
        return run.context.link.run(command).await;
    };
    if let Some(reply) = pruning.run_on_first_pages(run, command).await? {
        return Ok(reply);
    }
    let command = pruning.pruned(run, command).await?;
    run.context.link.run(&command).await
}

/// The command, an `aggregate` on pages, without pages that the filter excludes.
pub(super) async fn pruned(
    run: &mut BucketCommand<'_>,
    command: RawDocumentBuf,
    query: FilterAndCollation<'_>,
) -> Result<RawDocumentBuf, RunError> {
    match Pruning::of(run, query) {
        Some(mut pruning) => Ok(pruning.pruned(run, &command).await?.into_owned()),
        None => Ok(command),
    }
}

/// The command with a `$match` on page numbers in front of its pipeline. It names the collection, because the
/// numbers are those of its pages.
fn matching_pages(run: &BucketCommand<'_>, pages: &RawDocument, command: &RawDocument) -> RawDocumentBuf {
    let mut stages = RawArrayBuf::new();
    stages.push(single("$match", single(path::PAGE, pages)));
    let pipeline = get(command, "pipeline").and_then(RawBsonRef::as_array);
    for stage in pipeline.into_iter().flatten().flatten() {
        stages.push(stage);
    }
    let mut command = with_replaced(command, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
    name_collection(run, &mut command);
    command
}

/// A query whose pages may be pruned.
pub(super) struct Pruning {
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
    /// it: under `apiStrict` they cannot name one collection.
    pub(super) fn of(run: &BucketCommand<'_>, query: FilterAndCollation<'_>) -> Option<Self> {
        // Several queries do not read the same snapshot.
        let needs_snapshot = run.context.head.wants_snapshot() && !run.context.head.in_transaction();
        // Of several commands, the first one begins the client's transaction.
        let begins = get(run.context.head.body(), "startTransaction").is_some();
        let is_unnamed = run.is_strict() && !run.context.head.in_transaction();
        let is_one_command = needs_snapshot || begins || is_unnamed || run.context.link.is_dry_run();
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

    /// Sends the command for the first pages, and with it a query for the highest page. Returns the reply to
    /// the command if the key has no other pages. `None` if it has, and if the length of the key was known
    /// before. Sends nothing in a transaction: an error of the command would end it before the query.
    pub(super) async fn run_on_first_pages(
        &mut self,
        run: &mut BucketCommand<'_>,
        command: &RawDocument,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        if self.is_long.is_some() || run.context.head.in_transaction() {
            return Ok(None);
        }
        let pages = single("$lt", i64::try_from(LONG_KEY_PAGES).unwrap_or(i64::MAX));
        let on_first_pages = matching_pages(run, &pages, command);
        // Behind the command: if the highest page is one of the first now, there were no others.
        let highest = completed(run, self.queries(run).highest(run.shape));
        let requests = [&on_first_pages, &highest].map(|request| UpstreamRequest::plain(request));
        let replies = run.context.link.call_all(&requests).await?;
        let Ok([reply, highest]) = <[_; 2]>::try_from(replies) else {
            return Ok(None);
        };
        let reply = succeeded(reply);
        match (&reply, succeeded(highest)) {
            (_, Ok(highest)) => self.learn_of_highest(run, &highest),
            // Both have one cause, so it is not in the pages.
            (Err(error), Err(_)) => return Err(error.clone().into()),
            (Ok(_), Err(_)) => {}
        }
        if self.is_long == Some(false) {
            return Ok(Some(reply?));
        }
        if let Ok(reply) = reply {
            kill_all(run, &[reply]).await?;
        }
        Ok(None)
    }

    /// The command without pages that the filter excludes. Unchanged if the key is short, or if its pages are
    /// not in the order of time.
    pub(super) async fn pruned<'c>(
        &mut self,
        run: &mut BucketCommand<'_>,
        command: &'c RawDocument,
    ) -> Result<Cow<'c, RawDocument>, RunError> {
        if self.is_long == Some(false) {
            return Ok(Cow::Borrowed(command));
        }
        let numbers = PageNumbers::read(run, self.queries(run), self.range, self.is_long.is_none()).await?;
        if let Some(highest) = numbers.as_ref().and_then(|numbers| numbers.highest) {
            self.learn(run, highest);
        }
        Ok(match numbers.and_then(|numbers| numbers.in_range()) {
            Some(pages) => Cow::Owned(matching_pages(run, &pages, command)),
            None => Cow::Borrowed(command),
        })
    }

    /// Caches whether the key is long, by the reply with its highest page.
    fn learn_of_highest(&mut self, run: &BucketCommand<'_>, reply: &RawDocument) {
        match documents(reply).next().map(|page| Bucket::open(run.shape, page)) {
            Some(Some(page)) => self.learn(run, page.page),
            // Not a page.
            Some(None) => {}
            None => self.learn(run, 0),
        }
    }

    /// Caches whether the key is long, by the number of its highest page.
    fn learn(&mut self, run: &BucketCommand<'_>, highest: u64) {
        let is_long = highest.saturating_add(1) >= LONG_KEY_PAGES;
        self.is_long = Some(is_long);
        run.context.settings.key_lengths.learn(self.cached.clone(), is_long);
    }

    fn queries<'q>(&'q self, run: &BucketCommand<'q>) -> Queries<'q> {
        Queries {
            source: run.source(),
            key: &self.key,
        }
    }
}

/// A query with the inherited options and the collection's UUID. The `txnNumber` of a retryable write is not for
/// a query.
pub(super) fn completed(run: &BucketCommand<'_>, mut query: RawDocumentBuf) -> RawDocumentBuf {
    if !run.context.head.is_write() {
        return complete(run, query);
    }
    name_collection(run, &mut query);
    run.context.inherited().append_to_selection(&mut query);
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
