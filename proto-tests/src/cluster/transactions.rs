//! Transactions: which shards take part in which, and how they end.

use std::collections::{BTreeSet, HashMap};

use anyhow::Result;
use bson::{Bson, Document, doc};

use super::refusal::Refusal;
use super::shard_connections::ShardConnections;
use super::statements::{copy_session, is_ok, is_set, name, namespace, session_id, without};

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Phase {
    Open,
    Aborted,
    Committed,
}

#[derive(Clone, Debug)]
struct Transaction {
    number: i64,
    /// Shards that a statement has reached, in this order.
    participants: Vec<usize>,
    read_concern: Option<Bson>,
    phase: Phase,
    /// The collections of its statements.
    namespaces: BTreeSet<String>,
    /// The fields that name the transaction, to abort it without a command of the client.
    session: Document,
}

/// The last transaction of each session.
#[derive(Debug, Default)]
pub(super) struct Transactions {
    sessions: HashMap<Vec<u8>, Transaction>,
}

/// Whether a command is a statement of a transaction, or ends it.
pub(super) fn is_in_transaction(command: &Document) -> bool {
    command.get_bool("autocommit").is_ok_and(|commits| !commits)
}

fn is_end(command: &Document) -> bool {
    ["commitTransaction", "abortTransaction"].contains(&name(command))
}

fn no_such(command: &Document) -> Refusal {
    let number = command.get_i64("txnNumber").unwrap_or_default();
    let message = format!("cannot continue txnNumber {number}: the transaction is unknown or was aborted");
    Refusal::new(251, "NoSuchTransaction", message).transient()
}

impl Transactions {
    fn of(&mut self, command: &Document) -> Option<&mut Transaction> {
        let number = command.get_i64("txnNumber").ok()?;
        let transaction = self.sessions.get_mut(&session_id(command)?)?;
        (transaction.number == number).then_some(transaction)
    }

    /// Begins a transaction if the command does so, or checks that it is open.
    pub(super) fn enter(&mut self, command: &Document) -> Result<(), Refusal> {
        if !is_in_transaction(command) || is_end(command) {
            return Ok(());
        }
        if is_set(command, "startTransaction") {
            let Some(id) = session_id(command) else {
                return Err(no_such(command));
            };
            if self.of(command).is_some() {
                let message = "the transaction has begun with another command";
                return Err(Refusal::new(117, "ConflictingOperationInProgress", message));
            }
            let mut session = Document::new();
            copy_session(command, &mut session);
            session.insert("$db", "admin");
            let begun = Transaction {
                number: command.get_i64("txnNumber").unwrap_or_default(),
                participants: Vec::new(),
                read_concern: command.get("readConcern").cloned(),
                phase: Phase::Open,
                namespaces: namespace(command).into_iter().collect(),
                session,
            };
            self.sessions.insert(id, begun);
            return Ok(());
        }
        let found = self.of(command).filter(|found| found.phase == Phase::Open);
        let open = found.ok_or_else(|| no_such(command))?;
        open.namespaces.extend(namespace(command));
        Ok(())
    }

    /// Makes a shard a participant, and gives the command to send to it. The first one begins the transaction
    /// there.
    pub(super) fn join(&mut self, shard: usize, command: Document) -> Document {
        if !is_in_transaction(&command) || is_end(&command) {
            return command;
        }
        let Some(transaction) = self.of(&command) else {
            return command;
        };
        let mut joined = without(&command, &["startTransaction", "readConcern"]);
        if !transaction.participants.contains(&shard) {
            transaction.participants.push(shard);
            joined.insert("startTransaction", true);
            if let Some(concern) = &transaction.read_concern {
                joined.insert("readConcern", concern.clone());
            }
        }
        joined
    }

    fn participants(&mut self, command: &Document) -> Vec<usize> {
        self.of(command)
            .map(|transaction| transaction.participants.clone())
            .unwrap_or_default()
    }

    fn open_sessions(&self, namespace: &str) -> Vec<Document> {
        let transactions = self.sessions.values();
        let open = transactions
            .filter(|transaction| transaction.phase == Phase::Open && transaction.namespaces.contains(namespace));
        open.map(|transaction| transaction.session.clone()).collect()
    }
}

/// Runs `commitTransaction` or `abortTransaction` on each participant, in turn.
pub(super) fn end(connections: &mut ShardConnections, command: &Document) -> Result<Document> {
    let state = connections.state();
    let mut participants = state.transactions().participants(command);
    let phase = if name(command) == "commitTransaction" {
        Phase::Committed
    } else {
        Phase::Aborted
    };
    let is_refused = state.transactions().of(command).map(|found| found.phase) == Some(Phase::Aborted);
    if is_refused && phase == Phase::Committed {
        return Err(no_such(command).into());
    }
    if participants.is_empty() {
        // Another router began it, or none did: the token names the shard that knows the outcome.
        let token = command.get_document("recoveryToken").ok();
        let name = token.and_then(|token| token.get_str("recoveryShardId").ok());
        participants.extend(state.shards.iter().position(|shard| Some(shard.name.as_str()) == name));
    }
    let mut reply = None;
    for shard in participants {
        let ended = connections.send(shard, command)?;
        if reply.as_ref().is_none_or(is_ok) {
            reply = Some(ended);
        }
    }
    if let Some(transaction) = state.transactions().of(command) {
        transaction.phase = phase;
    }
    reply.ok_or_else(|| no_such(command).into())
}

/// Aborts the transaction of a statement that failed, on all participants.
pub(super) fn abort(connections: &mut ShardConnections, command: &Document) {
    let state = connections.state();
    let participants = state.transactions().participants(command);
    let mut abort = doc! { "abortTransaction": 1 };
    copy_session(command, &mut abort);
    abort.insert("$db", "admin");
    for shard in participants {
        // The shard whose statement failed has aborted already, and answers with an error.
        let _ = connections.send(shard, &abort);
    }
    if let Some(transaction) = state.transactions().of(command) {
        transaction.phase = Phase::Aborted;
    }
}

/// Aborts all open transactions on a collection: a slot of it is about to move.
pub(super) fn abort_all(connections: &mut ShardConnections, namespace: &str) {
    let sessions = connections.state().transactions().open_sessions(namespace);
    for session in sessions {
        abort(connections, &session);
    }
}

/// Adds the recovery token to the reply of a statement.
pub(super) fn append_token(connections: &ShardConnections, command: &Document, reply: &mut Document) {
    let state = connections.state();
    let first = state.transactions().participants(command).first().copied();
    let mut token = Document::new();
    if let Some(shard) = first.and_then(|shard| state.shards.get(shard)) {
        token.insert("recoveryShardId", &shard.name);
    }
    reply.insert("recoveryToken", token);
}
