//! Arguments that many commands share, and parsing of a command's fields.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::document::{as_flag, as_whole_number, fields, get, put, single, type_name};
use super::error::{CommandError, ErrorCode};

/// Fields that any command may have. Internal commands repeat them from the client's command.
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

/// Generic fields that identify the session, the API version and the database.
const IDENTITY: &[&str] = &[
    "lsid",
    "$clusterTime",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
    "$db",
];

/// Generic fields that identify the transaction of a command and its session.
const OF_TRANSACTION: &[&str] = &[
    "lsid",
    "txnNumber",
    "autocommit",
    "$clusterTime",
    "apiVersion",
    "apiStrict",
    "apiDeprecationErrors",
];

/// Whether any command may have the field.
#[must_use]
pub fn is_generic(field: &str) -> bool {
    GENERIC.contains(&field)
}

/// Inherited options: the generic fields of a client's command that an internal command repeats.
#[derive(Clone, Copy, Debug)]
pub struct InheritedOptions<'a> {
    body: &'a RawDocument,
    /// Whether an earlier internal command was sent for the same command.
    begun: bool,
    numbered: bool,
    at_once: bool,
    strictness: Strictness,
    /// The database of the internal command. `None`: that of the client's.
    database: Option<&'a str>,
}

/// The handling of the client's `apiStrict`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Strictness {
    Kept,
    LeftOut,
}

impl<'a> InheritedOptions<'a> {
    /// The inherited options of a client's command.
    #[must_use]
    pub fn of(body: &'a RawDocument) -> Self {
        Self {
            body,
            begun: false,
            numbered: true,
            at_once: false,
            strictness: Strictness::Kept,
            database: None,
        }
    }

    /// With `true`, for all internal commands but the first: the fields that begin a transaction
    /// are sent only once.
    #[must_use]
    pub fn begun(self, begun: bool) -> Self {
        Self { begun, ..self }
    }

    /// For a write that may be repeated: it is not part of the retryable write.
    #[must_use]
    pub fn not_retryable(self) -> Self {
        let numbered = get(self.body, "autocommit").is_some();
        Self { numbered, ..self }
    }

    /// For a write that need not be replicated yet: `w: 1`, whatever the client requested.
    #[must_use]
    pub fn without_wait(self) -> Self {
        let at_once = true;
        Self { at_once, ..self }
    }

    /// For a command with a feature that is not in the stable API.
    #[must_use]
    pub fn without_api_strict(self) -> Self {
        let strictness = Strictness::LeftOut;
        Self { strictness, ..self }
    }

    /// For a command on this database, which may be another one than the client's.
    #[must_use]
    pub fn in_database(self, database: &'a str) -> Self {
        let database = Some(database);
        Self { database, ..self }
    }

    /// Appends the options to a read: no `writeConcern`.
    pub fn append_to_read(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| name != "writeConcern");
    }

    /// Appends the options to a write: no `readConcern`, and no unacknowledged `writeConcern`,
    /// because the proxy needs the reply.
    pub fn append_to_write(&self, command: &mut RawDocumentBuf) {
        let begins = get(self.body, "startTransaction").is_some() && !self.begun;
        self.append(command, |name, value| match name {
            "$readPreference" => false,
            "readConcern" => begins,
            "writeConcern" => !self.at_once && !is_unacknowledged(value),
            _ => true,
        });
        if self.at_once {
            append_no_wait(command);
        }
    }

    /// Appends only session, API version and database: for commands about the collection itself.
    pub fn append_identity(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| IDENTITY.contains(&name));
    }

    /// Appends session, API version and database to a read of collection metadata, and a read
    /// preference that any member accepts. The client's own read preference is not used, because
    /// not all of its commands have one: drivers leave it out of `getMore`.
    pub fn append_to_inspect(&self, command: &mut RawDocumentBuf) {
        self.append_identity(command);
        put(command, "$readPreference", single("mode", "primaryPreferred"));
    }

    /// Appends the options to an internal read that the client did not request: those of
    /// [`Self::append_to_inspect`], or in a transaction those of [`Self::append_to_read`].
    pub fn append_to_internal_read(&self, command: &mut RawDocumentBuf) {
        if get(self.body, "autocommit").is_none() {
            return self.append_to_inspect(command);
        }
        self.append_to_read(command);
    }

    /// Appends the options to an internal read of a write. Outside of a transaction it reads the newest state,
    /// which the write changes, also if the cluster has another default read concern. It has no read
    /// preference: a server that is not the primary refuses it, as it refuses the write.
    pub fn append_to_read_of_write(&self, command: &mut RawDocumentBuf) {
        if get(self.body, "autocommit").is_some() {
            return self.append_to_read(command);
        }
        self.append_identity(command);
        put(command, "readConcern", single("level", "local"));
    }

    /// Appends the options to a query that selects the documents of a write: those of
    /// [`Self::append_to_read_of_write`], and [`Self::append_limit`].
    pub fn append_to_selection(&self, command: &mut RawDocumentBuf) {
        self.append_to_read_of_write(command);
        if get(self.body, "autocommit").is_none() {
            self.append_limit(command);
        }
    }

    /// Appends the time limit and the comment.
    pub fn append_limit(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| matches!(name, "maxTimeMS" | "comment"));
    }

    /// Appends the options to a `getMore` or `killCursors` on a cursor of an internal command:
    /// session, database, transaction and comment. All other options stay with the cursor.
    pub fn append_to_get_more(&self, command: &mut RawDocumentBuf) {
        let is_kept = |name: &str| OF_TRANSACTION.contains(&name) || matches!(name, "comment" | "$db");
        // Only the cursors of a transaction have its number.
        let begun = Self { begun: true, ..*self }.not_retryable();
        begun.append(command, |name, _| is_kept(name));
    }

    /// Appends the options to an `abortTransaction` of the client's transaction. The command goes to
    /// `admin`, so `$db` is not inherited.
    pub fn append_to_abort(&self, command: &mut RawDocumentBuf) {
        self.append(command, |name, _| OF_TRANSACTION.contains(&name));
        append_no_wait(command);
    }

    fn append(&self, command: &mut RawDocumentBuf, keep: impl Fn(&str, RawBsonRef<'_>) -> bool) {
        for (name, value) in self.body.iter().flatten() {
            let name_text = name.as_str();
            let said = match name_text {
                // The read concern of a transaction is sent with its first command. Outside of
                // transactions each read has its own.
                "readConcern" => self.begun && get(self.body, "startTransaction").is_some(),
                "startTransaction" => self.begun,
                "txnNumber" => !self.numbered,
                "apiStrict" => self.strictness == Strictness::LeftOut,
                _ => false,
            };
            if !said && is_generic(name_text) && keep(name_text, value) {
                match self.database.filter(|_| name_text == "$db") {
                    Some(database) => command.append(name, database),
                    None => command.append(name, value),
                }
            }
        }
    }
}

/// Whether a write concern is unacknowledged (`w: 0`).
#[must_use]
pub fn is_unacknowledged(write_concern: RawBsonRef<'_>) -> bool {
    let w = write_concern.as_document().and_then(|document| get(document, "w"));
    w.and_then(as_whole_number) == Some(0)
}

/// A field of a command. Its methods return mongod's error if the type is wrong.
#[derive(Clone, Copy, Debug)]
pub struct CommandField<'a> {
    command: &'static str,
    name: &'a str,
    value: RawBsonRef<'a>,
}

impl<'a> CommandField<'a> {
    /// The fields of a command's body after the first, without the generic ones.
    pub fn all(
        command: &'static str,
        body: &'a RawDocument,
    ) -> impl Iterator<Item = Result<(&'a str, Self), CommandError>> {
        fields(body)
            .skip(1)
            .filter(|field| !matches!(field, Ok((name, _)) if is_generic(name)))
            .map(move |field| field.map(|(name, value)| (name, Self { command, name, value })))
    }

    /// The fields of a document that is part of a command.
    pub fn within(
        part: &'static str,
        document: &'a RawDocument,
    ) -> impl Iterator<Item = Result<(&'a str, Self), CommandError>> {
        let command = part;
        fields(document).map(move |field| field.map(|(name, value)| (name, Self { command, name, value })))
    }

    /// The value without a type check.
    #[must_use]
    pub fn value(self) -> RawBsonRef<'a> {
        self.value
    }

    /// A document. Null is `None`.
    pub fn document(self) -> Result<Option<&'a RawDocument>, CommandError> {
        match self.value {
            RawBsonRef::Document(document) => Ok(Some(document)),
            RawBsonRef::Null => Ok(None),
            _ => Err(self.wrong_type("object")),
        }
    }

    /// An array. Null is `None`.
    pub fn array(self) -> Result<Option<&'a RawArray>, CommandError> {
        match self.value {
            RawBsonRef::Array(array) => Ok(Some(array)),
            RawBsonRef::Null => Ok(None),
            _ => Err(self.wrong_type("array")),
        }
    }

    /// A string. Null is `None`.
    pub fn string(self) -> Result<Option<&'a str>, CommandError> {
        match self.value {
            RawBsonRef::String(text) => Ok(Some(text)),
            RawBsonRef::Null => Ok(None),
            _ => Err(self.wrong_type("string")),
        }
    }

    /// A flag, as a boolean or a number. Null is `false`.
    pub fn flag(self) -> Result<bool, CommandError> {
        if self.value == RawBsonRef::Null {
            return Ok(false);
        }
        as_flag(self.value).ok_or_else(|| self.wrong_type("bool"))
    }

    /// A whole number; fractions are truncated. Null is `None`.
    pub fn number(self) -> Result<Option<i64>, CommandError> {
        if self.value == RawBsonRef::Null {
            return Ok(None);
        }
        as_whole_number(self.value)
            .map(Some)
            .ok_or_else(|| self.wrong_type("long"))
    }

    /// A whole number that is not negative. Null is `None`.
    pub fn size(self) -> Result<Option<u64>, CommandError> {
        self.number()?
            .map(|number| u64::try_from(number).map_err(|_| self.negative(number)))
            .transpose()
    }

    /// The id of a statement. Negative ids are reserved for mongod's own use.
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

/// Appends the write concern `w: 1`. Without a write concern, the default of the server applies, which usually waits
/// for a majority. mongod 7.0 also waits after an `abortTransaction`.
pub fn append_no_wait(command: &mut RawDocumentBuf) {
    put(command, "writeConcern", single("w", 1));
}

/// A copy of a command's body with some fields replaced. `None` removes a field.
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
