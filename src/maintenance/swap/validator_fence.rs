//! The fence of one change of the validator of pages, as a proxy has it. A swap drops it.

use bson::Binary;
use bson::raw::{RawDocumentBuf, cstr};
use mongodb::Client;

use super::commands::{INDEX_NOT_FOUND, append_concern, concern_kept, has_code};
use super::fencing::{OPTIONS_CONFLICT, drop_indexes, is_set, take_down_validator_fences};
use super::halt::Halt;
use crate::command::document::{array_of, single};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::fence::ValidatorFence;

/// mongod's code for an index that was dropped while it was built.
const INDEX_BUILD_ABORTED: i32 = 276;

/// Whether a command that demands the fence was executed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum FenceOutcome {
    Held,
    /// Another change or a swap has dropped the fence.
    Dropped,
}

/// Drops the fences of other changes and creates one. `None`: another change has begun.
pub(crate) async fn put_up(
    client: &Client,
    target: &ShapedCollection,
    uuid: &Binary,
) -> Result<Option<ValidatorFence>, Halt> {
    take_down_validator_fences(&target.database, &target.collection, uuid).await?;
    let fence = ValidatorFence::of_run(rand::random());
    let mut command = single("createIndexes", target.collection.as_str());
    command.append(cstr!("collectionUUID"), uuid);
    command.append(cstr!("indexes"), array_of(&[fence.spec()]));
    if is_set(client).await? {
        // Does not wait for unavailable members to build the index.
        command.append(cstr!("commitQuorum"), "majority");
    }
    append_concern(&mut command);
    match target.database.run_raw_command(command).await {
        Ok(reply) => concern_kept(&reply).map(|()| Some(fence)),
        Err(error) if has_code(&error, &[OPTIONS_CONFLICT, INDEX_BUILD_ABORTED]) => Ok(None),
        Err(error) => Err(error.into()),
    }
}

/// Executes a `collMod` that demands the fence.
pub(crate) async fn modify(target: &ShapedCollection, mut command: RawDocumentBuf) -> Result<FenceOutcome, Halt> {
    append_concern(&mut command);
    match target.database.run_raw_command(command).await {
        Ok(reply) => concern_kept(&reply).map(|()| FenceOutcome::Held),
        Err(error) if has_code(&error, &[INDEX_NOT_FOUND]) => Ok(FenceOutcome::Dropped),
        Err(error) => Err(error.into()),
    }
}

/// Drops the fence, if it exists.
pub(crate) async fn take_down(target: &ShapedCollection, uuid: &Binary, fence: ValidatorFence) -> Result<(), Halt> {
    let mut command = drop_indexes(&target.collection, uuid, &[fence.name()]);
    append_concern(&mut command);
    match target.database.run_raw_command(command).await {
        Ok(reply) => concern_kept(&reply),
        Err(error) if has_code(&error, &[INDEX_NOT_FOUND]) => Ok(()),
        Err(error) => Err(error.into()),
    }
}
