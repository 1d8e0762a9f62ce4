//! One operation of `bulkWrite`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::NamespaceInfo;
use crate::command::arguments::CommandField;
use crate::command::document::{as_flag, first_field, get, put, type_name};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::registry::Command;
use crate::command::update::checked_change;
use crate::command::write_batch::missing;

/// The kind of an operation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum OperationKind {
    Insert,
    Update,
    Delete,
}

/// A field of an operation, and its name in a statement of the command that executes it.
struct OperationField {
    name: &'static str,
    of_statement: &'static str,
}

/// One operation.
#[derive(Clone, Copy, Debug)]
pub(super) struct BulkOperation<'a> {
    pub(super) kind: OperationKind,
    pub(super) into: NamespaceInfo<'a>,
    pub(super) fields: &'a RawDocument,
}

/// Fields of `update` operations that are copied.
const OF_UPDATE: &[OperationField] = &[
    OperationField::new("filter", "q"),
    OperationField::new("updateMods", "u"),
    OperationField::new("multi", "multi"),
    OperationField::new("upsert", "upsert"),
    OperationField::new("arrayFilters", "arrayFilters"),
    OperationField::new("hint", "hint"),
    OperationField::new("constants", "c"),
    OperationField::new("collation", "collation"),
    OperationField::new("sort", "sort"),
];
/// Fields of `delete` operations that are copied.
const OF_DELETE: &[OperationField] = &[
    OperationField::new("filter", "q"),
    OperationField::new("hint", "hint"),
    OperationField::new("collation", "collation"),
];

impl OperationField {
    const fn new(name: &'static str, of_statement: &'static str) -> Self {
        Self { name, of_statement }
    }
}

impl OperationKind {
    /// The command that executes such operations.
    pub(super) fn command(self) -> Command {
        match self {
            Self::Insert => Command::Insert,
            Self::Update => Command::Update,
            Self::Delete => Command::Delete,
        }
    }

    /// The fields that an operation must have.
    fn required(self) -> &'static [&'static str] {
        match self {
            Self::Insert => &["document"],
            Self::Update => &["filter", "updateMods"],
            Self::Delete => &["filter"],
        }
    }

    fn has(self, field: &str) -> bool {
        let is_named = |fields: &[OperationField]| fields.iter().any(|one| one.name == field);
        match self {
            Self::Insert => field == "document",
            Self::Update => is_named(OF_UPDATE),
            Self::Delete => is_named(OF_DELETE) || field == "multi",
        }
    }
}

impl<'a> BulkOperation<'a> {
    /// Parses an element of `ops`. `None`: its position in `nsInfo` is invalid. The command that executes the
    /// operation parses the other fields completely.
    pub(super) fn parse(
        fields: &'a RawDocument,
        namespaces: &[NamespaceInfo<'a>],
    ) -> Result<Option<Self>, CommandError> {
        let kind = match first_field(fields) {
            Some(("insert", _)) => OperationKind::Insert,
            Some(("update", _)) => OperationKind::Update,
            Some(("delete", _)) => OperationKind::Delete,
            other => {
                let name = other.map(|(name, _)| name).unwrap_or_default();
                let message =
                    format!("an element of bulkWrite.ops begins with \"{name}\", not with insert, update or delete");
                return Err(CommandError::new(ErrorCode::FailedToParse, message));
            }
        };
        let mut position = None;
        for field in CommandField::within("bulkWrite.ops", fields) {
            let (name, field) = field?;
            match name {
                name if name == kind.command().name() => position = field.size()?,
                name if !kind.has(name) => return Err(field.unknown()),
                "filter" | "document" => {
                    let is = type_name(field.value());
                    let wrong = || CommandError::wrong_type(&format!("bulkWrite.ops.{name}"), is, "object");
                    field.document()?.ok_or_else(wrong)?;
                }
                "updateMods" => drop(checked_change(field.value())?),
                "multi" | "upsert" => drop(field.flag()?),
                _ => {}
            }
        }
        for required in kind.required() {
            if get(fields, required).is_none() {
                return Err(missing(&format!("bulkWrite.ops.{required}")));
            }
        }
        let position = position.and_then(|position| usize::try_from(position).ok());
        let into = position.and_then(|position| namespaces.get(position).copied());
        Ok(into.map(|into| Self { kind, into, fields }))
    }

    /// The statement, or the document to insert.
    pub(super) fn statement(&self) -> RawDocumentBuf {
        let mut statement = RawDocumentBuf::new();
        let copied = match self.kind {
            OperationKind::Insert => {
                let document = get(self.fields, "document").and_then(RawBsonRef::as_document);
                return document.map(RawDocument::to_owned).unwrap_or_default();
            }
            OperationKind::Update => OF_UPDATE,
            OperationKind::Delete => OF_DELETE,
        };
        for (name, value) in self.fields.iter().flatten() {
            if let Some(field) = copied.iter().find(|field| field.name == name.as_str()) {
                put(&mut statement, field.of_statement, value);
            }
        }
        if self.kind == OperationKind::Delete {
            let is_multi = get(self.fields, "multi").and_then(as_flag) == Some(true);
            statement.append(cstr!("limit"), i32::from(!is_multi));
        }
        statement
    }
}
