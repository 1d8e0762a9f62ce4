//! Removes empty pages. Skipped if the collection is being swapped, because the compacted copy has none.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{array_of, get, single};
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::delete::{forget_next, removable, remove};
use crate::pattern::bucket::index;
use crate::pattern::bucket::layout::{PageHeader, path};
use crate::pattern::bucket::predicate_pushdown::is_page;
use crate::pattern::bucket::update_by_position::retime::mark_before;
use crate::session::backoff::pause;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::retry_on_swap::unless_replaced;
use crate::session::bucket::write_statement::{Origin, WriteCommand, beside, send};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Pages read by one query.
const PAGES: i64 = 1000;
/// Reads of pages that change. If all fail, an empty page is left, which is a valid page.
const ATTEMPTS: u32 = 5;

/// Removes the empty pages at the upper end of a key. If a page changes after it was read, the pages are read
/// again.
pub(in crate::session::bucket) async fn key(run: &mut BucketCommand<'_>, key: &RawDocument) -> Result<(), RunError> {
    for attempt in 0..ATTEMPTS {
        pause(attempt).await;
        let pages = highest(run, key).await?;
        let empty = pages.get(..removable(&pages)).unwrap_or_default();
        let removed = remove_all(run, key, empty).await?;
        if let Some(last) = removed.checked_sub(1).and_then(|last| pages.get(last)) {
            below(run, key, last).await?;
        }
        if removed == empty.len() || run.context.head.in_transaction() {
            break;
        }
    }
    Ok(())
}

/// The highest pages of a key, from the highest downwards.
async fn highest(run: &mut BucketCommand<'_>, key: &RawDocument) -> Result<Vec<PageHeader>, RunError> {
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), single("$and", array_of(&[is_page(), key.to_owned()])));
    find.append(cstr!("sort"), single(path::PAGE, -1));
    find.append(cstr!("projection"), single(run.shape.items(), 0));
    find.append(cstr!("limit"), PAGES);
    find.append(cstr!("batchSize"), PAGES);
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_read_of_write(&mut find);
    let answer = run.context.link.run(&find).await?;
    let pages = CursorReply::parse(&answer).map(|cursor| {
        let pages = cursor.documents().map(|page| PageHeader::parse(run.shape, page));
        pages.collect::<Option<Vec<_>>>()
    });
    pages.flatten().ok_or_else(|| run.corrupt_bucket_error().into())
}

/// Removes empty pages of a key, from the highest downwards, and stops at a page that has changed
/// since it was read. Returns the number of removed pages.
pub(super) async fn remove_all(
    run: &mut BucketCommand<'_>,
    key: &RawDocument,
    pages: &[PageHeader],
) -> Result<usize, RunError> {
    let pages = pass_on(run, key, pages).await?;
    if pages.is_empty() {
        return Ok(0);
    }
    let statements = pages
        .iter()
        .map(|page| run.targeted(remove(run.shape, page), || key.to_owned()));
    let statements: Vec<RawDocumentBuf> = statements.collect();
    let statements: Vec<&RawDocument> = statements.iter().map(RawDocumentBuf::as_ref).collect();
    let result = send(run, WriteCommand::Delete, &statements, true, Origin::Internal).await;
    let Some(result) = unless_replaced(run, result)? else {
        return Ok(0);
    };
    Ok(result.missed.first().copied().unwrap_or(pages.len()))
}

/// Before a page is removed, copies the flags that it records for earlier pages of the key to the
/// page before it. Returns the pages that may be removed.
async fn pass_on(
    run: &mut BucketCommand<'_>,
    key: &RawDocument,
    pages: &[PageHeader],
) -> Result<Vec<PageHeader>, RunError> {
    let Some(first) = pages.iter().position(PageHeader::marks_later_pages) else {
        return Ok(pages.to_vec());
    };
    let (others, marked) = pages.split_at_checked(first).unwrap_or_default();
    let mut removable = others.to_vec();
    let behind = marked.iter().filter(|page| page.page > 0);
    let statements: Option<Vec<RawDocumentBuf>> = behind.map(|page| mark_before(key, page)).collect();
    let Some(statements) = statements else {
        return Ok(removable);
    };
    let statements: Vec<&RawDocument> = statements.iter().map(RawDocumentBuf::as_ref).collect();
    let result = send(run, WriteCommand::Update, &statements, true, Origin::Internal).await;
    let Some(result) = unless_replaced(run, result)? else {
        return Ok(removable);
    };
    if usize::try_from(result.n).is_ok_and(|n| n == statements.len()) {
        removable.extend(marked.iter().map(|page| PageHeader {
            anchor: true,
            ..page.clone()
        }));
    }
    Ok(removable)
}

/// Withdraws the reservation of a removed page from the page before it. If that page is empty, it
/// is removed as well, and so on downwards.
pub(super) async fn below(
    run: &mut BucketCommand<'_>,
    key: &RawDocument,
    removed: &PageHeader,
) -> Result<(), RunError> {
    let mut removed = removed.clone();
    while let Some((query, update)) = forget_next(key, &removed) {
        let mut command = single("findAndModify", run.namespace.collection);
        command.append(cstr!("query"), &query);
        command.append(cstr!("update"), &update);
        command.append(cstr!("new"), true);
        command.append(cstr!("fields"), single(run.shape.items(), 0));
        command.append(cstr!("hint"), index::PAGE);
        beside(run).append_to_write(&mut command);
        let answer = succeeded(run.context.link.call(UpstreamRequest::plain(&command)).await?);
        let Some(answer) = unless_replaced(run, answer.map_err(Into::into))? else {
            return Ok(());
        };
        let page = get(&answer, "value").and_then(RawBsonRef::as_document);
        let Some(page) = page.and_then(|page| PageHeader::parse(run.shape, page)) else {
            return Ok(());
        };
        if removable(std::slice::from_ref(&page)) == 0 {
            return Ok(());
        }
        if remove_all(run, key, std::slice::from_ref(&page)).await? == 0 {
            return Ok(());
        }
        removed = page;
    }
    Ok(())
}
