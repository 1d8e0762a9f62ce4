//! A collection as applications see it: plain documents are read and written on the server itself, pages by a
//! proxy.

use std::collections::HashMap;

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{Binary, Bson, Timestamp, rawdoc};
use futures_util::TryStreamExt;
use mongodb::action::{Action as _, RunCursorCommand};
use mongodb::{Cursor, Database};

use crate::command::document::{array_of, get, put, single};
use crate::command::value_text::id_text;
use crate::maintenance::convert::ids::Ids;
use crate::maintenance::swap::{Halt, concern_kept};
use crate::maintenance::upstream::{as_integer, indexes_of, listed_options, raw_specs};
use crate::pattern::bucket::fence::is_fence;
use crate::pattern::bucket::item_index::{ID, is_clustered, is_own, name};
use crate::pattern::bucket::key::value_identity;
use crate::pattern::bucket::validation::Validation;
use crate::pattern::bucket::validator::options_of_application;
use crate::pattern::unwound;

/// The most documents, and bytes of documents, in one command.
pub(in crate::maintenance::convert) const MAX_DOCUMENTS: usize = 1000;
pub(in crate::maintenance::convert) const MAX_BYTES: usize = 8 << 20;
/// mongod's code for an equal `_id` or value of a unique index.
pub(in crate::maintenance::convert) const DUPLICATE_KEY: i64 = 11000;

/// A collection as applications see it.
#[derive(Clone)]
pub(in crate::maintenance::convert) struct Side {
    /// The same database on the server itself.
    pub(in crate::maintenance::convert) server: Database,
    /// The database through which documents are read and written.
    pub(in crate::maintenance::convert) database: Database,
    pub(in crate::maintenance::convert) collection: String,
    pub(in crate::maintenance::convert) is_plain: bool,
    /// Whether the server is a replica set, whose majority reads and writes wait for.
    pub(in crate::maintenance::convert) is_replicated: bool,
    /// Names the collection of plain documents after its rename.
    pub(in crate::maintenance::convert) uuid: Option<Binary>,
    /// The documents of a batch of a [scan](Self::scan). `None`: as many as the server sends.
    pub(in crate::maintenance::convert) batch_size: Option<u32>,
}

/// Documents by the identities of their `_id`s.
pub(in crate::maintenance::convert) type Found = HashMap<Vec<u8>, RawDocumentBuf>;

impl Side {
    /// The same collection after a rename.
    pub(in crate::maintenance::convert) fn renamed(&self, collection: String, uuid: &Binary) -> Self {
        Self {
            collection,
            uuid: self.is_plain.then(|| uuid.clone()),
            ..self.clone()
        }
    }

    /// All documents, in this order. mongod sorts them on disk if no index has their order. `since`: the
    /// earliest time of the state that is read.
    pub(in crate::maintenance::convert) async fn scan(
        &self,
        order: RawDocumentBuf,
        since: Option<Timestamp>,
    ) -> Result<Cursor<RawDocumentBuf>, Halt> {
        let mut find = single("find", self.collection.as_str());
        if self.is_replicated {
            // A document that is rolled back has no event.
            find.append(cstr!("readConcern"), majority(since));
        }
        if !order.is_empty() {
            find.append(cstr!("sort"), order);
            find.append(cstr!("allowDiskUse"), true);
        }
        if let Some(size) = self.batch_size {
            find.append(cstr!("batchSize"), i64::from(size));
        }
        let cursor = self.database.run_raw_cursor_command(find);
        let cursor = cursor.optional(self.batch_size, RunCursorCommand::batch_size);
        Ok(cursor.await?.with_type())
    }

    /// The `_id`s of all documents.
    pub(in crate::maintenance::convert) async fn scan_ids(&self) -> Result<Cursor<RawDocumentBuf>, Halt> {
        let mut find = single("find", self.collection.as_str());
        find.append(cstr!("projection"), single("_id", 1));
        Ok(self.database.run_raw_cursor_command(find).await?.with_type())
    }

    /// Values of a field in as many random documents.
    pub(in crate::maintenance::convert) async fn sample(&self, field: &str, size: i32) -> Result<Vec<RawBson>, Halt> {
        let mut projection = single("_id", 0);
        put(&mut projection, "value", format!("${field}"));
        let stages = [single("$sample", single("size", size)), single("$project", projection)];
        let command = unwound::aggregate(&self.collection, &stages, None);
        let cursor = self.database.run_raw_cursor_command(command).await?;
        let sampled: Vec<RawDocumentBuf> = cursor.with_type().try_collect().await?;
        let value = |document: &RawDocumentBuf| get(document, "value").unwrap_or(RawBsonRef::Null).into();
        Ok(sampled.iter().map(value).collect())
    }

    /// The documents with these `_id`s. `since`: the earliest time of the state that is read.
    pub(in crate::maintenance::convert) async fn by_ids(
        &self,
        ids: &Ids,
        since: Option<Timestamp>,
    ) -> Result<Found, Halt> {
        let mut found = Found::new();
        if ids.is_empty() {
            return Ok(found);
        }
        let mut find = single("find", self.collection.as_str());
        find.append(cstr!("filter"), single("_id", single("$in", ids.array())));
        if let (Some(since), true) = (since, self.is_replicated) {
            find.append(cstr!("readConcern"), majority(Some(since)));
        }
        if let Some(uuid) = &self.uuid {
            find.append(cstr!("collectionUUID"), uuid);
        }
        let cursor = self.database.run_raw_cursor_command(find).await?;
        let mut cursor = cursor.with_type::<RawDocumentBuf>();
        while let Some(document) = cursor.try_next().await? {
            let id = get(&document, "_id").map(value_identity);
            id.map(|id| found.insert(id, document));
        }
        Ok(found)
    }

    /// Inserts documents. Returns those that an equal `_id` or value of a unique index refuses.
    pub(in crate::maintenance::convert) async fn insert(&self, documents: &[&RawDocument]) -> Result<Ids, Halt> {
        let mut refused = Ids::default();
        for batch in batches(documents) {
            let mut insert = single("insert", self.collection.as_str());
            let array: Vec<RawDocumentBuf> = batch.iter().map(|document| (*document).to_owned()).collect();
            insert.append(cstr!("documents"), array_of(&array));
            for position in self.write(insert).await? {
                batch
                    .get(position)
                    .into_iter()
                    .for_each(|document| refused.add_of(document));
            }
        }
        Ok(refused)
    }

    /// Changes documents. Returns those that an equal value of a unique index refuses.
    pub(in crate::maintenance::convert) async fn update(&self, changes: &[DocumentChange<'_>]) -> Result<Ids, Halt> {
        let mut refused = Ids::default();
        let mut rest = changes;
        while !rest.is_empty() {
            let documents: Vec<&RawDocument> = rest.iter().map(|change| change.after).collect();
            let count = batches(&documents).next().map_or(rest.len(), <[_]>::len);
            let (batch, after) = rest.split_at(count);
            rest = after;
            let statements: Vec<RawDocumentBuf> = batch.iter().map(DocumentChange::statement).collect();
            let mut update = single("update", self.collection.as_str());
            update.append(cstr!("updates"), array_of(&statements));
            for position in self.write(update).await? {
                if let Some(change) = batch.get(position) {
                    refused.add_of(change.after);
                }
            }
        }
        Ok(refused)
    }

    /// Deletes documents by `_id`.
    pub(in crate::maintenance::convert) async fn delete(&self, ids: &[RawBson]) -> Result<(), Halt> {
        for batch in ids.chunks(MAX_DOCUMENTS) {
            let ids: RawArrayBuf = batch.iter().map(RawBson::as_raw_bson_ref).collect();
            let mut statement = single("q", single("_id", single("$in", &ids)));
            statement.append(cstr!("limit"), 0);
            let mut delete = single("delete", self.collection.as_str());
            delete.append(cstr!("deletes"), array_of(&[statement]));
            self.write(delete).await?;
        }
        Ok(())
    }

    /// Executes a write. Returns the positions of statements that failed because of a duplicate key.
    async fn write(&self, mut command: RawDocumentBuf) -> Result<Vec<usize>, Halt> {
        command.append(cstr!("ordered"), false);
        if self.is_replicated {
            // After a failover, the new primary would give the copy its name without this write.
            command.append(cstr!("writeConcern"), rawdoc! { "w": "majority" });
        }
        let reply = self.database.run_raw_command(command).await?;
        concern_kept(&reply)?;
        let errors = reply.get_array("writeErrors").into_iter().flatten();
        let mut duplicates = Vec::new();
        for error in errors.filter_map(Bson::as_document) {
            let number = |field| error.get(field).and_then(as_integer);
            match number("index").map(usize::try_from) {
                Some(Ok(position)) if number("code") == Some(DUPLICATE_KEY) => duplicates.push(position),
                _ => {
                    let text = error.get_str("errmsg").unwrap_or_default();
                    return Err(Halt::Words(format!("a document cannot be copied: {text}")));
                }
            }
        }
        Ok(duplicates)
    }

    /// The collection's options, as applications see them. `None`: it does not exist.
    pub(in crate::maintenance::convert) async fn options(&self) -> Result<Option<RawDocumentBuf>, Halt> {
        // A proxy does not list the copy of a collection that it knows.
        let listed = listed_options(&self.server, &self.collection).await?;
        Ok(listed.map(|options| {
            if self.is_plain {
                options
            } else {
                options_of_application(&options)
            }
        }))
    }

    /// The validation of documents, as applications see it.
    pub(in crate::maintenance::convert) async fn validation(&self) -> Result<Validation, Halt> {
        Ok(Validation::of(&self.options().await?.unwrap_or_default()))
    }

    /// The indexes of the application, sorted by name.
    pub(in crate::maintenance::convert) async fn indexes(&self) -> Result<Vec<RawDocumentBuf>, Halt> {
        Ok(of_application(raw_specs(
            &indexes_of(&self.database, &self.collection).await?,
        )))
    }

    pub(in crate::maintenance::convert) async fn create_indexes(&self, specs: &[RawDocumentBuf]) -> Result<(), Halt> {
        if specs.is_empty() {
            return Ok(());
        }
        self.run("createIndexes", &single("indexes", array_of(specs).as_ref()))
            .await
    }

    /// Executes a command on the collection that has the name as first value.
    pub(in crate::maintenance::convert) async fn run(&self, verb: &str, arguments: &RawDocument) -> Result<(), Halt> {
        let mut command = single(verb, self.collection.as_str());
        for (field, value) in arguments.iter().flatten() {
            put(&mut command, field.as_str(), value);
        }
        let reply = self.database.run_raw_command(command).await?;
        concern_kept(&reply)
    }
}

/// The indexes of the application among those of a collection, sorted by name.
pub(in crate::maintenance::convert) fn of_application(mut specs: Vec<RawDocumentBuf>) -> Vec<RawDocumentBuf> {
    specs.retain(|spec| {
        let name = name(spec);
        name != ID && !is_clustered(spec) && !is_fence(name) && !is_own(name)
    });
    specs.sort_by(|one, other| name(one).cmp(name(other)));
    specs
}

/// The read concern of a state that is not rolled back.
pub(in crate::maintenance::convert) fn majority(since: Option<Timestamp>) -> RawDocumentBuf {
    let mut concern = single("level", "majority");
    if let Some(since) = since {
        concern.append(cstr!("afterClusterTime"), since);
    }
    concern
}

/// Consecutive documents for one command each.
fn batches<'d, 'a>(documents: &'d [&'a RawDocument]) -> impl Iterator<Item = &'d [&'a RawDocument]> {
    let mut rest = documents;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = rest.iter().take(MAX_DOCUMENTS).take_while(|document| {
            bytes += document.as_bytes().len();
            bytes <= MAX_BYTES
        });
        let count = fits.count().max(1).min(rest.len());
        let (batch, after) = rest.split_at(count);
        rest = after;
        (!batch.is_empty()).then_some(batch)
    })
}

/// A document of the copy, and the document that it becomes.
pub(in crate::maintenance::convert) struct DocumentChange<'a> {
    pub(in crate::maintenance::convert) before: &'a RawDocument,
    pub(in crate::maintenance::convert) after: &'a RawDocument,
}

impl DocumentChange<'_> {
    /// The statement of an `update`: it sets the fields that differ, which is one statement on a page. Names
    /// that `$set` does not take need a replacement.
    fn statement(&self) -> RawDocumentBuf {
        let after = self.after;
        let id = get(after, "_id").unwrap_or(RawBsonRef::Null);
        let by_id = match id {
            RawBsonRef::Document(_) => single("_id", single("$eq", id)),
            id => single("_id", id),
        };
        let mut statement = single("q", by_id);
        statement.append(cstr!("u"), self.operators().unwrap_or_else(|| after.to_owned()));
        statement
    }

    /// The operators that make the copy equal. `None`: `$set` does not take the names of the fields.
    pub(in crate::maintenance::convert) fn operators(&self) -> Option<RawDocumentBuf> {
        let Self { before, after } = *self;
        let (mut set, mut unset) = (RawDocumentBuf::new(), RawDocumentBuf::new());
        for (name, value) in after.iter().flatten() {
            let is_same = get(before, name.as_str()).is_some_and(|before| is_same_value(before, value));
            if !is_same {
                put(&mut set, name.as_str(), value);
            }
        }
        for (name, _) in before.iter().flatten() {
            if get(after, name.as_str()).is_none() {
                put(&mut unset, name.as_str(), 1);
            }
        }
        let names = set.iter().chain(unset.iter()).flatten();
        let is_plain = |name: &str| !name.is_empty() && !name.starts_with('$') && !name.contains('.');
        if !names
            .map(|(name, _)| name.as_str().to_owned())
            .all(|name| is_plain(&name))
        {
            return None;
        }
        let mut operators = RawDocumentBuf::new();
        for (operator, fields) in [("$set", set), ("$unset", unset)] {
            if !fields.is_empty() {
                put(&mut operators, operator, &fields);
            }
        }
        Some(operators)
    }
}

/// Whether two values are equal in type and in every bit.
fn is_same_value(one: RawBsonRef<'_>, other: RawBsonRef<'_>) -> bool {
    single("", one).as_bytes() == single("", other).as_bytes()
}

/// Whether two documents have the same fields with the same values, in type and in every bit. The order of
/// the fields may differ, because an item's key fields come first.
pub(in crate::maintenance::convert) fn is_equal(one: &RawDocument, other: &RawDocument) -> bool {
    let fields = |document: &RawDocument| -> Option<Vec<(String, Vec<u8>)>> {
        let mut fields = Vec::new();
        for field in document {
            let (name, value) = field.ok()?;
            fields.push((name.as_str().to_owned(), single("", value).into_bytes()));
        }
        fields.sort();
        Some(fields)
    };
    one.as_bytes() == other.as_bytes() || fields(one).is_some_and(|one| Some(one) == fields(other))
}

/// The text of a document's `_id` for a report.
pub(in crate::maintenance::convert) fn id_of(id: &RawBson) -> String {
    id_text(&single("_id", id.as_raw_bson_ref()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_of_fields_is_ignored_and_types_are_not() {
        let check = |other: RawDocumentBuf, expected| {
            assert_eq!(
                is_equal(&rawdoc! { "_id": 1, "k": 2, "x": { "a": 1, "b": 2 } }, &other),
                expected,
                "{other:?}"
            );
        };
        check(rawdoc! { "_id": 1, "x": { "a": 1, "b": 2 }, "k": 2 }, true);
        check(rawdoc! { "_id": 1, "k": 2, "x": { "b": 2, "a": 1 } }, false);
        check(rawdoc! { "_id": 1, "k": 2_i64, "x": { "a": 1, "b": 2 } }, false);
        check(rawdoc! { "_id": 1, "k": 2 }, false);
    }

    #[test]
    fn batches_are_bounded_by_number_and_size() {
        let (small, large) = (rawdoc! { "_id": 1 }, rawdoc! { "_id": "x".repeat(5 << 20) });
        let sizes = |documents: &[&RawDocument]| batches(documents).map(<[_]>::len).collect::<Vec<_>>();
        assert_eq!(sizes(&[]), [0; 0]);
        assert_eq!(sizes(&[&small, &large, &large, &small]), [2, 2]);
        assert_eq!(sizes(&vec![&*small; MAX_DOCUMENTS + 1]), [MAX_DOCUMENTS, 1]);
    }
}
