//! The `bulkWrite` command of MongoDB 8.0: writes to several collections. It is executed as consecutive
//! `insert`, `update` and `delete` commands, whose replies are joined.

mod operation;
mod results;

use std::ops::Range;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::operation::{BulkOperation, OperationKind};
pub use self::results::BulkWriteResults;
use super::arguments::{CommandField, InheritedOptions, with_replaced};
use super::document::{get, single, type_name};
use super::error::{CommandError, ErrorCode};
use super::header::CommandHeader;
use super::namespace::Namespace;
use super::statement_ids::StatementIds;
use super::time_limit;
use super::write_batch::{MAX_WRITE_BATCH_SIZE, missing};
use crate::wire::{Frame, OpMsgBuilder, WireError};

/// The most bytes of operations of one command.
const MAX_PART_BYTES: usize = 40_000_000;

/// A parsed `bulkWrite`.
#[derive(Clone, Debug)]
pub struct BulkWrite<'a> {
    operations: Vec<BulkOperation<'a>>,
    is_ordered: bool,
    /// Whether the first failure ends the command. It ends any command in a transaction, because it aborts
    /// the transaction.
    pub ends_with_first_failure: bool,
    /// Whether the reply has no results of operations that succeeded.
    errors_only: bool,
    statement_ids: StatementIds,
    variables: Option<&'a RawDocument>,
    bypasses_validation: Option<RawBsonRef<'a>>,
}

/// A collection to write to.
#[derive(Clone, Copy, Debug, PartialEq)]
struct NamespaceInfo<'a> {
    namespace: Namespace<'a>,
    uuid: Option<RawBsonRef<'a>>,
}

/// Consecutive operations that are executed by one command.
#[derive(Clone, Debug)]
pub struct Part<'a> {
    kind: OperationKind,
    into: NamespaceInfo<'a>,
    /// The positions of the operations.
    operations: Range<usize>,
}

impl<'a> BulkWrite<'a> {
    /// Parses a `bulkWrite`.
    ///
    /// # Errors
    /// An unknown field, one of the wrong type, no or too many operations, an invalid position in
    /// `nsInfo`, with mongod's codes.
    pub fn parse(head: &CommandHeader<'a>) -> Result<Self, CommandError> {
        let mut bulk = Self {
            operations: Vec::new(),
            is_ordered: true,
            ends_with_first_failure: true,
            errors_only: false,
            statement_ids: StatementIds::default(),
            variables: None,
            bypasses_validation: None,
        };
        let operations = documents_of(head, "ops")?;
        let namespaces = documents_of(head, "nsInfo")?;
        for field in CommandField::all("bulkWrite", head.body()) {
            let (name, field) = field?;
            match name {
                "ops" | "nsInfo" => {}
                "cursor" => drop(field.document()?),
                "ordered" => bulk.is_ordered = field.flag()?,
                "errorsOnly" => bulk.errors_only = field.flag()?,
                "let" => bulk.variables = field.document()?,
                "bypassDocumentValidation" => {
                    field.flag()?;
                    bulk.bypasses_validation = Some(field.value());
                }
                "stmtId" => bulk.statement_ids = StatementIds::From(field.statement_id()?),
                "stmtIds" => bulk.statement_ids = StatementIds::Given(field.statement_ids()?),
                _ => return Err(field.unknown()),
            }
        }
        let count = operations.len();
        if !(1..=MAX_WRITE_BATCH_SIZE).contains(&count) {
            let message =
                format!("Write batch sizes must be between 1 and {MAX_WRITE_BATCH_SIZE}. Got {count} operations.");
            return Err(CommandError::new(ErrorCode::InvalidLength, message));
        }
        bulk.statement_ids.check("bulkWrite", count)?;
        bulk.ends_with_first_failure = bulk.is_ordered || head.in_transaction();
        let namespaces = namespaces.into_iter().map(NamespaceInfo::parse);
        let namespaces: Vec<NamespaceInfo<'a>> = namespaces.collect::<Result<_, _>>()?;
        for (position, fields) in operations.into_iter().enumerate() {
            let operation = BulkOperation::parse(fields, &namespaces)?;
            let invalid = || {
                let message = format!("BulkWrite ops entry {position} has an invalid nsInfo index.");
                CommandError::new(ErrorCode::BadValue, message)
            };
            bulk.operations.push(operation.ok_or_else(invalid)?);
        }
        time_limit::check(head.body())?;
        Ok(bulk)
    }

    /// The commands that execute the operations. A reply to `update` or `delete` contains sums. So each
    /// operation is a command of its own if the client requests its result.
    #[must_use]
    pub fn parts(&self) -> Vec<Part<'a>> {
        let mut parts: Vec<Part<'a>> = Vec::new();
        let mut bytes = 0_usize;
        for (position, operation) in self.operations.iter().enumerate() {
            bytes = bytes.saturating_add(operation.fields.as_bytes().len());
            let may_join = self.errors_only || operation.kind == OperationKind::Insert;
            let end = position.saturating_add(1);
            match parts.last_mut() {
                Some(last)
                    if may_join
                        && last.kind == operation.kind
                        && last.into == operation.into
                        && bytes <= MAX_PART_BYTES =>
                {
                    last.operations.end = end;
                }
                _ => {
                    bytes = operation.fields.as_bytes().len();
                    parts.push(Part {
                        kind: operation.kind,
                        into: operation.into,
                        operations: position..end,
                    });
                }
            }
        }
        parts
    }

    /// The message that executes a part. `is_first`: whether it is the first one, which may begin the
    /// client's transaction.
    ///
    /// # Errors
    /// If the message is too long.
    pub fn message(&self, head: &CommandHeader<'_>, part: &Part<'_>, is_first: bool) -> Result<Frame, WireError> {
        let command = part.kind.command();
        let NamespaceInfo { namespace, uuid } = part.into;
        let mut body = single(command.name(), namespace.collection);
        body.append(cstr!("ordered"), self.is_ordered);
        if let Some(bypasses) = self.bypasses_validation {
            body.append(cstr!("bypassDocumentValidation"), bypasses);
        }
        if let Some(variables) = self.variables.filter(|_| part.kind != OperationKind::Insert) {
            body.append(cstr!("let"), variables);
        }
        if let Some(uuid) = uuid {
            body.append(cstr!("collectionUUID"), uuid);
        }
        let is_whole = part.operations.len() == self.operations.len();
        if head.is_retryable_write() && (!is_whole || self.statement_ids.may_share_transaction_number()) {
            let ids = part.operations.clone().map(|position| self.statement_ids.of(position));
            body.append(cstr!("stmtIds"), ids.collect::<RawArrayBuf>());
        }
        let database = Some(RawBsonRef::String(namespace.database));
        let in_database = with_replaced(head.body(), &[("$db", database)]);
        let inherited = InheritedOptions::of(&in_database).begun(!is_first);
        inherited.append_to_write(&mut body);
        let operations = self.operations.get(part.operations.clone()).unwrap_or_default();
        let statements: Vec<RawDocumentBuf> = operations.iter().map(BulkOperation::statement).collect();
        let field = command.statements_field().unwrap_or_default();
        let message = OpMsgBuilder::new(0, 0).body(&body);
        message
            .sequence(field, statements.iter().map(|statement| &**statement))
            .build()
    }
}

impl<'a> NamespaceInfo<'a> {
    fn parse(info: &'a RawDocument) -> Result<Self, CommandError> {
        let (mut namespace, mut uuid) = (None, None);
        for field in CommandField::within("bulkWrite.nsInfo", info) {
            let (name, field) = field?;
            match name {
                "ns" => namespace = field.string()?,
                "collectionUUID" => uuid = Some(field.value()),
                _ => return Err(field.unknown()),
            }
        }
        let name = namespace.ok_or_else(|| missing("bulkWrite.nsInfo.ns"))?;
        let invalid = || {
            CommandError::new(
                ErrorCode::InvalidNamespace,
                format!("Invalid namespace specified '{name}'"),
            )
        };
        let namespace = Namespace::parse(name).ok_or_else(invalid)?;
        Ok(Self { namespace, uuid })
    }
}

/// The documents of a field, which are in the body or in a sequence.
fn documents_of<'a>(head: &CommandHeader<'a>, field: &'static str) -> Result<Vec<&'a RawDocument>, CommandError> {
    let path = format!("bulkWrite.{field}");
    let mut documents: Option<Vec<&'a RawDocument>> = None;
    if let Some(value) = get(head.body(), field) {
        let wrong = |value, expected| CommandError::wrong_type(&path, type_name(value), expected);
        let array = value.as_array().ok_or_else(|| wrong(value, "array"))?;
        let mut found = Vec::new();
        for element in array {
            let element = element.map_err(|error| CommandError::invalid_bson(&error.to_string()))?;
            found.push(element.as_document().ok_or_else(|| wrong(element, "object"))?);
        }
        documents = Some(found);
    }
    for sequence in &head.message.sequences {
        if !matches!(sequence.identifier, "ops" | "nsInfo") {
            return Err(CommandError::unknown_field("bulkWrite", sequence.identifier));
        }
        if sequence.identifier != field {
            continue;
        }
        if documents.is_some() {
            return Err(CommandError::new(ErrorCode::BadValue, format!("{path} is given twice")));
        }
        let invalid = |error: WireError| CommandError::invalid_bson(&error.to_string());
        let found = sequence.documents().map(|document| document.map_err(invalid));
        documents = Some(found.collect::<Result<_, _>>()?);
    }
    documents.ok_or_else(|| missing(&path))
}
