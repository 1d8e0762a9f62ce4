//! Deletes matching items page by page.

use std::collections::BTreeMap;

use bson::raw::{RawArrayBuf, RawBson, RawDocument, RawDocumentBuf};

use super::one::{ItemToDelete, condition};
use super::remove_empty_pages;
use crate::command::document::single;
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::delete::take_out;
use crate::pattern::bucket::item_lookup::{ItemSelector, LocatedItem};
use crate::pattern::bucket::layout::PageHeader;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::item_lookup::Matches;
use crate::session::bucket::write_statement::{Origin, WriteCommand, lost_too_often, send_counting};
use crate::session::error::RunError;

/// The items of one page that are to be deleted.
struct PageSelection {
    key: RawDocumentBuf,
    facts: PageHeader,
    /// By position on the page, ascending.
    items: BTreeMap<usize, RawDocumentBuf>,
}

pub(super) async fn delete(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
    let mut emptied = Emptied::default();
    // If the collection was swapped in the meantime, the items have other positions, so all are
    // looked up again.
    while !all_that_match(run, wanted, deleted, &mut emptied).await? && !run.is_still_the_same().await? {}
    for key in emptied.keys.into_values() {
        remove_empty_pages::key(run, &key).await?;
    }
    Ok(())
}

/// Deletes all matching items. Returns whether every item was still as it was read.
async fn all_that_match(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    deleted: &mut WriteReply,
    emptied: &mut Emptied,
) -> Result<bool, RunError> {
    let mut missed = round(run, wanted, deleted, emptied).await?;
    let all = missed.is_empty();
    for attempt in 0..MAX_ATTEMPTS {
        if missed.is_empty() {
            return Ok(all);
        }
        pause(attempt).await;
        // An item that was changed concurrently is looked up again, but only on the same page. Items
        // inserted on other pages in the meantime do not belong to this delete.
        let again = pages(&missed);
        let again = ItemSelector {
            of_bucket: Some(&again),
            ..wanted
        };
        missed = round(run, again, deleted, emptied).await?;
    }
    Err(lost_too_often().into())
}

/// Keys with pages from which the last item was deleted.
#[derive(Default)]
struct Emptied {
    keys: BTreeMap<Vec<u8>, RawDocumentBuf>,
}

impl Emptied {
    fn add(&mut self, key: &RawDocument) {
        self.keys
            .entry(key.as_bytes().to_vec())
            .or_insert_with(|| key.to_owned());
    }
}

fn pages(ids: &[RawBson]) -> RawDocumentBuf {
    let ids: RawArrayBuf = ids.iter().map(RawBson::as_raw_bson_ref).collect();
    single("_id", single("$in", &ids))
}

/// Deletes the items that match now. Returns the `_id`s of pages that had changed since they were
/// read.
async fn round(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    deleted: &mut WriteReply,
    emptied: &mut Emptied,
) -> Result<Vec<RawBson>, RunError> {
    let mut matches = Matches::of(run, wanted).await?;
    let mut missed = Vec::new();
    // The items of a page may continue in the next batch.
    let mut rest: Option<PageSelection> = None;
    while let Some(batch) = matches.next_batch(run).await? {
        let mut chosen = by_page(run, rest.take(), batch)?;
        rest = chosen.pop();
        missed.extend(take(run, &chosen, deleted, emptied).await?);
    }
    let rest: Vec<PageSelection> = rest.into_iter().collect();
    missed.extend(take(run, &rest, deleted, emptied).await?);
    Ok(missed)
}

fn by_page(
    run: &BucketCommand<'_>,
    rest: Option<PageSelection>,
    batch: Vec<LocatedItem>,
) -> Result<Vec<PageSelection>, RunError> {
    let mut chosen: Vec<PageSelection> = rest.into_iter().collect();
    for found in batch {
        let target = ItemToDelete::of(run.shape, found).ok_or_else(|| run.corrupt_bucket_error())?;
        match chosen.last_mut() {
            Some(last) if last.facts.id == target.page.id => {
                last.items.insert(target.place, target.stored);
            }
            _ => chosen.push(PageSelection {
                key: condition(run.shape, &target.bucket).ok_or_else(|| run.corrupt_bucket_error())?,
                facts: target.page,
                items: [(target.place, target.stored)].into(),
            }),
        }
    }
    Ok(chosen)
}

async fn take(
    run: &mut BucketCommand<'_>,
    chosen: &[PageSelection],
    deleted: &mut WriteReply,
    emptied: &mut Emptied,
) -> Result<Vec<RawBson>, RunError> {
    if chosen.is_empty() {
        return Ok(Vec::new());
    }
    let statements = chosen.iter().map(|page| {
        let items: Vec<(usize, &RawDocument)> = page.items.iter().map(|(place, item)| (*place, &**item)).collect();
        run.targeted(take_out(run.shape, &page.facts, &items), || page.key.clone())
    });
    let statements: Vec<RawDocumentBuf> = statements.collect();
    let statements: Vec<&RawDocument> = statements.iter().map(RawDocumentBuf::as_ref).collect();
    let result = send_counting(run, WriteCommand::Update, &statements, false, Origin::Client(None)).await?;
    let mut missed = Vec::new();
    let mut n = 0_usize;
    for (position, page) in chosen.iter().enumerate() {
        if result.missed.contains(&position) {
            missed.push(page.facts.id.clone());
            continue;
        }
        n = n.saturating_add(page.items.len());
        // Also with a reservation: the page after it may be empty, too.
        if usize::try_from(page.facts.count).is_ok_and(|count| count <= page.items.len()) {
            emptied.add(&page.key);
        }
    }
    deleted.count(i64::try_from(n).unwrap_or(i64::MAX));
    deleted.take_answer(result.answer.clone());
    result.unless_replaced()?;
    Ok(missed)
}
