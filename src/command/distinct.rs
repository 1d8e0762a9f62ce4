//! The `distinct` command.

use bson::raw::{RawBsonRef, RawDocument};

use super::arguments::CommandField;
use super::document::{as_flag, get};
use super::error::{CommandError, ErrorCode};
use super::server_version::{FieldSince, ServerVersion};

/// The index hint.
const HINT: FieldSince = FieldSince {
    command: "distinct",
    field: "hint",
    version: ServerVersion::new(7, 1, 0),
};

/// A parsed `distinct`.
#[derive(Clone, Debug)]
pub struct Distinct<'a> {
    /// The path whose values are requested.
    pub key: &'a str,
    /// The filter.
    pub query: Option<&'a RawDocument>,
    /// The collation.
    pub collation: Option<&'a RawDocument>,
    /// The index hint.
    pub hint: Option<RawBsonRef<'a>>,
}

impl<'a> Distinct<'a> {
    /// Whether it requests the values of all documents, and compares them without a collation.
    #[must_use]
    pub fn is_of_all(&self) -> bool {
        self.query.is_none() && self.collation.is_none()
    }

    /// A field that servers of earlier versions do not know.
    #[must_use]
    pub fn newer_field(&self) -> Option<FieldSince> {
        self.hint.map(|_| HINT)
    }

    /// Parses the body of a `distinct`.
    ///
    /// # Errors
    /// A field that `distinct` does not have, one of the wrong type, or an invalid path, with
    /// mongod's codes.
    pub fn parse(body: &'a RawDocument) -> Result<Self, CommandError> {
        if get(body, "apiStrict").and_then(as_flag).unwrap_or(false) {
            let message = "Provided apiStrict:true, but the command distinct is not in API Version 1";
            return Err(CommandError::new(ErrorCode::ApiStrict, message));
        }
        if get(body, "writeConcern").is_some() {
            let message = "Command does not support writeConcern";
            return Err(CommandError::new(ErrorCode::InvalidOptions, message));
        }
        let (mut key, mut query, mut collation, mut hint) = (None, None, None, None);
        for field in CommandField::all("distinct", body) {
            let (name, field) = field?;
            match name {
                "key" => key = field.string()?,
                "query" => query = field.document()?.filter(|query| !query.is_empty()),
                "collation" => collation = field.document()?.filter(|collation| !collation.is_empty()),
                "hint" => hint = Some(field.value()),
                _ => return Err(field.unknown()),
            }
        }
        let Some(key) = key else {
            let message = "BSON field 'distinct.key' is missing but a required field";
            return Err(CommandError::new(ErrorCode::MissingField, message));
        };
        check_path(key)?;
        Ok(Self {
            key,
            query,
            collation,
            hint,
        })
    }
}

fn check_path(path: &str) -> Result<(), CommandError> {
    let (code, message) = if path.contains('\0') {
        (31032, "Key field cannot contain an embedded null byte")
    } else if path.is_empty() {
        (40352, "FieldPath cannot be constructed with empty string")
    } else if path.ends_with('.') {
        (40353, "FieldPath must not end with a '.'.")
    } else {
        match path.split('.').find(|name| name.is_empty() || name.starts_with('$')) {
            None => return Ok(()),
            Some("") => (15998, "FieldPath field names may not be empty strings."),
            Some(_) => (
                16410,
                "FieldPath field names may not start with '$'. Consider using $getField or $setField.",
            ),
        }
    };
    Err(CommandError::malformed(code, message))
}

/// mongod's error for values that do not fit in one reply.
#[must_use]
pub fn too_big() -> CommandError {
    let message = "Executor error during distinct command :: caused by :: distinct too big, 16mb cap";
    CommandError::malformed(17217, message)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn check(body: &RawDocument, code: Option<i32>) {
        let found = Distinct::parse(body).err().map(CommandError::into_reply);
        let found = found.map(|reply| reply.get_i32("code").unwrap());
        assert_eq!(found, code, "{body:?}");
    }

    #[test]
    fn invalid_distinct_has_mongods_error_codes() {
        let of = |key: &str| rawdoc! { "distinct": "c", "key": key, "$db": "d" };
        check(&of("a.b"), None);
        check(&of("0"), None);
        check(&of(""), Some(40352));
        check(&of("a."), Some(40353));
        check(&of(".a"), Some(15998));
        check(&of("a..b"), Some(15998));
        check(&of("a.$b"), Some(16410));
        check(&of("a\0"), Some(31032));
        check(&rawdoc! { "distinct": "c" }, Some(40414));
        check(&rawdoc! { "distinct": "c", "key": 1 }, Some(14));
        check(&rawdoc! { "distinct": "c", "key": "a", "hint": "_id_" }, None);
        check(&rawdoc! { "distinct": "c", "key": "a", "hinted": 1 }, Some(40415));
        check(&rawdoc! { "distinct": "c", "key": "a", "query": 1 }, Some(14));
        check(
            &rawdoc! { "distinct": "c", "key": "a", "apiVersion": "1", "apiStrict": true },
            Some(323),
        );
    }
}
