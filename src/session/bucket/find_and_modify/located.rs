//! `findAndModify` of an item that is located first.
//!
//! For a retryable command mongod records the page before or after the change, but not which item was
//! changed. An `_id` in the filter names the item. Otherwise an image after the change records the item
//! itself, and an image before the change must contain every located item: the filter selects the same one
//! again.

mod other_attempts;

use bson::raw::{RawArray, RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::errors::{fail, in_item_terms};
use super::item_projection::is_retried;
use crate::command::arguments::with_replaced;
use crate::command::document::{get, put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::find_and_modify::FindAndModify;
use crate::command::reply::{copy_cluster_time, succeeded};
use crate::pattern::bucket::item::{Item, KeepsTimestamps};
use crate::pattern::bucket::item_decoder::ItemDecoder;
use crate::pattern::bucket::item_lookup::{ItemSelector, LocatedItem};
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::projection::Projection;
use crate::pattern::bucket::update_by_id::place_of;
use crate::pattern::bucket::update_by_position::{Demand, InPlace, Planned};
use crate::pattern::bucket::upsert::check_filter;
use crate::pattern::shapes::BucketShape;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::duplicate_key::look_ahead;
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::find_and_modify::check_size;
use crate::session::bucket::item_lookup;
use crate::session::bucket::item_update::{InPlaceOutcome, ItemUpdate, end_transaction, given_up};
use crate::session::bucket::key_or_time_change::{self, KeyOrTimeOutcome};
use crate::session::bucket::relocate::{claimed, reply_with_image};
use crate::session::bucket::room;
use crate::session::bucket::update::moved_or_first;
use crate::session::bucket::upsert::{self, Upserted};
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;
use crate::session::upstream_connection::UpstreamRequest;

pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    command: &FindAndModify<'_>,
    task: &ItemUpdate<'_>,
    projection: &Projection,
) -> Result<RawDocumentBuf, RunError> {
    let finding = LocatedFindAndModify {
        command,
        task,
        projection,
    };
    let mut validated = finding.validate(run).await?;
    if is_retried(&validated) {
        return finding.of_image(run, &validated).await;
    }
    if command.upsert
        && let Some(Err(error)) = task.asked.filter.map(check_filter)
    {
        end_transaction(run).await?;
        return Err(CommandError::new(ErrorCode::QueryFeatureNotAllowed, error.message).into());
    }
    if command.upsert && run.collection.is_none() {
        run.ensure_created().await?;
        run.ensure_readable(command.hint).await?;
        // mongod validates no projection of a command on a missing collection.
        validated = finding.validate(run).await?;
    }
    // The image before the change does not record which item was changed. The filter must find it
    // again, so the image must contain every located item.
    let wanted = ItemSelector {
        all_items: task.statement_id.is_some() && !command.new && finding.named_id(run).is_none(),
        ..task.wanted()
    };
    let mut moved: Option<LocatedItem> = None;
    for round in 0..=MAX_ATTEMPTS {
        let Some(found) = moved_or_first(run, wanted, moved.take()).await? else {
            if let Some(reply) = finding.none_matched(run, &validated).await? {
                return Ok(reply);
            }
            pause(round).await;
            continue;
        };
        let planned = task.plan(run, &found).await?;
        match finding.go_on(run, &validated, &found, planned).await? {
            InPlaceOutcome::Done(reply) => return Ok(reply),
            InPlaceOutcome::Missed => {}
            InPlaceOutcome::Moved => moved = Some(found),
        }
        pause(round).await;
    }
    Err(given_up(run).into_command_error().into())
}

/// The reply of an earlier attempt of the command that is not recorded under the command's own
/// `stmtId`: a relocation or an upsert. `None` if there is none.
pub(super) async fn before(
    run: &mut BucketCommand<'_>,
    command: &FindAndModify<'_>,
    task: &ItemUpdate<'_>,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let finding = LocatedFindAndModify {
        command,
        task,
        projection: &Projection::All,
    };
    finding.before(run).await
}

struct LocatedFindAndModify<'t> {
    command: &'t FindAndModify<'t>,
    task: &'t ItemUpdate<'t>,
    projection: &'t Projection,
}

impl LocatedFindAndModify<'_> {
    /// For the reply of a retried command. mongod then returns the whole document.
    fn whole(&self) -> Self {
        Self {
            projection: &Projection::All,
            ..*self
        }
    }

    /// Executes the plan for the item.
    async fn go_on(
        &self,
        run: &mut BucketCommand<'_>,
        validated: &RawDocument,
        found: &LocatedItem,
        planned: Planned,
    ) -> Result<InPlaceOutcome<RawDocumentBuf>, RunError> {
        if let Some(reply) = self.executed_meanwhile(run, &planned).await? {
            return Ok(InPlaceOutcome::Done(reply));
        }
        match planned {
            Planned::InPlace(change) => self.change(run, found, change).await,
            Planned::Unchanged { .. } => self.unchanged(run, validated, found).map(InPlaceOutcome::Done),
            Planned::Elsewhere(where_to) => {
                let stays = self.task.statement_id.is_none();
                match key_or_time_change::change_key_or_time(run, self.task, found, where_to, stays).await? {
                    KeyOrTimeOutcome::Stayed(item, answer) | KeyOrTimeOutcome::Away(item, answer) => {
                        self.moved(run, found, &item, &answer).map(InPlaceOutcome::Done)
                    }
                    KeyOrTimeOutcome::Before(attempt) => {
                        self.relocated_before(run, attempt).await.map(InPlaceOutcome::Done)
                    }
                    KeyOrTimeOutcome::Recorded(_) => Ok(match self.recorded(run).await? {
                        Some(reply) => InPlaceOutcome::Done(reply),
                        None => InPlaceOutcome::Missed,
                    }),
                    KeyOrTimeOutcome::Missed => Ok(InPlaceOutcome::Missed),
                    KeyOrTimeOutcome::Failed(error) => Err(fail(run, &error).await?.into()),
                }
            }
            Planned::Failed(error) => Err(fail(run, &error).await?.into()),
        }
    }

    /// The reply if no item matches. `None`: an item matches by now.
    async fn none_matched(
        &self,
        run: &mut BucketCommand<'_>,
        validated: &RawDocument,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        // Another attempt may have changed the item after the command was validated, so that the item no
        // longer matches.
        if let Some(reply) = self.relocated(run).await? {
            return Ok(Some(reply));
        }
        if let Some(reply) = self.recorded(run).await? {
            return Ok(Some(reply));
        }
        if !self.command.upsert {
            return Ok(Some(validated.to_owned()));
        }
        match upsert::insert_missing(run, self.task).await? {
            Upserted::Made(item, answer) => self.made(run, &item, &answer).map(Some),
            Upserted::Before => self.inserted(run).await,
            Upserted::Overtaken => Ok(None),
            Upserted::Failed(error) => Err(fail(run, &error).await?.into()),
        }
    }

    /// Has mongod validate the client's command, with a filter that matches nothing. If the command
    /// was executed before, the reply is mongod's retry record.
    async fn validate(&self, run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
        let mut body = single("findAndModify", run.namespace.collection);
        body.append(cstr!("query"), run.without_match(self.task.wanted().filter));
        body.append(cstr!("update"), self.task.asked.change);
        body.append(cstr!("new"), self.command.new);
        let documents = [
            ("fields", self.command.projection),
            ("sort", self.task.sort),
            ("let", self.task.let_variables),
        ];
        for (name, document) in documents {
            if let Some(document) = document {
                put(&mut body, name, document);
            }
        }
        self.task.append_own_options(&mut body);
        self.complete(run, &mut body);
        reply_with_image(run, &body).await
    }

    fn complete(&self, run: &BucketCommand<'_>, body: &mut RawDocumentBuf) {
        if let Some(id) = self.task.statement_id {
            body.append(cstr!("stmtId"), id);
        }
        run.context.inherited().append_to_write(body);
    }

    async fn change(
        &self,
        run: &mut BucketCommand<'_>,
        found: &LocatedItem,
        mut change: InPlace,
    ) -> Result<InPlaceOutcome<RawDocumentBuf>, RunError> {
        if self.task.statement_id.is_some() && self.command.new {
            change.record_place(found);
        }
        let demand = found.all_items.as_deref().map_or(Demand::Item, Demand::Items);
        let filter = change.filter(run.shape, found, demand);
        let mut body = single("findAndModify", run.namespace.collection);
        body.append(cstr!("query"), filter.map_err(|what| run.unsupported(&what))?);
        body.append(cstr!("update"), change.update());
        body.append(cstr!("new"), self.command.new);
        body.append(cstr!("fields"), only_place(run.shape, found));
        change.append_options(&mut body);
        self.complete(run, &mut body);
        if let Err(error) = check_size(run, &body) {
            if found.all_items.is_some() && room::separate(run, found).await? {
                return Ok(InPlaceOutcome::Moved);
            }
            return Err(error.into());
        }
        let held = look_ahead(run, found, &change).await?;
        let answer = match succeeded(run.context.link.call(UpstreamRequest::plain(&body)).await?) {
            Ok(answer) => answer,
            Err(error) => {
                let failed = FailedUpdate {
                    change: Some(&change),
                    held: Some(&held),
                    ..FailedUpdate::new(self.task, Some(found))
                };
                return self.refused(run, error, failed).await;
            }
        };
        run.record_executed(&answer);
        let Some(bucket) = get(&answer, "value").and_then(RawBsonRef::as_document) else {
            return Ok(InPlaceOutcome::Missed);
        };
        if is_retried(&answer) {
            return self.of_image(run, &answer).await.map(InPlaceOutcome::Done);
        }
        let stored = items(run.shape, bucket).and_then(|items| element(items, 0));
        let item = stored.and_then(|stored| self.item(run, bucket, stored));
        let item = item.ok_or_else(|| run.corrupt_bucket_error())?;
        let value = [("value", Some(RawBsonRef::Document(&item)))];
        Ok(InPlaceOutcome::Done(with_replaced(&answer, &value)))
    }

    /// Moves the item if its page has no room for the change. Otherwise returns mongod's error, in terms
    /// of the item.
    async fn refused(
        &self,
        run: &mut BucketCommand<'_>,
        error: CommandError,
        failed: FailedUpdate<'_>,
    ) -> Result<InPlaceOutcome<RawDocumentBuf>, RunError> {
        if room::is_page_too_large(&error) && room::make(run, failed).await? {
            return Ok(InPlaceOutcome::Moved);
        }
        match error {
            CommandError::Upstream(reply) => in_item_terms(run, failed, &reply).await.map(InPlaceOutcome::Done),
            error @ CommandError::Own { .. } => Err(error.into()),
        }
    }

    /// The reply of a command that was executed before, from the image of its bucket.
    async fn of_image(&self, run: &mut BucketCommand<'_>, answer: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        let Some(image) = get(answer, "value").and_then(RawBsonRef::as_document) else {
            return Ok(answer.to_owned());
        };
        let place = self.place_in_image(run, image).await?;
        let items = items(run.shape, image);
        let stored = items.zip(place).and_then(|(items, place)| element(items, place));
        let item = stored.and_then(|stored| self.whole().item(run, image, stored));
        let item = item.ok_or_else(image_missing)?;
        Ok(with_replaced(answer, &[("value", Some(RawBsonRef::Document(&item)))]))
    }

    /// The `_id` that names the changed item in any image of its bucket. `None`: the filter names none.
    fn named_id(&self, run: &BucketCommand<'_>) -> Option<RawBson> {
        let asked = self.task.asked;
        if !run.shape.item_ids().are_indexed() || asked.collation.is_some() {
            return None;
        }
        BucketPredicate::of(run.shape, asked.filter).exactly_one_id().cloned()
    }

    /// The position of the changed item in the image of its bucket.
    async fn place_in_image(
        &self,
        run: &mut BucketCommand<'_>,
        image: &RawDocument,
    ) -> Result<Option<usize>, RunError> {
        // A statement by `_id` records no position. That in the image can be of an earlier command.
        if let Some(id) = self.named_id(run) {
            return Ok(place_of(run.shape, image, &id).map(|(place, _)| place));
        }
        if self.command.new {
            return Ok(LocatedItem::claimed(run.shape, image).map(|found| found.place));
        }
        let found = item_lookup::first_in_image(run, image, self.task.wanted()).await?;
        Ok(found.map(|found| found.place))
    }

    /// The reply of a command that relocated its item before, from the image of the page on which
    /// the item was claimed.
    async fn relocated_before(&self, run: &mut BucketCommand<'_>, attempt: u32) -> Result<RawDocumentBuf, RunError> {
        let id = self.task.statement_id.unwrap_or_default();
        let number = id.saturating_add(i32::try_from(attempt).unwrap_or(i32::MAX));
        let image = claimed(run, number).await?.ok_or_else(image_missing)?;
        let found = LocatedItem::claimed(run.shape, &image).ok_or_else(image_missing)?;
        let item = match self.task.plan(run, &found).await? {
            _ if !self.command.new => found.item.clone(),
            Planned::Elsewhere(to) => to.into_item(),
            _ => return Err(image_missing().into()),
        };
        let mut last = single("n", 1);
        last.append(cstr!("updatedExisting"), true);
        let shown = self.whole().shown(run, &item)?;
        let mut reply = reply(&last, Some(&shown), &RawDocumentBuf::new());
        reply.append(cstr!("retriedStmtId"), id);
        Ok(reply)
    }

    /// The reply if the upsert inserted `item`.
    fn made(
        &self,
        run: &BucketCommand<'_>,
        item: &RawDocument,
        answer: &RawDocument,
    ) -> Result<RawDocumentBuf, RunError> {
        let mut last = single("n", 1);
        last.append(cstr!("updatedExisting"), false);
        put(&mut last, "upserted", get(item, "_id").unwrap_or(RawBsonRef::Null));
        let item = if self.command.new {
            Some(self.shown(run, item)?)
        } else {
            None
        };
        Ok(reply(&last, item.as_deref(), answer))
    }

    /// The reply if the item was moved, or got its new key or time in place.
    fn moved(
        &self,
        run: &BucketCommand<'_>,
        found: &LocatedItem,
        item: &RawDocument,
        answer: &RawDocument,
    ) -> Result<RawDocumentBuf, RunError> {
        let mut last = single("n", 1);
        last.append(cstr!("updatedExisting"), true);
        let shown = self.shown(run, if self.command.new { item } else { &found.item })?;
        Ok(reply(&last, Some(&shown), answer))
    }

    /// The item after the client's projection.
    fn shown(&self, run: &BucketCommand<'_>, item: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
        let prepared = Item::prepare(run.shape, 0, item, &mut KeepsTimestamps(&mut mint));
        let prepared = prepared.map_err(WriteError::into_command_error)?;
        let mut bucket = RawDocumentBuf::new();
        for (field, value) in run.shape.key().iter().zip(prepared.key().lifted()) {
            if let Some(value) = value {
                put(&mut bucket, field, value);
            }
        }
        self.item(run, &bucket, prepared.stored())
            .ok_or_else(|| run.corrupt_bucket_error().into())
    }

    /// The reply if the update leaves the item unchanged.
    fn unchanged(
        &self,
        run: &BucketCommand<'_>,
        validated: &RawDocument,
        found: &LocatedItem,
    ) -> Result<RawDocumentBuf, RunError> {
        let item = self
            .item(run, &found.key, &found.stored)
            .ok_or_else(|| run.corrupt_bucket_error())?;
        let mut last = single("n", 1);
        last.append(cstr!("updatedExisting"), true);
        let replaced = [
            ("lastErrorObject", Some(RawBsonRef::Document(&last))),
            ("value", Some(RawBsonRef::Document(&item))),
        ];
        Ok(with_replaced(validated, &replaced))
    }

    fn item(&self, run: &BucketCommand<'_>, bucket: &RawDocument, stored: &RawDocument) -> Option<RawDocumentBuf> {
        let mut bytes = Vec::new();
        ItemDecoder::new(run.shape, self.projection, bucket).append(stored, &mut bytes);
        RawDocumentBuf::from_bytes(bytes).ok()
    }
}

fn reply(last: &RawDocument, value: Option<&RawDocument>, answer: &RawDocument) -> RawDocumentBuf {
    let mut reply = single("lastErrorObject", last);
    reply.append(cstr!("value"), value.map_or(RawBsonRef::Null, RawBsonRef::Document));
    if let Some(error) = get(answer, "writeConcernError") {
        put(&mut reply, "writeConcernError", error);
    }
    reply.append(cstr!("ok"), 1.0);
    copy_cluster_time(&mut reply, answer);
    reply
}

/// The error if the image of an earlier attempt is gone. mongod keeps only the last image of a
/// session, for a limited time.
fn image_missing() -> CommandError {
    let message = "the retried findAndModify already succeeded, but its original result is no longer available";
    CommandError::new(ErrorCode::IllegalOperation, message)
}

/// The projection of a bucket to its key fields and the item.
fn only_place(shape: &BucketShape, found: &LocatedItem) -> RawDocumentBuf {
    let mut slice = RawArrayBuf::new();
    slice.push(i64::try_from(found.place).unwrap_or(i64::MAX));
    slice.push(1);
    let mut projection = single(shape.items(), single("$slice", &slice));
    for field in shape.key() {
        put(&mut projection, field, 1);
    }
    projection
}

fn items<'a>(shape: &BucketShape, bucket: &'a RawDocument) -> Option<&'a RawArray> {
    get(bucket, shape.items())?.as_array()
}

fn element(items: &RawArray, place: usize) -> Option<&RawDocument> {
    items.into_iter().nth(place)?.ok()?.as_document()
}
