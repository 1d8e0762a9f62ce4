//! Arguments that many commands share, and reading a command's fields against the list of those it has.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::document::{as_flag, as_whole_number, fields, get, put, single, type_name};
use super::error::{CommandError, ErrorCode};

/// Fields that any command may carry and that every command made from it must carry too.
const GENERIC: &[&str] = &[
    "lsid",
    "txnNumber",
    "autocommit",
    "startTransaction",
    "$clusterTime",
    "$readPreference",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "maxTimeMS",
    "comment",
    "readConcern",
    "writeConcern",
    "$db",
    "$audit",
    "$client",
    "$configServerState",
    "$oplogQueryData",
    "$queryOptions",
    "$replData",
    "maxTimeMSOpOnly",
    "mayBypassWriteBlocking",
    "databaseVersion",
    "shardVersion",
    "rawData",
];

/// Those of them that say who asks, and where.
const IDENTITY: &[&str] = &[
    "lsid",
    "$clusterTime",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "$db",
];

/// What a command says of the transaction that it is a part of, and of how that is to be read.
const OF_TRANSACTION: &[&str] = &[
    "lsid",
    "txnNumber",
    "autocommit",
    "$clusterTime",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
];

/// Whether a field belongs to every command rather than to one.
#[must_use]
pub fn is_generic(field: &str) -> bool {
    GENERIC.contains(&field)
}

/// Those generic fields of a client's command that a command made from it repeats.
#[derive(Clone, Copy, Debug)]
pub struct InheritedOptions<'a> {
    body: &'a RawDocument,
    /// A command made from it has been sent before.
    begun: bool,
    numbered: bool,
    at_once: bool,
    strictness: Strictness,
}

/// What becomes of a client's `apiStrict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strictness {
    Kept,
    LeftOut,
}

impl<'a> InheritedOptions<'a> {
    /// The fields to carry of a client's command.
    #[must_use]
    pub fn of(body: &'a RawDocument) -> Self {
        Self {
            body,
            begun: false,
            numbered: true,
            at_once: false,
            strictness: Strictness::Kept,
        }
    }

    /// For all but the first command made from it: what begins a transaction is said once.
    #[must_use]
    pub fn begun(self, begun: bool) -> Self {
        Self { begun, ..self }
    }

    /// For a write that may be done twice: not as part of a retryable write.
    #[must_use]
    pub fn not_retryable(self) -> Self {
        let numbered = get(self.body, "autocommit").is_some();
        Self { numbered, ..self }
    }

    /// For a write that need not have reached other members yet: `w: 1`, whatever the client asked for.
    #[must_use]
    pub fn without_wait(self) -> Self {
        let at_once = true;
        Self { at_once, ..self }
    }

    /// For a command with what the stable API does not have.
    #[must_use]
    pub fn without_api_strict(self) -> Self {
        let strictness = Strictness::LeftOut;
        Self { strictness, ..self }
    }

    /// Appends them for a command that reads: no `writeConcern`.
    pub fn append_to_read(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| name != "writeConcern");
    }

    /// Appends them for a command that writes: no `readConcern`, and no `writeConcern` that asks for no
    /// answer, since the proxy needs the answer.
    pub fn append_to_write(&self, command: &mut RawDocumentBuf) {
        let begins = get(self.body, "startTransaction").is_some() && !self.begun;
        self.append(command, |name, value| match name {
            "$readPreference" => false,
            "readConcern" => begins,
            "writeConcern" => !self.at_once && !is_unacknowledged(value),
            _ => true,
        });
        if self.at_once {
            put(command, "writeConcern", single("w", 1));
        }
    }

    /// Appends only what says who asks and where: for commands about the collection itself.
    pub fn append_identity(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| IDENTITY.contains(&name));
    }

    /// Appends what says who asks and where, for a look at the collection itself: at whatever member the
    /// connection leads to. Whether the client may read there is said in its own words, which not all of its
    /// commands carry: drivers leave them out of `getMore`.
    pub fn append_to_inspect(&self, command: &mut RawDocumentBuf) {
        self.append_identity(command);
        put(command, "$readPreference", single("mode", "primaryPreferred"));
    }

    /// Appends what says who asks, where, and in which transaction: for a read of the proxy's own beside what
    /// the client asks for.
    pub fn append_to_internal_read(&self, command: &mut RawDocumentBuf) {
        if get(self.body, "autocommit").is_none() {
            return self.append_to_inspect(command);
        }
        self.append_to_read(command);
    }

    /// Appends what a command about a cursor carries that a command made from the client's has opened: who
    /// asks and where, and in which transaction. What a cursor was opened with stays with it.
    pub fn append_to_get_more(&self, command: &mut RawDocumentBuf) {
        let is_kept = |name: &str| OF_TRANSACTION.contains(&name) || matches!(name, "comment" | "$db");
        // Only a transaction's cursors are of its number.
        let begun = Self { begun: true, ..*self }.not_retryable();
        begun.append(command, |name, _| is_kept(name));
    }

    /// Appends what a command that ends the client's transaction carries. Its database is `admin`, whatever
    /// the client's.
    pub fn append_to_end(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| OF_TRANSACTION.contains(&name));
    }

    fn append(&self, command: &mut RawDocumentBuf, keep: impl Fn(&str, RawBsonRef<'_>) -> bool) {
        for (name, value) in self.body.iter().flatten() {
            let name_text = name.as_str();
            let said = match name_text {
                // A transaction's readConcern goes with its first command; any other read has its own.
                "readConcern" => self.begun && get(self.body, "startTransaction").is_some(),
                "startTransaction" => self.begun,
                "txnNumber" => !self.numbered,
                "apiStrict" => self.strictness == Strictness::LeftOut,
                _ => false,
            };
            if !said && is_generic(name_text) && keep(name_text, value) {
                command.append(name, value);
            }
        }
    }
}

/// Whether a write concern asks for no acknowledgement (`w: 0`).
#[must_use]
pub fn is_unacknowledged(write_concern: RawBsonRef<'_>) -> bool {
    let w = write_concern.as_document().and_then(|document| get(document, "w"));
    w.and_then(as_whole_number) == Some(0)
}

/// Reads one field after another of a command, in mongod's words where one is wrong.
#[derive(Clone, Copy, Debug)]
pub struct CommandField<'a> {
    command: &'static str,
    name: &'a str,
    value: RawBsonRef<'a>,
}

impl<'a> CommandField<'a> {
    /// The fields of a command's body behind the first, without the generic ones.
    pub fn all(
        command: &'static str,
        body: &'a RawDocument,
    ) -> impl Iterator<Item = Result<(&'a str, Self), CommandError>> {
        fields(body)
            .skip(1)
            .filter(|field| !matches!(field, Ok((name, _)) if is_generic(name)))
            .map(move |field| field.map(|(name, value)| (name, Self { command, name, value })))
    }

    /// All fields of a document that is a part of a command.
    pub fn within(
        part: &'static str,
        document: &'a RawDocument,
    ) -> impl Iterator<Item = Result<(&'a str, Self), CommandError>> {
        let command = part;
        fields(document).map(move |field| field.map(|(name, value)| (name, Self { command, name, value })))
    }

    /// The value as it is.
    #[must_use]
    pub fn value(self) -> RawBsonRef<'a> {
        self.value
    }

    /// A document; null counts as none.
    pub fn document(self) -> Result<Option<&'a RawDocument>, CommandError> {
        match self.value {
            RawBsonRef::Document(document) => Ok(Some(document)),
            RawBsonRef::Null => Ok(None),
            _ => Err(self.wrong_type("object")),
        }
    }

    /// An array; null counts as none.
    pub fn array(self) -> Result<Option<&'a RawArray>, CommandError> {
        match self.value {
            RawBsonRef::Array(array) => Ok(Some(array)),
            RawBsonRef::Null => Ok(None),
            _ => Err(self.wrong_type("array")),
        }
    }

    /// A string; null counts as none.
    pub fn string(self) -> Result<Option<&'a str>, CommandError> {
        match self.value {
            RawBsonRef::String(text) => Ok(Some(text)),
            RawBsonRef::Null => Ok(None),
            _ => Err(self.wrong_type("string")),
        }
    }

    /// A flag, given as a boolean or a number; null counts as false.
    pub fn flag(self) -> Result<bool, CommandError> {
        if self.value == RawBsonRef::Null {
            return Ok(false);
        }
        as_flag(self.value).ok_or_else(|| self.wrong_type("bool"))
    }

    /// A whole number, truncated where it is a fraction; null counts as none.
    pub fn number(self) -> Result<Option<i64>, CommandError> {
        if self.value == RawBsonRef::Null {
            return Ok(None);
        }
        as_whole_number(self.value)
            .map(Some)
            .ok_or_else(|| self.wrong_type("long"))
    }

    /// A whole number that may not be negative; null counts as none.
    pub fn size(self) -> Result<Option<u64>, CommandError> {
        self.number()?
            .map(|number| u64::try_from(number).map_err(|_| self.negative(number)))
            .transpose()
    }

    /// The id of a statement. A negative one stands for none in mongod, and is for its own use.
    pub fn statement_id(self) -> Result<i32, CommandError> {
        self.as_statement_id(self.value)
    }

    /// The ids of a command's statements.
    pub fn statement_ids(self) -> Result<Vec<i32>, CommandError> {
        let RawBsonRef::Array(array) = self.value else {
            return Err(self.wrong_type("array"));
        };
        let elements = array.into_iter().flatten();
        elements.map(|element| self.as_statement_id(element)).collect()
    }

    fn as_statement_id(self, value: RawBsonRef<'_>) -> Result<i32, CommandError> {
        let number = as_whole_number(value).ok_or_else(|| self.wrong_type("int"))?;
        let id = i32::try_from(number).ok().filter(|id| *id >= 0);
        id.ok_or_else(|| self.negative(number))
    }

    /// The error for a field that the command does not have.
    #[must_use]
    pub fn unknown(self) -> CommandError {
        CommandError::unknown_field(self.command, self.name)
    }

    fn wrong_type(self, expected: &str) -> CommandError {
        CommandError::wrong_type(
            &format!("{}.{}", self.command, self.name),
            type_name(self.value),
            expected,
        )
    }

    fn negative(self, number: i64) -> CommandError {
        let message = format!("BSON field '{}' value must be >= 0, actual value '{number}'", self.name);
        CommandError::new(ErrorCode::NegativeNumber, message)
    }
}

/// A copy of a command's body with some fields replaced and the others as they are.
#[must_use]
pub fn with_replaced(body: &RawDocument, replaced: &[(&str, Option<RawBsonRef<'_>>)]) -> RawDocumentBuf {
    let mut copy = RawDocumentBuf::new();
    for (name, value) in body.iter().flatten() {
        match replaced.iter().find(|(field, _)| *field == name.as_str()) {
            Some((field, Some(new))) => put(&mut copy, field, *new),
            Some((_, None)) => {}
            None => copy.append(name, value),
        }
    }
    copy
}
