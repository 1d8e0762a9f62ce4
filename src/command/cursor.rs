//! `getMore` and `killCursors`: commands on an existing cursor.

use std::time::Duration;

use bson::raw::{RawArray, RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::document::{as_whole_number, get, type_name};
use super::error::{CommandError, ErrorCode};
use super::time_limit;

/// A `getMore`.
#[derive(Clone, Copy, Debug)]
pub struct GetMore {
    /// The cursor.
    pub id: i64,
    /// The most documents to return. `None`: as many as fit, also for 0.
    pub batch_size: Option<u64>,
    /// `maxTimeMS`, which only a cursor that waits for data accepts. `None`, also for 0: no limit.
    pub time_limit: Option<Duration>,
}

impl GetMore {
    /// Parses the body of a `getMore`.
    ///
    /// # Errors
    /// A field that `getMore` does not have, or one of the wrong type, with mongod's codes.
    pub fn parse(body: &RawDocument) -> Result<Self, CommandError> {
        let id = match get(body, "getMore") {
            Some(RawBsonRef::Int64(id)) => id,
            Some(other) => return Err(CommandError::wrong_type("getMore.getMore", type_name(other), "long")),
            None => return Err(not_found(0)),
        };
        let time_limit = get(body, "maxTimeMS");
        let millis = time_limit.and_then(as_whole_number).filter(|millis| *millis != 0);
        // A negative limit is refused below.
        let millis = millis.map(|millis| u64::try_from(millis).unwrap_or_default());
        let mut more = Self {
            id,
            batch_size: None,
            time_limit: millis.map(Duration::from_millis),
        };
        for field in CommandField::all("getMore", body) {
            let (name, field) = field?;
            match name {
                "batchSize" => more.batch_size = field.size()?.filter(|size| *size > 0),
                "collection" | "term" | "lastKnownCommittedOpTime" => {}
                _ => return Err(field.unknown()),
            }
        }
        match time_limit {
            Some(other) if other != RawBsonRef::Null && as_whole_number(other).is_none() => {
                let expected = "[long, int, decimal, double']";
                return Err(CommandError::wrong_type(
                    "getMore.maxTimeMS",
                    type_name(other),
                    expected,
                ));
            }
            _ => time_limit::check(body)?,
        }
        Ok(more)
    }
}

/// The cursors that a `killCursors` names.
///
/// # Errors
/// A list that is missing, or not a list of numbers.
pub fn killed_ids(body: &RawDocument) -> Result<Vec<i64>, CommandError> {
    let Some(RawBsonRef::Array(ids)) = get(body, "cursors") else {
        let message = "BSON field 'killCursors.cursors' is missing but a required field";
        return Err(CommandError::new(ErrorCode::MissingField, message));
    };
    ids.into_iter()
        .map(|id| {
            let id = id.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
            as_whole_number(id).ok_or_else(|| CommandError::wrong_type("killCursors.cursors.0", type_name(id), "long"))
        })
        .collect()
}

/// Whether a user may kill other users' cursors on a namespace. `privileges` are the
/// `authenticatedUserPrivileges` of a `connectionStatus`.
#[must_use]
pub fn may_kill_any(privileges: &RawArray, namespace: &str) -> bool {
    let (database, collection) = namespace.split_once('.').unwrap_or((namespace, ""));
    let privileges = privileges.into_iter().flatten().filter_map(RawBsonRef::as_document);
    let applies = |resource: &RawDocument| {
        let flag = |name| get(resource, name) == Some(RawBsonRef::Boolean(true));
        // An empty name stands for any name.
        let names = |name: &str, own: &str| {
            let given = get(resource, name).and_then(RawBsonRef::as_str);
            given.is_some_and(|given| given.is_empty() || given == own)
        };
        flag("cluster") || flag("anyResource") || (names("db", database) && names("collection", collection))
    };
    privileges.into_iter().any(|privilege| {
        let resource = get(privilege, "resource").and_then(RawBsonRef::as_document);
        let actions = get(privilege, "actions").and_then(RawBsonRef::as_array);
        let mut actions = actions.into_iter().flatten().flatten();
        resource.is_some_and(applies) && actions.any(|action| action.as_str() == Some("killAnyCursor"))
    })
}

/// mongod's error for a cursor that does not exist.
#[must_use]
pub fn not_found(id: i64) -> CommandError {
    CommandError::new(ErrorCode::CursorNotFound, format!("cursor id {id} not found"))
}

/// mongod's error for a cursor that another `getMore` is using.
#[must_use]
pub fn in_use(id: i64) -> CommandError {
    CommandError::new(ErrorCode::CursorInUse, format!("cursor id {id} is already in use"))
}
