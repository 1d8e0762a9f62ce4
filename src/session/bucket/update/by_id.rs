//! Statements that each update one item by `_id`, on the items' pages.

mod bulk;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::bulk::Bulk;
use super::outcome::{UpdateOutcome, first_error};
use crate::command::arguments::with_replaced;
use crate::command::document::{as_whole_number, get, single};
use crate::command::error::WriteError;
use crate::command::reply::CursorReply;
use crate::command::update::{Update, UpdateStatement};
use crate::pattern::bucket::index;
use crate::pattern::bucket::insert::is_too_large;
use crate::pattern::bucket::update_by_id::{ItemUpdateById, UpdateRequest, in_terms_of_items};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::duplicate_key::{in_application_terms, needs_item};
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::internal_transaction::OwnTransaction;
use crate::session::bucket::item_update::ItemUpdate;
use crate::session::bucket::relocate::may_pass_moved_items;
use crate::session::bucket::room;
use crate::session::bucket::sharding::{self, StatementById, StatementTargets};
use crate::session::bucket::write_statement::send_updates;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;

/// Translates all statements. `None`: a statement is of another kind, or its outcome could not be
/// determined in a command with others.
pub(super) fn translate(run: &BucketCommand<'_>, command: &Update<'_>) -> Option<Vec<ItemUpdateById>> {
    let alone = command.statements.len() == 1;
    let is_remembered = may_pass_moved_items(run);
    let changes = command.statements.iter().map(|statement| {
        let change = change(run, statement)?;
        let is_plain = !(statement.upsert || change.has_demands || (statement.multi && is_remembered));
        // An earlier attempt of a retryable statement may have inserted or relocated an item.
        (is_plain || (alone && !run.context.head.is_retryable_write())).then_some(change)
    });
    changes.collect()
}

fn change(run: &BucketCommand<'_>, statement: &UpdateStatement<'_>) -> Option<ItemUpdateById> {
    // Under `apiStrict`, sparse indexes cannot be used.
    if run.is_strict() {
        return None;
    }
    // mongod refuses a replacement of many. Several items may have an `_id`, in different keys.
    if (statement.multi && statement.is_replacement()) || statement.order().is_some() {
        return None;
    }
    let mut mint = SystemIdSource::new(&run.context.shared.timestamps);
    let change = ItemUpdateById::of(run.shape, UpdateRequest::from(statement), &mut mint).ok();
    change.filter(|_| statement.constants.is_none())
}

/// Finds the shards of the statements. `None`: a statement must be executed alone, because it updates many
/// items, or because items of several keys have its `_id`.
pub(super) async fn find_targets(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    changes: &[ItemUpdateById],
) -> Result<Option<StatementTargets>, RunError> {
    if run.is_sharded() && command.statements.iter().any(|statement| statement.multi) {
        return Ok(None);
    }
    let statements = command.statements.iter().zip(changes).enumerate();
    let statements = statements.map(|(position, (statement, change))| StatementById {
        filter: statement.filter,
        id: &change.id,
        statement_id: command.statement_ids.of(position),
    });
    sharding::find_targets(run, statements).await
}

/// Sends the statements in one command. `None`: nothing was changed, and the items must be located
/// first.
pub(super) async fn run(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    changes: &[ItemUpdateById],
    targets: &StatementTargets,
) -> Result<Option<RawDocumentBuf>, RunError> {
    if let ([statement], [change]) = (command.statements.as_slice(), changes) {
        return alone(run, command, statement, change).await;
    }
    let statements = command.statements.iter().zip(changes).enumerate();
    let statements: Vec<RawDocumentBuf> = statements
        .map(|(position, (statement, change))| targets.targeted(position, change.statement(statement.multi)))
        .collect();
    let bulk = Bulk {
        command,
        changes,
        targets,
        statements: &statements,
    };
    let answer = if may_pass_moved_items(run) {
        bulk.until_all_match(run).await?
    } else {
        bulk.until_none_is_frozen(run).await?
    };
    in_words_of_the_application(run, command, &answer, changes)
        .await
        .map(Some)
}

/// Sends the only statement of a command.
async fn alone(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    statement: &UpdateStatement<'_>,
    change: &ItemUpdateById,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let sent = change.statement(statement.multi);
    let answer = send(run, command, &[&*sent], &[command.statement_ids.of(0)], None).await?;
    if let Some(error) = first_error(&answer) {
        let failed = FailedStatement {
            command,
            statement,
            change,
        };
        if has_room_now(run, &error, failed).await? {
            return Ok(None);
        }
    }
    let matched = get(&answer, "n").and_then(as_whole_number);
    if matched == Some(0)
        && get(&answer, "writeErrors").is_none()
        && (statement.upsert || may_match(run, change).await?)
    {
        return Ok(None);
    }
    if change.always_modifies && matched == Some(1) {
        let modified = [("nModified", Some(RawBsonRef::Int32(1)))];
        return Ok(Some(with_replaced(&answer, &modified)));
    }
    in_words_of_the_application(run, command, &answer, std::slice::from_ref(change))
        .await
        .map(Some)
}

/// Sends one statement. `None`: the statement is of another kind, or its item must be located
/// first.
pub(super) async fn one(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    index: usize,
    statement: &UpdateStatement<'_>,
) -> Result<Option<UpdateOutcome>, RunError> {
    let Some(change) = change(run, statement) else {
        return Ok(None);
    };
    if !may_be_tried(run, &change, statement.upsert) || needs_item(run).await? {
        return Ok(None);
    }
    let sent = run.at_target(change.statement(statement.multi));
    for round in 0..MAX_ATTEMPTS {
        let answer = send(run, command, &[&*sent], &[command.statement_ids.of(index)], None).await?;
        let mut outcome = UpdateOutcome::of(answer);
        if let Some(error) = outcome.failed.take() {
            let failed = FailedStatement {
                command,
                statement,
                change: &change,
            };
            if has_room_now(run, &error, failed).await? {
                pause(round).await;
                continue;
            }
            outcome.failed = Some(in_item_terms(run, error, failed).await?);
            return Ok(Some(outcome));
        }
        if outcome.matched == 0 {
            if statement.upsert || may_match(run, &change).await? {
                return Ok(None);
            }
        } else if change.always_modifies {
            outcome.modified = 1;
        }
        return Ok(Some(outcome));
    }
    Ok(None)
}

/// Whether mongod refused the statement because a page would be too large, and the item's page has room by
/// now.
async fn has_room_now(
    run: &mut BucketCommand<'_>,
    error: &WriteError,
    failed: FailedStatement<'_>,
) -> Result<bool, RunError> {
    if !is_too_large(error.code) {
        return Ok(false);
    }
    let task = failed.task();
    room::make(run, FailedUpdate::new(&task, None)).await
}

/// Sends statements with these `stmtId`s in one command, under the client's session and number or
/// those of an internal session.
async fn send(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    statements: &[&RawDocument],
    ids: &[i32],
    own: Option<&OwnTransaction>,
) -> Result<RawDocumentBuf, RunError> {
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("ordered"), command.ordered);
    if let Some(variables) = command.let_variables {
        body.append(cstr!("let"), variables);
    }
    send_updates(run, body, statements, ids, own).await
}

/// Whether the statement may be sent before the retry records of relocations and upserts are read.
/// Such a record is not under the statement's own `stmtId`, and the earlier attempt may still be
/// running.
pub(in crate::session::bucket) fn may_be_tried(
    run: &BucketCommand<'_>,
    change: &ItemUpdateById,
    upserts: bool,
) -> bool {
    !run.context.head.is_retryable_write() || (!upserts && !change.has_demands)
}

/// Called if no bucket matched the statement. Returns whether a bucket matches `condition` now: the
/// item was relocated during the scan, or only the additional guards of the statement did not
/// match.
pub(in crate::session::bucket) async fn may_match(
    run: &mut BucketCommand<'_>,
    change: &ItemUpdateById,
) -> Result<bool, RunError> {
    let find = looking(run, change);
    let answer = run.context.link.run(&find).await?;
    Ok(is_found(&answer))
}

/// A query for one bucket that matches `condition`.
fn looking(run: &BucketCommand<'_>, change: &ItemUpdateById) -> RawDocumentBuf {
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), &change.condition);
    find.append(cstr!("hint"), index::ITEM_ID);
    find.append(cstr!("projection"), single("_id", 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_read_of_write(&mut find);
    find
}

fn is_found(answer: &RawDocument) -> bool {
    CursorReply::parse(answer).is_some_and(|cursor| cursor.documents().next().is_some())
}

/// mongod's reply with errors in terms of items instead of pages.
async fn in_words_of_the_application(
    run: &mut BucketCommand<'_>,
    command: &Update<'_>,
    answer: &RawDocument,
    changes: &[ItemUpdateById],
) -> Result<RawDocumentBuf, RunError> {
    let Some(errors) = get(answer, "writeErrors").and_then(RawBsonRef::as_array) else {
        return Ok(answer.to_owned());
    };
    let errors = errors.into_iter().flatten().filter_map(RawBsonRef::as_document);
    let mut converted = RawArrayBuf::new();
    for (index, mut error) in errors.filter_map(WriteError::parse) {
        if let Some((statement, change)) = command.statements.get(index).zip(changes.get(index)) {
            let failed = FailedStatement {
                command,
                statement,
                change,
            };
            error = in_item_terms(run, error, failed).await?;
        }
        converted.push(error.to_document(index));
    }
    let errors = RawBsonRef::Array(&converted);
    Ok(with_replaced(answer, &[("writeErrors", Some(errors))]))
}

/// A statement that mongod refused.
#[derive(Clone, Copy)]
struct FailedStatement<'a> {
    command: &'a Update<'a>,
    statement: &'a UpdateStatement<'a>,
    change: &'a ItemUpdateById,
}

impl<'a> FailedStatement<'a> {
    fn task(self) -> ItemUpdate<'a> {
        ItemUpdate::new(
            UpdateRequest::from(self.statement),
            self.command.let_variables,
            self.statement.constants,
        )
    }
}

/// mongod's error for a statement, in terms of its item.
async fn in_item_terms(
    run: &mut BucketCommand<'_>,
    error: WriteError,
    failed: FailedStatement<'_>,
) -> Result<WriteError, RunError> {
    let task = failed.task();
    let mut error = in_application_terms(run, error, FailedUpdate::new(&task, None)).await?;
    error.message = in_terms_of_items(run.shape, &error.message, failed.change.id.as_raw_bson_ref());
    Ok(error)
}
