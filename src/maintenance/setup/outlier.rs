//! Sets up the collection of an outlier shape: the indexes of its extras, and the remains of
//! crashes. Safe while clients work.

use std::time::SystemTime;

use bson::doc;
use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;

use super::{LongArrays, SetupRun, split};
use crate::command::document::{array_of, get, single};
use crate::maintenance::check::outlier as check;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::inspect::{FieldCensus, sample};
use crate::maintenance::misspelt;
use crate::maintenance::outlier_documents::{MAX_ATTEMPTS, base, delete, insert, update};
use crate::maintenance::upstream::{ShapedCollection, as_integer, description};
use crate::pattern::outlier::layout::DocumentState;
use crate::pattern::outlier::page::{ExtrasPage, moving, of_generation, removal};
use crate::pattern::outlier::{index, layout, orphans, resplit};
use crate::pattern::shapes::OutlierShape;

/// One collection, in a run of `setup`.
pub(super) struct OutlierSetup<'a> {
    pub(super) run: &'a SetupRun<'a>,
    pub(super) target: &'a ShapedCollection,
    pub(super) shape: &'a OutlierShape,
}

impl OutlierSetup<'_> {
    /// Creates the indexes, cleans up, and splits documents if requested.
    pub(super) async fn set_up(&self, findings: &mut Findings) -> Result<(), Error> {
        let Self { run, target, shape } = self;
        let described = description(&target.database, &target.collection).await?;
        let mut unfit = check::unfit(target, described.as_ref());
        unfit.extend(check::index_findings(target, shape).await?);
        let is_unfit = |unfit: &[Finding]| unfit.iter().any(Finding::is_error);
        let splits = run.options.long == LongArrays::Split;
        if splits && described.is_some_and(|described| check::is_fenced(shape, &described)) {
            let text = "was converted to plain documents; run `mongoshape convert --back` to split long arrays";
            unfit.push(Finding::error(target.namespace(), text));
        }
        if !is_unfit(&unfit) {
            unfit = self.missing_fields().await?;
            unfit.extend(self.lacking_rights().await?);
            unfit.extend(misspelt::extras(target, shape, &run.config.shapes).await);
        }
        let is_refused = is_unfit(&unfit);
        findings.extend(unfit);
        if is_refused {
            return Ok(());
        }
        let said = create_indexes(target, shape).await?;
        findings.add(&Finding::fine(target.namespace(), said));
        let left_over = put_right(target, shape).await?;
        findings.extend(left_over.map(|text| Finding::fine(target.namespace(), text)));
        if splits {
            split::run(target, shape, &run.stop, findings).await?;
        }
        Ok(())
    }

    async fn lacking_rights(&self) -> Result<Vec<Finding>, Error> {
        let mut scratch = self.target.database.list_collection_names().await?;
        scratch.retain(|name| orphans::is_old_scratch(self.shape, name, SystemTime::now()));
        Ok(self.run.may_set_up_outliers(self.target, self.shape, &scratch))
    }

    /// The finding about an array that no document has. Looked for only before documents are split, and at
    /// the first run: later the shape marker of the extras records the array.
    async fn missing_fields(&self) -> Result<Vec<Finding>, Error> {
        let Self { run, target, shape } = self;
        let options = &run.options;
        let extras = description(&target.database, shape.extras_collection()).await?;
        if extras.is_some() && options.long != LongArrays::Split {
            return Ok(Vec::new());
        }
        let census = sample(target, FieldCensus::of_outlier(shape)).await?;
        Ok(census.findings(&target.namespace(), options.missing))
    }
}

async fn create_indexes(target: &ShapedCollection, shape: &OutlierShape) -> Result<String, Error> {
    let mut command = single("createIndexes", shape.extras_collection());
    command.append(cstr!("indexes"), array_of(&index::specs(shape)));
    let reply = target.database.run_raw_command(command).await?;
    let number = |name: &str| reply.get(name).and_then(as_integer);
    let is_new = number("numIndexesBefore") != number("numIndexesAfter");
    let done = if is_new { "created" } else { "there" };
    Ok(format!("the indexes of {} are {done}", shape.extras_collection()))
}

/// Spills tails, and removes orphans and unused scratch collections. Returns a description of the changes, if
/// there are any.
async fn put_right(target: &ShapedCollection, shape: &OutlierShape) -> Result<Option<String>, Error> {
    let mut moved = 0_u64;
    let only_id = single("_id", 1);
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), orphans::with_tails(shape));
    find.append(cstr!("projection"), &only_id);
    let mut found = target
        .database
        .run_raw_cursor_command(find)
        .await?
        .with_type::<RawDocumentBuf>();
    while let Some(found) = found.try_next().await? {
        if let Some(id) = get(&found, "_id") {
            moved += u64::from(move_tail(target, shape, id).await?);
        }
    }
    let removed = remove_pages(target, shape).await?;
    let mut dropped = 0_u64;
    for name in target.database.list_collection_names().await? {
        if orphans::is_old_scratch(shape, &name, SystemTime::now()) {
            target.database.run_command(doc! { "drop": name }).await?;
            dropped += 1;
        }
    }
    let text =
        format!("cleaned up: {moved} tails spilled, {removed} orphans and {dropped} scratch collections removed");
    Ok((moved + removed + dropped > 0).then_some(text))
}

async fn remove_pages(target: &ShapedCollection, shape: &OutlierShape) -> Result<u64, Error> {
    let mut removed = 0;
    let collection = &target.collection;
    let stages = [
        orphans::uncounted(shape, collection, SystemTime::now()),
        orphans::adopted(shape, collection),
    ];
    for stages in stages {
        let mut found = check::among_extras(target, shape, &stages).await?;
        while let Some(found) = found.try_next().await? {
            removed += match orphans::parse(&found) {
                Some((of, Some(generation))) => delete(target, shape, &removal(shape, of, generation)).await?,
                Some((of, None)) => delete(target, shape, &resplit::removal_by_hand(shape, of)).await?,
                None => 0,
            };
        }
    }
    Ok(removed)
}

/// Spills the tail of a document, as a push does. Returns whether it had a tail.
async fn move_tail(target: &ShapedCollection, shape: &OutlierShape, id: RawBsonRef<'_>) -> Result<bool, Error> {
    for _ in 0..MAX_ATTEMPTS {
        let Some(base) = base(target, id).await? else { break };
        let DocumentState::Outlier(of_base) = DocumentState::of(shape, &base) else {
            break;
        };
        let filter = of_generation(shape, id, of_base.generation);
        let mut find = single("find", shape.extras_collection());
        find.append(cstr!("filter"), filter);
        find.append(cstr!("sort"), single(layout::path::FROM, -1));
        find.append(cstr!("limit"), 1);
        find.append(cstr!("projection"), ExtrasPage::projection());
        let found = target.database.run_raw_cursor_command(find).await?;
        let last = found.with_type::<RawDocumentBuf>().try_next().await?;
        let last = last.and_then(|page| ExtrasPage::parse(&page));
        let Some(moving) = moving(shape, id, &of_base, last) else {
            break;
        };
        if let Some(append) = &moving.append
            && update(target, shape.extras_collection(), append).await? == 0
        {
            continue;
        }
        if insert(target, shape, &moving.pages).await? && update(target, &target.collection, &moving.count).await? > 0 {
            return Ok(true);
        }
    }
    Ok(false)
}
