//! Sends planned statements in as few commands as possible, back to back.

use std::collections::HashSet;
use std::ops::Range;

use bson::Binary;
use bson::raw::{RawArrayBuf, RawDocument, RawDocumentBuf, cstr};

use super::batch::InsertBatch;
use super::write_concern::Concern;
use crate::command::document::{array_of, as_whole_number, get, single};
use crate::command::error::{CommandError, WriteError};
use crate::command::reply::succeeded;
use crate::command::write_batch::{command_ranges, lookup_parts};
use crate::pattern::bucket::insert::{
    Failure, InsertStatement, StatementKind, StatementOutcome, WriteGuarantee, failure, is_reserved_together,
    reserve_together,
};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::retry_on_swap::write_errors;
use crate::session::bucket::write_statement::retried_ids;
use crate::session::collection_catalog::uncommitted;
use crate::session::error::RunError;
use crate::session::head_page_cache::KeyLease;
use crate::session::upstream_connection::UpstreamRequest;

/// Reservations in one statement. mongod compares each of them with every page found.
const MAX_TOGETHER: usize = 50;

/// An internal command with statements of one kind.
struct Command<'a> {
    kind: StatementKind,
    statements: Vec<&'a InsertStatement>,
    body: RawDocumentBuf,
    /// The statements as a document sequence. `None`: the body contains one statement for all of
    /// them.
    sequence: Option<(&'static str, Vec<&'a RawDocument>)>,
    ordered: bool,
}

impl Command<'_> {
    fn request(&self) -> UpstreamRequest<'_> {
        let sequence = self.sequence.as_ref();
        UpstreamRequest {
            body: &self.body,
            sequence: sequence.map(|(field, elements)| (*field, elements.as_slice())),
        }
    }
}

/// Options of commands that are sent together.
#[derive(Clone, Copy)]
struct SendOptions<'a> {
    /// UUID of the collection that the statements target.
    uuid: &'a Binary,
    /// Whether a later command waits for the client's write concern.
    defers_wait: bool,
}

/// Sends the statements and applies their outcomes to the batch.
pub(super) async fn send(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    statements: &[InsertStatement],
    uuid: &Binary,
    leases: &[KeyLease],
) -> Result<(), RunError> {
    if statements.is_empty() {
        return Ok(());
    }
    let targeted = run.is_sharded().then(|| targeted(run, batch, statements));
    let statements = targeted.as_deref().unwrap_or(statements);
    let defers_wait = defers_wait(batch, statements, leases);
    if defers_wait {
        batch.concern.owe();
    }
    let options = SendOptions { uuid, defers_wait };
    let mut together = Vec::new();
    let mut later = Vec::new();
    for kind in [
        StatementKind::Mark,
        StatementKind::Reserve,
        StatementKind::Close,
        StatementKind::Push,
        StatementKind::Page,
    ] {
        let chosen = statements.iter().filter(|statement| statement.kind == kind);
        let (reserved, mut chosen): (Vec<&InsertStatement>, Vec<&InsertStatement>) =
            chosen.partition(|statement| is_reserved_together(run.shape, &batch.groups, statement));
        for part in lookup_parts(&reserved, MAX_TOGETHER, |statement| statement.document.as_bytes().len()) {
            match part {
                [alone] => chosen.push(alone),
                _ => together.push(as_one(run, batch, part, options)),
            }
        }
        for (number, range) in cut(&chosen).into_iter().enumerate() {
            let part = chosen.get(range).unwrap_or_default();
            let command = command(run, batch, kind, part, options);
            // After a failed page, no later page of the same key may be inserted. So further page
            // commands wait for the replies.
            if kind == StatementKind::Page && number > 0 {
                later.push(command);
            } else {
                together.push(command);
            }
        }
    }
    let requests: Vec<UpstreamRequest<'_>> = together.iter().map(Command::request).collect();
    let answers = run.context.link.call_all(&requests).await?;
    let mut failed = Ok(());
    let mut pages_failed = false;
    for (command, answer) in together.iter().zip(answers) {
        match settle(run, batch, command, answer) {
            Ok(all) => pages_failed |= command.kind == StatementKind::Page && !all,
            Err(error) => failed = Err(error),
        }
    }
    failed?;
    for command in later {
        if pages_failed {
            break;
        }
        let answer = run.context.link.call(command.request()).await?;
        pages_failed = !settle(run, batch, &command, answer)?;
    }
    Ok(())
}

/// The statements with the keys of their pages.
fn targeted(run: &BucketCommand<'_>, batch: &InsertBatch<'_>, statements: &[InsertStatement]) -> Vec<InsertStatement> {
    let mut targeted = statements.to_vec();
    for statement in targeted
        .iter_mut()
        .filter(|statement| statement.kind != StatementKind::Page)
    {
        let document = std::mem::take(&mut statement.document);
        statement.document = run.targeted(document, || key_of(run, batch, statement.group));
    }
    targeted
}

/// The condition on the key fields that the pages of a group satisfy.
pub(super) fn key_of(run: &BucketCommand<'_>, batch: &InsertBatch<'_>, group: usize) -> RawDocumentBuf {
    let item = batch.groups.get(group).and_then(|group| group.item(0));
    item.map(|item| item.key().filter(run.shape)).unwrap_or_default()
}

/// Whether a later command waits for the client's write concern. A single statement waits itself,
/// unless another client waits for the key lease.
fn defers_wait(batch: &InsertBatch<'_>, statements: &[InsertStatement], leases: &[KeyLease]) -> bool {
    let items: usize = statements.iter().map(|statement| statement.items.len()).sum();
    let single = statements.len() == 1 && items == batch.pending();
    match batch.concern {
        Concern::Each => false,
        Concern::AtEnd => !single || leases.iter().any(KeyLease::is_waited_for),
        Concern::Owed => true,
    }
}

/// Splits the statements into as few commands as possible. Returns ranges of statements.
fn cut(statements: &[&InsertStatement]) -> Vec<Range<usize>> {
    command_ranges(statements.iter().map(|statement| statement.document.as_bytes().len()))
}

fn command<'a>(
    run: &BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    kind: StatementKind,
    statements: &[&'a InsertStatement],
    options: SendOptions<'_>,
) -> Command<'a> {
    let inserts = kind == StatementKind::Page && !batch.strict_api;
    let (name, field) = if inserts {
        ("insert", "documents")
    } else {
        ("update", "updates")
    };
    let mut seen = HashSet::new();
    let ordered = !statements.iter().all(|statement| seen.insert(statement.group));
    let mut body = single(name, run.namespace.collection);
    body.append(cstr!("ordered"), ordered);
    append_statement_ids(batch, kind, statements, &mut body);
    append_options(run, batch, kind, options, &mut body);
    let elements = statements.iter().map(|statement| &*statement.document).collect();
    Command {
        kind,
        body,
        sequence: Some((field, elements)),
        statements: statements.to_vec(),
        ordered,
    }
}

/// A command that makes the reservations of several keys in one statement.
fn as_one<'a>(
    run: &BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    statements: &[&'a InsertStatement],
    options: SendOptions<'_>,
) -> Command<'a> {
    let kind = StatementKind::Reserve;
    let statement = reserve_together(run.shape, &batch.groups, statements);
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("updates"), array_of(&[statement]));
    append_statement_ids(batch, kind, statements, &mut body);
    append_options(run, batch, kind, options, &mut body);
    Command {
        kind,
        body,
        sequence: None,
        statements: statements.to_vec(),
        ordered: false,
    }
}

/// Appends `stmtIds` if mongod must execute each statement at most once.
fn append_statement_ids(
    batch: &InsertBatch<'_>,
    kind: StatementKind,
    statements: &[&InsertStatement],
    body: &mut RawDocumentBuf,
) {
    if !kind.is_repeatable() && batch.care == WriteGuarantee::ExactlyOnce {
        let ids: RawArrayBuf = statements.iter().map(|statement| statement.id).collect();
        body.append(cstr!("stmtIds"), &ids);
    }
}

/// Appends the options that every command has: the client's and the proxy's.
fn append_options(
    run: &BucketCommand<'_>,
    batch: &InsertBatch<'_>,
    kind: StatementKind,
    options: SendOptions<'_>,
    body: &mut RawDocumentBuf,
) {
    let mut carried = run.context.inherited();
    // All commands of a transaction must have the same `apiStrict`.
    if !(batch.strict_api && batch.in_transaction()) && *options.uuid != uncommitted() {
        body.append(cstr!("collectionUUID"), options.uuid);
        if batch.strict_api {
            // The client's command has been validated. `apiStrict` does not allow `collectionUUID`, and
            // a name alone may denote another collection by now.
            carried = carried.without_api_strict();
        }
    }
    if options.defers_wait {
        carried = carried.without_wait();
    }
    if kind.is_repeatable() {
        carried = carried.not_retryable();
    }
    carried.append_to_write(body);
}

/// Applies the outcomes of a command's statements to the batch. Returns whether all were executed,
/// by this attempt or an earlier one.
fn settle(
    run: &BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    command: &Command<'_>,
    answer: RawDocumentBuf,
) -> Result<bool, RunError> {
    let answer = succeeded(answer)?;
    let resent: HashSet<i32> = retried_ids(&answer).collect();
    if command.sequence.is_none() {
        return settle_as_one(run, batch, command, answer);
    }
    let mut errors = write_errors(&answer).peekable();
    let mut all = true;
    let mut server_error = None;
    for (position, statement) in command.statements.iter().enumerate() {
        let outcome = match errors.next_if(|(failed, _)| *failed == position) {
            Some((_, error)) => {
                all = false;
                // After an error that fails the whole command, the outcomes of the other statements still count.
                match failure_of(run, error) {
                    Ok(failure) => Some(StatementOutcome::Failed(failure)),
                    Err(error) => {
                        server_error.get_or_insert(error);
                        None
                    }
                }
            }
            None if resent.contains(&statement.id) && !command.kind.is_repeatable() => Some(StatementOutcome::Resent),
            None => Some(StatementOutcome::Stored),
        };
        if let Some(outcome) = outcome {
            batch.apply(&run.context.shared.metrics.inserts, statement, outcome);
        }
        if command.ordered && !all {
            break;
        }
    }
    drop(errors);
    keep(batch, answer);
    server_error.map_or(Ok(all), |error| Err(error.into()))
}

/// Like [`settle`], for a command with several statements combined into one.
fn settle_as_one(
    run: &BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    command: &Command<'_>,
    answer: RawDocumentBuf,
) -> Result<bool, RunError> {
    if let Some((_, error)) = write_errors(&answer).next() {
        failure_of(run, error)?;
    }
    let matched = get(&answer, "n").and_then(as_whole_number);
    let all = matched == i64::try_from(command.statements.len()).ok();
    for statement in &command.statements {
        let outcome = if all {
            StatementOutcome::Stored
        } else {
            StatementOutcome::Unclear
        };
        batch.apply(&run.context.shared.metrics.inserts, statement, outcome);
    }
    keep(batch, answer);
    Ok(all)
}

fn keep(batch: &mut InsertBatch<'_>, answer: RawDocumentBuf) {
    if let Ok(error) = answer.get_document("writeConcernError") {
        batch.concern_error = Some(error.to_owned());
    }
    batch.last_answer = answer;
}

fn failure_of(run: &BucketCommand<'_>, error: WriteError) -> Result<Failure, CommandError> {
    if error.is_of_server() {
        return Err(error.into_command_error());
    }
    let failure = failure(run.shape, error);
    if matches!(failure, Failure::NotReady) {
        run.context.settings.catalog.forget(run.namespace);
    }
    Ok(failure)
}
