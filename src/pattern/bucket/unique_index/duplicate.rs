//! Errors for a second item with the same key.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::definition::UniqueIndex;
use super::key::{IndexKey, MAX_KEYS_BYTES, NoKeys};
use super::validator::INDEX_NAME;
use crate::command::document::{get, put};
use crate::command::duplicate::{DuplicateKey, duplicate_key};
use crate::command::error::{ErrorCode, WriteError};
use crate::command::namespace::Namespace;

/// A write that mongod refused because of a unique index.
#[derive(Clone, Debug, PartialEq)]
pub enum Violation {
    /// Another page has an item with the key. mongod's key pattern and values.
    OtherPage {
        /// The key pattern in mongod.
        pattern: RawDocumentBuf,
        /// The values, in the order of the pattern.
        values: Vec<RawBson>,
    },
    /// The item's own page has an item with the key, or the item has no key (see [`NoKeys`]). The name of the
    /// first violated index.
    SamePage(String),
}

/// The violation that mongod's error reports: the reply of a failed command, or an element of `writeErrors`.
#[must_use]
pub fn violation(error: &RawDocument) -> Option<Violation> {
    if let Some(pattern) = get(error, "keyPattern").and_then(RawBsonRef::as_document) {
        let values = get(error, "keyValue").and_then(RawBsonRef::as_document)?;
        return Some(Violation::OtherPage {
            pattern: pattern.to_owned(),
            values: values.iter().flatten().map(|(_, value)| value.into()).collect(),
        });
    }
    let info = get(error, "errInfo").and_then(RawBsonRef::as_document)?;
    index_in(info).map(Violation::SamePage)
}

/// The first value of [`INDEX_NAME`] in a document.
fn index_in(document: &RawDocument) -> Option<String> {
    document.iter().flatten().find_map(|(name, value)| match value {
        RawBsonRef::Document(named) if name == INDEX_NAME => Some(get(named, "$literal")?.as_str()?.to_owned()),
        RawBsonRef::Document(inner) => index_in(inner),
        RawBsonRef::Array(array) => array
            .into_iter()
            .flatten()
            .find_map(|element| index_in(element.as_document()?)),
        _ => None,
    })
}

impl Violation {
    /// The violated index.
    #[must_use]
    pub fn index<'a>(&self, indexes: &'a [UniqueIndex]) -> Option<&'a UniqueIndex> {
        indexes.iter().find(|index| match self {
            Self::OtherPage { pattern, .. } => index.has_stored_key(pattern),
            Self::SamePage(name) => index.name() == name,
        })
    }
}

impl UniqueIndex {
    /// mongod's error for a second document with a key.
    #[must_use]
    pub fn duplicate(&self, namespace: Namespace<'_>, key: &IndexKey) -> WriteError {
        let mut value = RawDocumentBuf::new();
        for (field, part) in self.fields.iter().zip(key.values()) {
            put(&mut value, &field.path, part);
        }
        duplicate_key(DuplicateKey {
            namespace,
            index: &self.name,
            pattern: &self.key,
            value: Some(&value),
        })
    }

    /// The error for a second document with an unknown key.
    #[must_use]
    pub fn duplicate_of_unknown_key(&self, namespace: Namespace<'_>) -> WriteError {
        duplicate_key(DuplicateKey {
            namespace,
            index: &self.name,
            pattern: &self.key,
            value: None,
        })
    }

    /// The key in mongod's values, which follow the stored key pattern.
    #[must_use]
    pub fn key_of_values(&self, values: &[RawBson]) -> IndexKey {
        let hidden = values.len().saturating_sub(self.fields.len());
        let mut key = RawDocumentBuf::new();
        for value in values.iter().skip(hidden) {
            key.append(cstr!(""), value);
        }
        IndexKey::of(key)
    }

    /// The error for an item without keys in the index.
    #[must_use]
    pub fn without_keys(&self, namespace: Namespace<'_>, reason: NoKeys) -> WriteError {
        let what = match reason {
            NoKeys::ParallelArrays { first, second } => {
                let [second, first] = [second, first].map(|position| self.last_name(position));
                let message = format!("cannot index parallel arrays [{second}] [{first}]");
                return WriteError::new(ErrorCode::CannotIndexParallelArrays, message);
            }
            NoKeys::ThroughArray => format!(
                "an array of documents inside a field of the unique index '{}' is not supported on it",
                self.name
            ),
            NoKeys::TooLarge => format!(
                "more than {} MiB of keys in the unique index '{}', of one document or of the documents of one command, are not supported \
                 on it; insert fewer documents in one command",
                MAX_KEYS_BYTES >> 20,
                self.name
            ),
        };
        let message = format!("mongoshape stores {namespace} in the bucket pattern: {what}");
        WriteError::new(ErrorCode::CommandNotSupported, message)
    }

    /// The last part of the path at this position of the index.
    fn last_name(&self, position: usize) -> &str {
        let path = self.fields.get(position).map(|field| field.path.as_str());
        path.and_then(|path| path.rsplit('.').next()).unwrap_or_default()
    }
}

/// The error for a write that violates an index that does not exist, because it is being created, or because
/// its creation was interrupted.
#[must_use]
pub fn interrupted(namespace: Namespace<'_>, index: &str) -> WriteError {
    let message = format!(
        "the unique index '{index}' of {namespace} is being created, and two items have the same values in it; if no createIndexes runs, \
         one was interrupted: create the index again, or drop it"
    );
    WriteError::new(ErrorCode::WriteConflict, message)
}
