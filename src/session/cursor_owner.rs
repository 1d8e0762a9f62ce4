//! The owner of a cursor that the proxy keeps. Only the owner may use the cursor.

use std::collections::HashSet;

use bson::raw::{RawBsonRef, RawDocument};

use crate::command::cursor::GetMore;
use crate::command::document::{as_whole_number, first_field, get};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;

/// The properties of a command's client that determine which cursors it owns.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Owner {
    /// The namespace that the cursor reads.
    pub(super) namespace: String,
    /// The id of the client's session.
    pub(super) session: Option<Vec<u8>>,
    /// The number of the client's transaction.
    pub(super) transaction: Option<i64>,
    /// The users that the connection is authenticated as, as mongod reports them.
    pub(super) users: Vec<u8>,
    /// Whether the cursor is exempt from the timeout.
    pub(super) never_times_out: bool,
    /// Whether a `getMore` of the cursor waits for data.
    pub(super) awaits_data: bool,
}

impl Owner {
    /// The client of a command whose connection is authenticated as `users`.
    pub(super) fn of(head: &CommandHeader<'_>, namespace: Namespace<'_>, users: Vec<u8>) -> Self {
        let body = head.body();
        let number = get(body, "txnNumber").and_then(as_whole_number);
        Self {
            namespace: namespace.to_string(),
            session: session_of(body),
            transaction: number.filter(|_| head.in_transaction()),
            users,
            awaits_data: false,
            never_times_out: get(body, "noCursorTimeout") == Some(RawBsonRef::Boolean(true)),
        }
    }

    /// Checks a `getMore` of a client, in mongod's order (`getmore_cmd.cpp`).
    ///
    /// # Errors
    /// Another user, session, transaction or namespace, or a time limit, with mongod's codes.
    pub(super) fn check(&self, client: &Self, more: &GetMore) -> Result<(), CommandError> {
        let id = more.id;
        if client.users != self.users {
            let message = format!("cursor id {id} was not created by the authenticated user");
            return Err(CommandError::new(ErrorCode::Unauthorized, message));
        }
        if let Some((code, difference)) = self.difference(client) {
            let message = format!("Cannot run getMore on cursor {id}, {difference}");
            return Err(CommandError::malformed(code, &message));
        }
        if client.namespace != self.namespace {
            let message = format!(
                "Requested getMore on namespace '{}', but cursor belongs to a different namespace {}",
                client.namespace, self.namespace
            );
            return Err(CommandError::new(ErrorCode::Unauthorized, message));
        }
        if more.time_limit.is_some() && !self.awaits_data {
            let message = "cannot set maxTimeMS on getMore command for a non-awaitData cursor";
            return Err(CommandError::new(ErrorCode::BadValue, message));
        }
        Ok(())
    }

    /// The difference of session or transaction, with mongod's code. `None` if both are the same.
    fn difference(&self, client: &Self) -> Option<(i32, &'static str)> {
        match (&self.session, &client.session) {
            (None, Some(_)) => return Some((50736, "which was not created in a session, in a session")),
            (Some(_), None) => return Some((50737, "which was created in a session, without an lsid")),
            (Some(of), Some(by)) if of != by => {
                return Some((50738, "which was created in a session, in another session"));
            }
            _ => {}
        }
        match (self.transaction, client.transaction) {
            (None, Some(_)) => Some((50739, "which was not created in a transaction, in a transaction")),
            (Some(_), None) => Some((50740, "which was created in a transaction, without a txnNumber")),
            (Some(of), Some(by)) if of != by => {
                Some((50741, "which was created in a transaction, in another transaction"))
            }
            _ => None,
        }
    }
}

/// Sessions of one client.
#[derive(Debug)]
pub(super) struct NamedSessions {
    /// `None`: all sessions of the users.
    ids: Option<HashSet<Vec<u8>>>,
    /// The users that the client's connection is authenticated as.
    users: Vec<u8>,
}

impl NamedSessions {
    /// The sessions in the list of a `refreshSessions`.
    pub(super) fn refreshed(body: &RawDocument, users: Vec<u8>) -> Self {
        Self {
            ids: Some(listed_ids(body)),
            users,
        }
    }

    /// The sessions in the list of a `killSessions`. An empty list means all sessions of the users.
    pub(super) fn killed(body: &RawDocument, users: Vec<u8>) -> Self {
        let ids = Some(listed_ids(body)).filter(|ids| !ids.is_empty());
        Self { ids, users }
    }

    /// Whether a cursor of this owner belongs to one of the sessions.
    pub(super) fn have(&self, owner: &Owner) -> bool {
        let ids = self.ids.as_ref();
        let is_named = |id: &Vec<u8>| ids.is_none_or(|ids| ids.contains(id));
        owner.session.as_ref().is_some_and(is_named) && owner.users == self.users
    }
}

/// The ids of the sessions in the list of a command.
fn listed_ids(body: &RawDocument) -> HashSet<Vec<u8>> {
    let listed = first_field(body).and_then(|(_, list)| list.as_array());
    let listed = listed.into_iter().flatten().flatten();
    let ids = listed.filter_map(|session| session_id(session.as_document()?));
    ids.collect()
}

/// The id of the session that a command runs in.
fn session_of(body: &RawDocument) -> Option<Vec<u8>> {
    session_id(get(body, "lsid")?.as_document()?)
}

fn session_id(session: &RawDocument) -> Option<Vec<u8>> {
    match get(session, "id")? {
        RawBsonRef::Binary(id) => Some(id.bytes.to_vec()),
        _ => None,
    }
}
