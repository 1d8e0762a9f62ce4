//! Statements on a sharded collection, which a mongos sends to one shard.
//!
//! Planners name a page by its `_id` alone, which is the fastest on a mongod. A mongos refuses an upsert, and a
//! `findAndModify`, whose query does not have the shard key. The page index is unique, so the shard key is a prefix of
//! its key: all pages of a key are on one shard, and a query that names the key has the shard key.

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::layout::path;
use crate::command::document::{get, put, single};

/// The statement of an `update` or `delete`, with the conditions of `key` added to its query. Conditions on fields
/// that the query names already are left out.
#[must_use]
pub fn with_key(statement: &RawDocument, key: &RawDocument) -> RawDocumentBuf {
    let mut targeted = RawDocumentBuf::new();
    for (name, value) in statement.iter().flatten() {
        match (name.as_str(), value) {
            ("q", RawBsonRef::Document(query)) => {
                let mut both = query.to_owned();
                for (field, condition) in key.iter().flatten() {
                    if get(query, field.as_str()).is_none() {
                        both.append(field, condition);
                    }
                }
                put(&mut targeted, "q", &both);
            }
            (_, value) => targeted.append(name, value),
        }
    }
    targeted
}

/// An element of `updates` that changes nothing, for the shard of `key`. mongod would replace an empty `$in` by a
/// constant, and a mongos would find no shard key in the query.
#[must_use]
pub fn no_statement(key: &RawDocument) -> RawDocumentBuf {
    let mut query = key.to_owned();
    put(&mut query, "_id", nothing());
    let mut statement = single("q", &query);
    statement.append(cstr!("u"), single("$set", single("_", 0)));
    statement
}

/// The same for all shards. A mongos 6.0 sends a statement that changes one document to all shards if its query
/// has no shard key and an `_id`.
#[must_use]
pub fn no_statement_on_any_shard() -> RawDocumentBuf {
    let mut query = single("_id", "");
    put(&mut query, path::VERSION, nothing());
    let mut statement = single("q", &query);
    statement.append(cstr!("u"), single("$set", single("_", 0)));
    statement
}

/// A condition that no value satisfies, and that mongod keeps.
#[must_use]
pub fn nothing() -> RawDocumentBuf {
    single("$lt", RawBson::MinKey)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_query_gets_the_conditions_that_it_lacks() {
        let key = rawdoc! { "k": { "$eq": 1 }, "region": { "$eq": 2 } };
        let statement = rawdoc! { "q": { "_id": "a", "region": 3 }, "u": [], "upsert": true };
        let expected = rawdoc! { "q": { "_id": "a", "region": 3, "k": { "$eq": 1 } }, "u": [], "upsert": true };
        assert_eq!(with_key(&statement, &key), expected);
    }
}
