//! mongod's errors for the item of a `findAndModify`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::with_replaced;
use crate::command::document::{append_fields, get};
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::reply::copy_cluster_time;
use crate::pattern::bucket::insert::is_too_large;
use crate::pattern::bucket::unique_index::violation;
use crate::pattern::bucket::validator::is_invalid;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::duplicate_key::in_application_terms;
use crate::session::bucket::failed_update::FailedUpdate;
use crate::session::bucket::item_update::{end_transaction, in_words_of_the_application};
use crate::session::error::RunError;

/// mongod's prefix of an error that an item caused.
const PREFIX: &str = "Plan executor error during findAndModify :: caused by :: ";

/// Returns the command's error for an error that an item caused, after it has ended the
/// transaction.
pub(super) async fn fail(run: &mut BucketCommand<'_>, error: &WriteError) -> Result<CommandError, RunError> {
    end_transaction(run).await?;
    Ok(failed(error))
}

fn failed(error: &WriteError) -> CommandError {
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("ok"), 0.0);
    reply.append(cstr!("errmsg"), format!("{PREFIX}{}", error.message));
    reply.append(cstr!("code"), error.code);
    // Errors of expressions have codes without names.
    let name = match error.code {
        2 => "BadValue".to_owned(),
        9 => "FailedToParse".to_owned(),
        14 => "TypeMismatch".to_owned(),
        code => {
            let known = [
                ErrorCode::BsonObjectTooLarge,
                ErrorCode::ConflictingUpdateOperators,
                ErrorCode::ConversionFailure,
                ErrorCode::DocumentValidationFailure,
                ErrorCode::DollarPrefixedFieldName,
                ErrorCode::DuplicateKey,
                ErrorCode::ImmutableField,
                ErrorCode::InvalidDbRef,
                ErrorCode::InvalidIdField,
                ErrorCode::NotExactValueField,
                ErrorCode::NotSingleValueField,
                ErrorCode::Overflow,
                ErrorCode::PathNotViable,
            ];
            let known = known.into_iter().find(|known| known.number() == code);
            known.map_or_else(|| format!("Location{code}"), |known| known.name().to_owned())
        }
    };
    reply.append(cstr!("codeName"), name);
    append_fields(&mut reply, &error.detail);
    CommandError::Upstream(reply)
}

/// mongod's error, in terms of the item instead of the page.
pub(super) async fn in_item_terms(
    run: &mut BucketCommand<'_>,
    failed: FailedUpdate<'_>,
    reply: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    if let Some(refused) = duplicate(run, failed, reply).await? {
        return Ok(refused);
    }
    let Some(RawBsonRef::String(message)) = get(reply, "errmsg") else {
        return Ok(reply.to_owned());
    };
    let error = WriteError::new(ErrorCode::BadValue, message);
    let message = in_words_of_the_application(run, error, failed).await?.message;
    Ok(with_replaced(reply, &[("errmsg", Some(RawBsonRef::String(&message)))]))
}

/// mongod's error for a second item with a key of a unique index, for an item that does not satisfy the
/// application's validator, or for one that is too large. `None` for any other error.
pub(super) async fn duplicate(
    run: &mut BucketCommand<'_>,
    update: FailedUpdate<'_>,
    reply: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let Some(mut error) = write_error(reply) else {
        return Ok(None);
    };
    if let Some(message) = error.message.strip_prefix(PREFIX) {
        error.message = message.to_owned();
    }
    let error = in_application_terms(run, error, update).await?;
    let mut refused = failed(&error).into_reply();
    copy_cluster_time(&mut refused, reply);
    Ok(Some(refused))
}

/// mongod's error if it is about a unique index, the application's validator or the size of a document.
fn write_error(reply: &RawDocument) -> Option<WriteError> {
    let is_of_size = reply.get_i32("code").is_ok_and(is_too_large);
    if !is_of_size && !is_invalid(reply) {
        violation(reply)?;
    }
    WriteError::of_command(&CommandError::Upstream(reply.to_owned()))
}
