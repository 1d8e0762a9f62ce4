//! Deletes all matches. If the filter references only key fields, whole pages are deleted.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::{page_by_page, remove_empty_pages};
use crate::command::document::{array_of, put, single};
use crate::command::write_reply::WriteReply;
use crate::pattern::bucket::delete::{empty, has_only_next_reservation};
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_lookup::ItemSelector;
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{PageHeader, path};
use crate::pattern::bucket::predicate_pushdown::{BucketPredicate, is_page_of_any_layout};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::retry_on_swap::{MAX_RUNS, is_swap_error, wait};
use crate::session::bucket::upstream_query::{documents, more};
use crate::session::bucket::write_statement::{Origin, WriteCommand, lost_too_often, send_counting};
use crate::session::error::RunError;

/// Pages in one batch.
const PAGES: i64 = 1000;

/// Deletes all matching items. If the collection is swapped in the meantime, the remaining items
/// are looked up and deleted in the copy.
pub(super) async fn delete(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
    for _ in 0..MAX_RUNS {
        match all(run, wanted, deleted).await {
            Err(RunError::Command(error)) if is_swap_error(&error) && !run.context.head.in_transaction() => {
                wait(run).await?;
            }
            done => return done,
        }
    }
    all(run, wanted, deleted).await
}

async fn all(run: &mut BucketCommand<'_>, wanted: ItemSelector<'_>, deleted: &mut WriteReply) -> Result<(), RunError> {
    let narrowing = BucketPredicate::of(run.shape, wanted.filter);
    match narrowing.only_keys().filter(|_| wanted.collation.is_none()) {
        Some(condition) => whole_pages(run, &condition, deleted).await,
        None => page_by_page::delete(run, wanted, deleted).await,
    }
}

/// A page of which all items are to be deleted.
struct PageToDelete {
    key: Key,
    facts: PageHeader,
}

/// Deletes all items of the pages that match `condition`.
async fn whole_pages(
    run: &mut BucketCommand<'_>,
    condition: &RawDocument,
    deleted: &mut WriteReply,
) -> Result<(), RunError> {
    for round in 0..MAX_ATTEMPTS {
        pause(round).await;
        let mut answer = run.context.link.run(&pages_of(run, condition)).await?;
        let mut missed = false;
        loop {
            let pages = pages(run, &answer)?;
            missed |= empty_and_remove(run, &pages, deleted).await?;
            match more(run, &answer).await? {
                Some(next) => answer = next,
                None => break,
            }
        }
        if !missed {
            return Ok(());
        }
    }
    Err(lost_too_often().into())
}

/// The query for matching pages without their items, from the highest page of each key downwards.
fn pages_of(run: &BucketCommand<'_>, condition: &RawDocument) -> RawDocumentBuf {
    let mut order = RawDocumentBuf::new();
    for field in run.shape.key() {
        put(&mut order, field, -1);
    }
    put(&mut order, path::PAGE, -1);
    let mut find = single("find", run.namespace.collection);
    find.append(
        cstr!("filter"),
        single("$and", array_of(&[is_page_of_any_layout(), condition.to_owned()])),
    );
    find.append(cstr!("sort"), &order);
    find.append(cstr!("hint"), index::PAGE);
    find.append(cstr!("projection"), single(run.shape.items(), 0));
    find.append(cstr!("batchSize"), PAGES);
    run.context.inherited().append_to_selection(&mut find);
    find
}

fn pages(run: &BucketCommand<'_>, answer: &RawDocument) -> Result<Vec<PageToDelete>, RunError> {
    let pages = documents(answer).map(|page| {
        let key = Key::of(run.shape, page).ok()?;
        PageHeader::parse(run.shape, page).map(|facts| PageToDelete { key, facts })
    });
    pages
        .collect::<Option<_>>()
        .ok_or_else(|| run.corrupt_bucket_error().into())
}

/// Empties the pages, then removes those that can be removed. Returns whether some pages had
/// changed since they were read.
async fn empty_and_remove(
    run: &mut BucketCommand<'_>,
    pages: &[PageToDelete],
    deleted: &mut WriteReply,
) -> Result<bool, RunError> {
    let full: Vec<&PageToDelete> = pages.iter().filter(|page| page.facts.count > 0).collect();
    let statements = full
        .iter()
        .map(|page| run.targeted(empty(run.shape, &page.facts), || page.key.filter(run.shape)));
    let statements: Vec<RawDocumentBuf> = statements.collect();
    let mut missed = Vec::new();
    if !statements.is_empty() {
        let statements: Vec<&RawDocument> = statements.iter().map(RawDocumentBuf::as_ref).collect();
        let result = send_counting(run, WriteCommand::Update, &statements, false, Origin::Client(None)).await?;
        missed.clone_from(&result.missed);
        let emptied = full.iter().enumerate().filter(|(place, _)| !missed.contains(place));
        let n: i64 = emptied.map(|(_, page)| i64::from(page.facts.count)).sum();
        deleted.count(n);
        deleted.take_answer(result.answer.clone());
        result.unless_replaced()?;
    }
    let missed_pages: Vec<&PageHeader> = missed
        .iter()
        .filter_map(|place| Some(&full.get(*place)?.facts))
        .collect();
    for of_key in pages.chunk_by(|one, next| one.key.identity() == next.key.identity()) {
        remove_of_key(run, of_key, &missed_pages).await?;
    }
    Ok(!missed.is_empty())
}

/// Removes the removable pages of one key, from the highest page downwards.
async fn remove_of_key(
    run: &mut BucketCommand<'_>,
    pages: &[PageToDelete],
    missed: &[&PageHeader],
) -> Result<(), RunError> {
    let mut empty: Vec<PageHeader> = Vec::new();
    for page in pages {
        let facts = &page.facts;
        if missed.iter().any(|missed| missed.id == facts.id) || !has_only_next_reservation(facts, empty.last()) {
            break;
        }
        empty.push(PageHeader {
            count: 0,
            ..facts.clone()
        });
    }
    let Some(first) = pages.first() else { return Ok(()) };
    let mut key = RawDocumentBuf::new();
    first.key.append_filter(run.shape, &mut key);
    let removed = remove_empty_pages::remove_all(run, &key, &empty).await?;
    match removed.checked_sub(1).and_then(|last| empty.get(last)) {
        Some(last) => remove_empty_pages::below(run, &key, last).await,
        None => remove_empty_pages::key(run, &key).await,
    }
}
