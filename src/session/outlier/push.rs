//! A push to an outlier: to its tail, where it stays while there is room. A full tail is spilled before the
//! reply; the spill's reads go upstream together with the push.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::OutlierCommand;
use super::hot_documents::KnownOutliers;
use super::internal_write::{OutlierWriteResult, WriteOrigin};
use super::update::{At, OutlierUpdate};
use crate::command::document::single;
use crate::command::reply::succeeded;
use crate::pattern::outlier::classify::Growth;
use crate::pattern::outlier::statement::{self, flagging, into_tail, outlier, outlier_with_room};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// What pushes may weigh that are left in a tail: whoever reads the document reads them, too.
const MAX_LEFT_BYTES: usize = 4096;

/// A statement that does nothing to the array but push to its end, and does not depend on it.
#[derive(Clone, Copy)]
pub(super) struct Push<'a> {
    operators: &'a RawDocument,
    count: u32,
}

impl<'a> Push<'a> {
    /// The push that a statement is, if it is one.
    pub(super) fn of(
        run: &OutlierCommand<'_>,
        statement: &OutlierUpdate<'_, 'a>,
        filter: &RawDocument,
    ) -> Option<Self> {
        let (Growth::By(count), RawBsonRef::Document(operators)) = (statement.growth, statement.of.change) else {
            return None;
        };
        let is_one = statement::push_only(run.shape, operators) && !run.depends(Some(filter));
        is_one.then_some(Self { operators, count })
    }
}

/// Pushes to a document that was an outlier when it was last looked at. `None` where it is not known to be
/// one, or is none.
pub(super) async fn to_known(
    run: &mut OutlierCommand<'_>,
    (statement, push): (&OutlierUpdate<'_, '_>, Push<'_>),
    (filter, id): (&RawDocument, RawBsonRef<'_>),
) -> Result<Option<At>, RunError> {
    let place = KnownOutliers::place(run.namespace, id);
    let Some(generation) = run.context.settings.known_outliers.get(&place) else {
        return Ok(None);
    };
    if let Some(told) = into_room(run, (statement, push), (filter, id)).await? {
        return Ok(Some(At::done(told)));
    }
    let told = to_tail(run, (statement, push), (filter, id), generation).await?;
    if told.is_none() {
        run.context.settings.known_outliers.forget(&place);
    }
    Ok(told.map(At::done))
}

/// Pushes little to a tail that has room for it, and leaves it there. `None` where there is no room, or no
/// outlier is meant.
async fn into_room(
    run: &mut OutlierCommand<'_>,
    (statement, push): (&OutlierUpdate<'_, '_>, Push<'_>),
    (filter, id): (&RawDocument, RawBsonRef<'_>),
) -> Result<Option<OutlierWriteResult>, RunError> {
    let weight = statement::pushed(run.shape, push.operators).map_or(usize::MAX, |pushed| pushed.as_bytes().len());
    // A transaction's own tail can be moved by nobody else, and is held by it when others would.
    if weight > MAX_LEFT_BYTES || run.context.head.in_transaction() {
        return Ok(None);
    }
    let Some(filter) = outlier_with_room(run.shape, filter, push.count) else {
        return Ok(None);
    };
    let change = into_tail(run.shape, push.operators);
    let element = statement.element(&filter, RawBsonRef::Document(&change), (false, false));
    let told = run
        .write(
            (run.namespace.collection, "update"),
            &element,
            WriteOrigin::Client(statement.id),
        )
        .await?;
    if told.error.is_some() {
        return Ok(Some(told));
    }
    if told.n == 0 {
        return Ok(None);
    }
    run.leave(id).await?;
    Ok(Some(told))
}

/// Pushes to a document that is no typical one with room. `None` where it does not meet the filter, or what
/// it has is no array.
pub(super) async fn to_outlier(
    run: &mut OutlierCommand<'_>,
    (statement, push): (&OutlierUpdate<'_, '_>, Push<'_>),
    (filter, id): (&RawDocument, RawBsonRef<'_>),
) -> Result<Option<At>, RunError> {
    let Some(stored) = run.base(id).await? else {
        return Ok(Some(At::NoMatch));
    };
    let generation = if let Some(extras) = run.extras_of(&stored)? {
        extras.generation
    } else {
        let generation = ObjectId::new();
        flag(run, (statement, push), (filter, id), generation).await?;
        generation
    };
    let told = to_tail(run, (statement, push), (filter, id), generation).await?;
    Ok(told.map(At::done))
}

/// Makes an outlier of a typical document that meets the filter, and has no room.
async fn flag(
    run: &mut OutlierCommand<'_>,
    (statement, push): (&OutlierUpdate<'_, '_>, Push<'_>),
    (filter, id): (&RawDocument, RawBsonRef<'_>),
    generation: ObjectId,
) -> Result<(), RunError> {
    let Some(flagging) = flagging(run.shape, id, (push.count, generation)) else {
        return Ok(());
    };
    if statement.is_met(run, filter).await? {
        let collection = run.namespace.collection;
        run.write((collection, "update"), &flagging, WriteOrigin::Internal)
            .await?
            .succeeded()?;
    }
    Ok(())
}

/// Pushes to the tail, and moves it. `None` where no outlier is meant. `generation` is the one that it may
/// have.
async fn to_tail(
    run: &mut OutlierCommand<'_>,
    (statement, push): (&OutlierUpdate<'_, '_>, Push<'_>),
    (filter, id): (&RawDocument, RawBsonRef<'_>),
    generation: ObjectId,
) -> Result<Option<OutlierWriteResult>, RunError> {
    let change = into_tail(run.shape, push.operators);
    let change = RawBsonRef::Document(&change);
    let element = statement.element(&outlier(run.shape, filter), change, (false, false));
    let mut update: RawDocumentBuf = single("update", run.namespace.collection);
    run.append_own(&mut update, WriteOrigin::Client(statement.id));
    let looks = run.looks(id, generation);
    let requests = [
        UpstreamRequest {
            body: &update,
            sequence: Some(("updates", &[&element])),
        },
        UpstreamRequest::plain(&looks[0]),
        UpstreamRequest::plain(&looks[1]),
    ];
    let mut answers = run.context.link.call_all(&requests).await?.into_iter();
    let told = OutlierWriteResult::of(succeeded(answers.next().unwrap_or_default())?);
    if told.error.is_some() {
        return Ok(Some(told));
    }
    if told.n == 0 {
        return Ok(None);
    }
    let moved = match run.looked(id, answers, generation).await {
        Ok(looked) => run.spill(id, looked).await,
        Err(error) => Err(error),
    };
    run.left_to_others(moved)?;
    Ok(Some(told))
}
