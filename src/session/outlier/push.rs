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
use crate::pattern::outlier::statement::{
    Append, appended, appends_only, flagging, into_tail, outlier, outlier_with_room, typical,
};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

/// Maximum bytes of a push that stays in the tail. Larger tails would slow down every read of the
/// document.
const MAX_LEFT_BYTES: usize = 4096;

/// The push of one statement to one document. The statement only appends to the array, and its filter does
/// not depend on the array.
#[derive(Clone, Copy)]
pub(super) struct Push<'a> {
    pub(super) statement: &'a OutlierUpdate<'a, 'a>,
    pub(super) operators: &'a RawDocument,
    /// The one of the operators that appends to the array.
    pub(super) append: Append,
    /// Elements that it appends.
    pub(super) count: u32,
    /// The statement's filter, with the document's `_id`.
    pub(super) filter: &'a RawDocument,
    pub(super) id: RawBsonRef<'a>,
}

impl<'a> Push<'a> {
    /// The push of a statement to the document with this `_id`. `None`: the statement is another change.
    pub(super) fn of(
        run: &OutlierCommand<'_>,
        statement: &'a OutlierUpdate<'a, 'a>,
        filter: &'a RawDocument,
        id: RawBsonRef<'a>,
    ) -> Option<Self> {
        let (Growth::By(count), RawBsonRef::Document(operators)) = (statement.growth, statement.of.change) else {
            return None;
        };
        let append = Append::Always;
        let is_push = appends_only(run.shape, append, operators) && !run.depends(Some(filter));
        is_push.then_some(Self {
            statement,
            operators,
            append,
            count,
            filter,
            id,
        })
    }

    /// Pushes to a document that was an outlier when a command last read it. `None`: it is not known to be
    /// one, or is not one now.
    pub(super) async fn to_known_outlier(self, run: &mut OutlierCommand<'_>) -> Result<Option<At>, RunError> {
        let place = KnownOutliers::place(run.namespace, self.id);
        let Some(generation) = run.context.settings.known_outliers.get(&place) else {
            return Ok(None);
        };
        let result = self.append(run, generation).await?;
        if result.is_none() {
            run.context.settings.known_outliers.forget(&place);
        }
        Ok(result)
    }

    /// Pushes to a document that is an outlier. `None`: it does not match the filter, or is not an outlier.
    /// `generation`: the expected one.
    pub(super) async fn append(
        self,
        run: &mut OutlierCommand<'_>,
        generation: ObjectId,
    ) -> Result<Option<At>, RunError> {
        let result = match self.into_space(run).await? {
            Some(result) => Some(result),
            None => self.to_tail(run, generation).await?,
        };
        Ok(result.map(At::done))
    }

    /// Pushes a few bytes to a tail that has space for them, and leaves them there. `None`: it has no space,
    /// or the document is not an outlier.
    async fn into_space(self, run: &mut OutlierCommand<'_>) -> Result<Option<OutlierWriteResult>, RunError> {
        let appended = appended(run.shape, self.append, self.operators);
        let bytes = appended.map_or(usize::MAX, |appended| appended.as_bytes().len());
        // Another client cannot spill the tail of an open transaction, and waits for its lock.
        if bytes > MAX_LEFT_BYTES || run.context.head.in_transaction() {
            return Ok(None);
        }
        let Some(filter) = outlier_with_room(run.shape, self.filter, self.count) else {
            return Ok(None);
        };
        let change = into_tail(run.shape, self.append, self.operators);
        let element = self
            .statement
            .element(&filter, RawBsonRef::Document(&change), false, false);
        let origin = WriteOrigin::Client(self.statement.id);
        let result = run.write(run.namespace.collection, "update", &element, origin).await?;
        if result.error.is_some() {
            return Ok(Some(result));
        }
        if result.n == 0 {
            return Ok(None);
        }
        run.leave(self.id).await?;
        Ok(Some(result))
    }

    /// Pushes to a document that is an outlier, or becomes one by this push. `None`: it does not match the
    /// filter, its field is not an array, or it is inline and the push exceeds the threshold.
    pub(super) async fn to_outlier(self, run: &mut OutlierCommand<'_>) -> Result<Option<At>, RunError> {
        let Some(stored) = run.base(self.id).await? else {
            return Ok(Some(At::NoMatch));
        };
        let generation = if let Some(extras) = run.extras_of(&stored)? {
            extras.generation
        } else if self.count > run.shape.threshold() {
            // The document may get an array that is too long for a base document.
            return Ok(None);
        } else if !run.may_split().await? {
            // It stays whole.
            let typical = typical(run.shape, self.filter);
            return self.statement.on_inline(run, &typical).await;
        } else {
            let generation = ObjectId::new();
            self.make_outlier(run, generation).await?;
            generation
        };
        Ok(self.to_tail(run, generation).await?.map(At::done))
    }

    /// Makes a full document that matches the filter an outlier.
    pub(super) async fn make_outlier(self, run: &mut OutlierCommand<'_>, generation: ObjectId) -> Result<(), RunError> {
        let Some(flagging) = flagging(run.shape, self.id, self.count, generation) else {
            return Ok(());
        };
        if self.statement.matches_any(run, self.filter).await? {
            let collection = run.namespace.collection;
            run.write(collection, "update", &flagging, WriteOrigin::Internal)
                .await?
                .succeeded()?;
        }
        Ok(())
    }

    /// Pushes to the tail, and spills it. `None`: the document is not an outlier. `generation`: the expected
    /// one.
    async fn to_tail(
        self,
        run: &mut OutlierCommand<'_>,
        generation: ObjectId,
    ) -> Result<Option<OutlierWriteResult>, RunError> {
        let change = into_tail(run.shape, self.append, self.operators);
        let change = RawBsonRef::Document(&change);
        let element = self
            .statement
            .element(&outlier(run.shape, self.filter), change, false, false);
        let mut update: RawDocumentBuf = single("update", run.namespace.collection);
        run.append_own(&mut update, WriteOrigin::Client(self.statement.id));
        let looks = run.looks(self.id, generation);
        let requests = [
            UpstreamRequest {
                body: &update,
                sequence: Some(("updates", &[&element])),
            },
            UpstreamRequest::plain(&looks[0]),
            UpstreamRequest::plain(&looks[1]),
        ];
        let mut answers = run.context.link.call_all(&requests).await?.into_iter();
        let result = OutlierWriteResult::of(succeeded(answers.next().unwrap_or_default())?);
        if result.error.is_some() {
            return Ok(Some(result));
        }
        if result.n == 0 {
            return Ok(None);
        }
        let moved = match run.looked(self.id, answers, generation).await {
            Ok(looked) => run.spill(self.id, looked).await,
            Err(error) => Err(error),
        };
        run.left_to_others(moved)?;
        Ok(Some(result))
    }
}
