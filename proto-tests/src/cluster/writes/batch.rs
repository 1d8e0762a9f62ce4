//! A client's batch of statements, and parts of it for shards.

use bson::{Bson, Document};

use super::super::retries::{Place, is_retryable};
use super::super::shard_connections::ShardConnections;
use super::super::statements::{documents, number, without};

/// The statements of a command.
pub(super) struct Batch<'a> {
    command: &'a Document,
    /// The name of the list: `documents`, `updates` or `deletes`.
    pub(super) kind: &'static str,
    pub(super) is_ordered: bool,
    pub(super) statements: Vec<Document>,
    /// The number of each statement. A retry has the same ones.
    ids: Vec<i32>,
}

impl<'a> Batch<'a> {
    /// Of a command.
    pub(super) fn new(command: &'a Document, kind: &'static str) -> Self {
        let statements = documents(command, kind);
        let first = i32::try_from(number(command, "stmtId")).unwrap_or(0);
        let ids = match command.get_array("stmtIds") {
            Ok(ids) => ids.iter().filter_map(Bson::as_i32).collect(),
            Err(_) => (first..).take(statements.len()).collect(),
        };
        Self {
            command,
            kind,
            is_ordered: command.get_bool("ordered").unwrap_or(true),
            statements,
            ids,
        }
    }

    /// The command for some of the statements.
    pub(super) fn part(&self, positions: &[usize]) -> Document {
        let mut part = without(self.command, &[self.kind, "stmtIds", "stmtId"]);
        let statements = positions.iter().filter_map(|position| self.statements.get(*position));
        let statements: Vec<Bson> = statements.map(|statement| statement.clone().into()).collect();
        part.insert(self.kind, statements);
        if is_retryable(self.command) {
            let ids = positions.iter().filter_map(|position| self.ids.get(*position));
            part.insert("stmtIds", ids.copied().map(Bson::Int32).collect::<Vec<_>>());
        }
        part
    }

    /// The shard that executed the statement when it was sent before.
    pub(super) fn earlier_shard(
        &self,
        connections: &ShardConnections,
        position: usize,
        slot: Option<usize>,
    ) -> Option<usize> {
        let id = self.ids.get(position)?;
        connections.state().retries().shard_of(self.command, *id, slot)
    }

    /// Records where a statement took effect.
    pub(super) fn record(&self, connections: &ShardConnections, position: usize, place: Place) {
        if let Some(id) = self.ids.get(position) {
            connections.state().retries().record(self.command, *id, place);
        }
    }
}
