//! `readConcern` and `writeConcern` of commands that support only some levels.

use std::fmt::Write as _;

use bson::raw::{RawBsonRef, RawDocument};

use super::document::{first_field, get, type_name};
use super::error::{CommandError, ErrorCode};
use super::value_text::value_text;

const LEVELS: [&str; 5] = ["local", "majority", "linearizable", "available", "snapshot"];
/// The fields of a read concern (`read_concern_args.cpp`).
const FIELDS: [&str; 5] = [
    "level",
    "afterOpTime",
    "afterClusterTime",
    "atClusterTime",
    "provenance",
];

/// Checks the concerns of a write. In a transaction they belong to the transaction.
///
/// # Errors
/// A write concern in a transaction; a read concern that is malformed, or whose level is not
/// `local`; with mongod's codes.
pub fn check_of_write(body: &RawDocument) -> Result<(), CommandError> {
    check_write_concern(body)?;
    check(body, "read concern not supported", |level| level == "local")
}

/// Refuses a write concern in a transaction, because it belongs to the commit.
///
/// # Errors
/// A write concern, with mongod's codes.
pub fn check_write_concern(body: &RawDocument) -> Result<(), CommandError> {
    if get(body, "autocommit").is_none() {
        return Ok(());
    }
    match get(body, "writeConcern") {
        None => Ok(()),
        Some(RawBsonRef::Document(_)) => {
            let message = "writeConcern is not allowed within a multi-statement transaction";
            Err(CommandError::new(ErrorCode::InvalidOptions, message))
        }
        Some(concern) => {
            let found = type_name(concern);
            let message = format!("\"writeConcern\" had the wrong type. Expected object, found {found}");
            Err(CommandError::new(ErrorCode::TypeMismatch, message))
        }
    }
}

/// Checks the read concern of a `count`, which does not support snapshots.
///
/// # Errors
/// A read concern that is malformed, or whose level is `snapshot`, with mongod's codes.
pub fn check_of_count(body: &RawDocument) -> Result<(), CommandError> {
    check(body, "read concern snapshot not supported", |level| level != "snapshot")
}

fn check(body: &RawDocument, cause: &str, is_supported: fn(&str) -> bool) -> Result<(), CommandError> {
    let Some(value) = get(body, "readConcern") else {
        return Ok(());
    };
    let RawBsonRef::Document(concern) = value else {
        let message = "readConcern field should be an object";
        return Err(CommandError::new(ErrorCode::FailedToParse, message));
    };
    for (name, _) in concern.iter().flatten() {
        if !FIELDS.contains(&name.as_str()) {
            let message = format!("Unrecognized option in readConcern: {name}");
            return Err(CommandError::new(ErrorCode::InvalidOptions, message));
        }
    }
    let is_in_transaction = get(body, "autocommit").is_some();
    match get(concern, "level") {
        None => Ok(()),
        Some(RawBsonRef::String(level)) if !LEVELS.contains(&level) => {
            let message =
                "readConcern.level must be either 'local', 'majority', 'linearizable', 'available', or 'snapshot'";
            Err(CommandError::new(ErrorCode::FailedToParse, message))
        }
        Some(RawBsonRef::String(_)) if is_in_transaction && get(body, "startTransaction").is_none() => {
            let message = "Only the first command in a transaction may specify a readConcern";
            Err(CommandError::new(ErrorCode::InvalidOptions, message))
        }
        // mongod checks the levels of transactions.
        Some(RawBsonRef::String(level)) if is_in_transaction || is_supported(level) => Ok(()),
        Some(RawBsonRef::String(_)) => {
            let command = first_field(body).map_or("", |(name, _)| name);
            let mut fields = String::new();
            for (name, value) in concern.iter().flatten() {
                let _ = write!(fields, "{name}: {}, ", value_text(value));
            }
            let message = format!(
                "Command {command} does not support {{ readConcern: {{ {fields}provenance: \"clientSupplied\" }} }} :: \
                 caused by :: {cause}"
            );
            Err(CommandError::new(ErrorCode::InvalidOptions, message))
        }
        Some(level) => {
            let message = format!(
                "\"level\" had the wrong type. Expected string, found {}",
                type_name(level)
            );
            Err(CommandError::new(ErrorCode::TypeMismatch, message))
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawBson;
    use bson::rawdoc;

    use super::*;

    fn refused(concern: RawBson, check: fn(&RawDocument) -> Result<(), CommandError>) -> Option<ErrorCode> {
        let body = rawdoc! { "insert": "c", "readConcern": concern };
        match check(&body) {
            Err(CommandError::Own { code, .. }) => Some(code),
            _ => None,
        }
    }

    #[test]
    fn a_write_has_the_level_local() {
        let refused = |concern: RawBson| refused(concern, check_of_write);
        assert_eq!(refused(rawdoc! { "level": "local" }.into()), None);
        assert_eq!(refused(rawdoc! {}.into()), None);
        assert_eq!(
            refused(rawdoc! { "level": "majority" }.into()),
            Some(ErrorCode::InvalidOptions)
        );
        assert_eq!(
            refused(rawdoc! { "level": "none" }.into()),
            Some(ErrorCode::FailedToParse)
        );
        assert_eq!(refused(rawdoc! { "level": 1 }.into()), Some(ErrorCode::TypeMismatch));
        assert_eq!(refused(rawdoc! { "other": 1 }.into()), Some(ErrorCode::InvalidOptions));
        assert_eq!(refused(RawBson::Int32(1)), Some(ErrorCode::FailedToParse));
        let mut first = rawdoc! { "insert": "c", "readConcern": { "level": "majority" }, "autocommit": false };
        assert!(check_of_write(&first).is_err());
        first.append(bson::raw::cstr!("startTransaction"), true);
        assert!(check_of_write(&first).is_ok());
    }

    #[test]
    fn a_count_reads_no_snapshot() {
        let refused = |level: &str| refused(rawdoc! { "level": level }.into(), check_of_count);
        assert_eq!(refused("majority"), None);
        assert_eq!(refused("snapshot"), Some(ErrorCode::InvalidOptions));
    }
}
