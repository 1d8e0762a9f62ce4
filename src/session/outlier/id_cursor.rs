//! Reads the `_id`s of an update or delete of many in batches, so that the proxy holds a bounded
//! number.

use bson::Timestamp;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::command::OutlierCommand;
use super::merged_read::{Misses, MissingPages, put_together_since};
use super::write::DocumentSelector;
use crate::command::document::{get, single};
use crate::command::reply::CursorReply;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;

/// `_id`s in one batch.
const BATCH_SIZE: i32 = 1_000;
/// `_id`s in memory before documents are changed.
const MAX_HELD: usize = 10_000;
/// Bytes of `_id`s in memory.
const MAX_HELD_BYTES: usize = 4 << 20;

/// The documents and the order of a query for `_id`s.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Selection {
    /// All matching documents, in mongod's order.
    Found,
    /// All matching documents, by `_id`. A document whose other fields change in the meantime is
    /// returned once.
    ById,
    /// The matching outliers.
    Outliers,
}

/// A cursor of `_id`s, with the `_id`s that were read and not yet returned.
#[derive(Debug, Default)]
pub(super) struct IdCursor {
    id: i64,
    held: Vec<RawBson>,
    bytes: usize,
    /// The cluster time of the last reply. `None` on a standalone.
    time: Option<Timestamp>,
}

impl IdCursor {
    /// The cursor that a reply to a query opened, with the `_id`s of its first batch.
    pub(super) fn of(reply: &RawDocument) -> Self {
        let mut cursor = Self::default();
        cursor.add(reply);
        cursor
    }

    fn add(&mut self, reply: &RawDocument) {
        let cursor = CursorReply::parse(reply);
        self.id = cursor.as_ref().map_or(0, |cursor| cursor.id);
        self.time = reply.get_timestamp("operationTime").ok();
        for found in cursor.iter().flat_map(CursorReply::documents) {
            self.bytes = self.bytes.saturating_add(found.as_bytes().len());
            self.held.extend(get(found, "_id").map(RawBson::from));
        }
    }

    fn may_hold_more(&self) -> bool {
        self.held.len() < MAX_HELD && self.bytes < MAX_HELD_BYTES
    }
}

impl OutlierCommand<'_> {
    /// The `_id`s of documents to change. If they fit in memory, all are read before the first
    /// document is changed. Otherwise they are read by `_id`, an order that no change affects, so
    /// no document is returned twice.
    pub(super) async fn ids_to_change(&mut self, selector: DocumentSelector<'_>) -> Result<IdCursor, RunError> {
        let mut misses = Misses::default();
        for attempt in 0..MAX_ATTEMPTS {
            pause(attempt).await;
            let mut cursor = self.open_ids(selector, Selection::Found).await?;
            let read = loop {
                if cursor.id == 0 {
                    return Ok(cursor);
                }
                if !cursor.may_hold_more() {
                    // The command itself replaces pages that the cursor reads later.
                    self.facts.missed_at = cursor.time;
                    self.close_ids(cursor).await?;
                    return self.open_ids(selector, Selection::ById).await;
                }
                match self.read_ids(&mut cursor).await {
                    Ok(()) => {}
                    read => break read,
                }
            };
            match MissingPages::of(&read) {
                Some(missing) if misses.are_lost(&missing) => return Err(self.missing_extras().into()),
                Some(_) => {}
                None => read?,
            }
        }
        Err(self.other_extras().into())
    }

    /// The query for `_id`s in batches, and whether it is a pipeline that reassembles outliers.
    pub(super) fn batched_id_query(
        &self,
        selector: DocumentSelector<'_>,
        selection: Selection,
    ) -> Result<(RawDocumentBuf, bool), RunError> {
        let (mut command, merges) = self.id_query(selector, selection, 0)?;
        match get(&command, "cursor") {
            Some(_) => put_batch_size(&mut command),
            None => command.append(cstr!("batchSize"), BATCH_SIZE),
        }
        if selection == Selection::ById {
            command.append(cstr!("allowDiskUse"), true);
        }
        self.context.inherited().append_to_selection(&mut command);
        Ok((command, merges))
    }

    /// Opens a cursor of `_id`s and reads its first batch.
    pub(super) async fn open_ids(
        &mut self,
        selector: DocumentSelector<'_>,
        selection: Selection,
    ) -> Result<IdCursor, RunError> {
        let (command, merges) = self.batched_id_query(selector, selection)?;
        let reply = if merges {
            put_together_since(self.context.link, &command, self.facts.missed_at.take()).await?
        } else {
            self.context.link.run(&command).await?
        };
        Ok(IdCursor::of(&reply))
    }

    /// The next `_id`s. `None` at the end.
    pub(super) async fn next_ids(&mut self, cursor: &mut IdCursor) -> Result<Option<Vec<RawBson>>, RunError> {
        while cursor.held.is_empty() && cursor.id != 0 {
            self.read_ids(cursor).await?;
        }
        let held = std::mem::take(&mut cursor.held);
        cursor.bytes = 0;
        Ok((!held.is_empty()).then_some(held))
    }

    async fn read_ids(&mut self, cursor: &mut IdCursor) -> Result<(), RunError> {
        let mut more = single("getMore", cursor.id);
        more.append(cstr!("collection"), self.namespace.collection);
        more.append(cstr!("batchSize"), BATCH_SIZE);
        self.context.inherited().append_to_get_more(&mut more);
        // If the `getMore` fails, mongod has closed the cursor.
        cursor.id = 0;
        let reply = self.context.link.run(&more).await;
        if let Some(missing) = MissingPages::of(&reply) {
            self.facts.missed_at = missing.time;
        }
        cursor.add(&reply?);
        Ok(())
    }

    /// Closes a cursor, if it has not ended.
    pub(super) async fn close_ids(&mut self, cursor: IdCursor) -> Result<(), RunError> {
        if cursor.id == 0 {
            return Ok(());
        }
        self.close_cursor(self.namespace.collection, cursor.id).await
    }
}

fn put_batch_size(aggregate: &mut RawDocumentBuf) {
    let cursor = single("batchSize", BATCH_SIZE);
    let replaced = [("cursor", Some(RawBsonRef::Document(&cursor)))];
    *aggregate = crate::command::arguments::with_replaced(aggregate, &replaced);
}
