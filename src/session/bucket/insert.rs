//! `insert`: stores items on pages, in rounds, until each is stored or has failed.
//!
//! [`prefetch`] reads what the plan needs, [`retry_recovery`] finds what an earlier attempt stored,
//! [`dispatch`] sends the planned statements, [`write_concern`] waits for the client's write concern.

mod batch;
mod dispatch;
mod prefetch;
mod release_reservations;
mod retry_recovery;
mod transaction;
mod undo;
mod write_concern;

use bson::Binary;
use bson::raw::RawDocumentBuf;

use self::batch::InsertBatch;
use super::command::BucketCommand;
use crate::command::insert::Insert;
use crate::pattern::bucket::insert::KeyBatch;
use crate::session::backoff::pause;
use crate::session::collection_catalog::ReadyCollection;
use crate::session::error::RunError;
use crate::session::head_page_cache::KeyLease;
use crate::session::metrics::HintUse;

/// Rounds in which not one item was stored or refused, after which the races are called lost. Each round that
/// a race costs means that another writer got on, so this is only met when something is wrong.
const MAX_IDLE_ROUNDS: u32 = 100;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Insert::parse(run.context.head)?;
    let retryable = run.context.is_retryable()?;
    let mut batch = InsertBatch::prepare(run, &command);
    if let Some(dry_run) = &run.context.shared.dry_run {
        dry_run.insert(run.context.shared, run.shape, &batch.groups);
    }
    let stored = store(run, &mut batch).await.map_err(|error| {
        error.map_command(|error| {
            let error = error.of_write();
            if retryable { error.labelled() } else { error }
        })
    });
    run.context.shared.metrics.inserted(&run.label(), batch.stored_now());
    stored?;
    Ok(batch.reply(run.namespace, run.context.head, &command))
}

/// Stores what can be stored. Where that ends early, what is known of the pages is lost with it.
async fn store(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<(), RunError> {
    if batch.has_work() {
        write_concern::check(run).await?;
        let settings = run.context.settings;
        let ready = settings.catalog.for_writing(&mut run.catalog_session()).await?;
        batch.learn(run, &ready);
        let turns = take_turns(run, batch, &ready.uuid).await;
        let order = turns.order;
        rounds(run, batch, ready, &turns.turns).await?;
        release_reservations::withdraw_all(run, batch).await?;
        for (turn, group) in turns.turns.into_iter().zip(order) {
            turn.leave(batch.hint(group));
        }
    }
    transaction::end_if_failed(run, batch).await?;
    undo::take(run, batch).await?;
    write_concern::settle(run, batch).await
}

/// The turns at the keys of a command, and which group each is for.
#[derive(Default)]
struct Turns {
    turns: Vec<KeyLease>,
    order: Vec<usize>,
}

/// A transaction sees the collection as it was when it began, and others do not see what it writes: it takes
/// no hints, and leaves none.
async fn take_turns(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>, uuid: &Binary) -> Turns {
    if run.context.head.in_transaction() {
        return Turns::default();
    }
    // In an order that all writers keep to, or two could wait for each other.
    let mut order: Vec<usize> = (0..batch.groups.len()).collect();
    order.sort_by(|one, other| batch.identity(*one).cmp(batch.identity(*other)));
    let keys = order.iter().map(|group| batch.identity(*group));
    let turns = run.context.settings.hints.turns(run.context.term, uuid, keys).await;
    for (turn, number) in turns.iter().zip(&order) {
        let hint = turn.hint();
        run.context
            .shared
            .metrics
            .inserts
            .hint(if hint.is_some() { HintUse::Hit } else { HintUse::Miss });
        if let (Some(highest), Some(group)) = (hint, batch.groups.get_mut(*number)) {
            group.know(highest);
        }
    }
    Turns { turns, order }
}

/// Looks, plans, sends and sorts out what is still to be done, until nothing is.
async fn rounds(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    ready: ReadyCollection,
    turns: &[KeyLease],
) -> Result<(), RunError> {
    let mut ready = ready;
    let mut idle = 0_u32;
    let mut before = batch.pending();
    while before > 0 {
        let suspects = prefetch::look(run, batch).await?;
        retry_recovery::recover(run, batch, suspects).await?;
        let statements = batch.plan(run);
        let statements = transaction::with_free_names(run, batch, statements).await?;
        dispatch::send(run, batch, &statements, &ready.uuid, turns).await?;
        let left = batch.pending();
        idle = if left < before { 0 } else { idle.saturating_add(1) };
        before = left;
        if idle > MAX_IDLE_ROUNDS {
            batch.give_up();
            return Ok(());
        }
        pause(idle).await;
        ready = still_ready(run, batch, ready).await?;
    }
    Ok(())
}

/// The collection as it is by now.
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
        // Dropped and made again: nothing that was known is true.
        batch.groups.iter_mut().for_each(KeyBatch::begin_anew);
        batch.learn(run, &now);
    }
    Ok(now)
}
