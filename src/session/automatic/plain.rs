//! A client's command on plain documents of a collection with an automatic shape. It is sent with the
//! collection's UUID; the rest of it and mongod's reply stay as they are.

use bson::Binary;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::merged_write::{batch_of, write_errors};
use super::stored::{CollectionObserver, ExpectedCollection};
use crate::command::arguments::{InheritedOptions, is_unacknowledged, with_replaced};
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::write_batch::WriteBatch;
use crate::session::bucket::retry_on_swap::is_swap_write_error;
use crate::session::error::RunError;
use crate::session::fence::{accepts_uuid, is_strict, names_another, with_uuid};
use crate::session::memory::Reservation;
use crate::session::upstream::UpstreamKind;
use crate::session::upstream_connection::{UpstreamConnection, UpstreamRequest};

/// A command on plain documents.
pub(in crate::session) struct PlainCommand<'a, 'c> {
    pub(in crate::session) link: &'c mut UpstreamConnection,
    pub(in crate::session) head: &'c CommandHeader<'a>,
    pub(in crate::session) namespace: Namespace<'c>,
    /// The collection. Without a UUID: a view.
    pub(in crate::session) expected: ExpectedCollection<'c>,
    pub(in crate::session) upstream: UpstreamKind,
    /// The client's reply is kept in this memory.
    pub(in crate::session) memory: &'c mut Reservation,
}

/// The result of a command on plain documents.
#[derive(Debug)]
pub(in crate::session) enum PlainOutcome {
    /// mongod's reply.
    Answered(RawDocumentBuf),
    /// mongod's reply to a command that may have exchanged the collection itself.
    MayHaveExchanged(RawDocumentBuf),
    /// The collection is frozen or was exchanged. The reply, if a part of the statements was executed: it has
    /// an error for every statement that was not.
    Exchanged(Option<RawDocumentBuf>),
}

impl PlainCommand<'_, '_> {
    /// Executes the command. Not cancel safe.
    pub(in crate::session) async fn run(&mut self) -> Result<PlainOutcome, RunError> {
        let Some(uuid) = self.expected.uuid else {
            let body = whole_body(self.head);
            return Ok(PlainOutcome::Answered(self.call(&body).await?));
        };
        if names_another(self.head.body(), uuid) {
            let body = whole_body(self.head);
            return Ok(PlainOutcome::Answered(self.call(&body).await?));
        }
        let command = self.head.command;
        let is_named = accepts_uuid(command, self.head.body()) && !is_strict(self.head.body());
        match command {
            Command::Insert | Command::Update | Command::Delete if is_named => self.write(uuid).await,
            Command::Insert | Command::Update | Command::Delete => self.in_strict_transaction(uuid).await,
            Command::FindAndModify => self.held(uuid).await,
            // Between the renamings it would create a collection. In a transaction, a check undoes that.
            Command::Create if !self.head.in_transaction() => self.held(uuid).await,
            _ if is_named => self.named(uuid).await,
            _ => self.checked(uuid).await,
        }
    }

    pub(super) async fn call(&mut self, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        self.link
            .call_reserving(UpstreamRequest::plain(body), self.memory)
            .await
    }

    /// Sends the client's statements, or its other document sequences, with this body.
    pub(super) async fn send(&mut self, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        let batch = batch_of(self.head).filter(|_| !self.head.message.sequences.is_empty());
        let (Some(field), Some(batch)) = (self.head.command.statements_field(), batch) else {
            return self.call(&with_sequences(body, self.head)).await;
        };
        let request = UpstreamRequest {
            body,
            sequence: Some((field, batch.statements.as_slice())),
        };
        self.link.call_reserving(request, self.memory).await
    }

    /// Sends a command that names the UUID.
    async fn named(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let reply = self.call(&with_uuid(&whole_body(self.head), uuid)).await?;
        Ok(self.unless_exchanged(reply))
    }

    /// The reply, unless the whole command was refused because of the exchange.
    pub(super) fn unless_exchanged(&self, reply: RawDocumentBuf) -> PlainOutcome {
        let is_read = self.head.only_reads() || self.head.command == Command::FindAndModify;
        let is_exchanged = match reply.get_i32("code") {
            Ok(code) if code == ErrorCode::CollectionUuidMismatch.number() => true,
            // A renamed collection ends the queries on it.
            Ok(code) if code == ErrorCode::QueryPlanKilled.number() => is_read,
            _ => false,
        };
        if is_exchanged {
            PlainOutcome::Exchanged(None)
        } else {
            PlainOutcome::Answered(reply)
        }
    }

    /// Sends an `insert`, `update` or `delete` that names the UUID.
    async fn write(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let (Some(field), Some(batch)) = (self.head.command.statements_field(), batch_of(self.head)) else {
            // mongod refuses the command.
            return self.named(uuid).await;
        };
        let body = with_uuid(&acknowledged(self.head.body()), uuid);
        let is_in_sequence = !self.head.message.sequences.is_empty();
        let request = UpstreamRequest {
            body: &body,
            sequence: is_in_sequence.then_some((field, batch.statements.as_slice())),
        };
        let mut is_repeated = false;
        loop {
            let reply = self.link.call_reserving(request.clone(), self.memory).await?;
            if let PlainOutcome::Exchanged(_) = self.unless_exchanged(reply.clone()) {
                return Ok(PlainOutcome::Exchanged(None));
            }
            if !write_errors(&reply).any(|(_, error)| is_swap_write_error(&error)) {
                return Ok(PlainOutcome::Answered(self.for_client(reply)));
            }
            if self.head.in_transaction() || self.is_exchanging(uuid, &reply).await? {
                return Ok(self.exchanged(&batch, &reply));
            }
            // The freeze is over, or the document does not satisfy the application's own validator. A
            // statement that failed is executed once more to distinguish them, unless it may have changed
            // documents.
            let may_have_changed = batch.statements.iter().any(|statement| is_of_many(statement));
            if std::mem::replace(&mut is_repeated, true) || batch.statements.len() > 1 || may_have_changed {
                return Ok(self.exchanged_or_refused(&batch, reply));
            }
        }
    }

    /// Whether the errors of statements are those of an exchange in progress.
    async fn is_exchanging(&mut self, uuid: &Binary, reply: &RawDocument) -> Result<bool, RunError> {
        let is_validation = |error: &WriteError| error.code == ErrorCode::DocumentValidationFailure.number();
        if write_errors(reply).any(|(_, error)| is_swap_write_error(&error) && !is_validation(&error)) {
            return Ok(true);
        }
        self.is_being_exchanged(uuid).await
    }

    /// Whether the collection is frozen, or the name denotes another one.
    pub(super) async fn is_being_exchanged(&mut self, uuid: &Binary) -> Result<bool, RunError> {
        let mut observer = CollectionObserver {
            link: self.link,
            carried: InheritedOptions::of(self.head.body()),
            namespace: self.namespace,
        };
        let now = observer.stored().await?;
        Ok(now.is_frozen || now.stored.uuid.as_ref() != Some(uuid))
    }

    /// The outcome of statements that failed under a validator that is gone. Those whose error names the
    /// freeze are executed again.
    fn exchanged_or_refused(&self, batch: &WriteBatch<'_>, reply: RawDocumentBuf) -> PlainOutcome {
        let is_of_freeze = |error: &WriteError| is_swap_write_error(error) && get(&error.detail, "errInfo").is_some();
        if write_errors(&reply).any(|(_, error)| is_of_freeze(&error)) {
            self.exchanged(batch, &reply)
        } else {
            PlainOutcome::Answered(self.for_client(reply))
        }
    }

    /// Marks every statement that was not executed. A statement on many documents that failed may have
    /// changed some of them, and cannot be executed again.
    fn exchanged(&self, batch: &WriteBatch<'_>, reply: &RawDocument) -> PlainOutcome {
        let is_ordered = batch.ordered || self.head.in_transaction();
        let mut errors = Vec::new();
        let mut rest = 0;
        for (position, error) in write_errors(reply) {
            if !is_swap_write_error(&error) {
                errors.push(error.to_document(position));
                continue;
            }
            let is_many = batch
                .statements
                .get(position)
                .is_some_and(|statement| is_of_many(statement));
            if is_many && error.code != ErrorCode::CollectionUuidMismatch.number() {
                errors.push(self.in_part().to_document(position));
                if is_ordered {
                    break;
                }
                continue;
            }
            let end = if is_ordered {
                batch.statements.len()
            } else {
                position.saturating_add(1)
            };
            rest += end.saturating_sub(position);
            let mark = WriteError::new(ErrorCode::CollectionUuidMismatch, "the collection was exchanged");
            errors.extend((position..end).map(|position| mark.to_document(position)));
        }
        if rest == batch.statements.len() {
            return PlainOutcome::Exchanged(None);
        }
        let errors = array_of(&errors);
        let reply = with_replaced(reply, &[("writeErrors", Some(RawBsonRef::Array(&errors)))]);
        if rest == 0 {
            PlainOutcome::Answered(self.for_client(reply))
        } else {
            PlainOutcome::Exchanged(Some(reply))
        }
    }

    /// Like [`Self::exchanged`], for a reply to the whole command.
    pub(super) fn marked(&self, reply: RawDocumentBuf) -> PlainOutcome {
        match batch_of(self.head) {
            Some(batch) => self.exchanged(&batch, &reply),
            None => PlainOutcome::Answered(reply),
        }
    }

    pub(super) fn in_part(&self) -> WriteError {
        let message = format!(
            "`mongoshape convert` exchanged {} while this statement was executed: some documents may have been changed, and the others \
             were not; check the documents before you send it again",
            self.namespace
        );
        WriteError::new(ErrorCode::WriteConflict, message)
    }

    /// mongod's reply, or that of an unacknowledged write.
    fn for_client(&self, reply: RawDocumentBuf) -> RawDocumentBuf {
        if !get(self.head.body(), "writeConcern").is_some_and(is_unacknowledged) {
            return reply;
        }
        let zero = Some(RawBsonRef::Int32(0));
        let modified = get(&reply, "nModified").and(zero);
        with_replaced(
            &reply,
            &[
                ("n", zero),
                ("nModified", modified),
                ("writeErrors", None),
                ("upserted", None),
            ],
        )
    }
}

/// The body with the document sequences as arrays, which mongod treats alike.
pub(in crate::session) fn whole_body(head: &CommandHeader<'_>) -> RawDocumentBuf {
    with_sequences(head.body(), head)
}

fn with_sequences(body: &RawDocument, head: &CommandHeader<'_>) -> RawDocumentBuf {
    let mut body = body.to_owned();
    for sequence in &head.message.sequences {
        let documents: RawArrayBuf = sequence.documents().flatten().map(RawBsonRef::Document).collect();
        put(&mut body, sequence.identifier, &documents);
    }
    body
}

/// The body of a write whose reply reports failures.
fn acknowledged(body: &RawDocument) -> RawDocumentBuf {
    if !get(body, "writeConcern").is_some_and(is_unacknowledged) {
        return body.to_owned();
    }
    let concern = single("w", 1);
    with_replaced(body, &[("writeConcern", Some(RawBsonRef::Document(&concern)))])
}

/// Whether an update or delete statement applies to all matching documents.
fn is_of_many(statement: &RawDocument) -> bool {
    let is_update_of_many = get(statement, "multi").and_then(crate::command::document::as_flag) == Some(true);
    let is_delete_of_many =
        get(statement, "limit").is_some_and(|limit| as_whole_number(limit) == Some(0)) && get(statement, "q").is_some();
    is_update_of_many || is_delete_of_many
}
