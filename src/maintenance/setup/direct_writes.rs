//! Sets or removes the clause of the validator that refuses direct writes.
//!
//! A `collMod` replaces the whole validator, so a change has a fence, like that of a proxy
//! (`docs/decisions/0027-late-messages-are-fenced.md`). The pages are searched before and after the clause is
//! set: mongod checks no update of a document that does not satisfy the validator already.

use std::time::Duration;

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Binary, Document, rawdoc};
use mongodb::error::Error;
use tokio::time::sleep;

use super::bucket::BucketSetup;
use crate::command::document::single;
use crate::maintenance::check::collection;
use crate::maintenance::direct_writes::{ClauseState, malformed};
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{ContentsCheck, first_refused};
use crate::maintenance::swap::validator_fence::{self, FenceOutcome};
use crate::maintenance::swap::{Halt, uuid_of};
use crate::maintenance::upstream::{described_validator, description, explain, indexes};
use crate::pattern::bucket::fence::{ValidatorFence, is_swap_fence, is_validator_fence};
use crate::pattern::bucket::validator::{PageValidator, direct_writes};
use crate::pattern::shapes::BucketShape;

/// Attempts to change the validator, and the pause between them. A fence of another change is dropped after
/// the first half of them: its proxy may have been stopped.
const MAX_ATTEMPTS: u32 = 200;
const POLL: Duration = Duration::from_millis(50);

/// Whether the validator must be changed. `described`: `None` if the collection does not exist.
pub(super) fn is_change_needed(shape: &BucketShape, described: Option<&Document>) -> bool {
    match described {
        Some(described) => ClauseState::of(shape, described) != ClauseState::Wanted,
        None => shape.rejects_direct_writes(),
    }
}

/// Makes the clause as the shape demands, and reports a change.
pub(super) async fn set_up(setup: &BucketSetup<'_>, findings: &mut Findings) -> Result<(), Error> {
    let BucketSetup { target, shape, .. } = setup;
    let described = description(&target.database, &target.collection).await?;
    let state = described.map(|described| ClauseState::of(shape, &described));
    let clause = shape.rejects_direct_writes().then(|| direct_writes::clause(shape));
    let finding = match (state, clause) {
        (None | Some(ClauseState::Wanted), _) => return Ok(()),
        (Some(_), None) => match replace(setup, None).await {
            Ok(()) => Finding::fine(target.namespace(), "direct writes are not refused any more"),
            Err(halt) => failed(setup, &halt),
        },
        (Some(_), Some(clause)) => enable(setup, &clause).await?,
    };
    findings.add(&finding);
    Ok(())
}

async fn enable(setup: &BucketSetup<'_>, clause: &RawDocumentBuf) -> Result<Finding, Error> {
    let target = setup.target;
    let refused = |id: &str| {
        let text = format!(
            "direct writes are not refused: {}, then run `mongoshape setup` again",
            malformed(id)
        );
        Finding::error(target.namespace(), text)
    };
    if let ContentsCheck::Foreign(id) = first_refused(target, clause.clone(), None).await? {
        return Ok(refused(&id));
    }
    if let Err(halt) = replace(setup, Some(clause)).await {
        return Ok(failed(setup, &halt));
    }
    if let ContentsCheck::Foreign(id) = first_refused(target, clause.clone(), None).await? {
        // Another program has written the document since the first search.
        return Ok(match replace(setup, None).await {
            Ok(()) => refused(&id),
            Err(halt) => failed(setup, &halt),
        });
    }
    Ok(Finding::fine(target.namespace(), "direct writes are refused now"))
}

fn failed(setup: &BucketSetup<'_>, halt: &Halt) -> Finding {
    let reason = match halt {
        Halt::Failed(error) => explain(error),
        Halt::Words(words) => words.clone(),
        Halt::Stopped | Halt::Misfit => "stopped".to_owned(),
    };
    let text = format!("the validator that refuses direct writes cannot be changed: {reason}");
    Finding::error(setup.target.namespace(), text)
}

/// A collection whose validator may be changed.
struct Unfrozen {
    uuid: Binary,
    validator: PageValidator,
    /// Whether another change has a fence.
    is_fenced: bool,
}

/// Replaces the clause in the validator, and keeps the others.
async fn replace(setup: &BucketSetup<'_>, clause: Option<&RawDocumentBuf>) -> Result<(), Halt> {
    let target = setup.target;
    for attempt in 0..MAX_ATTEMPTS {
        if attempt > 0 {
            sleep(POLL).await;
        }
        let before = state(setup).await?;
        if before.is_fenced && attempt < MAX_ATTEMPTS / 2 {
            continue;
        }
        let client = target.database.client();
        let Some(fence) = validator_fence::put_up(client, target, &before.uuid).await? else {
            continue;
        };
        // A swap drops the fence after it has begun, and before it reads the validator. So it reads the
        // changed one, or is seen here.
        let changed = match state(setup).await {
            Ok(now) => {
                let validator = PageValidator {
                    direct_writes: clause.cloned(),
                    ..now.validator
                };
                let command = modification(setup, &before.uuid, fence, &validator);
                validator_fence::modify(target, command).await
            }
            Err(halt) => Err(halt),
        };
        validator_fence::take_down(target, &before.uuid, fence).await?;
        if changed? == FenceOutcome::Held {
            return Ok(());
        }
    }
    Err(Halt::Words("other programs change the validator: run again".to_owned()))
}

async fn state(setup: &BucketSetup<'_>) -> Result<Unfrozen, Halt> {
    let target = setup.target;
    let Some(described) = description(&target.database, &target.collection).await? else {
        return Err(Halt::Words("another program dropped the collection".to_owned()));
    };
    let listed = indexes(target).await?;
    let has = |is_meant: fn(&str) -> bool| {
        let mut names = listed.iter().filter_map(|index| index.get_str("name").ok());
        names.any(is_meant)
    };
    if has(is_swap_fence) || collection::is_frozen(&described) {
        let words = "`mongoshape compact` or `mongoshape convert` works on the collection; run again after its end, and if none of \
                     them runs, run it again first";
        return Err(Halt::Words(words.to_owned()));
    }
    let validator = described_validator(&described);
    let validator = validator.map_or_else(|| Some(PageValidator::default()), |found| PageValidator::parse(&found));
    Ok(Unfrozen {
        uuid: uuid_of(&described)?,
        validator: validator.ok_or_else(|| Halt::Words("it has a validator of another program".to_owned()))?,
        is_fenced: has(is_validator_fence),
    })
}

/// The `collMod` that sets the validator, if the fence exists.
fn modification(
    setup: &BucketSetup<'_>,
    uuid: &Binary,
    fence: ValidatorFence,
    validator: &PageValidator,
) -> RawDocumentBuf {
    let mut command = single("collMod", setup.target.collection.as_str());
    command.append(cstr!("collectionUUID"), uuid);
    command.append(cstr!("index"), rawdoc! { "name": fence.name(), "hidden": true });
    validator.append_to(&mut command);
    command
}
