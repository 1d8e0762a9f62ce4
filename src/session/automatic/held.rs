//! A `findAndModify` or a `create`, in which mongod does not accept `collectionUUID`, and writes in a
//! transaction under `apiStrict`.
//!
//! On a replica set, a transaction of the proxy that has read from the collection holds it meanwhile: no
//! renaming passes an open transaction. The client's command is not part of the transaction, so its retry
//! record is mongod's own. A renaming that has begun to wait would block the client's command behind it, and
//! would itself wait for the transaction. So the command has a short time limit; after it the transaction
//! ends, and both are tried again. The limit is longer then, unless the collection is frozen: the command may
//! just be slow. The third attempt has none: the renaming of a conversion waits for a second only. mongod
//! ends the transaction after a minute. If the collection was renamed by the end of the command then, the
//! client gets an error, because mongod may have looked the name up again.
//!
//! A command that reports that its time is over was not executed. One whose write concern reports it was
//! executed, and the wait goes on without the limit.

use std::time::Duration;

use bson::Binary;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use tokio::time::{Instant, sleep};

use super::plain::{PlainCommand, PlainOutcome};
use super::stored::{MAX_HELD, exchanged_in_transaction, identity_find};
use super::{Identity, identity, identity_check, identity_of, listed_identity};
use crate::command::arguments::{InheritedOptions, append_no_wait, with_replaced};
use crate::command::document::{as_flag, as_whole_number, get, put, single};
use crate::command::error::{CommandError, ErrorCode, TRANSIENT_TRANSACTION};
use crate::command::registry::Command;
use crate::session::bucket::retry_on_swap::is_swap_error;
use crate::session::error::RunError;
use crate::session::fence::is_strict;
use crate::session::upstream::UpstreamKind;
use crate::session::upstream_connection::{SessionNumber, UpstreamRequest};

/// mongod's code for a command that has reached its time limit.
const MAX_TIME_EXPIRED: i64 = 50;
/// The time limits of the first attempts in milliseconds. Later attempts have none.
const LIMITS_MS: [i64; 2] = [100, 800];
/// The pause before the next attempt.
const PAUSE: Duration = Duration::from_millis(20);

/// The reply to a command that was executed within a time limit.
struct Limited {
    reply: RawDocumentBuf,
    /// Whether the limit has ended the wait for the client's write concern.
    is_cut: bool,
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
            return if is_strict(self.head.body()) {
                self.in_strict_transaction(uuid).await
            } else {
                self.in_transaction(uuid).await
            };
        }
        if self.upstream != UpstreamKind::Member {
            return self.between_checks(uuid).await;
        }
        let begun = Instant::now();
        let mut limits = LIMITS_MS.into_iter();
        while begun.elapsed() < MAX_HELD {
            let lock = self.link.own_transaction();
            let limited = match self.hold(uuid, lock).await? {
                Hold::Held => self.while_held(lock, limits.next()).await?,
                Hold::Waiting => None,
                Hold::Exchanged => return Ok(PlainOutcome::Exchanged(None)),
                Hold::Ended(reply) => return Ok(PlainOutcome::Answered(reply)),
            };
            if let Some(limited) = limited {
                let reply = if limited.is_cut {
                    self.with_concern(&limited.reply).await?
                } else {
                    limited.reply
                };
                return Ok(self.settled(reply));
            }
            if self.is_being_exchanged(uuid).await? {
                return Ok(PlainOutcome::Exchanged(None));
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
        if is_ok(&reply) {
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

    /// Executes the client's command while the transaction holds the collection, and ends the transaction.
    async fn while_held(&mut self, lock: SessionNumber, limit: Option<i64>) -> Result<Option<Limited>, RunError> {
        let limited = self.limited(limit).await;
        let mut end = single("abortTransaction", 1);
        self.append_lock(&mut end, lock);
        append_no_wait(&mut end);
        put(&mut end, "$db", "admin");
        let ended = self.link.call(UpstreamRequest::plain(&end)).await?;
        let limited = limited?;
        let is_executed = limited.as_ref().is_some_and(|limited| is_ok(&limited.reply));
        if is_executed
            && !is_ok(&ended)
            && identity(self.link, self.head, self.namespace, self.expected).await? == Identity::Changed
        {
            return Err(self.in_part().into_command_error().into());
        }
        Ok(limited)
    }

    /// The client's own time limit, in milliseconds.
    fn own_limit(&self) -> Option<i64> {
        let own = get(self.head.body(), "maxTimeMS").and_then(as_whole_number);
        own.filter(|own| *own > 0)
    }

    /// Executes the client's command within a time limit in milliseconds, or without one. `None`: it was not
    /// executed in time.
    async fn limited(&mut self, limit: Option<i64>) -> Result<Option<Limited>, RunError> {
        let body = self.head.body();
        let whole = |reply| {
            let is_cut = false;
            Some(Limited { reply, is_cut })
        };
        let Some(limit) = limit.filter(|limit| self.own_limit().is_none_or(|own| own > *limit)) else {
            return self.send(body).await.map(whole);
        };
        let mut limited = with_replaced(body, &[("maxTimeMS", None)]);
        limited.append(cstr!("maxTimeMS"), limit);
        let reply = self.send(&limited).await?;
        if code(&reply) == Some(MAX_TIME_EXPIRED) {
            return Ok(None);
        }
        let concern = get(&reply, "writeConcernError").and_then(RawBsonRef::as_document);
        let is_cut = concern.and_then(code) == Some(MAX_TIME_EXPIRED);
        if is_cut && (self.head.is_retryable_write() || self.head.command == Command::Create) {
            // It changes nothing: mongod answers from its record, or finds the collection.
            return self.send(body).await.map(whole);
        }
        Ok(Some(Limited { reply, is_cut }))
    }

    /// Waits for the client's write concern, as long as the client allows. `reply`: to the command that was
    /// executed. mongod waits for all earlier writes also after a command that changes nothing.
    async fn with_concern(&mut self, reply: &RawDocument) -> Result<RawDocumentBuf, RunError> {
        let mut waiting = with_replaced(self.head.body(), &[("query", None), ("upsert", None)]);
        let none = RawArrayBuf::new();
        waiting.append(cstr!("query"), single("_id", single("$in", &none)));
        let waited = self.send(&waiting).await?;
        let mut error = RawDocumentBuf::new();
        if !is_ok(&waited) {
            let parts = ["code", "codeName", "errmsg"];
            let parts = parts.into_iter().filter_map(|name| Some((name, get(&waited, name)?)));
            parts.for_each(|(name, value)| put(&mut error, name, value));
        }
        let failed = (!error.is_empty()).then(|| RawBsonRef::Document(&error));
        let concern = get(&waited, "writeConcernError").or(failed);
        Ok(with_replaced(reply, &[("writeConcernError", concern)]))
    }

    fn settled(&self, reply: RawDocumentBuf) -> PlainOutcome {
        if !is_ok(&reply) && is_swap_error(&CommandError::Upstream(reply.clone())) {
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
        let body = self.head.body();
        let mut find = identity_find(self.namespace.collection, uuid);
        InheritedOptions::of(body).append_to_read(&mut find);
        let reply = self.link.call(UpstreamRequest::plain(&find)).await?;
        if !is_ok(&reply) {
            return Ok(self.unless_exchanged(reply));
        }
        let begun = with_replaced(body, &[("startTransaction", None), ("readConcern", None)]);
        let reply = self.send(&begun).await?;
        Ok(self.settled(reply))
    }

    /// No command of a transaction under `apiStrict` may name the UUID. The transaction holds the name once
    /// the write was executed, so the list after it is exact.
    pub(super) async fn in_strict_transaction(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let reply = self.send(self.head.body()).await?;
        if listed_identity(self.link, self.head, self.namespace, Some(uuid)).await? == Identity::Changed {
            return Err(exchanged_in_transaction(self.namespace).into());
        }
        Ok(self.settled(reply))
    }

    /// On a standalone there is nothing that could hold the collection. It is checked before and after.
    async fn between_checks(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let check = identity_check(self.head, self.namespace, uuid);
        let is_same = async |command: &mut Self| -> Result<bool, RunError> {
            let reply = command.link.call(UpstreamRequest::plain(&check)).await?;
            Ok(identity_of(reply) == Identity::Same)
        };
        if !is_same(self).await? {
            return Ok(PlainOutcome::Exchanged(None));
        }
        let reply = self.send(self.head.body()).await?;
        let has_found_nothing = get(&reply, "value").is_none_or(|value| value == RawBsonRef::Null);
        if has_found_nothing && !is_same(self).await? {
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

fn is_ok(reply: &RawDocument) -> bool {
    get(reply, "ok").and_then(as_flag) == Some(true)
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
