//! `delete`: removes the base document first. Its pages are then orphans, which are removed next.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::OutlierCommand;
use super::id_cursor::{IdCursor, Selection};
use super::internal_write::{OutlierWriteResult, WriteOrigin};
use super::merged_read::MissingPages;
use super::statements::{self, Results};
use super::write::{DocumentSelector, matching_nothing};
use crate::command::arguments::with_replaced;
use crate::command::delete::{Delete, DeleteStatement};
use crate::command::document::{array_of, put, single};
use crate::command::reply::{CursorReply, succeeded};
use crate::command::write_reply::WriteReply;
use crate::pattern::outlier::layout::is_of_generation;
use crate::pattern::outlier::resplit::is_overlong;
use crate::pattern::outlier::statement::{typical, unchanged};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::UpstreamRequest;

pub(super) struct OutlierDelete<'s, 'a> {
    of: &'s DeleteStatement<'a>,
    variables: Option<&'a RawDocument>,
    id: i32,
}

pub(super) async fn run(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Delete::parse(run.context.head)?;
    run.context.is_retryable()?;
    let statements = command.statements.iter().enumerate().map(|(index, of)| OutlierDelete {
        of,
        variables: command.let_variables,
        id: command.statement_ids.of(index),
    });
    let statements: Vec<_> = statements.map(statements::WriteStatement::Delete).collect();
    statements::run_each(run, &statements, WriteReply::default(), command.ordered).await
}

impl<'a> OutlierDelete<'_, 'a> {
    /// Executes the statement, and adds the result of each document.
    pub(super) async fn run(&self, run: &mut OutlierCommand<'_>, results: &mut Results<'_>) -> Result<(), RunError> {
        let result = if self.of.one {
            one(run, self).await?
        } else if run.context.head.is_retryable_write() {
            // mongod refuses the statement.
            let element = self.element(self.of.filter, 0);
            let collection = run.namespace.collection;
            run.write(collection, "delete", &element, WriteOrigin::Client(self.id))
                .await?
        } else {
            return many(run, self, results).await;
        };
        results.add(&result);
        Ok(())
    }

    /// Sends the statement with a filter that matches nothing. mongod validates it, and returns its
    /// retry record if there is one.
    pub(super) async fn on_none(&self, run: &mut OutlierCommand<'_>) -> Result<OutlierWriteResult, RunError> {
        let element = self.element(&matching_nothing(self.of.filter), i32::from(self.of.one));
        run.write(
            run.namespace.collection,
            "delete",
            &element,
            WriteOrigin::Client(self.id),
        )
        .await
    }

    fn selector(&self) -> DocumentSelector<'a> {
        DocumentSelector {
            filter: Some(self.of.filter),
            sort: None,
            collation: self.of.collation,
            hint: self.of.hint,
            variables: self.variables,
        }
    }

    fn element(&self, filter: &RawDocument, limit: i32) -> RawDocumentBuf {
        let mut element = single("q", filter);
        put(&mut element, "limit", limit);
        if let Some(collation) = self.of.collation {
            put(&mut element, "collation", collation);
        }
        if let Some(hint) = self.of.hint {
            put(&mut element, "hint", hint);
        }
        element
    }
}

async fn one(run: &mut OutlierCommand<'_>, statement: &OutlierDelete<'_, '_>) -> Result<OutlierWriteResult, RunError> {
    let selector = statement.selector();
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let id = match selector.id() {
            Some(id) => Some(RawBson::from(id)),
            None => run.first_id(selector).await?,
        };
        let Some(id) = id else { break };
        let id = id.as_raw_bson_ref();
        let filter = run.filter_of(selector, id)?;
        if let Some(result) = at(run, statement, &filter, id).await? {
            return Ok(result);
        }
        if selector.id().is_some() {
            break;
        }
    }
    // No document matches, or an earlier attempt deleted it.
    statement.on_none(run).await
}

async fn many(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierDelete<'_, '_>,
    results: &mut Results<'_>,
) -> Result<(), RunError> {
    let mut has_deleted_inline = false;
    if !run.depends(Some(statement.of.filter)) {
        match together(run, statement, results).await? {
            SelectedOutliers::None | SelectedOutliers::Failed => return Ok(()),
            SelectedOutliers::Some | SelectedOutliers::Changed => has_deleted_inline = true,
        }
    }
    // A document that becomes an outlier in the meantime is deleted in the next round.
    for round in 0..MAX_ATTEMPTS {
        pause(round).await;
        match outliers(run, statement, results).await? {
            SelectedOutliers::None if has_deleted_inline => return Ok(()),
            SelectedOutliers::Failed => return Ok(()),
            SelectedOutliers::Changed => continue,
            SelectedOutliers::None | SelectedOutliers::Some => {}
        }
        let element = statement.element(&typical(run.shape, statement.of.filter), 0);
        let result = run
            .write(
                run.namespace.collection,
                "delete",
                &element,
                WriteOrigin::Client(statement.id),
            )
            .await?;
        results.add(&result);
        if result.error.is_some() {
            return Ok(());
        }
        has_deleted_inline = true;
    }
    Err(run.lost_too_often().into())
}

/// Deletes the inline documents, and the outliers that matched before. The queries and the statement are sent
/// together, because usually no outlier matches. `None`: none matched before or after the statement, so no
/// document became one meanwhile.
async fn together(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierDelete<'_, '_>,
    results: &mut Results<'_>,
) -> Result<SelectedOutliers, RunError> {
    let selector = statement.selector();
    let (before, _) = run.batched_id_query(selector, Selection::Outliers)?;
    let element = statement.element(&typical(run.shape, statement.of.filter), 0);
    let mut delete = single("delete", run.namespace.collection);
    run.append_own(&mut delete, WriteOrigin::Client(statement.id));
    let (mut after, _) = run.id_query(selector, Selection::Outliers, 1)?;
    run.context.inherited().append_to_selection(&mut after);
    let requests = [
        UpstreamRequest::plain(&before),
        UpstreamRequest {
            body: &delete,
            sequence: Some(("deletes", &[&element])),
        },
        UpstreamRequest::plain(&after),
    ];
    let mut answers = run.context.link.call_all(&requests).await?.into_iter();
    let [before, deleted, after] = [(); 3].map(|()| succeeded(answers.next().unwrap_or_default()));
    let deleted = deleted.map(OutlierWriteResult::of);
    // Documents were deleted also if a query failed.
    if let Ok(deleted) = &deleted {
        results.add(deleted);
    }
    if deleted.as_ref().is_ok_and(|deleted| deleted.error.is_some()) && before.is_err() {
        // One error is reported, that of the statement.
        return Ok(SelectedOutliers::Failed);
    }
    let mut ids = IdCursor::of(&before?);
    let found = match deleted {
        Ok(deleted) if deleted.error.is_none() => each(run, statement, &mut ids, results).await,
        Ok(_) => Ok(SelectedOutliers::Failed),
        Err(error) => Err(error.into()),
    };
    if !matches!(found, Err(RunError::Link(_))) {
        run.close_ids(ids).await?;
    }
    let found = found?;
    if !matches!(found, SelectedOutliers::None) {
        return Ok(found);
    }
    let after = after?;
    let is_left = CursorReply::parse(&after).is_some_and(|cursor| cursor.documents().next().is_some());
    Ok(if is_left { SelectedOutliers::Some } else { found })
}

/// The result for the outliers that a statement selects.
enum SelectedOutliers {
    None,
    /// Some outliers matched and were deleted.
    Some,
    /// Pages of a document were replaced during the evaluation of the filter, so outliers may be
    /// left.
    Changed,
    /// An outlier could not be deleted.
    Failed,
}

async fn outliers(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierDelete<'_, '_>,
    results: &mut Results<'_>,
) -> Result<SelectedOutliers, RunError> {
    let mut ids = run.open_ids(statement.selector(), Selection::Outliers).await?;
    let found = each(run, statement, &mut ids, results).await;
    if !matches!(found, Err(RunError::Link(_))) {
        run.close_ids(ids).await?;
    }
    if MissingPages::of(&found).is_some() && !run.context.head.in_transaction() {
        return Ok(SelectedOutliers::Changed);
    }
    found
}

async fn each(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierDelete<'_, '_>,
    ids: &mut IdCursor,
    results: &mut Results<'_>,
) -> Result<SelectedOutliers, RunError> {
    let selector = statement.selector();
    let mut found = SelectedOutliers::None;
    while let Some(some) = run.next_ids(ids).await? {
        found = SelectedOutliers::Some;
        for id in &some {
            let id = id.as_raw_bson_ref();
            let filter = run.filter_of(selector, id)?;
            let Some(result) = at(run, statement, &filter, id).await? else {
                continue;
            };
            results.add(&result);
            if result.error.is_some() {
                return Ok(SelectedOutliers::Failed);
            }
        }
    }
    Ok(found)
}

/// Deletes the document with that `_id` if it matches the filter. `None`: it does not match.
async fn at(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierDelete<'_, '_>,
    filter: &RawDocument,
    id: RawBsonRef<'_>,
) -> Result<Option<OutlierWriteResult>, RunError> {
    let collection = run.namespace.collection;
    let depends = run.depends(Some(filter));
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let element = statement.element(&typical(run.shape, filter), 1);
        let result = run
            .write(collection, "delete", &element, WriteOrigin::Client(statement.id))
            .await?;
        if result.n > 0 || result.error.is_some() {
            return Ok(Some(result));
        }
        let Some(stored) = run.base(id).await? else {
            return Ok(None);
        };
        let selector = DocumentSelector {
            filter: Some(filter),
            ..statement.selector()
        };
        let matches = run.first_id(selector).await?.is_some();
        let Some(extras) = run.extras_of(&stored)?.filter(|_| matches) else {
            if matches {
                continue;
            }
            return Ok(None);
        };
        if depends && is_overlong(run.shape, &stored) {
            run.shorten(&stored, extras).await?;
            continue;
        }
        let demanded = if depends {
            unchanged(&stored).map_err(|what| run.unsupported(&what))?
        } else {
            let of_generation = is_of_generation(run.shape, extras.generation);
            single("$and", array_of(&[filter.to_owned(), of_generation]))
        };
        let mut element = statement.element(&demanded, 1);
        if depends {
            // Under the collation, a document with other strings is equal to the one that was read.
            let simple = single("locale", "simple");
            element = with_replaced(&element, &[("collation", Some(RawBsonRef::Document(&simple)))]);
        }
        let result = run
            .write(collection, "delete", &element, WriteOrigin::Client(statement.id))
            .await?;
        if result.n > 0 && result.error.is_none() {
            run.remove_pages(id, extras.generation).await?;
        }
        if result.n > 0 || result.error.is_some() {
            return Ok(Some(result));
        }
    }
    Err(run.lost_too_often().into())
}
