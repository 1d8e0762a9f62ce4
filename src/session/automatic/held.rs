//! A write that mongod does not accept with `collectionUUID`: a `findAndModify`, or a write under
//! `apiStrict`.
//!
//! On a replica set, a transaction of the proxy that has read from the collection holds it meanwhile: no
//! renaming passes an open transaction. The client's command is not part of the transaction, so its retry
//! record is mongod's own. A renaming that has begun to wait would block the client's command behind it, and
//! would itself wait for the transaction. So the command has a short time limit; after it the transaction
//! ends, and both are tried again. The limit is longer then, unless the collection is frozen: the command may
//! just be slow.
//!
//! A write that is sent again must not be executed twice. A `findAndModify` without a result was not
//! executed, and mongod has a record of a retryable write. Any other write gets a number of the proxy's own,
//! so it is retryable. A write with a statement for many documents cannot have one, and is a part of the
//! transaction.

use std::collections::BTreeMap;
use std::time::Duration;

use bson::Binary;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use tokio::time::{Instant, sleep};

use super::merged_write::{batch_of, write_errors};
use super::plain::{PlainCommand, PlainOutcome, is_of_many};
use super::stored::{MAX_HELD, exchanged_in_transaction, identity_find};
use super::{Identity, identity_check, identity_of, listed_identity};
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{array_of, as_flag, as_whole_number, get, put, single};
use crate::command::error::{CommandError, ErrorCode, TRANSIENT_TRANSACTION, WriteError};
use crate::command::registry::Command;
use crate::pattern::bucket::insert::{MAX_STATEMENTS, no_statement, record_query};
use crate::session::bucket::retry_on_swap::is_swap_error;
use crate::session::error::RunError;
use crate::session::fence::is_strict;
use crate::session::upstream::UpstreamKind;
use crate::session::upstream_connection::{SessionNumber, UpstreamRequest};

/// mongod's code for a command that has reached its time limit.
const MAX_TIME_EXPIRED: i64 = 50;
/// The first time limit of the client's command, and the pause before the next attempt.
const FIRST_LIMIT: Duration = Duration::from_millis(100);
const PAUSE: Duration = Duration::from_millis(20);
/// The options of a write that a part of a transaction has in another form.
const OF_TRANSACTION: [&str; 5] = ["writeConcern", "lsid", "maxTimeMS", "apiStrict", "apiDeprecationErrors"];
/// The factor between the time limits of two attempts.
const WIDENED: u32 = 8;

/// The reason for which a write may be sent again.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Repetition {
    /// mongod executes the client's command once.
    AsItIs,
    /// It gets this number.
    WithNumber(SessionNumber),
    /// It is a part of the transaction.
    InTransaction,
}

/// The result of beginning that transaction.
enum Hold {
    /// It holds the collection.
    Held,
    /// A renaming waits for the collection.
    Waiting,
    /// The name denotes another collection.
    Exchanged,
    /// mongod refuses it with this reply.
    Ended(RawDocumentBuf),
}

impl PlainCommand<'_, '_> {
    pub(super) async fn held(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        if self.head.in_transaction() {
            return self.in_transaction(uuid).await;
        }
        if self.upstream != UpstreamKind::Member {
            return self.between_checks(uuid).await;
        }
        let begun = Instant::now();
        let mut limit = FIRST_LIMIT;
        let repetition = self.repetition();
        while begun.elapsed() < MAX_HELD {
            let lock = self.link.own_transaction();
            let hold = self.hold(uuid, lock).await?;
            let is_held = matches!(hold, Hold::Held);
            let outcome = match hold {
                Hold::Held if repetition == Repetition::InTransaction => self.as_part(lock, limit).await,
                Hold::Held => self.limited(limit, repetition).await,
                Hold::Waiting => Ok(None),
                Hold::Exchanged => return self.exchanged_meanwhile(repetition).await,
                Hold::Ended(reply) => return Ok(PlainOutcome::Answered(reply)),
            };
            if is_held {
                let mut end = single("abortTransaction", 1);
                self.append_lock(&mut end, lock);
                put(&mut end, "$db", "admin");
                self.link.call(UpstreamRequest::plain(&end)).await?;
                limit = limit.saturating_mul(WIDENED);
            }
            if let Some(reply) = outcome? {
                return Ok(self.settled(reply));
            }
            if self.is_being_exchanged(uuid).await? {
                return self.exchanged_meanwhile(repetition).await;
            }
            sleep(PAUSE).await;
        }
        let message = format!("{} could not be held for a write: try again", self.namespace);
        Err(CommandError::new(ErrorCode::WriteConflict, message).into())
    }

    /// Begins the transaction that holds the collection.
    async fn hold(&mut self, uuid: &Binary, lock: SessionNumber) -> Result<Hold, RunError> {
        let mut find = identity_find(self.namespace.collection, uuid);
        self.append_lock(&mut find, lock);
        put(&mut find, "startTransaction", true);
        put(&mut find, "$db", self.namespace.database);
        let reply = self.link.call(UpstreamRequest::plain(&find)).await?;
        if get(&reply, "ok").and_then(as_flag) == Some(true) {
            return Ok(Hold::Held);
        }
        if reply
            .get_i32("code")
            .is_ok_and(|code| code == ErrorCode::CollectionUuidMismatch.number())
        {
            return Ok(Hold::Exchanged);
        }
        Ok(if is_transient(&reply) {
            Hold::Waiting
        } else {
            Hold::Ended(reply)
        })
    }

    /// The reason for which the command may be sent again.
    fn repetition(&mut self) -> Repetition {
        if self.head.command == Command::FindAndModify || self.head.is_retryable_write() {
            return Repetition::AsItIs;
        }
        let batch = batch_of(self.head);
        if batch.is_some_and(|batch| batch.statements.iter().any(|statement| is_of_many(statement))) {
            return Repetition::InTransaction;
        }
        Repetition::WithNumber(self.link.own_retryable_write())
    }

    /// The outcome after the collection was exchanged: an error if an attempt has executed some of several
    /// statements before it ran out of time.
    async fn exchanged_meanwhile(&mut self, repetition: Repetition) -> Result<PlainOutcome, RunError> {
        if let Repetition::WithNumber(number) = repetition
            && self.has_executed_a_part(number).await?
        {
            return Ok(PlainOutcome::Answered(self.part_executed()));
        }
        Ok(PlainOutcome::Exchanged(None))
    }

    /// Whether mongod has a record of one of several statements with this number.
    async fn has_executed_a_part(&mut self, number: SessionNumber) -> Result<bool, RunError> {
        let count = batch_of(self.head).map_or(0, |batch| batch.statements.len());
        let ids: Vec<i32> = (0..i32::try_from(count).unwrap_or(i32::MAX)).collect();
        let nothing = no_statement();
        for part in ids.chunks(MAX_STATEMENTS).filter(|_| count > 1) {
            let mut body = record_query(self.namespace.collection, part);
            number.append_to(&mut body);
            put(&mut body, "$db", self.namespace.database);
            let statements: Vec<&RawDocument> = vec![&nothing; part.len()];
            let request = UpstreamRequest {
                body: &body,
                sequence: Some(("updates", &statements)),
            };
            let reply = self.link.call(request).await?;
            if reply.get_array("retriedStmtIds").is_ok_and(|ids| !ids.is_empty()) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The reply if some statements were executed before the collection was exchanged, and others were not.
    fn part_executed(&self) -> RawDocumentBuf {
        let count = batch_of(self.head).map_or(0, |batch| batch.statements.len());
        let error = self.in_part();
        let errors: Vec<RawDocumentBuf> = (0..count).map(|index| error.to_document(index)).collect();
        not_counted(self.head.command, &errors)
    }

    /// Executes the client's command within the transaction that holds the collection. `None`: it was not
    /// executed in time.
    async fn as_part(&mut self, lock: SessionNumber, limit: Duration) -> Result<Option<RawDocumentBuf>, RunError> {
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        let own = self.own_limit().filter(|own| *own <= limit);
        // All commands of a transaction have the same API parameters.
        let mut body = with_replaced(self.head.body(), &OF_TRANSACTION.map(|name| (name, None)));
        body.append(cstr!("maxTimeMS"), own.unwrap_or(limit));
        lock.append_to(&mut body);
        body.append(cstr!("autocommit"), false);
        let reply = self.send(&body).await?;
        if is_transient(&reply) || (code(&reply) == Some(MAX_TIME_EXPIRED) && own.is_none()) {
            return Ok(None);
        }
        if get(&reply, "ok").and_then(as_flag) != Some(true) {
            return Ok(Some(reply));
        }
        if get(&reply, "writeErrors").is_some() {
            return Ok(Some(self.rolled_back(&reply)));
        }
        let mut commit = single("commitTransaction", 1);
        self.append_lock(&mut commit, lock);
        put(&mut commit, "$db", "admin");
        if let Some(concern) = get(self.head.body(), "writeConcern") {
            put(&mut commit, "writeConcern", concern);
        }
        let committed = self.link.call(UpstreamRequest::plain(&commit)).await?;
        if get(&committed, "ok").and_then(as_flag) != Some(true) {
            return Ok((!is_transient(&committed)).then_some(committed));
        }
        let concern = get(&committed, "writeConcernError");
        Ok(Some(with_replaced(&reply, &[("writeConcernError", concern)])))
    }

    /// The reply after an error has ended the transaction: no statement was executed.
    fn rolled_back(&self, reply: &RawDocument) -> RawDocumentBuf {
        let is_exchanged = !super::not_executed(reply).is_empty();
        let others = if is_exchanged {
            WriteError::new(ErrorCode::CollectionUuidMismatch, "the collection was exchanged")
        } else {
            let text = "not executed, because another statement of the command failed, and `mode = \"auto\"` executes statements for \
                        many documents in a transaction under `apiStrict`";
            WriteError::new(ErrorCode::WriteConflict, text)
        };
        let failed: BTreeMap<usize, WriteError> = write_errors(reply).filter(|_| !is_exchanged).collect();
        let count = batch_of(self.head).map_or(0, |batch| batch.statements.len());
        let errors = (0..count).map(|index| failed.get(&index).unwrap_or(&others).to_document(index));
        not_counted(self.head.command, &errors.collect::<Vec<_>>())
    }

    /// The client's own time limit, in milliseconds.
    fn own_limit(&self) -> Option<i64> {
        let own = get(self.head.body(), "maxTimeMS").and_then(as_whole_number);
        own.filter(|own| *own > 0)
    }

    /// Executes the client's command within a time limit. `None`: it was not executed in time.
    async fn limited(&mut self, limit: Duration, repetition: Repetition) -> Result<Option<RawDocumentBuf>, RunError> {
        let mut body = self.head.body().to_owned();
        if let Repetition::WithNumber(number) = repetition {
            body = with_replaced(&body, &[("lsid", None)]);
            number.append_to(&mut body);
        }
        let limit = i64::try_from(limit.as_millis()).unwrap_or(i64::MAX);
        if self.own_limit().is_some_and(|own| own <= limit) {
            return self.send(&body).await.map(Some);
        }
        let mut limited = with_replaced(&body, &[("maxTimeMS", None)]);
        limited.append(cstr!("maxTimeMS"), limit);
        let reply = self.send(&limited).await?;
        if code(&reply) == Some(MAX_TIME_EXPIRED) {
            return Ok(None);
        }
        let concern = get(&reply, "writeConcernError").and_then(RawBsonRef::as_document);
        let is_recorded = self.head.is_retryable_write() || repetition != Repetition::AsItIs;
        if concern.and_then(code) == Some(MAX_TIME_EXPIRED) && is_recorded {
            // Executed, but the wait for the write concern was too short. mongod answers from its record.
            return self.send(&body).await.map(Some);
        }
        Ok(Some(reply))
    }

    fn settled(&self, reply: RawDocumentBuf) -> PlainOutcome {
        let is_failed = get(&reply, "ok").and_then(as_flag) != Some(true);
        if is_failed && is_swap_error(&CommandError::Upstream(reply.clone())) {
            return PlainOutcome::Exchanged(None);
        }
        if super::not_executed(&reply).is_empty() {
            PlainOutcome::Answered(reply)
        } else {
            self.marked(reply)
        }
    }

    /// In a transaction, a read with the UUID holds the collection from then on.
    async fn in_transaction(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let body = self.head.body().to_owned();
        if is_strict(&body) {
            let reply = self.send(&body).await?;
            if listed_identity(self.link, self.head, self.namespace, Some(uuid)).await? == Identity::Changed {
                return Err(exchanged_in_transaction(self.namespace).into());
            }
            return Ok(self.settled(reply));
        }
        let mut find = identity_find(self.namespace.collection, uuid);
        InheritedOptions::of(&body).append_to_read(&mut find);
        let reply = self.link.call(UpstreamRequest::plain(&find)).await?;
        if get(&reply, "ok").and_then(as_flag) != Some(true) {
            return Ok(self.unless_exchanged(reply));
        }
        let begun = with_replaced(&body, &[("startTransaction", None), ("readConcern", None)]);
        let reply = self.send(&begun).await?;
        Ok(self.settled(reply))
    }

    /// On a standalone there is nothing that could hold the collection. It is checked before and after.
    async fn between_checks(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let check = identity_check(self.head, self.namespace, uuid);
        let is_same = async |command: &mut Self| -> Result<bool, RunError> {
            let reply = command.link.call(UpstreamRequest::plain(&check)).await?;
            Ok(identity_of(reply) == Identity::Same)
        };
        if !is_strict(self.head.body()) && !is_same(self).await? {
            return Ok(PlainOutcome::Exchanged(None));
        }
        let body = self.head.body().to_owned();
        let reply = self.send(&body).await?;
        let has_changed_nothing = get(&reply, "value").is_none_or(|value| value == RawBsonRef::Null)
            && get(&reply, "n").and_then(as_whole_number).unwrap_or_default() == 0;
        if has_changed_nothing && !is_strict(self.head.body()) && !is_same(self).await? {
            return Ok(PlainOutcome::Exchanged(None));
        }
        Ok(self.settled(reply))
    }

    /// Appends the session and number of a transaction of the proxy.
    fn append_lock(&self, command: &mut RawDocumentBuf, lock: SessionNumber) {
        lock.append_to(command);
        command.append(cstr!("autocommit"), false);
        // A server may require `apiVersion`.
        if let Some(version) = get(self.head.body(), "apiVersion") {
            put(command, "apiVersion", version);
        }
    }
}

/// A reply with an error for each statement.
fn not_counted(command: Command, errors: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut reply = single("n", 0);
    if command == Command::Update {
        reply.append(cstr!("nModified"), 0);
    }
    put(&mut reply, "writeErrors", array_of(errors));
    reply.append(cstr!("ok"), 1.0);
    reply
}

fn code(document: &RawDocument) -> Option<i64> {
    get(document, "code").and_then(as_whole_number)
}

/// Whether the transaction was not committed, and may be tried again. A commit with another label may have
/// been executed.
fn is_transient(reply: &RawDocument) -> bool {
    let labels = reply.get_array("errorLabels").into_iter().flatten().flatten();
    labels
        .filter_map(RawBsonRef::as_str)
        .any(|label| label == TRANSIENT_TRANSACTION)
}
