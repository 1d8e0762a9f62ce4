//! `maxTimeMS`, an option of every command.

use bson::raw::{RawBsonRef, RawDocument};

use super::document::{as_whole_number, get};
use super::error::{CommandError, ErrorCode};

/// Checks the time limit of a command as mongod does before it runs the command
/// (`query_request_helper.h`, `parseMaxTimeMS`).
///
/// # Errors
/// A value that is not a number, or is negative, beyond an `int`, or a fraction, with mongod's
/// codes.
pub fn check(body: &RawDocument) -> Result<(), CommandError> {
    let Some(value) = get(body, "maxTimeMS") else {
        return Ok(());
    };
    let refused = |message: String| Err(CommandError::new(ErrorCode::BadValue, message));
    let Some(number) = as_whole_number(value) else {
        return refused("maxTimeMS must be a number".to_owned());
    };
    if i32::try_from(number).is_ok_and(|number| number >= 0) {
        return match value {
            RawBsonRef::Double(number) if number.fract() != 0.0 => {
                refused("maxTimeMS has non-integral value".to_owned())
            }
            _ => Ok(()),
        };
    }
    refused(format!("{number} value for maxTimeMS is out of range"))
}

#[cfg(test)]
mod tests {
    use bson::raw::RawBson;
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_limit_is_a_whole_number_of_an_int() {
        let code = |value: RawBson| {
            let refused = check(&rawdoc! { "find": "c", "maxTimeMS": value }).err()?;
            refused.into_reply().get_i32("code").ok()
        };
        let decimal = |text: &str| RawBson::Decimal128(text.parse().unwrap());
        for allowed in [
            RawBson::Int32(0),
            RawBson::Int64(i32::MAX.into()),
            RawBson::Double(-0.0),
            decimal("5"),
            decimal("1.5"),
        ] {
            assert_eq!(code(allowed.clone()), None, "{allowed:?}");
        }
        for refused in [
            RawBson::Int32(-1),
            RawBson::Int64(1 << 31),
            RawBson::Double(1.5),
            RawBson::Double(-0.5),
            RawBson::Double(f64::NAN),
            RawBson::Double(1e300),
            decimal("-5"),
            RawBson::Null,
            RawBson::Boolean(true),
            RawBson::String("1".to_owned()),
        ] {
            assert_eq!(code(refused.clone()), Some(2), "{refused:?}");
        }
        assert!(check(&rawdoc! { "find": "c" }).is_ok());
    }
}
