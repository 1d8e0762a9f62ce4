//! The swap: writers are stopped, the copy takes the collection's name, and writers go on.
//!
//! The collection is frozen first: mongod refuses inserts and updates, and proxies hold them. Proxies also
//! remove items by updates, so pages do not change any more. A freeze does not prevent that plain documents
//! are deleted. So the remaining changes of pages are applied now, and those of plain documents after the
//! rename: no command that names the UUID reaches the collection from then on, and the event of the rename is
//! behind all changes. The documents that changed since the comparison are compared, and the copy takes the
//! free name. In between, proxies with an automatic shape hold all commands.
//!
//! The collection is kept under its new name. If a step before the last one fails, it gets its name back and
//! is thawed. Writers wait for that, so it is repeated while no server is available.

use std::time::{Duration, Instant};

use bson::{Binary, doc};
use tokio_util::sync::CancellationToken;

use super::changes::{self, Progress, ReadLimits};
use super::follow::Deadline;
use super::record::{Direction, Phase, Record};
use super::{Conversion, ConvertTask};
use crate::command::collection::IMAGES;
use crate::maintenance::swap::{CollectionRename, Freezing, Frozen, Halt, Retry, placeholder, uuid_of};
use crate::maintenance::upstream::{as_integer, description};
use crate::pattern::bucket::conversion::{copy_name, kept_name};

/// The longest wait for the event of the rename.
const MAX_DRAIN: Duration = Duration::from_secs(10);

/// The result of a swap that has not failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Swapped {
    Yes,
    /// The remaining changes were not applied in time. The collection is as before, and the swap is tried
    /// again later.
    TooManyChanges,
}

/// The state after a swap has failed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum TakenBack {
    /// The collection is as before.
    Yes,
    /// The last rename was executed, although its reply did not arrive.
    WasSwapped,
}

/// Whether the collection with that UUID has been renamed.
async fn has_begun(by: Freezing<'_>, uuid: &Binary) -> Result<bool, Halt> {
    let kept = description(&by.target.database, &kept_name(&by.target.collection)).await?;
    Ok(kept.and_then(|kept| uuid_of(&kept).ok()).as_ref() == Some(uuid))
}

impl Conversion<'_> {
    /// Swaps the names, if few changes are left. If this fails, the collection is as before, or an error
    /// reports that writers may be held.
    pub(super) async fn swap(&mut self) -> Result<Swapped, Halt> {
        let frozen = self.fenced().await?;
        self.enter(Phase::Swapping).await?;
        let by = frozen.by();
        let begun = Instant::now();
        match self.swap_fenced(&frozen).await {
            Ok(Swapped::Yes) => {}
            Ok(Swapped::TooManyChanges) => {
                placeholder::clear(by, &kept_name(&by.target.collection)).await?;
                self.release(&frozen, Phase::Following).await?;
                return Ok(Swapped::TooManyChanges);
            }
            Err(halt) => self.give_up(by, halt).await?,
        }
        let paused = begun.elapsed().as_millis();
        self.say(format!("swapped: writes were held for {paused} ms"));
        let mut retry = Retry::new(self.client);
        while let Err(failure) = self.complete(by).await {
            retry.after(failure).await?;
        }
        Ok(Swapped::Yes)
    }

    /// Completes a swap after its commit point.
    async fn complete(&mut self, by: Freezing<'_>) -> Result<(), Halt> {
        disable_images(by, &self.record).await?;
        thaw_kept(by, self.stop).await?;
        must_be_swapped(by, &self.record).await?;
        self.enter(Phase::Done).await
    }

    async fn swap_fenced(&mut self, frozen: &Frozen<'_>) -> Result<Swapped, Halt> {
        let by = frozen.by();
        let place = placeholder::keep(by, &kept_name(&by.target.collection)).await?;
        let deadline = self.longest_hold();
        frozen.freeze(self.stop).await?;
        if self.changes.is_none() {
            self.fill().await?;
            self.compare_and_report().await?;
            if !self.mirror.copy.is_plain {
                // While the copy is filled, mongod would evaluate the validator for each write of a page.
                self.finish_options().await?;
            }
        }
        if !self.compare_touched(deadline).await? {
            return Ok(Swapped::TooManyChanges);
        }
        self.must_be_defined_as_before().await?;
        if self.record.from.is_plain() {
            self.move_away(frozen, &place).await?;
            // No command by name changes them from here on.
            self.must_be_defined_as_before().await?;
            self.drain().await?;
            self.must_be_equal().await?;
            self.finish_plain_options().await?;
        } else {
            // All writes before the freeze are behind this write, so the majority has them.
            self.enter(Phase::Swapping).await?;
            self.drain().await?;
            self.must_be_equal().await?;
            self.finish_plain_options().await?;
            self.move_away(frozen, &place).await?;
            self.must_have_no_changes_left().await?;
        }
        self.commit(by).await?;
        Ok(Swapped::Yes)
    }

    /// Gives a copy of plain documents its last options: mongod would evaluate a validator and expire
    /// documents at once. They cost as much for any number of documents. A copy of pages has them already.
    async fn finish_plain_options(&self) -> Result<(), Halt> {
        if self.mirror.copy.is_plain {
            self.finish_options().await?;
        }
        Ok(())
    }

    /// Fails if the indexes or the validator are not those that the copy gets.
    async fn must_be_defined_as_before(&self) -> Result<(), Halt> {
        let source = &self.mirror.source;
        let changed = if source.indexes().await? != self.indexes {
            "its indexes were changed"
        } else if !source.validation().await?.is_same(&self.validation) {
            "its validator was changed"
        } else {
            return Ok(());
        };
        Err(Halt::Words(format!("{changed}; run again")))
    }

    /// Renames the collection.
    async fn move_away(&mut self, frozen: &Frozen<'_>, place: &Binary) -> Result<(), Halt> {
        let by = frozen.by();
        let kept = kept_name(&by.target.collection);
        let renamed = CollectionRename {
            from: &by.target.collection,
            uuid: frozen.uuid(),
            to: &kept,
            dropped: Some(place),
        };
        if self.record.is_back() {
            // A proxy may know the copy from before the conversion, and read in the gap.
            self.record.number_swap();
            self.enter(Phase::Swapping).await?;
        }
        self.renamed_since = changes::cluster_time(by.client).await?;
        if let Err(halt) = by.rename(renamed).await {
            // The rename may have succeeded, or may still arrive. After the placeholder is dropped, a late
            // rename fails.
            by.drop(&kept, Some(place)).await?;
            if !has_begun(by, frozen.uuid()).await? {
                return Err(halt);
            }
        }
        self.mirror.source = self.mirror.source.renamed(kept, frozen.uuid());
        self.mirror.source_pages = None;
        Ok(())
    }

    /// Applies the last changes: of a plain collection, those up to the rename.
    async fn drain(&mut self) -> Result<(), Halt> {
        let begun = Instant::now();
        let now = changes::cluster_time(self.client).await?;
        while !self.is_renamed {
            let progress = self.follow(None, Deadline::NONE).await?;
            let Some(changes) = &self.changes else { break };
            if !self.record.from.is_plain() && progress == Progress::NoneLeft && changes.has_passed(now) {
                break;
            }
            if begun.elapsed() > MAX_DRAIN {
                return Err(Halt::Words("its last changes did not arrive".to_owned()));
            }
        }
        self.apply_pending(Deadline::NONE).await?;
        if self.pending.is_empty() {
            return Ok(());
        }
        Err(Halt::Words("a unique index of the copy refuses a document".to_owned()))
    }

    /// Reads the stream of pages up to the rename. Directly after a failover, the new primary may have
    /// returned neither the last events nor the documents, because it did not know what the majority has.
    async fn must_have_no_changes_left(&mut self) -> Result<(), Halt> {
        let begun = Instant::now();
        while !self.is_renamed {
            let Some(changes) = &mut self.changes else {
                return Ok(());
            };
            let batch = changes.next(ReadLimits::NONE).await?;
            self.end_with(&batch).await?;
            if !batch.ids.is_empty() {
                return Err(Halt::Words("changes arrived after a failover; run again".to_owned()));
            }
            if begun.elapsed() > MAX_DRAIN {
                return Err(Halt::Words("the event of its rename did not arrive".to_owned()));
            }
        }
        Ok(())
    }

    /// Compares the documents that changed since the comparison, and the numbers of documents if the server
    /// knows them without reading.
    async fn must_be_equal(&mut self) -> Result<(), Halt> {
        let differing = self.mirror.differing(&self.touched, self.since()).await?;
        if !differing.is_empty() {
            return Err(Halt::Words(format!(
                "{} documents differ from their copies",
                differing.len()
            )));
        }
        if self.changes.is_none() && self.mirror.source.is_plain {
            let count = doc! { "count": &self.mirror.source.collection };
            let counted = self.mirror.source.database.run_command(count).await?;
            let counted = counted
                .get("n")
                .and_then(as_integer)
                .and_then(|count| u64::try_from(count).ok());
            if counted != Some(self.compared) {
                let words =
                    "documents were deleted while they were copied; stop the programs that write, and run again";
                return Err(Halt::Words(words.to_owned()));
            }
        }
        Ok(())
    }

    /// Gives the copy the collection's name.
    async fn commit(&mut self, by: Freezing<'_>) -> Result<(), Halt> {
        self.is_committing = true;
        let renamed = CollectionRename {
            from: &copy_name(&by.target.collection),
            uuid: &self.record.copy,
            to: &by.target.collection,
            dropped: None,
        };
        let renamed = by.rename(renamed).await;
        if is_swapped(by, &self.record).await? {
            return Ok(());
        }
        renamed.and(Err(Halt::Words("another program renamed the copy".to_owned())))
    }

    /// Restores the collection, and returns the reason. Returns no error if the names were swapped.
    async fn give_up(&mut self, by: Freezing<'_>, reason: Halt) -> Result<(), Halt> {
        let mut retry = Retry::new(self.client);
        loop {
            let failure = match self.take_back(by).await {
                Ok(TakenBack::Yes) => return Err(reason),
                Ok(TakenBack::WasSwapped) => return Ok(()),
                Err(failure) => failure,
            };
            if let Err(failure) = retry.after(failure).await {
                for halt in [&reason, &failure] {
                    self.findings.add(&halt.finding(by.work, &self.target.namespace()));
                }
                let words = format!("its writers may be held: run `{}` again now", self.command());
                return Err(Halt::Words(words));
            }
        }
    }

    async fn take_back(&mut self, by: Freezing<'_>) -> Result<TakenBack, Halt> {
        if self.is_committing && is_swapped(by, &self.record).await? {
            return Ok(TakenBack::WasSwapped);
        }
        give_name_back(by, &mut self.record).await?;
        if self.is_committing {
            drop_copy(by, &self.record).await?;
        }
        self.try_to_end_fence().await?;
        // The stream may have ended, so the next run copies or compares all documents again.
        self.record.token = None;
        self.enter(Phase::Copying).await?;
        Ok(TakenBack::Yes)
    }

    /// The command that goes on with this conversion.
    fn command(&self) -> String {
        let way = match self.record.direction {
            Direction::Forward if self.task == ConvertTask::ToPlain => " --to plain",
            Direction::Forward => "",
            Direction::Back | Direction::WayBack => " --back",
        };
        let offline = if self.changes.is_none() { " --offline" } else { "" };
        format!(
            "mongoshape convert --config FILE --namespace {}{way}{offline}",
            self.target.namespace()
        )
    }
}

/// Ends the storage of images that the conversion has enabled in the kept collection.
async fn disable_images(by: Freezing<'_>, record: &Record) -> Result<(), Halt> {
    let (database, kept) = (&by.target.database, kept_name(&by.target.collection));
    if record.from.is_plain() || record.had_images || description(database, &kept).await?.is_none() {
        return Ok(());
    }
    let command = doc! { "collMod": kept, IMAGES: { "enabled": false } };
    database.run_command(command).await?;
    Ok(())
}

/// Undoes the rename of the collection, if it was done, and makes a late one fail. A proxy may have read
/// nothing while the collection had no name, so the record says before that the swap was given up.
async fn give_name_back(by: Freezing<'_>, record: &mut Record) -> Result<(), Halt> {
    let kept = kept_name(&by.target.collection);
    placeholder::clear(by, &kept).await?;
    if !has_begun(by, &record.source).await? {
        return Ok(());
    }
    record.number_swap();
    record.write(&by.target.database, &by.target.collection).await?;
    if description(&by.target.database, &by.target.collection).await?.is_some() {
        let words = format!(
            "another program created a collection of its name during the swap; all documents are in {kept}; rename or drop the new \
             collection, and run again"
        );
        return Err(Halt::Words(words));
    }
    let renamed = CollectionRename {
        from: &kept,
        uuid: &record.source,
        to: &by.target.collection,
        dropped: None,
    };
    by.rename(renamed).await
}

/// Undoes the freeze of the collection under its new name.
pub(super) async fn thaw_kept(by: Freezing<'_>, stop: &CancellationToken) -> Result<(), Halt> {
    let target = by.target.named(kept_name(&by.target.collection));
    let by = Freezing { target: &target, ..by };
    let Some(described) = description(&target.database, &target.collection).await? else {
        return Ok(());
    };
    Frozen::fence(by, &described, stop).await?.thaw().await
}

/// Whether the collection was swapped, and the new one was replaced since, as `compact` does with pages.
async fn was_swapped(by: Freezing<'_>, source: &Binary) -> Result<bool, Halt> {
    let target = by.target;
    let is_there = description(&target.database, &target.collection).await?.is_some();
    let is_copy_there = description(&target.database, &copy_name(&target.collection))
        .await?
        .is_some();
    Ok(is_there && !is_copy_there && has_begun(by, source).await?)
}

/// Drops the copy after the collection has its name again. After that, a late rename of the copy fails, which
/// would otherwise succeed in the next swap, before its last changes are applied.
async fn drop_copy(by: Freezing<'_>, record: &Record) -> Result<(), Halt> {
    by.drop(&copy_name(&by.target.collection), Some(&record.copy)).await
}

async fn is_swapped(by: Freezing<'_>, record: &Record) -> Result<bool, Halt> {
    let has_name = match record.known_copy() {
        Some(copy) => by.is_replaced(copy).await?,
        None => false,
    };
    Ok(has_name || was_swapped(by, &record.source).await?)
}

/// Looks again, after the majority has acknowledged a later command: a failover may have rolled the rename
/// back.
async fn must_be_swapped(by: Freezing<'_>, record: &Record) -> Result<(), Halt> {
    if is_swapped(by, record).await? {
        return Ok(());
    }
    let words = format!("a failover has undone the swap; run `{}` again", by.work.command());
    Err(Halt::Words(words))
}

/// Completes a swap of a killed run after its commit point, or undoes it. Returns the new record.
pub(super) async fn recover(by: Freezing<'_>, mut record: Record, stop: &CancellationToken) -> Result<Record, Halt> {
    let mut retry = Retry::new(by.client);
    loop {
        match try_to_recover(by, &mut record, stop).await {
            Ok(recovered) => return Ok(recovered),
            Err(failure) => retry.after(failure).await?,
        }
    }
}

/// The same in one attempt. `record` gets what the next attempt must know.
async fn try_to_recover(by: Freezing<'_>, record: &mut Record, stop: &CancellationToken) -> Result<Record, Halt> {
    let target = by.target;
    let recovered = if is_swapped(by, record).await? {
        disable_images(by, record).await?;
        thaw_kept(by, stop).await?;
        must_be_swapped(by, record).await?;
        Record {
            phase: Phase::Done,
            ..record.clone()
        }
    } else {
        let goes_on = match record.phase.after_holding() {
            Some(phase) if !has_begun(by, &record.source).await? => Some(phase),
            _ => None,
        };
        give_name_back(by, record).await?;
        let recovered = if let Some(phase) = goes_on {
            Record {
                phase,
                ..record.clone()
            }
        } else {
            drop_copy(by, record).await?;
            Record {
                phase: Phase::Copying,
                token: None,
                ..record.clone()
            }
        };
        // A collection that was dropped has nothing to restore. The task that follows reports or allows that.
        if let Some(described) = description(&target.database, &target.collection).await? {
            Frozen::fence(by, &described, stop).await?.thaw().await?;
        }
        recovered
    };
    recovered.write(&target.database, &target.collection).await?;
    Ok(recovered)
}
