//! mongod's errors with their numbers and names.

/// Errors of mongod that the proxy returns.
#[repr(i32)]
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ErrorCode {
    /// An invalid value.
    BadValue = 2,
    /// A value that cannot be parsed.
    FailedToParse = 9,
    /// The resource belongs to another user.
    Unauthorized = 13,
    /// A field of the wrong type.
    TypeMismatch = 14,
    /// Nesting that is too deep.
    Overflow = 15,
    /// A batch of no operations or too many.
    InvalidLength = 16,
    /// Invalid credentials, or a mechanism that is not supported.
    AuthenticationFailed = 18,
    /// Not possible in this deployment.
    IllegalOperation = 20,
    /// Malformed BSON.
    InvalidBson = 22,
    /// The collection does not exist.
    NamespaceNotFound = 26,
    /// The index does not exist.
    IndexNotFound = 27,
    /// A path through a value without fields.
    PathNotViable = 28,
    /// Two changes of one path.
    ConflictingUpdateOperators = 40,
    /// The cursor does not exist.
    CursorNotFound = 43,
    /// The collection exists.
    NamespaceExists = 48,
    /// A field beginning with `$` where none is allowed.
    DollarPrefixedFieldName = 52,
    /// An `_id` of a type that cannot be one.
    InvalidIdField = 53,
    /// Several values where one is required.
    NotSingleValueField = 54,
    /// A part of a `DBRef` without the others.
    InvalidDbRef = 55,
    /// A field without a name.
    EmptyFieldName = 56,
    /// The server does not have the command.
    CommandNotFound = 59,
    /// A statement on a sharded collection that leads to no shard.
    ShardKeyNotFound = 61,
    /// A change of an immutable field.
    ImmutableField = 66,
    /// An index that cannot be created.
    CannotCreateIndex = 67,
    /// Two indexes of one command are the same.
    IndexAlreadyExists = 68,
    /// An invalid option, or one that a shaped collection does not support.
    InvalidOptions = 72,
    /// A name that no namespace can have.
    InvalidNamespace = 73,
    /// The index exists under another name.
    IndexOptionsConflict = 85,
    /// Another index has the name.
    IndexKeySpecsConflict = 86,
    /// A part of a value where the whole value is required.
    NotExactValueField = 111,
    /// Gave up after too many conflicts.
    WriteConflict = 112,
    /// The shape does not support it.
    CommandNotSupported = 115,
    /// A validator refuses the write: on a shaped collection, that of a freeze or of unique indexes.
    DocumentValidationFailure = 121,
    /// The memory budget is exhausted.
    ExceededMemoryLimit = 146,
    /// Arrays in two fields of an index.
    CannotIndexParallelArrays = 171,
    /// The collection of a plan was dropped or replaced.
    QueryPlanKilled = 175,
    /// Several indexes have the key pattern.
    AmbiguousIndexKeyPattern = 181,
    /// A retried write whose earlier attempt is not fully known.
    IncompleteTransactionHistory = 217,
    /// An operator that is not allowed in this filter.
    QueryFeatureNotAllowed = 224,
    /// A value that cannot be converted. Pipelines of the proxy fail with it on purpose.
    ConversionFailure = 241,
    /// The transaction has ended.
    NoSuchTransaction = 251,
    /// Not possible in a transaction.
    OperationNotSupportedInTransaction = 263,
    /// The index was dropped while it was built.
    IndexBuildAborted = 276,
    /// A change stream that cannot be resumed.
    ChangeStreamFatalError = 280,
    /// No index that the query needs.
    NoQueryExecutionPlans = 291,
    /// A command or stage that the client's own `apiStrict` does not allow.
    ApiStrict = 323,
    /// A legacy message that MongoDB no longer supports.
    UnsupportedOpQueryCommand = 352,
    /// The collection is not the one that the command names.
    CollectionUuidMismatch = 361,
    /// The server is not primary.
    NotWritablePrimary = 10107,
    /// A document that is too large.
    BsonObjectTooLarge = 10334,
    /// A duplicate key.
    DuplicateKey = 11000,
    /// An index of the collection is being built.
    BackgroundOperationInProgress = 12587,
    /// Another command is reading the cursor.
    CursorInUse = 12051,
    /// A `$merge` found no document to change.
    MergeStageNoMatchingDocument = 13113,
    /// A document that an update would make too large.
    UpdatedDocumentTooLarge = 17419,
    /// A required field is missing.
    MissingField = 40414,
    /// The command does not have the field.
    UnknownField = 40415,
    /// `$db` is missing.
    MissingDatabase = 40571,
    /// A negative number where none is allowed.
    NegativeNumber = 51024,
}

impl ErrorCode {
    /// The number, as in a reply's `code`.
    #[must_use]
    pub fn number(self) -> i32 {
        self as i32
    }

    /// The name, as in a reply's `codeName`. Before 6.0.27, mongod had no names for 40414 and 40415.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::BadValue => "BadValue",
            Self::FailedToParse => "FailedToParse",
            Self::Unauthorized => "Unauthorized",
            Self::TypeMismatch => "TypeMismatch",
            Self::Overflow => "Overflow",
            Self::InvalidLength => "InvalidLength",
            Self::AuthenticationFailed => "AuthenticationFailed",
            Self::IllegalOperation => "IllegalOperation",
            Self::InvalidBson => "InvalidBSON",
            Self::NamespaceNotFound => "NamespaceNotFound",
            Self::IndexNotFound => "IndexNotFound",
            Self::PathNotViable => "PathNotViable",
            Self::ConflictingUpdateOperators => "ConflictingUpdateOperators",
            Self::CursorNotFound => "CursorNotFound",
            Self::NamespaceExists => "NamespaceExists",
            Self::DollarPrefixedFieldName => "DollarPrefixedFieldName",
            Self::InvalidIdField => "InvalidIdField",
            Self::NotSingleValueField => "NotSingleValueField",
            Self::InvalidDbRef => "InvalidDBRef",
            Self::EmptyFieldName => "EmptyFieldName",
            Self::CommandNotFound => "CommandNotFound",
            Self::ShardKeyNotFound => "ShardKeyNotFound",
            Self::ImmutableField => "ImmutableField",
            Self::CannotCreateIndex => "CannotCreateIndex",
            Self::IndexAlreadyExists => "IndexAlreadyExists",
            Self::InvalidOptions => "InvalidOptions",
            Self::IndexBuildAborted => "IndexBuildAborted",
            Self::BackgroundOperationInProgress => "BackgroundOperationInProgressForNamespace",
            Self::InvalidNamespace => "InvalidNamespace",
            Self::IndexOptionsConflict => "IndexOptionsConflict",
            Self::IndexKeySpecsConflict => "IndexKeySpecsConflict",
            Self::NotExactValueField => "NotExactValueField",
            Self::WriteConflict => "WriteConflict",
            Self::CommandNotSupported => "CommandNotSupported",
            Self::DocumentValidationFailure => "DocumentValidationFailure",
            Self::ExceededMemoryLimit => "ExceededMemoryLimit",
            Self::CannotIndexParallelArrays => "CannotIndexParallelArrays",
            Self::QueryPlanKilled => "QueryPlanKilled",
            Self::IncompleteTransactionHistory => "IncompleteTransactionHistory",
            Self::QueryFeatureNotAllowed => "QueryFeatureNotAllowed",
            Self::ConversionFailure => "ConversionFailure",
            Self::NoSuchTransaction => "NoSuchTransaction",
            Self::OperationNotSupportedInTransaction => "OperationNotSupportedInTransaction",
            Self::ChangeStreamFatalError => "ChangeStreamFatalError",
            Self::AmbiguousIndexKeyPattern => "AmbiguousIndexKeyPattern",
            Self::NoQueryExecutionPlans => "NoQueryExecutionPlans",
            Self::ApiStrict => "APIStrictError",
            Self::UnsupportedOpQueryCommand => "UnsupportedOpQueryCommand",
            Self::CollectionUuidMismatch => "CollectionUUIDMismatch",
            Self::NotWritablePrimary => "NotWritablePrimary",
            Self::BsonObjectTooLarge => "BSONObjectTooLarge",
            Self::DuplicateKey => "DuplicateKey",
            Self::CursorInUse => "CursorInUse",
            Self::MergeStageNoMatchingDocument => "MergeStageNoMatchingDocument",
            Self::UpdatedDocumentTooLarge => "Location17419",
            Self::MissingField => "IDLFailedToParse",
            Self::UnknownField => "IDLUnknownField",
            Self::MissingDatabase => "Location40571",
            Self::NegativeNumber => "Location51024",
        }
    }
}

/// Whether a write that failed with this code may be retried (Retryable Writes, "Determining
/// Retryable Errors").
#[must_use]
pub fn is_retryable(code: i32) -> bool {
    const CODES: &[i32] = &[6, 7, 89, 91, 134, 189, 262, 9001, 10107, 11600, 11602, 13435, 13436];
    CODES.contains(&code)
}

/// Whether drivers resume a change stream after an error of mongod with this code (Change Streams, "Resumable
/// Error").
pub(super) fn is_resumable(code: i32) -> bool {
    const CODES: &[i32] = &[63, 133, 150, 234, 13388];
    is_retryable(code) || CODES.contains(&code)
}

/// The `codeName` of an error that a statement of an `insert` or `update` may have.
pub(super) fn name_of_write_error(code: i32) -> String {
    const KNOWN: &[ErrorCode] = &[
        ErrorCode::BadValue,
        ErrorCode::FailedToParse,
        ErrorCode::TypeMismatch,
        ErrorCode::PathNotViable,
        ErrorCode::ConflictingUpdateOperators,
        ErrorCode::DollarPrefixedFieldName,
        ErrorCode::InvalidIdField,
        ErrorCode::NotSingleValueField,
        ErrorCode::EmptyFieldName,
        ErrorCode::ImmutableField,
        ErrorCode::InvalidOptions,
        ErrorCode::CommandNotSupported,
        ErrorCode::DocumentValidationFailure,
        ErrorCode::CannotIndexParallelArrays,
        ErrorCode::BsonObjectTooLarge,
        ErrorCode::DuplicateKey,
    ];
    let known = KNOWN
        .iter()
        .find(|known| known.number() == code)
        .map(|known| known.name());
    let name = known.or_else(|| name_of_server_error(code));
    name.map_or_else(|| format!("Location{code}"), str::to_owned)
}

/// The `codeName` of an error for which the server could not continue: those of [`is_retryable`],
/// interruptions, and a transaction number that is too old.
pub(super) fn name_of_server_error(code: i32) -> Option<&'static str> {
    Some(match code {
        6 => "HostUnreachable",
        7 => "HostNotFound",
        24 => "LockTimeout",
        50 => "MaxTimeMSExpired",
        89 => "NetworkTimeout",
        91 => "ShutdownInProgress",
        112 => "WriteConflict",
        134 => "ReadConcernMajorityNotAvailableYet",
        189 => "PrimarySteppedDown",
        225 => "TransactionTooOld",
        246 => "SnapshotUnavailable",
        251 => "NoSuchTransaction",
        262 => "ExceededTimeLimit",
        9001 => "SocketException",
        10107 => "NotWritablePrimary",
        11600 => "InterruptedAtShutdown",
        11601 => "Interrupted",
        11602 => "InterruptedDueToReplStateChange",
        13435 => "NotPrimaryNoSecondaryOk",
        13436 => "NotPrimaryOrSecondary",
        _ => return None,
    })
}
