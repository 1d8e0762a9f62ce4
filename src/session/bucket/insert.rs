//! `insert`: stores items on pages, in rounds, until each is stored or has failed.
//!
//! [`prefetch`] reads head pages, existing `_id`s and existing keys of [unique indexes](unique_values),
//! [`validity`] finds items that do not satisfy the application's validator,
//! [`retry_recovery`] finds the items that an earlier attempt stored, [`dispatch`] sends the planned
//! statements, [`write_concern`] waits for the client's write concern. [`group`] executes inserts of several clients
//! together.

mod batch;
mod dispatch;
pub(super) mod group;
mod prefetch;
mod release_reservations;
mod retry_recovery;
mod transaction;
mod undo;
mod unique_values;
mod validity;
mod write_concern;

use std::collections::HashSet;

use bson::Binary;
use bson::raw::RawDocumentBuf;

use self::batch::InsertBatch;
use self::retry_recovery::ExecutedStatements;
pub(super) use self::retry_recovery::{SoughtRecord, remembered};
use super::command::BucketCommand;
use super::failed_update::MAX_DOCUMENT_BYTES;
use super::retry_on_swap::is_swap_error;
use super::write_statement::of_write;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::insert::Insert;
use crate::command::server_version::ServerVersion;
use crate::pattern::bucket::insert::{KeyBatch, WriteGuarantee};
use crate::session::backoff::pause;
use crate::session::collection_catalog::ReadyCollection;
use crate::session::error::RunError;
use crate::session::head_page_cache::KeyLease;
use crate::session::metrics::HintUse;

/// Consecutive rounds that neither stored nor refused an item, after which the command fails. A
/// lost race means that another writer has made progress, so only a fault reaches this limit.
const MAX_IDLE_ROUNDS: u32 = 100;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Insert::parse(run.context.head)?;
    let retryable = run.context.is_retryable()?;
    let mut batch = InsertBatch::prepare(run, &command);
    report_too_large(run, &command, &mut batch).await?;
    if let Some(dry_run) = &run.context.shared.dry_run {
        dry_run.insert(run.context.shared, run.shape, &batch.groups);
    }
    let stored = store(run, &mut batch).await.map_err(|error| of_write(error, retryable));
    // Otherwise the command would be executed again if the collection is exchanged after it.
    run.executed = run.executed.saturating_add(batch.stored_now());
    run.context.shared.metrics.inserted(&run.label(), batch.stored_now());
    stored?;
    Ok(batch.reply(run.namespace, run.context.head, &command))
}

/// Gives the error of a document of more than 16 MiB the code of the server's version.
async fn report_too_large(
    run: &mut BucketCommand<'_>,
    command: &Insert<'_>,
    batch: &mut InsertBatch<'_>,
) -> Result<(), RunError> {
    let is_too_large = |index: usize| {
        let document = command.documents.get(index);
        document.is_some_and(|document| document.as_bytes().len() > MAX_DOCUMENT_BYTES)
    };
    let too_large: Vec<_> = batch
        .failed
        .iter_mut()
        .filter(|(index, _)| is_too_large(*index))
        .collect();
    if !too_large.is_empty() && run.context.link.server_version().await? >= ServerVersion::new(7, 0, 0) {
        for (_, error) in too_large {
            error.code = ErrorCode::BsonObjectTooLarge.number();
        }
    }
    Ok(())
}

/// An earlier attempt of the command, as far as it is found under one shape.
pub(super) struct EarlierInsert<'a> {
    batch: InsertBatch<'a>,
    executed: ExecutedStatements,
    /// The ids of the items in push records.
    pub(super) pushed: HashSet<i32>,
}

impl<'a> EarlierInsert<'a> {
    /// Reads mongod's retry records, and the push records of `collection`, whose pages have the shape of `run`.
    pub(super) async fn find(run: &mut BucketCommand<'a>, collection: &str) -> Result<Self, RunError> {
        let command = Insert::parse(run.context.head)?;
        let mut batch = InsertBatch::prepare(run, &command);
        batch.groups.iter_mut().for_each(KeyBatch::suspect_resend);
        let executed = retry_recovery::executed(run, &batch).await?;
        let pushed = retry_recovery::pushed(run, &batch, &executed, collection).await?;
        Ok(Self {
            batch,
            executed,
            pushed,
        })
    }

    /// Whether mongod has no retry record of the command.
    pub(super) fn is_empty(&self) -> bool {
        self.executed.values().all(Vec::is_empty)
    }

    /// The client's indexes of the items that the attempt stored. `pushed` are the ids of the items in push records.
    pub(super) fn stored(mut self, run: &BucketCommand<'_>, pushed: &HashSet<i32>) -> Result<Vec<usize>, CommandError> {
        retry_recovery::take_over(run, &mut self.batch, &self.executed, pushed)?;
        Ok(self.batch.resent)
    }
}

/// Stores the items. After an error, the head pages that the command assumed are not returned to the cache.
async fn store(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    if batch.has_work() {
        write_concern::check(run).await?;
        let settings = run.context.settings;
        let ready = settings.catalog.for_writing(&mut run.catalog_session()).await?;
        batch.learn(run, &ready);
        run.collection = Some(ready.clone());
        let leases = lease_keys(run, batch, &ready.uuid).await;
        let order = leases.order;
        match rounds(run, batch, ready, &leases.leases).await {
            Err(error) if is_exchange(run, &error) => {
                // A retryable insert is executed again, and finds its retry records.
                if batch.stored_now() == 0 || batch.care != WriteGuarantee::AtLeastOnce {
                    return Err(RunError::LayoutChanged);
                }
                run.is_interrupted = true;
                batch.interrupt();
                return Ok(());
            }
            done => done?,
        }
        release_reservations::withdraw_all(run, batch).await?;
        for (lease, group) in leases.leases.into_iter().zip(order) {
            lease.leave(batch.hint(group));
        }
    }
    validity::precede_indexes(run, batch).await?;
    transaction::end_if_failed(run, batch).await?;
    undo::take(run, batch).await?;
    write_concern::settle(run, batch).await
}

/// Whether the collection of an automatic shape was exchanged.
fn is_exchange(run: &mut BucketCommand<'_>, error: &RunError) -> bool {
    matches!(error, RunError::LayoutChanged) || is_replaced(run, error) && is_automatic(run)
}

/// Whether the error reports that the collection was dropped or replaced. A transaction fails with it.
fn is_replaced(run: &BucketCommand<'_>, error: &RunError) -> bool {
    matches!(error, RunError::Command(error) if is_swap_error(error)) && !run.context.head.in_transaction()
}

fn is_automatic(run: &mut BucketCommand<'_>) -> bool {
    run.context.link.fence_of(run.namespace).is_some()
}

/// The key leases of a command, and the group of each.
#[derive(Default)]
struct KeyLeases {
    leases: Vec<KeyLease>,
    order: Vec<usize>,
}

/// A transaction reads the snapshot of its start, and its writes are invisible to others until the
/// commit. So a transaction neither uses nor fills the head page cache.
async fn lease_keys(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>, uuid: &Binary) -> KeyLeases {
    if run.context.head.in_transaction() {
        return KeyLeases::default();
    }
    // Keys are leased in a global order, so two writers cannot deadlock.
    let mut order: Vec<usize> = (0..batch.groups.len()).collect();
    order.sort_by(|one, other| batch.identity(*one).cmp(batch.identity(*other)));
    let keys = order.iter().map(|group| batch.identity(*group));
    let leases = run.context.settings.hints.lease(run.context.term, uuid, keys).await;
    for (lease, number) in leases.iter().zip(&order) {
        let hint = lease.hint();
        run.context
            .shared
            .metrics
            .inserts
            .hint(if hint.is_some() { HintUse::Hit } else { HintUse::Miss });
        if let (Some(highest), Some(group)) = (hint, batch.groups.get_mut(*number)) {
            group.know(highest);
        }
    }
    KeyLeases { leases, order }
}

/// Reads, plans and sends in rounds until no item is pending.
async fn rounds(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    ready: ReadyCollection,
    leases: &[KeyLease],
) -> Result<(), RunError> {
    let mut ready = ready;
    let mut idle = 0_u32;
    let mut before = batch.pending();
    while before > 0 {
        match round(run, batch, &ready, leases).await {
            // A lookup failed, or a whole command: its items are still pending.
            Err(error) if is_replaced(run, &error) && !is_automatic(run) => {
                run.context.settings.catalog.forget(run.namespace);
            }
            done => done.map_err(|error| transaction::first_error(batch, error))?,
        }
        let left = batch.pending();
        idle = if left < before { 0 } else { idle.saturating_add(1) };
        before = left;
        if idle > MAX_IDLE_ROUNDS {
            batch.give_up();
            return Ok(());
        }
        pause(idle).await;
        ready = still_ready(run, batch, ready).await?;
        run.collection = Some(ready.clone());
    }
    Ok(())
}

/// Reads what the pending items need, plans their statements, and sends them.
async fn round(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    ready: &ReadyCollection,
    leases: &[KeyLease],
) -> Result<(), RunError> {
    validity::learn(run, batch).await?;
    unique_values::learn(run, batch).await?;
    let suspects = prefetch::look(run, batch).await?;
    retry_recovery::recover(run, batch, suspects).await?;
    unique_values::hold_back(run, batch).await?;
    let statements = batch.plan(run);
    let statements = transaction::with_free_names(run, batch, statements).await?;
    dispatch::send(run, batch, &statements, &ready.uuid, leases).await
}

/// Checks the collection again, and returns the new result.
async fn still_ready(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    ready: ReadyCollection,
) -> Result<ReadyCollection, RunError> {
    if !batch.has_work() {
        return Ok(ready);
    }
    let now = run
        .context
        .settings
        .catalog
        .for_writing(&mut run.catalog_session())
        .await?;
    if now != ready {
        // The collection was dropped and recreated: all cached page headers are invalid.
        batch.groups.iter_mut().for_each(KeyBatch::begin_anew);
        batch.learn(run, &now);
    }
    Ok(now)
}
