//! The items of the command that do not satisfy the application's validator.
//!
//! mongod refuses a statement with such an item. Only then the validator is evaluated for each pending item.
//! In two cases it is evaluated before the first statement: in a transaction, because a refused statement
//! would end it; and in an ordered command on several keys, because statements for later items could succeed
//! before the refused one.

use bson::raw::RawBson;

use super::batch::{InsertBatch, Placed};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::insert::Insert;
use crate::pattern::bucket::item::Item;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::invalid_item::{are_valid, bypasses, errors, not_found, with_id};
use crate::session::error::RunError;

/// Refused statements without an invalid item, after which the items are refused.
const MAX_UNEXPLAINED: u32 = 3;

/// The state of the validation of the items.
#[derive(Debug, Default)]
pub(super) struct Validity {
    is_learned: bool,
    /// Whether mongod has refused a statement since the last evaluation.
    is_refused: bool,
    unexplained: u32,
}

impl Validity {
    /// Records a refused statement.
    pub(super) fn report(&mut self) {
        self.is_refused = true;
    }
}

/// Replaces the errors of indexes for items that do not satisfy the validator. mongod evaluates it before it
/// adds an item to an index.
pub(super) async fn precede_indexes(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let validator = run.collection.as_ref().and_then(|ready| ready.validator.clone());
    let Some(validator) = validator.filter(|_| !bypasses(run)) else {
        return Ok(());
    };
    let command = Insert::parse(run.context.head)?;
    let of_index = [ErrorCode::DuplicateKey, ErrorCode::CannotIndexParallelArrays].map(ErrorCode::number);
    let failed = batch.failed.iter().enumerate();
    let places = failed.filter(|(_, (_, error))| of_index.contains(&error.code));
    let places: Vec<usize> = places.map(|(place, _)| place).collect();
    if places.is_empty() {
        return Ok(());
    }
    let ids = batch.ids();
    let documents = places.iter().filter_map(|place| {
        let (index, _) = batch.failed.get(*place)?;
        Some(with_id(command.documents.get(*index)?, ids.get(index).copied()))
    });
    let documents: Vec<_> = documents.collect();
    if are_valid(run, &validator, &documents).await? {
        return Ok(());
    }
    for (place, invalid) in places.into_iter().zip(errors(run, &documents).await?) {
        if let (Some((_, error)), Some(invalid)) = (batch.failed.get_mut(place), invalid) {
            *error = invalid;
        }
    }
    Ok(())
}

/// Evaluates the validator if the next statements need it. Refuses items that do not satisfy it.
pub(super) async fn learn(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    let is_refused = std::mem::take(&mut batch.validity.is_refused);
    let validator = run.collection.as_ref().and_then(|ready| ready.validator.clone());
    let looks_first = batch.in_transaction() || (batch.ordered && batch.groups.len() > 1);
    let validator = validator.filter(|_| looks_first && !batch.validity.is_learned);
    if !is_refused && validator.is_none() {
        return Ok(());
    }
    batch.validity.is_learned = true;
    if is_refused {
        run.context.settings.catalog.forget(run.namespace);
    }
    let command = Insert::parse(run.context.head)?;
    let pending = batch.pending_in_order();
    let documents = pending.iter().filter_map(|placed| {
        let item = batch.item(*placed)?;
        let id = item.id().map(RawBson::as_raw_bson_ref);
        Some(with_id(command.documents.get(item.index())?, id))
    });
    let documents: Vec<_> = documents.collect();
    if let Some(validator) = validator.filter(|_| !is_refused)
        && are_valid(run, &validator, &documents).await?
    {
        return Ok(());
    }
    let found: Vec<(Placed, WriteError)> = pending
        .into_iter()
        .zip(errors(run, &documents).await?)
        .filter_map(|(placed, error)| Some((placed, error?)))
        .collect();
    if is_refused && found.is_empty() {
        batch.validity.unexplained = batch.validity.unexplained.saturating_add(1);
        if batch.validity.unexplained >= MAX_UNEXPLAINED {
            batch.refuse_pending(&not_found(run));
        }
        return Ok(());
    }
    let mut refused = Vec::new();
    for (placed, error) in found {
        if let Some(group) = batch.groups.get_mut(placed.group) {
            group.refuse(placed.position);
        }
        refused.extend(batch.item(placed).map(Item::index).map(|index| (index, error)));
    }
    batch.refuse(refused);
    Ok(())
}
