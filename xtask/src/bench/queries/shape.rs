//! A shape of a query: a typical query with varying values.

use bson::Document;

use super::arguments::Arguments;

/// A shape of a query.
pub(super) struct Shape {
    /// What tables call it.
    pub(super) name: &'static str,
    pub(super) plan: PlainPlan,
    pub(super) order: Order,
    command: Box<Command>,
}

/// Makes the command of a shape. `None`: the collection has no key that is long enough.
type Command = dyn Fn(&Arguments<'_>) -> Option<Document>;

/// How a plain collection answers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum PlainPlan {
    /// From an index: it examines exactly the returned documents.
    Indexed,
    /// By a scan of the collection or of more of an index than the answer consists of.
    Scan,
}

/// How much of the order and the choice of documents the query states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Order {
    /// The query sorts by a field whose values are unique.
    Sorted,
    /// The same documents in any order.
    Any,
    /// As many documents, of those that match: which ones is not stated.
    AnyDocuments,
}

impl Shape {
    /// A shape that a plain collection answers from an index, in an order that the query states.
    pub(super) fn indexed(name: &'static str, command: impl Fn(&Arguments<'_>) -> Option<Document> + 'static) -> Self {
        Self {
            name,
            plan: PlainPlan::Indexed,
            order: Order::Sorted,
            command: Box::new(command),
        }
    }

    /// A shape for which a plain collection scans.
    pub(super) fn scan(name: &'static str, command: impl Fn(&Arguments<'_>) -> Option<Document> + 'static) -> Self {
        Self {
            plan: PlainPlan::Scan,
            ..Self::indexed(name, command)
        }
    }

    /// The same with another order of the answer.
    pub(super) fn order(self, order: Order) -> Self {
        Self { order, ..self }
    }

    /// The command with these values. `None`: the collection has no key that is long enough.
    pub(super) fn command(&self, arguments: &Arguments<'_>) -> Option<Document> {
        (self.command)(arguments)
    }
}
