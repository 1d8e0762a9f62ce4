//! Splits documents with more elements than the threshold, and adopts hand-split ones, while clients work.
//!
//! Each document is split by itself, so a run can be stopped anywhere and repeated.
//! [`crate::pattern::outlier::resplit`] describes how a document is split without becoming unreadable.

use std::time::{Duration, Instant};

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;
use tokio_util::sync::CancellationToken;

use crate::command::document::{array_of, get, single};
use crate::command::value_text::id_text;
use crate::maintenance::finding::{Finding, Findings};
use crate::maintenance::outlier_documents::{MAX_ATTEMPTS, base, delete, extras, insert, update};
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::outlier::layout::{DocumentState, repeats_array};
use crate::pattern::outlier::page::removal;
use crate::pattern::outlier::resplit;
use crate::pattern::outlier::statement::flagging;
use crate::pattern::shapes::OutlierShape;

/// Interval of progress reports.
const REPORT_EVERY: Duration = Duration::from_secs(5);

/// The result for one document.
enum Done {
    Split,
    /// It is short enough, or does not exist any more.
    Fits,
    /// Its extras cannot be read.
    Misfit,
    /// It has the array's field more than once.
    RepeatsArray,
    /// It was changed concurrently in every attempt.
    Lost,
}

/// Splits all documents that are too long, and reports their number.
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
    let (mut split, mut reported) = (0_u64, Instant::now());
    let mut left = 0_u64;
    while let Some(found) = found.try_next().await? {
        if stop.is_cancelled() {
            let text = format!("stopped, {split} documents split; run `mongoshape setup --split` again to continue");
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
            Done::Misfit => Some("its record of its extras is invalid".to_owned()),
            Done::RepeatsArray => Some(format!("it has more than one field `{}`", shape.array())),
            Done::Lost => {
                Some("other writers changed it before each attempt; run `mongoshape setup --split` again".to_owned())
            }
        };
        if let Some(remark) = remark {
            left += 1;
            let text = format!("the document with _id {} is not split: {remark}", id_text(&found));
            findings.add(&Finding::error(&namespace, text));
        }
        if reported.elapsed() >= REPORT_EVERY {
            reported = Instant::now();
            findings.add(&Finding::note(&namespace, format!("{split} documents split so far")));
        }
    }
    if left == 0 {
        let text = format!(
            "{split} documents split; no document has more than {} elements",
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
        // The pages are orphans, and no statement that references them is under way.
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
        match &state {
            DocumentState::Invalid => return Ok(Done::Misfit),
            DocumentState::Inline | DocumentState::Outlier(_) if !resplit::is_overlong(shape, &stored) => {
                return Ok(Done::Fits);
            }
            // The statement that shortens the array would change all fields of the name.
            _ if repeats_array(shape, &stored) => return Ok(Done::RepeatsArray),
            DocumentState::Inline => {
                if let Some(statement) = flagging(shape, id, 1, ObjectId::new()) {
                    update(target, &target.collection, &statement).await?;
                }
                continue;
            }
            DocumentState::Outlier(_) | DocumentState::Unmanaged => {}
        }
        let pages = extras(target, shape, id, &state).await?.unwrap_or_default();
        let pages: Vec<&RawDocument> = pages.iter().map(RawDocumentBuf::as_ref).collect();
        let Some(elements) = resplit::elements(shape, &stored, &state, &pages) else {
            match state {
                DocumentState::Unmanaged => return Ok(Done::Misfit),
                _ => continue,
            }
        };
        // In one generation, elements are only appended.
        let before = written
            .as_ref()
            .filter(|(of, _)| is_same(of, &state))
            .map(|(_, count)| *count);
        if before.is_none() && written.is_some() {
            delete(target, shape, &removal(shape, id, generation)).await?;
        }
        let new = resplit::pages(shape, id, generation, before.unwrap_or(0), &elements);
        if !insert(target, shape, &new).await? {
            // The generation is this run's own, so existing pages are unexpected and must not be
            // referenced.
            return Ok(Done::Lost);
        }
        let Some(statement) = resplit::counting(shape, &stored, &state, generation, elements.len()) else {
            return Ok(Done::Misfit);
        };
        if update(target, &target.collection, &statement).await? > 0 {
            // Hand-written extras stay until the next `setup`, because a client may be reading them.
            if let DocumentState::Outlier(before) = &state {
                delete(target, shape, &removal(shape, id, before.generation)).await?;
            }
            return Ok(Done::Split);
        }
        written = Some((state, elements.len()));
    }
    Ok(Done::Lost)
}

/// Whether the elements read before are still the first elements of the document.
fn is_same(before: &DocumentState, now: &DocumentState) -> bool {
    match (before, now) {
        (DocumentState::Outlier(before), DocumentState::Outlier(now)) => before.generation == now.generation,
        _ => false,
    }
}
