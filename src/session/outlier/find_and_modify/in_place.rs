//! `findAndModify` that neither touches the array nor depends on it. mongod changes the base document of an
//! outlier, whose pages stay as they are.

use bson::oid::ObjectId;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::without_upsert;
use crate::command::arguments::with_replaced;
use crate::command::document::{as_flag, get};
use crate::command::find_and_modify::FindAndModify;
use crate::pattern::outlier::classify::{UpdateEffect, names_own};
use crate::pattern::outlier::layout::DocumentState;
use crate::pattern::outlier::reassemble::merged;
use crate::pattern::outlier::statement::outlier_with_pages;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::outlier::base_document::PagesByGeneration;
use crate::session::outlier::command::OutlierCommand;
use crate::session::outlier::internal_write::matched_count;
use crate::session::outlier::read::forgotten;
use crate::session::outlier::reassemble::LARGEST_DOCUMENT;
use crate::session::outlier::write::DocumentSelector;

/// Whether mongod can change base documents by a command, and what the reply contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum InPlace {
    /// It cannot: the command removes the document, may depend on the array, or has another projection.
    No,
    /// The reply contains neither the array nor the proxy's fields.
    WithoutArray,
    /// The reply contains the whole document.
    Whole,
}

impl InPlace {
    pub(super) fn of(run: &OutlierCommand<'_>, command: &FindAndModify<'_>, change: UpdateEffect) -> Self {
        let is_independent = [command.filter, command.sort, command.projection]
            .into_iter()
            .flatten()
            .all(|words| !run.depends(Some(words)) && !names_own(run.shape, RawBsonRef::Document(words)));
        if command.change.is_none() || change != UpdateEffect::LeavesArray || !is_independent {
            return Self::No;
        }
        match command.projection.filter(|projection| !projection.is_empty()) {
            None => Self::Whole,
            Some(projection) if is_inclusion(projection) => Self::WithoutArray,
            Some(_) => Self::No,
        }
    }
}

/// Whether a projection only names the fields that it includes.
fn is_inclusion(projection: &RawDocument) -> bool {
    let mut includes = false;
    for (name, value) in projection.iter().flatten() {
        match as_flag(value) {
            Some(true) => includes = true,
            Some(false) if name.as_str() == "_id" => {}
            _ => return false,
        }
    }
    includes
}

/// The result of [`of_outlier`].
#[derive(Debug)]
pub(super) enum ChangeInPlace {
    /// The reply, with the whole document.
    Done(RawDocumentBuf),
    /// No document matches.
    NoMatch,
    /// The document is not an outlier, or mongod cannot change it so.
    Impossible,
}

/// Changes an outlier. `filter`: the selector's, restricted to the document with this `_id`.
pub(super) async fn of_outlier(
    run: &mut OutlierCommand<'_>,
    selector: DocumentSelector<'_>,
    filter: &RawDocument,
    id: RawBsonRef<'_>,
) -> Result<ChangeInPlace, RunError> {
    let by_id = DocumentSelector {
        filter: Some(filter),
        sort: None,
        ..selector
    };
    let mut missed: Option<(ObjectId, u64)> = None;
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let Some(stored) = run.matching_base(by_id, id).await? else {
            return Ok(ChangeInPlace::NoMatch);
        };
        let Some(extras) = run.extras_of(&stored)? else {
            return Ok(ChangeInPlace::Impossible);
        };
        let state = (extras.generation, extras.count);
        if missed == Some(state) {
            return Ok(ChangeInPlace::Impossible);
        }
        // The pages are read before the change. After it, another writer may replace them.
        let pages = run.pages(&stored, &extras).await?;
        match merged(run.shape, &stored, &extras, &pages.of(extras.generation)) {
            Some(whole) if whole.as_bytes().len() > LARGEST_DOCUMENT => return Err(run.too_large().into()),
            Some(_) => {}
            None => continue,
        }
        let demanded = outlier_with_pages(run.shape, filter, &extras);
        let answer = without_upsert(run, &demanded).await?;
        if matched_count(&answer) > 0 {
            return with_whole(run, answer, &pages).map(ChangeInPlace::Done);
        }
        missed = Some(state);
    }
    Err(run.lost_too_often().into())
}

/// The reply with the whole document instead of the base document.
fn with_whole(
    run: &OutlierCommand<'_>,
    answer: RawDocumentBuf,
    pages: &PagesByGeneration,
) -> Result<RawDocumentBuf, RunError> {
    let Some(RawBsonRef::Document(value)) = get(&answer, "value") else {
        return Ok(answer);
    };
    let DocumentState::Outlier(extras) = DocumentState::of(run.shape, value) else {
        return Ok(answer);
    };
    // Only the document that mongod recorded for a retry may have other pages.
    let Some(whole) = merged(run.shape, value, &extras, &pages.of(extras.generation)) else {
        return Err(forgotten().into());
    };
    Ok(with_replaced(&answer, &[("value", Some(RawBsonRef::Document(&whole)))]))
}
