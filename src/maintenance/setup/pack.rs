//! `setup --pack`: packs plain documents into pages, in a copy that replaces the collection.
//!
//! First all documents are read, and nothing is done if one cannot be an item. Then the collection is
//! frozen, the copy is filled in the order of the pages and compared with the documents, and two
//! renames swap the collections: the plain one is kept under another name. If a run ends before the
//! renames, the collection is unchanged, or frozen if the run was killed. If it ends between the two
//! renames, the next run finishes them. See
//! `docs/decisions/0018-plain-documents-are-packed-in-a-copy.md`.

mod checksum;
mod copy;
pub(in crate::maintenance) mod preflight;
mod rename_swap;

use bson::raw::{RawDocumentBuf, cstr};
use bson::{Binary, Document, doc};
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use self::checksum::Items;
use self::copy::Paging;
use self::preflight::{Fitness, TakenOver};
use self::rename_swap::{Beside, Exchange};
use super::SetupRun;
use super::bucket::BucketSetup;
use crate::command::document::{array_of, single};
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{Plain, is_frozen, look, taken};
use crate::maintenance::swap::{
    CollectionRename, Freezing, Frozen, Halt, SwapKind, Writer, concurrent_runs, options_of, placeholder,
    set_validator, take_fences_down, uuid_of,
};
use crate::maintenance::upstream::{self, ShapedCollection, description};
use crate::pattern::bucket::item_index::SphereLocations;
use crate::pattern::bucket::pack;
use crate::pattern::bucket::validator::PageValidator;
use crate::pattern::shapes::BucketShape;

/// Packs a collection's documents, and prints the result.
pub(super) async fn run(run: &SetupRun<'_>, target: &ShapedCollection, findings: &mut Findings) {
    let lacking = run.may_pack(target);
    if !lacking.is_empty() {
        return findings.extend(lacking);
    }
    let name = concurrent_runs::own_name(SwapKind::Pack, &target.namespace());
    let client = match upstream::named_client(&run.config.upstream, &name).await {
        Ok(client) => client,
        Err(error) => return findings.add(&Finding::error(target.namespace(), format!("{error:#}"))),
    };
    let through = target.through(&client);
    if let Some(finding) = concurrent_runs::look(&client, SwapKind::Pack, &target.namespace(), &name).await {
        findings.add(&finding);
        if finding.is_error() {
            return upstream::close(client).await;
        }
    }
    if let Some(shape) = target.bucket() {
        let mut packing = Packing {
            by: Freezing {
                client: &client,
                target: &through,
                work: SwapKind::Pack,
            },
            shape,
            copy: None,
            run,
            stop: &run.stop,
            findings,
        };
        if let Err(halt) = packing.pack().await {
            findings.add(&halt.finding(SwapKind::Pack, &target.namespace()));
        }
    }
    upstream::close(client).await;
}

/// The state of a run on one collection.
struct Packing<'a> {
    by: Freezing<'a>,
    shape: &'a BucketShape,
    /// UUID of this run's copy.
    copy: Option<Binary>,
    run: &'a SetupRun<'a>,
    stop: &'a CancellationToken,
    findings: &'a mut Findings,
}

impl Packing<'_> {
    async fn pack(&mut self) -> Result<(), Halt> {
        let target = self.by.target;
        // Checked after no other run was found, because one may have ended just before.
        let exchanged = match look(target, self.shape).await? {
            Plain::Nothing => {
                return self.set_up().await;
            }
            Plain::Taken => return Err(Halt::Words(taken(target))),
            Plain::WithoutCopy => {
                self.give_back_its_name().await?;
                match self.begin_anew().await? {
                    Some(items) => items,
                    None => return Ok(()),
                }
            }
            Plain::Between => Exchange::broken_off(self.by, self.shape).await?.finish().await?,
            Plain::Documents(_) | Plain::Frozen => match self.begin_anew().await? {
                Some(items) => items,
                None => return Ok(()),
            },
        };
        self.report(exchanged).await
    }

    /// Creates the missing indexes of pages.
    async fn set_up(&mut self) -> Result<(), Halt> {
        let setup = BucketSetup {
            run: self.run,
            target: self.by.target,
            shape: self.shape,
        };
        Ok(setup.set_up(self.findings).await?)
    }

    fn say(&mut self, text: impl Into<String>) {
        self.findings.add(&Finding::note(self.by.target.namespace(), text));
    }

    /// The name under which the plain documents are kept.
    fn kept_name(&self) -> String {
        pack::plain_name(&self.by.target.collection)
    }

    /// Renames the plain collection back, because another run dropped its copy.
    async fn give_back_its_name(&mut self) -> Result<(), Halt> {
        let target = self.by.target;
        let kept = pack::plain_name(&target.collection);
        let Some(described) = description(&target.database, &kept).await? else {
            return Err(Halt::Words(format!("another program dropped {kept}")));
        };
        let renamed = CollectionRename {
            from: &kept,
            uuid: &uuid_of(&described)?,
            to: &target.collection,
            dropped: None,
        };
        self.by.rename(renamed).await
    }

    /// Packs from the beginning. Returns the packed items. `None`: some cannot be packed, and
    /// findings have been reported.
    async fn begin_anew(&mut self) -> Result<Option<Items>, Halt> {
        let target = self.by.target;
        let kept = description(&target.database, &pack::plain_name(&target.collection)).await?;
        if kept.is_some_and(|kept| !placeholder::is_placeholder(&kept)) {
            let text = format!(
                "{} of an earlier run still exists; drop it if it is no longer needed, or rename it",
                pack::plain_name(&target.collection)
            );
            return Err(Halt::Words(text));
        }
        let Some(described) = description(&target.database, &target.collection).await? else {
            return Err(Halt::Words("another program dropped it".to_owned()));
        };
        let fit = if is_frozen(&described) {
            self.say("an earlier run was interrupted while the collection was frozen; packing starts again");
            None
        } else {
            let fit = self.fit(&described).await?;
            if fit.is_none() {
                return Ok(None);
            }
            fit
        };
        let frozen = Frozen::fence(self.by, &described, self.stop).await?;
        let packed = self.in_a_copy(&described, &frozen, fit).await;
        if matches!(packed, Ok(Some(_))) {
            return packed;
        }
        let taken_back = self.take_back(&frozen).await;
        if let (Err(reason), Err(_)) = (&packed, &taken_back) {
            self.findings.add(&reason.finding(SwapKind::Pack, &target.namespace()));
        }
        taken_back?;
        packed
    }

    /// The indexes of the pages. `None`: something cannot be packed, and findings have been
    /// reported.
    async fn fit(&mut self, described: &Document) -> Result<Option<TakenOver>, Halt> {
        let fitness = Fitness::of(self.by.target, self.shape, self.run.options.missing, described).await?;
        fitness.look_at_documents(self.stop, self.findings).await
    }

    /// Restores the collection, unless it was renamed: then the next run must finish.
    async fn take_back(&mut self, frozen: &Frozen<'_>) -> Result<(), Halt> {
        let target = self.by.target;
        // After the placeholder is dropped, a late rename of the collection fails.
        placeholder::clear(self.by, &self.kept_name()).await?;
        if rename_swap::has_begun(target, frozen.uuid()).await? {
            return Ok(());
        }
        frozen.thaw().await?;
        match self.copy.take() {
            Some(uuid) => self.by.drop(&pack::copy_name(&target.collection), Some(&uuid)).await,
            None => Ok(()),
        }
    }

    /// The part of the run that the fence protects.
    async fn in_a_copy(
        &mut self,
        described: &Document,
        frozen: &Frozen<'_>,
        fit: Option<TakenOver>,
    ) -> Result<Option<Items>, Halt> {
        let target = self.by.target;
        // Dropping the placeholder and the copy makes late commands of a killed run fail.
        placeholder::clear(self.by, &self.kept_name()).await?;
        if rename_swap::has_begun(target, frozen.uuid()).await? {
            let words = "an earlier run has just renamed it; run again to finish";
            return Err(Halt::Words(words.to_owned()));
        }
        let fit = match fit {
            None => self.fit(described).await?,
            fit => fit,
        };
        let Some(indexes) = fit else {
            return Ok(None);
        };
        let copy = make_copy(self.by, described).await?;
        self.copy = Some(copy.clone());
        let place = placeholder::keep(self.by, &self.kept_name()).await?;
        // The freeze succeeds only under this run's fence, so no other run has created or dropped the
        // copy or the placeholder.
        frozen.freeze(self.stop).await?;
        self.say("frozen: reads work, and writes fail");
        if preflight::raw_indexes(target).await? != indexes.there {
            return Err(Halt::Words("its indexes changed meanwhile; run again".to_owned()));
        }
        let name = pack::copy_name(&target.collection);
        let mut writer = Writer::new(target, name.clone(), copy.clone());
        writer.wait_for_the_majority();
        let paging = Paging {
            shape: self.shape,
            locations: &SphereLocations::of(self.shape, &indexes.stored),
        };
        copy::fill(target, paging, &mut writer, self.stop, self.findings).await?;
        make_indexes(target, &indexes.stored).await?;
        set_validator(target, self.shape, &name, PageValidator::of_new(self.shape)).await?;
        let packed = Items::of_pages(target, self.shape, &name, self.stop).await?;
        let there = Items::of_documents(target, self.shape, &target.collection, self.stop).await?;
        there.must_be(packed)?;
        self.say(format!(
            "compared: {} documents match {} items on pages",
            there.count, packed.count
        ));
        let exchange = Exchange::begin(frozen, Beside { copy, place }, packed).await?;
        exchange.finish().await.map(Some)
    }

    /// Checks the kept collection a last time. It can no longer be changed under its former name.
    async fn report(&mut self, packed: Items) -> Result<(), Halt> {
        let target = self.by.target;
        let namespace = target.namespace();
        let kept = pack::plain_name(&target.collection);
        let go_on = CancellationToken::new();
        let there = Items::of_documents(target, self.shape, &kept, &go_on).await?;
        self.findings.add(&Finding::fine(
            &namespace,
            format!("packed: {} documents", packed.count),
        ));
        if there.must_be(packed).is_err() {
            let text = format!(
                "another program, bypassing the proxy, deleted or changed documents during the swap: {kept} has {} of them, and the \
                 pages have {}; the pages do not contain these changes",
                there.count, packed.count
            );
            self.findings.add(&Finding::error(&namespace, text));
        }
        if let Some(described) = description(&target.database, &kept).await? {
            take_fences_down(&target.database, &kept, &uuid_of(&described)?).await?;
        }
        self.set_up().await?;
        let (name, database) = (&target.collection, target.database.name());
        self.say(format!(
            "the plain documents are kept in {database}.{kept}; to drop them when they are no longer needed: \
             db.getSiblingDB(\"{database}\").getCollection(\"{kept}\").drop()"
        ));
        self.say(format!(
            "to undo the packing instead, which loses all later writes, stop all proxies, and in database {database}: \
             db.getCollection(\"{name}\").drop(); db.getCollection(\"{kept}\").renameCollection(\"{name}\"); db.runCommand({{ collMod: \
             \"{name}\", validator: {{}} }})"
        ));
        Ok(())
    }
}

/// Creates the empty copy with the options of the collection. A copy of an earlier run is dropped
/// by its UUID, so that a late drop cannot affect the copy of another run.
async fn make_copy(by: Freezing<'_>, described: &Document) -> Result<Binary, Halt> {
    let target = by.target;
    let name = pack::copy_name(&target.collection);
    if let Some(left) = description(&target.database, &name).await? {
        by.drop(&name, Some(&uuid_of(&left)?)).await?;
    }
    let mut create = doc! { "create": &name };
    create.extend(options_of(described));
    target.database.run_command(create).await?;
    let made = description(&target.database, &name).await?;
    made.map_or_else(
        || Err(Halt::Words(format!("another program dropped {name}"))),
        |made| uuid_of(&made),
    )
}

/// Creates the indexes of the filled copy. An index built in one go needs much less space.
async fn make_indexes(target: &ShapedCollection, indexes: &[RawDocumentBuf]) -> Result<(), Error> {
    let mut command = single("createIndexes", pack::copy_name(&target.collection));
    command.append(cstr!("indexes"), array_of(indexes));
    target.database.run_raw_command(command).await?;
    Ok(())
}
