//! Updates of located items, for `update` and `findAndModify`.
//!
//! The client's statement is first validated upstream with a filter that matches nothing. mongod reports
//! mistakes in its own words, and the recorded result if the statement is a retry.

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::duplicate_key;
use super::failed_update::FailedUpdate;
use super::upstream_query::documents;
use super::write_statement::is_remembered;
use crate::command::aggregate::OF_EXECUTION;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::item_lookup::{ItemSelector, LocatedItem};
use crate::pattern::bucket::predicate_pushdown::key_position;
use crate::pattern::bucket::update_by_id::{UpdateRequest, in_terms_of_items};
use crate::pattern::bucket::update_by_position::{self, ElementQuery, Planned, Positional, Wish};
use crate::pattern::bucket::upsert::OperatorUpdate;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;
use crate::session::upstream_connection::UpstreamRequest;

/// mongod's prefixes of an error from an aggregation: raised for an item, or while the pipeline was
/// optimized.
const OF_AGGREGATION: [&str; 2] = [OF_EXECUTION, "Failed to optimize pipeline :: caused by :: "];

/// The record that mongod must keep of a statement that relocates an item, so that a retry finds it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Memory {
    /// The internal transaction is enough: no other transaction of its session begins before the
    /// command's reply, and no other command has its `txnNumber`.
    Transaction,
    /// A record that the statement was executed, because later statements, of this command or of another
    /// with its `txnNumber`, begin other transactions.
    Statement,
    /// The image of the item's page.
    Image,
}

/// The result of an expression that mongod evaluated for an item.
#[derive(Debug)]
pub(super) enum Evaluated<T> {
    Value(T),
    /// Evaluation failed, so the statement fails.
    Failed(WriteError),
}

/// The result of a statement that changes a located item on its page.
#[derive(Debug)]
pub(super) enum InPlaceOutcome<T> {
    /// The result of the client's statement.
    Done(T),
    /// The item has changed since it was read.
    Missed,
    /// The page had no room, and the item was moved to another one.
    Moved,
}

/// An update of matching items, for `update` or `findAndModify`.
#[derive(Clone, Debug)]
pub(super) struct ItemUpdate<'a> {
    pub(super) asked: UpdateRequest<'a>,
    /// Selects one of several matching items.
    pub(super) sort: Option<&'a RawDocument>,
    pub(super) let_variables: Option<&'a RawDocument>,
    pub(super) constants: Option<&'a RawDocument>,
    /// The `stmtId` of the retry record if the command is retryable.
    pub(super) statement_id: Option<i32>,
    /// The additional record if an item is relocated.
    pub(super) memory: Memory,
    /// `let` variables and constants together.
    variables: Option<RawDocumentBuf>,
}

impl<'a> ItemUpdate<'a> {
    pub(super) fn new(
        asked: UpdateRequest<'a>,
        let_variables: Option<&'a RawDocument>,
        constants: Option<&'a RawDocument>,
    ) -> Self {
        Self {
            asked,
            sort: None,
            let_variables,
            constants,
            statement_id: None,
            memory: Memory::Transaction,
            variables: variables(let_variables, constants),
        }
    }

    /// The selector of the items to update.
    pub(super) fn wanted(&self) -> ItemSelector<'_> {
        ItemSelector {
            filter: self.asked.filter,
            sort: self.sort,
            collation: self.asked.collation,
            let_variables: self.variables.as_deref(),
            ..ItemSelector::default()
        }
    }

    /// Appends the client's options that belong to the statement of an `update`, or to the body of
    /// a `findAndModify`.
    pub(super) fn append_own_options(&self, to: &mut RawDocumentBuf) {
        if let Some(filters) = self.asked.array_filters {
            to.append(cstr!("arrayFilters"), filters);
        }
        if let Some(collation) = self.asked.collation {
            to.append(cstr!("collation"), collation);
        }
        // With the page index, mongod 6.0.5 can fail on a condition on a key field (`$geoWithin` in a
        // `$nor`).
        to.append(cstr!("hint"), single("_id", 1));
    }

    /// mongod's reply if it has a retry record under the statement's own `stmtId`. Costs a round trip if the
    /// command is retryable.
    pub(super) async fn recorded(&self, run: &mut BucketCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
        let Some(id) = self.statement_id else { return Ok(None) };
        Ok(is_remembered(run, id).await?.map(|record| record.answer))
    }

    /// Plans the change of one item.
    pub(super) async fn plan(&self, run: &mut BucketCommand<'_>, found: &LocatedItem) -> Result<Planned, RunError> {
        let mut planned = self.plan_all(run, std::slice::from_ref(found)).await?;
        planned.pop().ok_or_else(|| run.corrupt_bucket_error().into())
    }

    /// Plans the change of each item. Stops at the first failure, which is then the last plan
    /// returned.
    pub(super) async fn plan_all(
        &self,
        run: &mut BucketCommand<'_>,
        found: &[LocatedItem],
    ) -> Result<Vec<Planned>, RunError> {
        if let Some(Wish::Pipeline(stages)) = Wish::of(self.asked.change) {
            return self.plan_pipeline(run, found, stages).await;
        }
        if let Some(Wish::Operators(operators)) = Wish::of(self.asked.change)
            && let Some(positional) = Positional::of(operators).map_err(|what| run.unsupported(&what))?
        {
            return self.plan_positional(run, found, operators, &positional).await;
        }
        let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
        let asked = self.asked;
        let planned = found.iter().map(|found| match Wish::of(asked.change) {
            Some(Wish::Operators(operators)) => {
                update_by_position::of_operators(run.shape, found, self.operator_update(operators), &mut mint)
            }
            Some(Wish::Replacement(replacement)) => {
                update_by_position::of_replacement(run.shape, found, replacement, &mut mint)
            }
            Some(Wish::Pipeline(_)) | None => Err("this update".into()),
        });
        let planned: Result<Vec<Planned>, Unsupported> = planned.collect();
        planned.map_err(|what| run.unsupported(&what).into())
    }

    /// Operators with the options of the client's statement.
    pub(super) fn operator_update<'b>(&'b self, operators: &'b RawDocument) -> OperatorUpdate<'b> {
        OperatorUpdate {
            operators,
            array_filters: self.asked.array_filters,
            collation: self.asked.collation,
        }
    }

    /// Plans operators on the array element that the filter matched (`$`).
    async fn plan_positional(
        &self,
        run: &mut BucketCommand<'_>,
        found: &[LocatedItem],
        operators: &RawDocument,
        positional: &Positional,
    ) -> Result<Vec<Planned>, RunError> {
        let elements = self.elements(run, found, positional).await?;
        let mut planned = Vec::new();
        for (found, element) in found.iter().zip(elements) {
            let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
            let mut plan = |operators| {
                update_by_position::of_operators(run.shape, found, self.operator_update(operators), &mut mint)
            };
            match element {
                Evaluated::Value(number) => {
                    let of_one = plan(&positional.resolved(operators, number));
                    planned.push(of_one.map_err(|what| run.unsupported(&what))?);
                }
                Evaluated::Failed(error) => {
                    // mongod checks paths in order, and reports an earlier invalid path when it
                    // executes the statement in the bucket. Only without one is the missing match the
                    // error.
                    planned.push(match plan(operators) {
                        Ok(change @ Planned::InPlace(_)) => change,
                        _ => match plan(&positional.before(operators)) {
                            Ok(failed @ Planned::Failed(_)) => failed,
                            _ => Planned::Failed(error),
                        },
                    });
                    break;
                }
            }
        }
        Ok(planned)
    }

    /// The position of the array element of each item that the filter matched, evaluated by mongod. Ends with
    /// the first item without such an element. Costs one round trip for some MiB of elements.
    async fn elements(
        &self,
        run: &mut BucketCommand<'_>,
        found: &[LocatedItem],
        positional: &Positional,
    ) -> Result<Vec<Evaluated<i32>>, RunError> {
        let items = found.iter().map(|found| &*found.item);
        let probes = positional.probes(items, self.asked.filter);
        let probes = probes.map_err(|what| run.unsupported(&what))?;
        let mut elements = Vec::new();
        for ElementQuery { mut command, items } in probes.queries {
            for (name, value) in [("let", self.variables.as_deref()), ("collation", self.asked.collation)] {
                if let Some(value) = value {
                    put(&mut command, name, value);
                }
            }
            run.context.inherited().append_to_selection(&mut command);
            let answer = run.context.link.run(&command).await?;
            for number in Positional::numbers(items, documents(&answer)) {
                let Some(number) = number else {
                    elements.push(Evaluated::Failed(update_by_position::not_found()));
                    return Ok(elements);
                };
                elements.push(Evaluated::Value(number));
            }
        }
        elements.extend(probes.failed.map(Evaluated::Failed));
        Ok(elements)
    }

    async fn plan_pipeline(
        &self,
        run: &mut BucketCommand<'_>,
        found: &[LocatedItem],
        stages: &RawArray,
    ) -> Result<Vec<Planned>, RunError> {
        let items = found.iter().map(|found| found.item.clone()).collect();
        let (made, failed) = match self.make(run, items, stages).await? {
            Evaluated::Value(made) => (made, None),
            // Each item is planned alone, to find the one that failed. In a transaction that is
            // impossible: the error has ended the transaction.
            Evaluated::Failed(_) if found.len() > 1 && !run.context.head.in_transaction() => {
                let mut all = Vec::new();
                for found in found {
                    let planned = Box::pin(self.plan_pipeline(run, std::slice::from_ref(found), stages)).await?;
                    let is_failed = matches!(planned.last(), Some(Planned::Failed(_)));
                    all.extend(planned);
                    if is_failed {
                        break;
                    }
                }
                return Ok(all);
            }
            Evaluated::Failed(error) => (Vec::new(), Some(Planned::Failed(error))),
        };
        let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
        let mut planned = Vec::new();
        for (found, made) in found.iter().zip(&made) {
            let of_one = update_by_position::of_pipeline(run.shape, found, made, &mut mint);
            planned.push(of_one.map_err(|what| run.unsupported(&what))?);
        }
        planned.extend(failed);
        Ok(planned)
    }

    /// Has mongod evaluate the client's pipeline for one item.
    pub(super) async fn make_one(
        &self,
        run: &mut BucketCommand<'_>,
        item: &RawDocument,
    ) -> Result<Evaluated<RawDocumentBuf>, RunError> {
        let Some(Wish::Pipeline(stages)) = Wish::of(self.asked.change) else {
            return Err(run.corrupt_bucket_error().into());
        };
        match self.make(run, vec![item.to_owned()], stages).await? {
            Evaluated::Value(mut made) => made
                .pop()
                .map(Evaluated::Value)
                .ok_or_else(|| run.corrupt_bucket_error().into()),
            Evaluated::Failed(error) => Ok(Evaluated::Failed(error)),
        }
    }

    /// The same after an error has ended the client's transaction: outside of it. `None`: the pipeline fails.
    pub(super) async fn make_one_after_transaction(
        &self,
        run: &mut BucketCommand<'_>,
        item: &RawDocument,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        let Some(Wish::Pipeline(stages)) = Wish::of(self.asked.change) else {
            return Ok(None);
        };
        let mut command = self.evaluation(&[item.to_owned()], stages);
        run.context.options().append_to_inspect(&mut command);
        let answer = run.context.link.call(UpstreamRequest::plain(&command)).await?;
        let made = succeeded(answer).ok();
        Ok(made.and_then(|answer| documents(&answer).next().map(RawDocument::to_owned)))
    }

    /// Whether the update may change the key or time of items.
    pub(super) fn may_relocate(&self, shape: &BucketShape) -> bool {
        let Some(Wish::Operators(operators)) = Wish::of(self.asked.change) else {
            return true;
        };
        let is_of_place = |path: &str| {
            let root = path.split('.').next();
            key_position(shape, path).is_some() || (root.is_some() && shape.time() == root)
        };
        operators.iter().flatten().any(|(_, paths)| {
            let paths = paths.as_document().into_iter().flat_map(RawDocument::iter).flatten();
            paths
                .into_iter()
                .any(|(path, value)| is_of_place(path.as_str()) || value.as_str().is_some_and(is_of_place))
        })
    }

    /// Has mongod evaluate the client's pipeline for items. Each item gives one document.
    async fn make(
        &self,
        run: &mut BucketCommand<'_>,
        items: Vec<RawDocumentBuf>,
        stages: &RawArray,
    ) -> Result<Evaluated<Vec<RawDocumentBuf>>, RunError> {
        let mut command = self.evaluation(&items, stages);
        run.context.inherited().append_to_selection(&mut command);
        let mut made = Vec::new();
        let mut answer = match succeeded(run.context.link.call(UpstreamRequest::plain(&command)).await?) {
            Ok(answer) => answer,
            Err(error) => return of_item(error).map(Evaluated::Failed).map_err(RunError::from),
        };
        loop {
            made.extend(documents(&answer).map(RawDocument::to_owned));
            let Some(id) = CursorReply::parse(&answer)
                .map(|cursor| cursor.id)
                .filter(|id| *id != 0)
            else {
                return Ok(Evaluated::Value(made));
            };
            let mut more = single("getMore", id);
            more.append(cstr!("collection"), "$cmd.aggregate");
            run.context.inherited().append_to_get_more(&mut more);
            answer = match succeeded(run.context.link.call(UpstreamRequest::plain(&more)).await?) {
                Ok(answer) => answer,
                Err(error) => return of_item(error).map(Evaluated::Failed).map_err(RunError::from),
            };
        }
    }

    /// A command that evaluates the client's pipeline for items.
    fn evaluation(&self, items: &[RawDocumentBuf], stages: &RawArray) -> RawDocumentBuf {
        let mut pipeline = RawArrayBuf::new();
        pipeline.push(single("$documents", single("$literal", array_of(items))));
        for stage in stages.into_iter().flatten() {
            pipeline.push(stage);
        }
        let mut command = single("aggregate", 1);
        command.append(cstr!("pipeline"), &pipeline);
        let size = i64::try_from(items.len().saturating_add(1)).unwrap_or(i64::MAX);
        command.append(cstr!("cursor"), single("batchSize", size));
        if let Some(variables) = &self.variables {
            command.append(cstr!("let"), variables);
        }
        if let Some(collation) = self.asked.collation {
            command.append(cstr!("collation"), collation);
        }
        command
    }
}

/// Converts an error that an aggregation reported for an item to a write error. `Err`: the error
/// fails the command.
pub(super) fn of_item(error: CommandError) -> Result<WriteError, CommandError> {
    if let CommandError::Upstream(reply) = &error
        && let Some(RawBsonRef::String(message)) = get(reply, "errmsg")
        && let Some(message) = OF_AGGREGATION.iter().find_map(|prefix| message.strip_prefix(prefix))
        && let Some(RawBsonRef::Int32(code)) = get(reply, "code")
    {
        let failed = WriteError {
            code,
            message: message.to_owned(),
            detail: RawDocumentBuf::new(),
        };
        if !failed.is_of_server() {
            return Ok(failed);
        }
    }
    Err(error)
}

/// `let` variables and constants in one document. Constants are literals and override variables of
/// the same name.
fn variables(given: Option<&RawDocument>, constants: Option<&RawDocument>) -> Option<RawDocumentBuf> {
    let mut variables = RawDocumentBuf::new();
    for (name, value) in given.into_iter().flat_map(RawDocument::iter).flatten() {
        if constants.is_none_or(|constants| get(constants, name.as_str()).is_none()) {
            variables.append(name, value);
        }
    }
    for (name, value) in constants.into_iter().flat_map(RawDocument::iter).flatten() {
        put(&mut variables, name.as_str(), single("$literal", value));
    }
    (!variables.is_empty()).then_some(variables)
}

/// mongod's error for an item's statement, in terms of the item instead of the page.
pub(super) async fn in_words_of_the_application(
    run: &mut BucketCommand<'_>,
    error: WriteError,
    failed: FailedUpdate<'_>,
) -> Result<WriteError, RunError> {
    let mut error = duplicate_key::in_application_terms(run, error, failed).await?;
    let id = failed.found.and_then(LocatedItem::id).unwrap_or(RawBsonRef::Null);
    error.message = in_terms_of_items(run.shape, &error.message, id);
    Ok(error)
}

/// The error after the last lost race with another writer.
pub(super) fn given_up(run: &BucketCommand<'_>) -> WriteError {
    let message = format!(
        "write conflict: an item of {} was changed by other writers before each attempt: try again",
        run.namespace
    );
    WriteError::new(ErrorCode::WriteConflict, message)
}

/// Fails the client's transaction for an error that the proxy has returned, as mongod does for its own. The
/// transaction may have failed already.
pub(super) async fn end_transaction(run: &mut BucketCommand<'_>) -> Result<(), RunError> {
    match run.context.fail_transaction(run.namespace.collection).await {
        Err(RunError::Command(error)) if error.is(ErrorCode::NoSuchTransaction) => Ok(()),
        ended => ended,
    }
}
