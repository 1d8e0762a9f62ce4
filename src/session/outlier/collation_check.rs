//! Refuses updates of outliers in a collection with a collation. Updates are evaluated in a scratch
//! collection, which has no collation, so strings would compare differently.

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::internal_write::OutlierWriteResult;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{as_flag, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::registry::Command;
use crate::command::reply::{CursorReply, succeeded};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

impl OutlierCommand<'_> {
    /// The error for a collection with a default collation.
    pub(super) fn own_collation(&self) -> CommandError {
        self.unsupported("a collection with a default collation")
    }

    /// Refuses a collection with a default collation.
    pub(super) async fn check_collation(&mut self) -> Result<(), RunError> {
        let known = self.context.settings.without_collation.get(self.namespace);
        if let Some(uuid) = known.filter(|_| self.can_name_collection()) {
            self.facts.collection = Some(uuid);
            return Ok(());
        }
        let mut list = single("listCollections", 1);
        list.append(cstr!("filter"), single("name", self.namespace.collection));
        InheritedOptions::of(self.context.head.body()).append_identity(&mut list);
        let answer = match succeeded(self.context.link.call(UpstreamRequest::plain(&list)).await?) {
            Err(error) if error.is(ErrorCode::Unauthorized) => return self.explain_collation().await,
            answer => answer?,
        };
        // The collection is being created, or was created in this transaction.
        let Some(found) = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next()) else {
            return Ok(());
        };
        let document = |name| get(found, name).and_then(RawBsonRef::as_document);
        if document("options").is_some_and(|options| get(options, "collation").is_some()) {
            return Err(self.own_collation().into());
        }
        let uuid = document("info").and_then(|info| get(info, "uuid")?.as_binary());
        if let Some(uuid) = uuid.map(|uuid| uuid.to_binary()) {
            self.facts.collection = Some(uuid.clone());
            self.context.settings.without_collation.put(self.namespace, uuid);
        }
        Ok(())
    }

    /// Checks the collation without the right to list collections: `explain` of a query shows its
    /// collation, and requires only the right to read. The reply has no UUID, so the result is not cached.
    async fn explain_collation(&mut self) -> Result<(), RunError> {
        let mut find = single("find", self.namespace.collection);
        find.append(cstr!("filter"), single("_id", ""));
        let mut explain = single("explain", find);
        explain.append(cstr!("verbosity"), "queryPlanner");
        InheritedOptions::of(self.context.head.body()).append_identity(&mut explain);
        let answer = self.context.link.run(&explain).await?;
        let planner = get(&answer, "queryPlanner").and_then(RawBsonRef::as_document);
        if planner.is_some_and(|planner| get(planner, "collation").is_some()) {
            return Err(self.own_collation().into());
        }
        Ok(())
    }

    /// Whether a write can name the collection's UUID, which is impossible under `apiStrict` and
    /// for `findAndModify`. If not, the collation is checked for each write.
    fn can_name_collection(&self) -> bool {
        self.context.head.command != Command::FindAndModify
            && get(self.context.head.body(), "apiStrict").and_then(as_flag) != Some(true)
    }

    /// Makes a write fail if the collection is not the one whose collation was checked.
    pub(super) fn append_collection(&self, write: &mut RawDocumentBuf) {
        if let Some(uuid) = self.facts.collection.as_ref().filter(|_| self.can_name_collection()) {
            write.append(cstr!("collectionUUID"), uuid);
        }
    }

    /// The result of a write that may name the collection's UUID. `None`: it failed because the collection
    /// has another UUID or was dropped. The cached result is then dropped, and the write may be repeated.
    pub(super) fn of_checked_collection(
        &mut self,
        written: Result<OutlierWriteResult, RunError>,
    ) -> Result<Option<OutlierWriteResult>, RunError> {
        let mismatch = ErrorCode::CollectionUuidMismatch;
        let is_another = match &written {
            Ok(OutlierWriteResult { error, .. }) => error.as_ref().is_some_and(|error| error.code == mismatch.number()),
            Err(RunError::Command(error)) => error.is(mismatch),
            Err(_) => false,
        };
        if is_another {
            self.context.settings.without_collation.forget(self.namespace);
            self.facts.collection = None;
            return Ok(None);
        }
        written.map(Some)
    }
}
