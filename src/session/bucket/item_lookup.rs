//! Locates the items of a write before it is sent, in batches.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::command::BucketCommand;
use super::page_pruning::{self, FilterAndCollation};
use super::upstream_query::{documents, kill, more};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::item_lookup::{self, ItemSelector, LocatedItem, is_volatile};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// A cursor of the matching items.
pub(super) struct Matches {
    answer: Option<RawDocumentBuf>,
}

/// Refuses a filter that would notice the extra field that items have in the pipeline, such as
/// `$$ROOT`.
pub(super) fn check(run: &BucketCommand<'_>, filter: Option<&RawDocument>) -> Result<(), CommandError> {
    match filter.and_then(item_lookup::unsupported) {
        Some(what) => Err(run.unsupported(&what)),
        None => Ok(()),
    }
}

/// The first matching item.
pub(super) async fn first(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
) -> Result<Option<LocatedItem>, RunError> {
    let mut matches = Matches::of(run, wanted.first()).await?;
    let first = matches
        .next_batch(run)
        .await?
        .and_then(|batch| batch.into_iter().next());
    matches.close(run).await?;
    Ok(first)
}

/// The first matching item, read outside of the client's transaction after an error has ended it. `None` also
/// if mongod refuses the query.
pub(super) async fn first_after_transaction(
    run: &mut BucketCommand<'_>,
    wanted: ItemSelector<'_>,
) -> Result<Option<LocatedItem>, RunError> {
    let mut command = item_lookup::command(run.shape, run.namespace.collection, wanted.first());
    run.context.options().append_to_inspect(&mut command);
    let answer = run.context.link.call(UpstreamRequest::plain(&command)).await?;
    let answer = succeeded(answer).ok();
    Ok(answer.and_then(|answer| LocatedItem::parse(run.shape, documents(&answer).next()?)))
}

/// The first matching item of a bucket's image: that of an earlier attempt of the command.
///
/// # Errors
/// If the filter may match another item now.
pub(super) async fn first_in_image(
    run: &mut BucketCommand<'_>,
    image: &RawDocument,
    wanted: ItemSelector<'_>,
) -> Result<Option<LocatedItem>, RunError> {
    if [wanted.filter, wanted.let_variables]
        .into_iter()
        .flatten()
        .any(is_volatile)
    {
        let message = "the retried findAndModify already succeeded, but its filter depends on the time or on chance: the item that it matched \
                       is not known";
        return Err(CommandError::new(ErrorCode::IllegalOperation, message).into());
    }
    let wanted = ItemSelector {
        all_items: false,
        ..wanted.first()
    };
    let mut command = item_lookup::command_in_image(run.shape, image, wanted);
    run.context.inherited().append_to_selection(&mut command);
    let answer = run.context.link.run(&command).await?;
    let found = documents(&answer).next();
    let found = found.map(|found| LocatedItem::parse(run.shape, found).ok_or_else(|| run.corrupt_bucket_error()));
    Ok(found.transpose()?)
}

impl Matches {
    /// Opens the cursor.
    pub(super) async fn of(run: &mut BucketCommand<'_>, wanted: ItemSelector<'_>) -> Result<Self, RunError> {
        let mut command = item_lookup::command(run.shape, run.namespace.collection, wanted);
        run.context.inherited().append_to_selection(&mut command);
        let query = FilterAndCollation {
            filter: wanted.filter,
            collation: wanted.collation,
        };
        let answer = Some(page_pruning::run(run, &command, query).await?);
        Ok(Self { answer })
    }

    /// The next batch. `None` at the end. A batch can be empty although more follow.
    pub(super) async fn next_batch(
        &mut self,
        run: &mut BucketCommand<'_>,
    ) -> Result<Option<Vec<LocatedItem>>, RunError> {
        let Some(answer) = self.answer.take() else {
            return Ok(None);
        };
        let batch = documents(&answer)
            .map(|found| LocatedItem::parse(run.shape, found).ok_or_else(|| run.corrupt_bucket_error()));
        let batch: Result<Vec<LocatedItem>, CommandError> = batch.collect();
        let batch = match batch {
            Ok(batch) => batch,
            Err(error) => {
                self.answer = Some(answer);
                self.close(run).await?;
                return Err(error.into());
            }
        };
        self.answer = more(run, &answer).await?;
        Ok(Some(batch))
    }

    /// Closes the upstream cursor if it is open.
    pub(super) async fn close(&mut self, run: &mut BucketCommand<'_>) -> Result<(), RunError> {
        if let Some(answer) = self.answer.take()
            && let Some(cursor) = CursorReply::parse(&answer)
            && cursor.id != 0
        {
            kill(run, cursor.id).await?;
        }
        Ok(())
    }
}
