//! The change stream of one shard.

use std::collections::VecDeque;

use anyhow::Result;
use bson::{Bson, Document, Timestamp, doc};

use crate::cluster::shard_connections::ShardConnections;
use crate::cluster::statements::{copy_session, document, number};
use crate::resume_token::time_of;

/// A resume token. Tokens are ordered as their events.
#[derive(Clone, Debug, Default, PartialEq)]
pub(super) struct Token {
    /// The field `_data`.
    data: String,
    document: Document,
}

impl Token {
    pub(super) fn of(document: Document) -> Self {
        Self {
            data: document.get_str("_data").unwrap_or_default().to_owned(),
            document,
        }
    }

    pub(super) fn document(&self) -> &Document {
        &self.document
    }

    /// `None`: the token is malformed.
    pub(super) fn time(&self) -> Option<Timestamp> {
        time_of(&self.data)
    }
}

impl Eq for Token {}

impl PartialOrd for Token {
    fn partial_cmp(&self, other: &Self) -> Option<std::cmp::Ordering> {
        Some(self.cmp(other))
    }
}

impl Ord for Token {
    fn cmp(&self, other: &Self) -> std::cmp::Ordering {
        self.data.cmp(&other.data)
    }
}

/// The stream of a shard, and its events that were not returned yet.
#[derive(Debug)]
pub(super) struct Source {
    shard: usize,
    /// 0: it is closed.
    cursor: i64,
    events: VecDeque<Document>,
    /// All events up to here were read.
    position: Token,
}

impl Source {
    /// The stream of a reply without events.
    pub(super) fn of(shard: usize, opened: Document) -> Self {
        let mut source = Self {
            shard,
            cursor: 0,
            events: VecDeque::new(),
            position: Token::default(),
        };
        source.add(opened, &Token::default());
        source
    }

    pub(super) fn shard(&self) -> usize {
        self.shard
    }

    pub(super) fn is_closed(&self) -> bool {
        self.cursor == 0
    }

    /// The token of the first event.
    pub(super) fn first(&self) -> Option<Token> {
        self.events.front().map(|event| Token::of(document(event, "_id")))
    }

    /// Removes the first event.
    pub(super) fn take(&mut self) -> Option<Document> {
        self.events.pop_front()
    }

    /// The position that the shard has passed. `None`: it has an event, or no further ones.
    pub(super) fn passed(&self) -> Option<Token> {
        let is_empty = self.events.is_empty() && !self.is_closed();
        is_empty.then(|| self.position.clone())
    }

    /// Whether the shard has not passed a time.
    pub(super) fn is_before(&self, time: Option<Timestamp>) -> bool {
        let passed = self.passed().and_then(|passed| passed.time());
        passed.is_some() && passed <= time
    }

    /// Reads further events if there are none, without the events up to a token.
    pub(super) fn read(
        &mut self,
        connections: &mut ShardConnections,
        command: &Document,
        collection: &str,
        behind: &Token,
    ) -> Result<()> {
        if self.passed().is_some() {
            let mut more = doc! { "getMore": self.cursor, "collection": collection, "maxTimeMS": 1 };
            copy_session(command, &mut more);
            let reply = connections.send_ok(self.shard, &more)?;
            self.add(reply, behind);
        }
        Ok(())
    }

    fn add(&mut self, mut reply: Document, behind: &Token) {
        let mut cursor = match reply.remove("cursor") {
            Some(Bson::Document(cursor)) => cursor,
            _ => Document::new(),
        };
        self.cursor = number(&cursor, "id");
        self.position = Token::of(document(&cursor, "postBatchResumeToken"));
        let batch = cursor.remove("firstBatch").or_else(|| cursor.remove("nextBatch"));
        for event in batch.and_then(|batch| batch.as_array().cloned()).into_iter().flatten() {
            if let Bson::Document(event) = event
                && Token::of(document(&event, "_id")) > *behind
            {
                self.events.push_back(event);
            }
        }
    }

    /// Closes the stream.
    pub(super) fn kill(self, connections: &mut ShardConnections, command: &Document, collection: &str) -> Result<()> {
        if !self.is_closed() {
            let mut kill = doc! { "killCursors": collection, "cursors": [self.cursor] };
            copy_session(command, &mut kill);
            connections.send_ok(self.shard, &kill)?;
        }
        Ok(())
    }
}
