//! Retry records of a relocated item under the client's own `stmtId`, in addition to those of the internal
//! transaction.
//!
//! All internal transactions of a client's session are in one session, which records only the last. So a
//! statement of several is recorded after its item is relocated and before the next is executed. A
//! `findAndModify` claims its item before it is relocated: mongod keeps the image of the page, from which a
//! retry is answered (`docs/decisions/0014-moves-are-transactions.md`).

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::{append_fields, get, put, single};
use crate::command::error::CommandError;
use crate::command::reply::succeeded;
use crate::pattern::bucket::delete::as_find_and_modify;
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::layout::path;
use crate::pattern::bucket::update_by_position;
use crate::session::backoff::pause;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::write_statement::{Origin, WriteCommand, is_remembered, send_one};
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;
use crate::session::upstream_connection::UpstreamRequest;

/// Offset from a statement's `stmtId` to that of its record. The numbers in between belong to
/// inserts of upserts.
const BESIDE: i32 = 1 << 18;

/// The most requests for a missing image.
const MAX_LOOKS: u32 = 5;
/// Failures that a pause assumes beside the requests for the image.
const MIN_PAUSE: u32 = 2;

/// The result of claiming an item.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ItemClaim {
    /// mongod keeps the image of the item's page.
    Made,
    /// Another attempt of the command claimed an item under this `stmtId`.
    Before,
    /// The item has changed since it was read.
    Missed,
}

pub(super) fn attempt_number(attempt: u32) -> i32 {
    i32::try_from(attempt).unwrap_or(i32::MAX)
}

/// Records that the statement was executed. mongod keeps a retry record only for a write that
/// changes a document, so this increments a counter on a page: the first that matches one of
/// `pages`, else any page.
pub(super) async fn remember(run: &mut BucketCommand<'_>, id: i32, pages: &[RawDocumentBuf]) -> Result<(), RunError> {
    let any = RawDocumentBuf::new();
    for page in pages.iter().chain([&any]) {
        let mut statement = single("q", page);
        statement.append(cstr!("u"), single("$inc", single(path::CHANGED, 1)));
        let id = id.saturating_add(BESIDE);
        let result = send_one(run, WriteCommand::Update, &statement, Origin::Client(Some(id))).await?;
        if result.n > 0 || result.resent {
            break;
        }
    }
    Ok(())
}

/// Filters for the item's page, and for any page of its key.
pub(super) fn pages(run: &BucketCommand<'_>, item: &RawDocument) -> Vec<RawDocumentBuf> {
    let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
    let Ok(item) = Item::prepare(run.shape, 0, item, &mut mint) else {
        return Vec::new();
    };
    let mut of_key = RawDocumentBuf::new();
    item.key().append_filter(run.shape, &mut of_key);
    let mut own = of_key.clone();
    match get(item.stored(), "_id") {
        Some(id) => {
            put(&mut own, &format!("{}._id", run.shape.items()), single("$eq", id));
            vec![own, of_key]
        }
        None => vec![of_key],
    }
}

/// Whether the statement has a retry record.
pub(super) async fn is_recorded(run: &mut BucketCommand<'_>, id: i32) -> Result<bool, RunError> {
    Ok(is_remembered(run, id.saturating_add(BESIDE)).await?.is_some())
}

/// Claims an item under this `stmtId`, for one attempt of a `findAndModify`.
pub(super) async fn claim(
    run: &mut BucketCommand<'_>,
    found: &LocatedItem,
    number: i32,
) -> Result<ItemClaim, RunError> {
    let arguments = update_by_position::claim(run.shape, found).map_err(|what| run.unsupported(&what))?;
    let body = find_and_modify(run, &arguments, number);
    let answer = match succeeded(run.context.link.call(UpstreamRequest::plain(&body)).await?) {
        Err(error) if has_no_image(&error) => return Ok(ItemClaim::Before),
        answer => answer?,
    };
    Ok(if get(&answer, "retriedStmtId").is_some() {
        ItemClaim::Before
    } else if get(&answer, "value").is_some_and(|value| value.as_document().is_some()) {
        ItemClaim::Made
    } else {
        ItemClaim::Missed
    })
}

/// The image of the page on which the `findAndModify` claimed its item under this `stmtId`, if
/// mongod still has it.
pub(in crate::session::bucket) async fn claimed(
    run: &mut BucketCommand<'_>,
    number: i32,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let arguments = as_find_and_modify(&run.no_statement());
    let body = find_and_modify(run, &arguments, number);
    match reply_with_image(run, &body).await {
        Err(RunError::Command(error)) if has_no_image(&error) => Ok(None),
        answer => {
            let answer = answer?;
            let image = get(&answer, "value").and_then(RawBsonRef::as_document);
            Ok(image.map(RawDocument::to_owned))
        }
    }
}

/// Sends a `findAndModify` that may be a retry. Measured: right after another attempt has changed the page,
/// mongod may not find the image yet. So the command is sent again if the image is missing.
pub(in crate::session::bucket) async fn reply_with_image(
    run: &mut BucketCommand<'_>,
    body: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    let mut looks = 1;
    loop {
        match succeeded(run.context.link.call(UpstreamRequest::plain(body)).await?) {
            Err(error) if looks < MAX_LOOKS && has_no_image(&error) => {
                pause(MIN_PAUSE.saturating_add(looks)).await;
                looks += 1;
            }
            answer => return Ok(answer?),
        }
    }
}

/// Whether mongod reports that a `findAndModify` was executed before and that its image is missing
/// (`retryable_writes`: 5637601 to 5637604).
fn has_no_image(error: &CommandError) -> bool {
    const CODES: std::ops::RangeInclusive<i32> = 5_637_601..=5_637_604;
    matches!(error, CommandError::Upstream(reply) if reply.get_i32("code").is_ok_and(|code| CODES.contains(&code)))
}

/// A `findAndModify` under the `stmtId` of a claim.
fn find_and_modify(run: &BucketCommand<'_>, arguments: &RawDocument, number: i32) -> RawDocumentBuf {
    let mut body = single("findAndModify", run.namespace.collection);
    append_fields(&mut body, arguments);
    body.append(cstr!("new"), true);
    body.append(cstr!("fields"), single("_id", 1));
    body.append(cstr!("stmtId"), number.saturating_add(BESIDE));
    run.context.inherited().append_to_write(&mut body);
    body
}
