//! The parts of an `insert`, `update` or `delete` that was executed in both layouts.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::with_replaced;
use crate::command::document::{as_whole_number, get};
use crate::command::error::WriteError;
use crate::command::header::CommandHeader;
use crate::command::registry::Command;
use crate::command::write_batch::WriteBatch;
use crate::command::write_reply::WriteReply;
use crate::session::bucket::earlier_attempt::ExecutedStatement;
use crate::session::bucket::retry_on_swap::is_swap_write_error;
use crate::session::upstream_connection::LinkError;
use crate::wire::{Frame, OpMsgBuilder};

/// The result of the executed statements, and the statements that were not executed yet.
#[derive(Debug)]
pub(in crate::session) struct MergedWrite {
    reply: WriteReply,
    /// The client's positions of the statements of the next part.
    pending: Vec<usize>,
    is_ordered: bool,
    is_failed: bool,
}

/// The statements of a command. `None`: mongod refuses the command.
pub(super) fn batch_of<'a>(head: &CommandHeader<'a>) -> Option<WriteBatch<'a>> {
    let (command, path) = match head.command {
        Command::Insert => ("insert", "insert.documents"),
        Command::Update => ("update", "update.updates"),
        Command::Delete => ("delete", "delete.deletes"),
        _ => return None,
    };
    WriteBatch::parse(head, command, path, |_, _| Ok(true)).ok()
}

/// The positions of the statements that an exchange of the collection has kept from being executed.
pub(in crate::session) fn not_executed(reply: &RawDocument) -> Vec<usize> {
    let errors = write_errors(reply).filter(|(_, error)| is_swap_write_error(error));
    errors.map(|(position, _)| position).collect()
}

pub(super) fn write_errors(reply: &RawDocument) -> impl Iterator<Item = (usize, WriteError)> + '_ {
    let errors = get(reply, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors.into_iter().flatten().flatten();
    errors.filter_map(RawBsonRef::as_document).filter_map(WriteError::parse)
}

impl MergedWrite {
    /// No statement was executed. `None`: the command has no statements.
    pub(in crate::session) fn of(head: &CommandHeader<'_>) -> Option<Self> {
        let batch = batch_of(head)?;
        let is_update = head.command == Command::Update;
        Some(Self {
            reply: if is_update {
                WriteReply::of_update()
            } else {
                WriteReply::default()
            },
            pending: (0..batch.statements.len()).collect(),
            is_ordered: batch.ordered,
            is_failed: false,
        })
    }

    /// Adds statements that an earlier attempt has executed.
    pub(in crate::session) fn add_executed(&mut self, executed: Vec<ExecutedStatement>) {
        for statement in executed {
            self.reply.count(1);
            self.reply.add_retried(statement.statement_id);
            if let Some(id) = statement.upserted {
                self.reply.add_upserted(statement.index, id);
            }
            self.pending.retain(|pending| *pending != statement.index);
        }
    }

    /// Adds the reply to the pending statements. Those that it marks as not executed stay pending.
    pub(in crate::session) fn add(&mut self, reply: RawDocumentBuf) {
        let number = |name: &str| get(&reply, name).and_then(as_whole_number).unwrap_or_default();
        self.reply.count(number("n"));
        self.reply.count_modified(number("nModified"));
        let position = |place: usize| self.pending.get(place).copied();
        let mut pending = Vec::new();
        for (place, error) in write_errors(&reply) {
            match position(place) {
                Some(position) if is_swap_write_error(&error) => pending.push(position),
                Some(position) => {
                    self.is_failed = true;
                    self.reply.fail(position, &error);
                }
                None => {}
            }
        }
        for (place, upserted) in upserted(&reply) {
            if let (Some(position), Some(id)) = (position(place), get(upserted, "_id")) {
                self.reply.add_upserted(position, RawBson::from(id));
            }
        }
        let retried = get(&reply, "retriedStmtIds").and_then(RawBsonRef::as_array);
        for id in retried.into_iter().flatten().flatten().filter_map(as_whole_number) {
            self.reply.add_retried(i32::try_from(id).unwrap_or(i32::MAX));
        }
        self.reply.take_answer(reply);
        pending.sort_unstable();
        self.pending = pending;
    }

    /// Divides the pending statements: these are the next part, and the rest is returned.
    pub(in crate::session) fn divide(&mut self, next: Vec<usize>) -> Vec<usize> {
        let mut rest = std::mem::replace(&mut self.pending, next);
        rest.retain(|position| !self.pending.contains(position));
        rest
    }

    /// Sets the statements of the next part.
    pub(in crate::session) fn set_pending(&mut self, pending: Vec<usize>) {
        self.pending = pending;
    }

    /// Whether no statement is left to execute.
    pub(in crate::session) fn is_complete(&self) -> bool {
        self.pending.is_empty() || (self.is_ordered && self.is_failed)
    }

    /// The message with the pending statements. `None`: the client's message has no statements.
    pub(in crate::session) fn rest(&self, head: &CommandHeader<'_>) -> Result<Option<Frame>, LinkError> {
        let (Some(batch), Some(field)) = (batch_of(head), head.command.statements_field()) else {
            return Ok(None);
        };
        let without = [(field, None), ("stmtId", None), ("stmtIds", None)];
        let mut body = with_replaced(head.body(), &without);
        let is_whole = self.pending.len() == batch.statements.len();
        // Numbers would say that other commands share the transaction number.
        let has_ids = !is_whole || batch.statement_ids.may_share_transaction_number();
        if head.is_retryable_write() && has_ids {
            let ids = self.pending.iter().map(|position| batch.statement_ids.of(*position));
            body.append(cstr!("stmtIds"), ids.collect::<RawArrayBuf>());
        }
        let statements = self
            .pending
            .iter()
            .filter_map(|position| batch.statements.get(*position).copied());
        let message = OpMsgBuilder::new(0, 0).body(&body).sequence(field, statements);
        Ok(Some(message.build()?))
    }

    /// The client's reply.
    pub(in crate::session) fn into_reply(self, head: &CommandHeader<'_>) -> RawDocumentBuf {
        self.reply.into_document(head)
    }
}

fn upserted(reply: &RawDocument) -> impl Iterator<Item = (usize, &RawDocument)> {
    let upserted = get(reply, "upserted").and_then(RawBsonRef::as_array);
    let elements = upserted
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    elements.filter_map(|element| {
        let index = get(element, "index").and_then(as_whole_number)?;
        Some((usize::try_from(index).ok()?, element))
    })
}
