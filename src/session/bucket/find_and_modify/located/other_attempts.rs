//! The reply of another attempt at the command, from mongod's retry records. That attempt may still be
//! running when the command is validated, so its records are asked for again after the item is located.

use bson::raw::{RawDocumentBuf, cstr};

use super::{LocatedFindAndModify, is_retried};
use crate::command::arguments::with_replaced;
use crate::pattern::bucket::update_by_position::Planned;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::update::is_relocated;
use crate::session::bucket::upsert;
use crate::session::error::RunError;

impl LocatedFindAndModify<'_> {
    /// The reply of an attempt that is not recorded under the command's own `stmtId`: a relocation or an
    /// upsert.
    pub(super) async fn before(&self, run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        match self.relocated(run).await? {
            Some(reply) => Ok(Some(reply)),
            None => self.inserted(run).await,
        }
    }

    /// The reply of an attempt that has executed the command since it was validated. The located item may be
    /// its result, or may match only because that attempt changed another item.
    pub(super) async fn executed_meanwhile(
        &self,
        run: &mut BucketCommand<'_>,
        planned: &Planned,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        if matches!(planned, Planned::Elsewhere(_)) {
            // The change of key or time asks for the other records.
            return self.inserted(run).await;
        }
        let before = self.before(run).await?;
        // A command that changes the item in place has the client's `stmtId`, so mongod answers it with the
        // record.
        if before.is_some() || matches!(planned, Planned::InPlace(_)) {
            return Ok(before);
        }
        self.recorded(run).await
    }

    /// The reply of an attempt that relocated its item.
    pub(super) async fn relocated(&self, run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        match is_relocated(run, self.task).await? {
            Some(attempt) => self.relocated_before(run, attempt).await.map(Some),
            None => Ok(None),
        }
    }

    /// The reply of an attempt that inserted the item of the upsert.
    pub(super) async fn inserted(&self, run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        if !self.command.upsert {
            return Ok(None);
        }
        let Some((id, made, answer)) = upsert::before(run, self.task).await? else {
            return Ok(None);
        };
        // The item is built again, not read: a command always builds the same item, and the stored one
        // may have been changed since.
        let item = with_replaced(&made, &[("_id", Some(id.as_raw_bson_ref()))]);
        let mut made = self.whole().made(run, &item, &answer)?;
        made.append(cstr!("retriedStmtId"), self.task.statement_id.unwrap_or_default());
        Ok(Some(made))
    }

    /// The reply of an attempt that changed its item in place, which is recorded under the command's own
    /// `stmtId`.
    pub(super) async fn recorded(&self, run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        if self.task.statement_id.is_none() {
            return Ok(None);
        }
        let answer = self.validate(run).await?;
        if is_retried(&answer) {
            self.of_image(run, &answer).await.map(Some)
        } else {
            Ok(None)
        }
    }
}
