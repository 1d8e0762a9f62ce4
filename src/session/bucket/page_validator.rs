//! Changes of the validator of a collection of pages. A `collMod` replaces the whole validator, so each
//! change has a fence, and only one at a time (`docs/decisions/0027-late-messages-are-fenced.md`).

use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};
use tokio::time::sleep;

use super::command::BucketCommand;
use super::indexes::there;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{array_of, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::compact;
use crate::pattern::bucket::fence::{ValidatorFence, is_swap_fence, is_validator_fence};
use crate::pattern::bucket::unique_index::UniqueIndex;
use crate::pattern::bucket::validator::PageValidator;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::cross_collection::collection_lookup;
use crate::session::error::RunError;

/// Pause before the state of the collection is read again.
const POLL: Duration = Duration::from_millis(50);
/// The most such pauses for a swap: 30 seconds.
const MAX_SWAPPED: u32 = 600;
/// The most such pauses for another change, before its fence is dropped: 5 seconds. Its proxy may have been
/// stopped.
const MAX_FENCED: u32 = 100;

/// The most such pauses until an index of the collection is built: 10 minutes.
const MAX_BUILDING: u32 = 12_000;

/// The part of a validator that a change replaces.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum ValidatorPart {
    /// The clauses of unique indexes. A swap derives them from the indexes.
    Indexes,
    /// The application's clause. A swap reads it once, so it is not changed during the swap.
    Application,
}

/// The unique indexes and the validator.
pub(super) struct ValidatorState {
    pub(super) indexes: Vec<UniqueIndex>,
    pub(super) validator: PageValidator,
    /// The names of the fences of other changes.
    fences: Vec<String>,
}

/// Reads the state, and waits while a swap must not be disturbed. `None`: the collection does not exist.
pub(super) async fn state(
    run: &mut BucketCommand<'_>,
    part: ValidatorPart,
) -> Result<Option<ValidatorState>, RunError> {
    for _ in 0..MAX_SWAPPED {
        match state_now(run, part).await? {
            Seen::Missing => return Ok(None),
            Seen::State(state) => return Ok(Some(state)),
            Seen::Swapped => sleep(POLL).await,
        }
    }
    let message = format!(
        "`mongoshape compact` works on {}: try again after its end; if no `mongoshape compact` runs, run it again",
        run.namespace
    );
    Err(CommandError::new(ErrorCode::WriteConflict, message).into())
}

enum Seen {
    /// The collection does not exist.
    Missing,
    /// A swap is in progress.
    Swapped,
    State(ValidatorState),
}

async fn state_now(run: &mut BucketCommand<'_>, part: ValidatorPart) -> Result<Seen, RunError> {
    let Some(there) = there(run).await? else {
        return Ok(Seen::Missing);
    };
    let asker = InheritedOptions::of(run.context.head.body());
    let options = collection_lookup::options(run.context.link, asker, run.namespace.collection).await?;
    let options = options.as_deref();
    let is_swapped = part == ValidatorPart::Application && there.others.iter().any(|name| is_swap_fence(name));
    if is_swapped || options.is_some_and(compact::is_frozen) {
        return Ok(Seen::Swapped);
    }
    let validator = options.and_then(|options| get(options, compact::VALIDATOR)?.as_document());
    let fences = there.others.iter().filter(|name| is_validator_fence(name));
    Ok(Seen::State(ValidatorState {
        indexes: UniqueIndex::all(run.shape, there.stored()),
        validator: validator.and_then(PageValidator::parse).unwrap_or_default(),
        fences: fences.cloned().collect(),
    }))
}

/// Replaces the validator by the one that `edit` returns for the current state. Only one change at a time
/// has a fence, so the state is current.
pub(super) async fn replace(
    run: &mut BucketCommand<'_>,
    part: ValidatorPart,
    mut edit: impl FnMut(&ValidatorState) -> PageValidator,
) -> Result<(), RunError> {
    let mut waited = 0_u32;
    for round in 0..MAX_ATTEMPTS.saturating_add(MAX_FENCED) {
        let Some(before) = state(run, part).await? else {
            return Ok(());
        };
        if edit(&before) == before.validator {
            return Ok(());
        }
        pause(round).await;
        if !before.fences.is_empty() && waited < MAX_FENCED {
            waited = waited.saturating_add(1);
            sleep(POLL).await;
            continue;
        }
        drop_indexes(run, &before.fences).await?;
        let fence = ValidatorFence::of_run(rand::random());
        let mut command = single("createIndexes", run.namespace.collection);
        command.append(cstr!("indexes"), array_of(&[fence.spec()]));
        match modify(run, command).await {
            Err(RunError::Command(error)) if is_overtaken(&error) => continue,
            created => created?,
        }
        // A swap drops the fence after it has begun, and before it reads the validator. So it reads the
        // changed one, or is seen here.
        let changed = match state_now(run, part).await? {
            Seen::State(state) => {
                let modification = modification(run, fence, &edit(&state));
                let modified = match part {
                    ValidatorPart::Indexes => after_builds(run, modification).await,
                    // mongod refuses the client's `collMod` while an index is built.
                    ValidatorPart::Application => modify(run, modification).await,
                };
                modified.map(|()| true)
            }
            Seen::Missing => Ok(true),
            Seen::Swapped => Ok(false),
        };
        drop_indexes(run, &[fence.name()]).await?;
        match changed {
            // Another change has dropped the fence.
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            Ok(false) => {}
            changed => return changed.map(drop),
        }
    }
    Err(super::indexes::given_up(run))
}

/// Whether another change has begun, or has dropped the fence while it was created.
fn is_overtaken(error: &CommandError) -> bool {
    error.is(ErrorCode::IndexOptionsConflict) || error.is(ErrorCode::IndexBuildAborted)
}

/// The `collMod` that sets the validator, if the fence exists.
fn modification(run: &BucketCommand<'_>, fence: ValidatorFence, validator: &PageValidator) -> RawDocumentBuf {
    let mut command = single("collMod", run.namespace.collection);
    let mut demanded = single("name", fence.name());
    demanded.append(cstr!("hidden"), true);
    command.append(cstr!("index"), demanded);
    validator.append_to(&mut command);
    command
}

async fn drop_indexes(run: &mut BucketCommand<'_>, names: &[String]) -> Result<(), RunError> {
    for name in names {
        let mut command = single("dropIndexes", run.namespace.collection);
        command.append(cstr!("index"), name.as_str());
        match after_builds(run, command).await {
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            dropped => dropped?,
        }
    }
    Ok(())
}

/// Sends a command that mongod refuses while it builds an index of the collection, until it is executed.
async fn after_builds(run: &mut BucketCommand<'_>, command: RawDocumentBuf) -> Result<(), RunError> {
    for _ in 0..MAX_BUILDING {
        match modify(run, command.clone()).await {
            Err(RunError::Command(error)) if error.is(ErrorCode::BackgroundOperationInProgress) => sleep(POLL).await,
            modified => return modified,
        }
    }
    modify(run, command).await
}

/// Sends a command that changes the collection's metadata.
async fn modify(run: &mut BucketCommand<'_>, mut command: RawDocumentBuf) -> Result<(), RunError> {
    if let Some(concern) = get(run.context.head.body(), "writeConcern") {
        command.append(cstr!("writeConcern"), concern);
    }
    InheritedOptions::of(run.context.head.body()).append_identity(&mut command);
    run.context.link.run(&command).await.map(drop)
}
