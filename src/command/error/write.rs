//! Errors of single statements of a write command.

use bson::raw::{RawDocument, RawDocumentBuf, cstr};

use super::code::{ErrorCode, name_of_server_error, name_of_write_error};
use super::{CommandError, LABELS};
use crate::command::document::append_fields;

/// An error of mongod for one statement of a write command, or of the proxy for one item.
#[derive(Clone, Debug)]
pub struct WriteError {
    /// The error code.
    pub code: i32,
    /// The message.
    pub message: String,
    /// Fields other than `index`, `code` and `errmsg`, such as `keyPattern` and `keyValue`.
    pub detail: RawDocumentBuf,
}

/// The fields that tell why a document was refused.
fn detail_of(reply: &RawDocument) -> RawDocumentBuf {
    let of_document = ["keyPattern", "keyValue", "errInfo"];
    let fields = reply.iter().flatten();
    fields
        .filter(|(name, _)| of_document.contains(&name.as_str()))
        .collect()
}

impl WriteError {
    /// An error without detail.
    #[must_use]
    pub fn new(code: ErrorCode, message: impl Into<String>) -> Self {
        Self {
            code: code.number(),
            message: message.into(),
            detail: RawDocumentBuf::new(),
        }
    }

    /// Turns the error of an internal command into that of the client's statement. `None` if the
    /// error concerns the server or the transaction.
    #[must_use]
    pub fn of_command(error: &CommandError) -> Option<Self> {
        let error = match error {
            CommandError::Own { code, message } => Self::new(*code, message.clone()),
            CommandError::Upstream(reply) if reply.get_array(LABELS).is_ok_and(|labels| !labels.is_empty()) => {
                return None;
            }
            CommandError::Upstream(reply) => Self {
                code: reply.get_i32("code").ok()?,
                message: reply.get_str("errmsg").ok()?.to_owned(),
                detail: detail_of(reply),
            },
        };
        (!error.is_of_server()).then_some(error)
    }

    /// Whether the error only means that the server could not continue. The whole command may then
    /// be retried.
    #[must_use]
    pub fn is_of_server(&self) -> bool {
        name_of_server_error(self.code).is_some()
    }

    /// The error as that of the whole command.
    #[must_use]
    pub fn into_command_error(self) -> CommandError {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), self.message);
        reply.append(cstr!("code"), self.code);
        if let Some(name) = name_of_server_error(self.code) {
            reply.append(cstr!("codeName"), name);
        }
        append_fields(&mut reply, &self.detail);
        CommandError::Upstream(reply)
    }

    /// The error as that of a command that does not report statements.
    #[must_use]
    pub fn into_named_error(self) -> CommandError {
        let mut reply = RawDocumentBuf::new();
        reply.append(cstr!("ok"), 0.0);
        reply.append(cstr!("errmsg"), self.message);
        reply.append(cstr!("code"), self.code);
        reply.append(cstr!("codeName"), name_of_write_error(self.code));
        append_fields(&mut reply, &self.detail);
        CommandError::Upstream(reply)
    }

    /// Parses an element of `writeErrors`: the statement's index and the error.
    #[must_use]
    pub fn parse(document: &RawDocument) -> Option<(usize, Self)> {
        let index = usize::try_from(document.get_i32("index").ok()?).ok()?;
        let code = document.get_i32("code").ok()?;
        let message = document.get_str("errmsg").unwrap_or_default().to_owned();
        let mut detail = RawDocumentBuf::new();
        for (name, value) in document.iter().flatten() {
            if !["index", "code", "errmsg"].contains(&name.as_str()) {
                detail.append(name, value);
            }
        }
        Some((index, Self { code, message, detail }))
    }

    /// The element of `writeErrors` for statement number `index`.
    #[must_use]
    pub fn to_document(&self, index: usize) -> RawDocumentBuf {
        let mut document = RawDocumentBuf::new();
        document.append(cstr!("index"), i32::try_from(index).unwrap_or(i32::MAX));
        document.append(cstr!("code"), self.code);
        document.append(cstr!("errmsg"), self.message.as_str());
        append_fields(&mut document, &self.detail);
        document
    }
}
