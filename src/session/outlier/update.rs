//! `update`. Passed on if it does not touch the array. Otherwise documents are changed one by one:
//!
//! - An inline document with room is changed by the client's own statement, several of them by one command.
//! - A push to an outlier goes to its tail, as does an `$addToSet` of values that it does not contain.
//! - Any other change of an outlier is evaluated by mongod on a copy. The result replaces the base document
//!   if it has not changed in the meantime.

mod eval_and_replace;
mod inline_documents;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::add_to_set::SetAddition;
use super::command::OutlierCommand;
use super::id_cursor::IdCursor;
use super::internal_write::{OutlierWriteResult, WriteOrigin};
use super::push::Push;
use super::statements::{self, Results};
use super::write::{DocumentSelector, has_expression, matching_nothing};
use crate::command::document::{put, single};
use crate::command::update::{Update, UpdateStatement, is_replacement};
use crate::command::write_reply::WriteReply;
use crate::pattern::outlier::classify::{Growth, UpdateEffect, may_insert_long};
use crate::pattern::outlier::inline::{is_not_inline, pipeline_or_failure};
use crate::pattern::outlier::statement::typical_with_room;
use crate::session::backoff::{LAST_ATTEMPT, MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::malformed_pipeline;
use crate::session::upsert_race::is_of_filter;

pub(super) struct OutlierUpdate<'s, 'a> {
    pub(super) of: &'s UpdateStatement<'a>,
    variables: Option<&'a RawDocument>,
    change: UpdateEffect,
    pub(super) growth: Growth,
    /// The change of an inline document, if the client's pipeline may lengthen the array: the same pipeline,
    /// which fails if the array is too long.
    checked: Option<RawArrayBuf>,
    pub(super) id: i32,
}

/// The result of a change of one document.
pub(super) enum At {
    /// It was changed, or the change failed.
    Done(Box<OutlierWriteResult>),
    /// The document does not match the filter.
    NoMatch,
}

impl At {
    pub(super) fn done(result: OutlierWriteResult) -> Self {
        Self::Done(Box::new(result))
    }
}

pub(super) async fn run(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Update::parse(run.context.head)?;
    run.context.link.check_field(command.newer_field()).await?;
    run.context.is_retryable()?;
    let changes: Vec<UpdateEffect> = command
        .statements
        .iter()
        .map(|statement| UpdateEffect::of_statement(run.shape, statement))
        .collect();
    for change in &changes {
        run.check_change(*change)?;
    }
    let statements = command.statements.iter().zip(changes).enumerate();
    let statements: Vec<_> = statements
        .map(|(index, (of, change))| OutlierUpdate {
            of,
            variables: command.let_variables,
            change,
            growth: change.growth(),
            checked: checked(run, of, change.growth()),
            id: command.statement_ids.of(index),
        })
        .map(statements::WriteStatement::Update)
        .collect();
    let reply = statements::run_each(run, &statements, WriteReply::of_update(), command.ordered).await?;
    malformed_pipeline::check(run.context.link, run.context.head, &command, &reply).await?;
    Ok(reply)
}

/// See [`OutlierUpdate::checked`]. `None` in a transaction, which the failure would end.
fn checked(run: &OutlierCommand<'_>, of: &UpdateStatement<'_>, growth: Growth) -> Option<RawArrayBuf> {
    match of.change {
        RawBsonRef::Array(stages) if growth == Growth::Unknown && !run.context.head.in_transaction() => {
            pipeline_or_failure(run.shape, stages)
        }
        _ => None,
    }
}

impl<'a> OutlierUpdate<'_, 'a> {
    /// Executes the statement, and adds the result of each document.
    pub(super) async fn run(&self, run: &mut OutlierCommand<'_>, results: &mut Results<'_>) -> Result<(), RunError> {
        let of = self.of;
        if let Some(error) = of.sort_of_many() {
            let result = self.on_none(run).await?;
            let error = result.error.clone().or(Some(error));
            results.add(&OutlierWriteResult { error, ..result });
            return Ok(());
        }
        // mongod refuses these, whether or not a document matches.
        let is_refused = (of.upsert && has_expression(of.filter))
            || (of.multi && (run.context.head.is_retryable_write() || is_replacement(of.change)));
        let depends = run.depends(Some(of.filter)) || run.depends(of.order());
        let is_plain = is_refused || (self.change == UpdateEffect::LeavesArray && !depends);
        let result = if is_plain {
            verbatim(run, self).await?
        } else if of.multi {
            return many(run, self, results).await;
        } else {
            one(run, self).await?
        };
        results.add(&result);
        Ok(())
    }

    /// Sends the statement with a filter that matches nothing. mongod validates it, and returns its
    /// retry record if there is one.
    pub(super) async fn on_none(&self, run: &mut OutlierCommand<'_>) -> Result<OutlierWriteResult, RunError> {
        let filter = matching_nothing(self.of.filter);
        let element = self.element(&filter, self.of.change, self.of.multi, false);
        run.write(
            run.namespace.collection,
            "update",
            &element,
            WriteOrigin::Client(self.id),
        )
        .await
    }

    pub(super) fn selector(&self) -> DocumentSelector<'a> {
        DocumentSelector {
            filter: Some(self.of.filter),
            sort: self.of.order(),
            collation: self.of.collation,
            hint: self.of.hint,
            variables: self.variables,
        }
    }

    /// The element of `updates` with another filter and change.
    pub(super) fn element(
        &self,
        filter: &RawDocument,
        change: RawBsonRef<'_>,
        multi: bool,
        upsert: bool,
    ) -> RawDocumentBuf {
        let mut element = single("q", filter);
        put(&mut element, "u", change);
        put(&mut element, "multi", multi);
        put(&mut element, "upsert", upsert);
        if let Some(collation) = self.of.collation {
            put(&mut element, "collation", collation);
        }
        if let Some(filters) = self.of.array_filters {
            put(&mut element, "arrayFilters", filters);
        }
        if let Some(hint) = self.of.hint {
            put(&mut element, "hint", hint);
        }
        if let Some(constants) = self.of.constants {
            put(&mut element, "c", constants);
        }
        element
    }

    /// Has mongod change an inline document. `typical`: the statement's filter, with the condition that the
    /// document is inline. `None`: no document matches.
    pub(super) async fn on_inline(
        &self,
        run: &mut OutlierCommand<'_>,
        typical: &RawDocument,
    ) -> Result<Option<At>, RunError> {
        self.in_place(run, typical, self.of.change).await
    }

    /// Has mongod change an inline document that stays inline. `None`: no document matches, or it is too long
    /// afterwards.
    async fn on_inline_with_room(
        &self,
        run: &mut OutlierCommand<'_>,
        filter: &RawDocument,
    ) -> Result<Option<At>, RunError> {
        let (growth, change) = self.inline_change();
        match typical_with_room(run.shape, filter, growth) {
            Some(typical) => self.in_place(run, &typical, change).await,
            None => Ok(None),
        }
    }

    async fn in_place(
        &self,
        run: &mut OutlierCommand<'_>,
        filter: &RawDocument,
        change: RawBsonRef<'_>,
    ) -> Result<Option<At>, RunError> {
        let element = self.element(filter, change, false, false);
        let origin = WriteOrigin::Client(self.id);
        let result = run.write(run.namespace.collection, "update", &element, origin).await?;
        let is_done = match &result.error {
            Some(error) => !is_not_inline(error),
            None => result.n > 0,
        };
        Ok(is_done.then(|| At::done(result)))
    }

    /// The growth and the change of an inline document.
    fn inline_change(&self) -> (Growth, RawBsonRef<'_>) {
        match &self.checked {
            Some(stages) => (Growth::None, RawBsonRef::Array(stages)),
            None => (self.growth, self.of.change),
        }
    }

    /// Whether a document matches `filter`, which contains the statement's filter.
    pub(super) async fn matches_any(
        &self,
        run: &mut OutlierCommand<'_>,
        filter: &RawDocument,
    ) -> Result<bool, RunError> {
        let selector = DocumentSelector {
            filter: Some(filter),
            ..self.selector()
        };
        Ok(run.first_id(selector).await?.is_some())
    }
}

async fn verbatim(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
) -> Result<OutlierWriteResult, RunError> {
    let of = statement.of;
    let mut element = statement.element(of.filter, of.change, of.multi, of.upsert);
    if let Some(sort) = of.order() {
        element.append(cstr!("sort"), sort);
    }
    run.write(
        run.namespace.collection,
        "update",
        &element,
        WriteOrigin::Client(statement.id),
    )
    .await
}

async fn one(run: &mut OutlierCommand<'_>, statement: &OutlierUpdate<'_, '_>) -> Result<OutlierWriteResult, RunError> {
    let selector = statement.selector();
    if let Some(result) = wrong_in_transaction(run, statement).await? {
        return Ok(result);
    }
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let id = match selector.id() {
            Some(id) => Some(RawBson::from(id)),
            None => run.first_id(selector).await?,
        };
        let is_addressed = selector.id().is_some();
        if let Some(id) = id {
            let filter = run.filter_of(selector, id.as_raw_bson_ref())?;
            match at(run, statement, &filter, id.as_raw_bson_ref()).await? {
                At::Done(result) => return Ok(*result),
                At::NoMatch if !is_addressed => continue,
                At::NoMatch => {}
            }
        }
        if let Some(result) = without_match(run, statement, attempt).await? {
            return Ok(result);
        }
    }
    Err(run.lost_too_often().into())
}

/// The error of an invalid statement in a transaction. Checked before documents are looked up,
/// because a failed look-up ends the transaction.
async fn wrong_in_transaction(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
) -> Result<Option<OutlierWriteResult>, RunError> {
    if !run.context.head.in_transaction() || statement.of.hint.is_none() {
        return Ok(None);
    }
    let result = statement.on_none(run).await?;
    Ok(result.error.is_some().then_some(result))
}

async fn many(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    results: &mut Results<'_>,
) -> Result<(), RunError> {
    if let Some(result) = wrong_in_transaction(run, statement).await? {
        results.add(&result);
        return Ok(());
    }
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let mut ids = run.ids_to_change(statement.selector()).await?;
        let changed = each(run, statement, &mut ids, results).await;
        if !matches!(changed, Err(RunError::Link(_))) {
            run.close_ids(ids).await?;
        }
        match changed? {
            Selected::Some => return Ok(()),
            // Documents that match now are changed before one is inserted.
            Selected::Lost if statement.of.upsert => continue,
            Selected::Lost | Selected::None => {}
        }
        if let Some(result) = without_match(run, statement, attempt).await? {
            results.add(&result);
            return Ok(());
        }
    }
    Err(run.lost_too_often().into())
}

/// The documents that a query for `_id`s found.
enum Selected {
    /// Some were changed, or a change failed.
    Some,
    /// Other writers removed or changed all of them before their turn.
    Lost,
    /// There were none.
    None,
}

/// Changes the documents with these `_id`s that match the filter, until one fails.
async fn each(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    ids: &mut IdCursor,
    results: &mut Results<'_>,
) -> Result<Selected, RunError> {
    let selector = statement.selector();
    let mut selected = Selected::None;
    loop {
        let next = run.next_ids(ids).await;
        let Some(some) = next.map_err(|error| run.of_later_batch(error))? else {
            return Ok(selected);
        };
        if matches!(selected, Selected::None) {
            selected = Selected::Lost;
        }
        let mut left = some.as_slice();
        while !left.is_empty() {
            if let Some(changes) = inline_documents::change(run, statement, left).await? {
                let has_failed = changes.result.error.is_some();
                if has_failed || changes.result.n > 0 {
                    selected = Selected::Some;
                    results.add(&changes.result);
                }
                if has_failed {
                    return Ok(selected);
                }
                left = left.get(changes.done..).unwrap_or_default();
                if !changes.meets_other {
                    continue;
                }
            }
            let Some((id, others)) = left.split_first() else {
                break;
            };
            left = others;
            let id = id.as_raw_bson_ref();
            let filter = run.filter_of(selector, id)?;
            if let At::Done(result) = at(run, statement, &filter, id).await? {
                selected = Selected::Some;
                results.add(&result);
                if result.error.is_some() {
                    return Ok(selected);
                }
            }
        }
    }
}

/// Changes the document with that `_id` if it matches the filter.
async fn at(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    filter: &RawDocument,
    id: RawBsonRef<'_>,
) -> Result<At, RunError> {
    let push = Push::of(run, statement, filter, id);
    if let Some(push) = push
        && let Some(at) = push.to_known_outlier(run).await?
    {
        return Ok(at);
    }
    let addition = SetAddition::of(run, statement, filter, id);
    if let Some(addition) = &addition
        && addition.is_to_known_outlier(run)
        && let Some(at) = addition.run(run).await?
    {
        return Ok(at);
    }
    if let Some(at) = statement.on_inline_with_room(run, filter).await? {
        return Ok(at);
    }
    if let Some(addition) = &addition
        && let Some(at) = addition.run(run).await?
    {
        return Ok(at);
    }
    if let Some(push) = push
        && let Some(at) = push.to_outlier(run).await?
    {
        return Ok(at);
    }
    if run.is_mismatch(statement.selector()).await? {
        return Ok(At::NoMatch);
    }
    eval_and_replace::rewrite(run, statement, filter, id).await
}

/// The result if no document matches: of an upsert, or of the statement without a match. `None`: another
/// writer has inserted a document that matches. `attempt`: the number of earlier attempts.
async fn without_match(
    run: &mut OutlierCommand<'_>,
    statement: &OutlierUpdate<'_, '_>,
    attempt: u32,
) -> Result<Option<OutlierWriteResult>, RunError> {
    let collection = run.namespace.collection;
    if run.context.head.is_retryable_write() || !statement.of.upsert || statement.of.hint.is_some() {
        let result = statement.on_none(run).await?;
        if result.n > 0 || result.error.is_some() || !statement.of.upsert {
            return Ok(Some(result));
        }
    }
    let growth = if may_insert_long(run.shape, statement.of.filter) {
        Growth::Unknown
    } else {
        statement.growth
    };
    let result = match typical_with_room(run.shape, statement.of.filter, growth) {
        Some(filter) => {
            let element = statement.element(&filter, statement.of.change, statement.of.multi, true);
            run.write(collection, "update", &element, WriteOrigin::Client(statement.id))
                .await?
        }
        None => eval_and_replace::upsert(run, statement).await?,
    };
    let is_overtaken = result
        .error
        .as_ref()
        .is_some_and(|error| is_of_filter(error, statement.of.filter));
    let is_repeated = is_overtaken && !run.context.head.in_transaction() && attempt < LAST_ATTEMPT;
    Ok((!is_repeated).then_some(result))
}
