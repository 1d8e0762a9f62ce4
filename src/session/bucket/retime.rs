//! Changes an item's time in place where the item cannot be relocated: on a standalone, and behind a mongos.
//! Before that, other pages of the key are marked; see
//! `docs/decisions/0015-times-are-changed-in-place-on-a-standalone.md`.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::upstream_query::documents;
use super::write_statement::{Origin, WriteCommand, send, send_one};
use crate::command::document::single;
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::insert::{HeaderFields, append_facts_query};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::item_lookup::LocatedItem;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::bucket::update_by_position::retime::{
    RetimeReadiness, is_marked, mark_first, mark_highest, readiness, with_any_time,
};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;

/// Replaces the located item by `item`, under the `stmtId` of the client's statement if it is retryable. Returns
/// mongod's reply. `None`: the item has changed since it was read.
pub(super) async fn shift(
    run: &mut BucketCommand<'_>,
    found: &LocatedItem,
    item: &Item,
    statement_id: Option<i32>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    for round in 0..MAX_ATTEMPTS {
        pause(round).await;
        let highest = if is_marked(found) {
            None
        } else {
            highest(run, item).await?
        };
        let (marks, expected) = match readiness(found, highest.as_ref()) {
            RetimeReadiness::Gone => return Ok(None),
            RetimeReadiness::NotYet => continue,
            RetimeReadiness::Ready => (Vec::new(), 0),
            RetimeReadiness::First => (vec![mark_first(run.shape, item.key())], 1),
            RetimeReadiness::FirstAndHighest => {
                let mut marks = vec![mark_first(run.shape, item.key())];
                let of_highest = highest
                    .as_ref()
                    .map(|highest| mark_highest(run.shape, item.key(), highest));
                marks.extend(of_highest);
                (marks, 2)
            }
        };
        if !marks.is_empty() {
            let marks: Vec<&RawDocument> = marks.iter().map(RawDocumentBuf::as_ref).collect();
            if send(run, WriteCommand::Update, &marks, true, Origin::Internal).await?.n < expected {
                continue;
            }
        }
        let statement = with_any_time(run.shape, found, item.stored(), item.time(), highest.as_ref());
        let statement = statement.map_err(|what| run.unsupported(&what))?;
        let result = send_one(run, WriteCommand::Update, &statement, Origin::Client(statement_id)).await?;
        return Ok((result.n > 0).then_some(result.answer));
    }
    let message = "write conflict: before each attempt to change the time of an item, another writer reserved the next page of its key; \
                   the item is unchanged: try again";
    Err(CommandError::new(ErrorCode::WriteConflict, message).into())
}

/// The header of the head page of the item's key.
async fn highest(run: &mut BucketCommand<'_>, item: &Item) -> Result<Option<PageHeader>, RunError> {
    let mut find = single("find", run.namespace.collection);
    append_facts_query(run.shape, item, HeaderFields::Stored, &mut find);
    run.context.inherited().append_to_read_of_write(&mut find);
    let answer = run.context.link.run(&find).await?;
    let highest = documents(&answer).next();
    let highest = highest.map(|page| PageHeader::parse(run.shape, page).ok_or_else(|| run.corrupt_bucket_error()));
    Ok(highest.transpose()?)
}
