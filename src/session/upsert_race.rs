//! Upserts of several clients that insert the same document: the first inserts it, the others change it.

use bson::raw::{RawBson, RawBsonRef, RawDocument};

use crate::command::document::{first_field, get};
use crate::command::error::{ErrorCode, WriteError};
use crate::pattern::bucket::key::canonical;

/// The value that a filter demands of a field.
struct DemandedValue<'f> {
    path: &'f str,
    value: RawBson,
}

/// Whether mongod repeats an upsert after this error (`shouldRetryDuplicateKeyException`): the filter demands
/// the key of a unique index that another document got meanwhile, and nothing else.
pub(super) fn is_of_filter(error: &WriteError, filter: &RawDocument) -> bool {
    if error.code != ErrorCode::DuplicateKey.number() {
        return false;
    }
    let Some(key) = get(&error.detail, "keyValue").and_then(RawBsonRef::as_document) else {
        return false;
    };
    let mut demanded = Vec::new();
    if !add_demanded(filter, &mut demanded) || demanded.len() != key.iter().count() {
        return false;
    }
    key.iter().flatten().all(|(name, value)| {
        let value = canonical(value);
        demanded
            .iter()
            .any(|demanded| demanded.path == name.as_str() && demanded.value == value)
    })
}

/// Adds the values that a filter demands. Returns false if it has a condition other than an equality.
fn add_demanded<'f>(filter: &'f RawDocument, demanded: &mut Vec<DemandedValue<'f>>) -> bool {
    filter
        .iter()
        .flatten()
        .all(|(name, value)| match (name.as_str(), value) {
            ("$and", RawBsonRef::Array(branches)) => branches.into_iter().flatten().all(|branch| {
                let branch = branch.as_document();
                branch.is_some_and(|branch| add_demanded(branch, demanded))
            }),
            ("$comment", _) => true,
            (operator, _) if operator.starts_with('$') => false,
            (path, value) => match equality(value) {
                Some(value) => {
                    demanded.push(DemandedValue { path, value });
                    true
                }
                None => false,
            },
        })
}

/// The value that a condition on a field demands. `None`: the condition is not an equality.
fn equality(condition: RawBsonRef<'_>) -> Option<RawBson> {
    match condition {
        RawBsonRef::RegularExpression(_) => None,
        RawBsonRef::Document(document) => match first_field(document) {
            Some(("$eq", value)) if document.iter().count() == 1 => Some(canonical(value)),
            Some((name, _)) if name.starts_with('$') => None,
            _ => Some(canonical(condition)),
        },
        value => Some(canonical(value)),
    }
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;

    fn check(filter: &RawDocument, key: RawDocumentBuf, expected: bool) {
        let mut error = WriteError::new(ErrorCode::DuplicateKey, "E11000");
        error.detail = rawdoc! { "keyValue": key };
        assert_eq!(is_of_filter(&error, filter), expected, "{filter:?}");
    }

    #[test]
    fn upsert_is_repeated_if_its_filter_is_the_key() {
        check(&rawdoc! { "_id": 5 }, rawdoc! { "_id": 5_i64 }, true);
        check(&rawdoc! { "_id": { "$eq": "a" } }, rawdoc! { "_id": "a" }, true);
        check(&rawdoc! { "a": 1, "b": "x" }, rawdoc! { "b": "x", "a": 1 }, true);
        check(
            &rawdoc! { "$and": [{ "a": 1 }, { "b": 2 }] },
            rawdoc! { "a": 1, "b": 2 },
            true,
        );
        check(
            &rawdoc! { "a": { "x": 1 }, "$comment": "c" },
            rawdoc! { "a": { "x": 1 } },
            true,
        );
    }

    #[test]
    fn upsert_with_another_condition_is_not_repeated() {
        check(&rawdoc! { "_id": 5, "n": 1 }, rawdoc! { "_id": 5 }, false);
        check(&rawdoc! { "_id": 5 }, rawdoc! { "n": 5 }, false);
        check(&rawdoc! { "_id": 5 }, rawdoc! { "_id": 6 }, false);
        check(&rawdoc! { "_id": { "$gte": 5 } }, rawdoc! { "_id": 5 }, false);
        check(&rawdoc! { "$or": [{ "_id": 5 }] }, rawdoc! { "_id": 5 }, false);
        check(
            &rawdoc! { "a": 1, "$and": [{ "a": 1 }] },
            rawdoc! { "a": 1, "b": 1 },
            false,
        );
        check(&rawdoc! {}, rawdoc! { "_id": 5 }, false);
    }
}
