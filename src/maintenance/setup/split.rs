//! Splitting what has more elements than its shape's threshold, and adopting what was split by hand, while
//! clients work.
//!
//! Each document by itself, so that this may be stopped anywhere and run again. How one is split without a
//! moment at which it reads otherwise is said in [`crate::pattern::outlier::resplit`].

use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use super::outlier::{MAX_ATTEMPTS, base, delete, extras, insert, update};
use crate::command::document::{array_of, get, single};
use crate::command::value_text::id_text;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::outlier::layout::{DocumentState, path};
use crate::pattern::outlier::page::{of_generation, removal};
use crate::pattern::outlier::resplit;
use crate::pattern::outlier::statement::flagging;
use crate::pattern::shapes::OutlierShape;

/// How often it is told how far it is.
const TELL_EVERY: Duration = Duration::from_secs(5);

/// What became of a document.
enum Done {
    Split,
    /// It need not be, or is not there any more.
    Fits,
    /// Its extras cannot be understood.
    Misfit,
    /// It was another one each time.
    Lost,
}

/// Splits all that are too long, and says how many.
pub(super) async fn run(
    target: &ShapedCollection,
    shape: &OutlierShape,
    stop: &CancellationToken,
    findings: &mut Findings,
) -> Result<(), Error> {
    let namespace = target.namespace();
    let filter = single(
        "$or",
        array_of(&[resplit::overlong(shape), resplit::flagged_by_hand(shape)]),
    );
    let mut find = single("find", target.collection.as_str());
    find.append(cstr!("filter"), filter);
    find.append(cstr!("projection"), single("_id", 1));
    let mut found = target
        .database
        .run_raw_cursor_command(find)
        .await?
        .with_type::<RawDocumentBuf>();
    let (mut split, mut told) = (0_u64, Instant::now());
    let mut left = 0_u64;
    while let Some(found) = found.try_next().await? {
        if stop.is_cancelled() {
            let text = format!("stopped, {split} documents split; run `mongoshape setup --split` again to go on");
            findings.add(&Finding::error(&namespace, text));
            return Ok(());
        }
        let Some(id) = get(&found, "_id") else { continue };
        let remark = match split_one(target, shape, id).await? {
            Done::Split => {
                split += 1;
                None
            }
            Done::Fits => None,
            Done::Misfit => Some("what it says of its extras cannot be read"),
            Done::Lost => Some("it is changed all the time; run `mongoshape setup --split` again"),
        };
        if let Some(remark) = remark {
            left += 1;
            let text = format!("the document with _id {} is not split: {remark}", id_text(&found));
            findings.add(&Finding::error(&namespace, text));
        }
        if told.elapsed() >= TELL_EVERY {
            told = Instant::now();
            findings.add(&Finding::note(&namespace, format!("{split} documents split so far")));
        }
    }
    if left == 0 {
        let text = format!(
            "{split} documents split; none has more than {} elements",
            shape.threshold()
        );
        findings.add(&Finding::fine(&namespace, text));
    }
    Ok(())
}

async fn split_one(target: &ShapedCollection, shape: &OutlierShape, id: RawBsonRef<'_>) -> Result<Done, Error> {
    let generation = ObjectId::new();
    let done = regroup_one(target, shape, id, generation).await;
    if !matches!(done, Ok(Done::Split)) {
        // Pages that nobody counts, and nobody is about to.
        delete(target, shape, &removal(shape, id, generation)).await?;
    }
    done
}

async fn regroup_one(
    target: &ShapedCollection,
    shape: &OutlierShape,
    id: RawBsonRef<'_>,
    generation: ObjectId,
) -> Result<Done, Error> {
    let mut written: Option<(DocumentState, usize)> = None;
    for _ in 0..MAX_ATTEMPTS {
        let Some(stored) = base(target, id).await? else {
            return Ok(Done::Fits);
        };
        let state = DocumentState::of(shape, &stored);
        let (filter, sort) = match &state {
            DocumentState::Invalid => return Ok(Done::Misfit),
            DocumentState::Inline | DocumentState::Outlier(_) if !resplit::is_overlong(shape, &stored) => {
                return Ok(Done::Fits);
            }
            DocumentState::Inline => {
                if let Some(statement) = flagging(shape, id, 1, ObjectId::new()) {
                    update(target, &target.collection, &statement).await?;
                }
                continue;
            }
            DocumentState::Outlier(before) => (of_generation(shape, id, before.generation), single(path::FROM, 1)),
            DocumentState::Unmanaged => (resplit::by_hand(shape, id), RawDocumentBuf::new()),
        };
        let pages: Vec<RawDocumentBuf> = extras(target, shape, filter, sort).await?.try_collect().await?;
        let pages: Vec<&RawDocument> = pages.iter().map(RawDocumentBuf::as_ref).collect();
        let Some(elements) = resplit::elements(shape, &stored, &state, &pages) else {
            match state {
                DocumentState::Unmanaged => return Ok(Done::Misfit),
                _ => continue,
            }
        };
        // Of one generation nothing changes but what comes behind.
        let before = written
            .as_ref()
            .filter(|(of, _)| is_same(of, &state))
            .map(|(_, count)| *count);
        if before.is_none() && written.is_some() {
            delete(target, shape, &removal(shape, id, generation)).await?;
        }
        let new = resplit::pages(shape, id, generation, before.unwrap_or(0), &elements);
        if !insert(target, shape, &new).await? {
            // Pages of this generation are nobody else's: what is there cannot be counted.
            return Ok(Done::Lost);
        }
        let Some(statement) = resplit::counting(shape, &stored, &state, generation, elements.len()) else {
            return Ok(Done::Misfit);
        };
        if update(target, &target.collection, &statement).await? > 0 {
            // What was written by hand stays until the next `setup`: somebody may be reading it.
            if let DocumentState::Outlier(before) = &state {
                delete(target, shape, &removal(shape, id, before.generation)).await?;
            }
            return Ok(Done::Split);
        }
        written = Some((state, elements.len()));
    }
    Ok(Done::Lost)
}

/// Whether elements that were read of a document are what its first ones are still.
fn is_same(before: &DocumentState, now: &DocumentState) -> bool {
    match (before, now) {
        (DocumentState::Outlier(before), DocumentState::Outlier(now)) => before.generation == now.generation,
        _ => false,
    }
}
