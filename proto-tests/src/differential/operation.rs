//! The operation trait, and the list of operations.

mod aggregate;
mod collection;
mod count;
mod cursor;
mod delete;
mod distinct;
mod empty;
mod find;
mod find_and_modify;
mod indexes;
mod insert;
mod lookup;
mod merge;
mod near;
mod newest;
mod newest_lookup;
mod one_key;
mod scene;
mod sorted;
mod step;
mod stream;
mod transaction;
mod unique;
mod update;
mod validator;
mod view;
mod writes;

use std::fmt::Debug;

use anyhow::{Context as _, Result};
use bson::{Document, doc};

use super::{Generator, Sides};

/// What came of an operation that both sides agree on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Outcome {
    /// Both did it.
    Done,
    /// Both refused it, or part of it.
    Failed,
    /// The proxy refused it, or part of it, as it may.
    Refused,
}

/// An operation that runs on both sides.
pub trait Operation: Debug {
    /// The commands, without fields that follow from replies.
    fn commands(&self) -> Vec<Document>;

    /// Does it on both sides and compares the answers.
    ///
    /// # Errors
    /// The disagreement, or a connection error.
    fn run(&self, sides: &mut Sides) -> Result<Outcome>;
}

/// Sends a write as often as it is to be sent as one and the same retryable write; 0: once, and it is none.
fn sent_again(
    sides: &mut Sides,
    times: u32,
    mut send: impl FnMut(&mut Sides, &Document) -> Result<Outcome>,
) -> Result<Outcome> {
    if times == 0 {
        return send(sides, &doc! {});
    }
    let number = doc! { "txnNumber": sides.next_number() };
    let mut outcome = Outcome::Done;
    for time in 1..=times {
        sides.is_sent_again = time > 1;
        outcome = send(sides, &number).with_context(|| format!("sent {time} times"))?;
    }
    sides.is_sent_again = false;
    Ok(outcome)
}

/// A kind of operation.
#[derive(Debug)]
pub struct Family {
    /// What reports call it.
    pub name: &'static str,
    /// How frequent it is, beside the others.
    pub weight: u32,
    /// Whether it needs a replica set.
    pub needs_sessions: bool,
    /// Makes one up.
    pub generate: fn(&mut Generator) -> Box<dyn Operation>,
}

impl Family {
    const fn new(name: &'static str, weight: u32, generate: fn(&mut Generator) -> Box<dyn Operation>) -> Self {
        Self {
            name,
            weight,
            needs_sessions: false,
            generate,
        }
    }
}

/// The names of those that write.
pub const WRITING: &[&str] = &["insert", "update", "delete", "findAndModify", "indexes", "transaction"];

/// All kinds that a standalone does.
pub const FAMILIES: &[Family] = &[
    Family::new("insert", 30, insert::generate),
    Family::new("find", 40, find::generate),
    Family::new("count", 10, count::generate),
    Family::new("aggregate", 20, aggregate::generate),
    Family::new("distinct", 10, distinct::generate),
    Family::new("lookup", 15, lookup::generate),
    Family::new("view", 3, view::generate),
    Family::new("create or drop", 1, collection::generate),
];

/// Mostly reads.
pub const READS: &[Family] = &[
    Family::new("insert", 10, insert::generate),
    Family::new("find", 60, find::generate),
    Family::new("count", 10, count::generate),
    Family::new("aggregate", 20, aggregate::generate),
    Family::new("newest", 4, newest::generate),
    Family::new("newest lookup", 10, newest_lookup::generate),
    Family::new("distinct", 5, distinct::generate),
    Family::new("lookup", 5, lookup::generate),
    Family::new("view", 2, view::generate),
];

/// Sorted reads of collections with an index.
pub const SORTED: &[Family] = &[Family::new("sorted", 3, sorted::generate)];

/// Writes on collections with a unique index.
pub const UNIQUE: &[Family] = &[Family::new("unique", 1, unique::generate)];

/// Writes on one key whose page is nearly full, through each proxy in turn.
pub const ONE_KEY: &[Family] = &[Family::new("one key", 1, one_key::generate)];

/// Queries by distance on collections with a geospatial index.
pub const NEAR: &[Family] = &[Family::new("near", 1, near::generate)];

/// Writes on collections with a validator.
pub const VALIDATORS: &[Family] = &[Family::new("validator", 1, validator::generate)];

/// `$merge` into a collection of its own.
pub const MERGE: &[Family] = &[Family::new("merge", 1, merge::generate)];

/// Change streams, on a replica set.
pub const STREAMS: &[Family] = &[Family {
    needs_sessions: true,
    ..Family::new("stream", 1, stream::generate)
}];

/// Change streams of a sharded collection, beside writes without sessions.
pub const SHARDED_STREAMS: &[Family] = &[Family::new("stream", 1, stream::generate)];

/// Mostly writes, on a replica set: retryable ones, some of them sent twice, and transactions.
pub const WRITES: &[Family] = &[
    Family::new("insert", 50, insert::generate),
    Family {
        needs_sessions: true,
        ..Family::new("transaction", 30, transaction::generate)
    },
    Family::new("find", 15, find::generate),
    Family::new("count", 5, count::generate),
];

/// Everything, on a standalone.
pub const ALL: &[Family] = &[
    Family::new("insert", 25, insert::generate),
    Family::new("update", 30, update::generate),
    Family::new("delete", 10, delete::generate),
    Family::new("findAndModify", 15, find_and_modify::generate),
    Family::new("indexes", 3, indexes::generate),
    Family::new("find", 30, find::generate),
    Family::new("count", 8, count::generate),
    Family::new("aggregate", 12, aggregate::generate),
    Family::new("newest", 4, newest::generate),
    Family::new("newest lookup", 10, newest_lookup::generate),
    Family::new("distinct", 6, distinct::generate),
    Family::new("lookup", 8, lookup::generate),
    Family::new("view", 1, view::generate),
    Family::new("empty", 4, empty::generate),
    Family::new("scene", 4, scene::generate),
    Family::new("sorted", 3, sorted::generate),
    Family::new("unique", 3, unique::generate),
    Family::new("near", 2, near::generate),
    Family::new("validator", 2, validator::generate),
    Family::new("create or drop", 1, collection::generate),
];

/// Operations on a sharded collection. There is no family of any `aggregate`: the model of a cluster returns other
/// errors for some first stages than a mongos.
pub const SHARDED: &[Family] = &[
    Family::new("insert", 25, insert::generate),
    Family::new("update", 30, update::generate),
    Family::new("delete", 10, delete::generate),
    Family::new("findAndModify", 15, find_and_modify::generate),
    Family::new("find", 25, find::generate),
    Family::new("count", 8, count::generate),
    Family::new("indexes", 3, indexes::generate),
    Family::new("newest", 6, newest::generate),
    Family::new("distinct", 6, distinct::generate),
    Family::new("sorted", 6, sorted::generate),
];

/// Operations on a sharded collection in sessions: retryable writes, some of them sent several times, and
/// transactions.
pub const SHARDED_IN_SESSIONS: &[Family] = &[
    Family::new("insert", 25, insert::generate),
    Family::new("update", 30, update::generate),
    Family::new("delete", 10, delete::generate),
    Family::new("findAndModify", 15, find_and_modify::generate),
    Family::new("find", 20, find::generate),
    Family::new("count", 3, count::generate),
    Family {
        needs_sessions: true,
        ..Family::new("transaction", 8, transaction::generate)
    },
];

/// Everything, on a replica set: many writes are retryable, and some of those sent more than once.
pub const ALL_IN_SESSIONS: &[Family] = &[
    Family::new("insert", 25, insert::generate),
    Family::new("update", 30, update::generate),
    Family::new("delete", 10, delete::generate),
    Family::new("findAndModify", 15, find_and_modify::generate),
    Family::new("indexes", 3, indexes::generate),
    Family::new("find", 25, find::generate),
    Family::new("count", 3, count::generate),
    Family::new("aggregate", 4, aggregate::generate),
    Family::new("newest", 4, newest::generate),
    Family::new("newest lookup", 10, newest_lookup::generate),
    Family::new("empty", 4, empty::generate),
    Family::new("scene", 4, scene::generate),
    Family::new("sorted", 3, sorted::generate),
    Family::new("unique", 3, unique::generate),
    Family::new("near", 2, near::generate),
    Family::new("validator", 2, validator::generate),
    Family {
        needs_sessions: true,
        ..Family::new("transaction", 8, transaction::generate)
    },
    Family {
        needs_sessions: true,
        ..Family::new("stream", 2, stream::generate)
    },
];

/// Everything that is done with an outlier collection, on a standalone.
pub const OUTLIERS: &[Family] = &[
    Family::new("insert", 20, insert::generate),
    Family::new("update", 35, update::generate),
    Family::new("delete", 8, delete::generate),
    Family::new("findAndModify", 15, find_and_modify::generate),
    Family::new("find", 25, find::generate),
    Family::new("count", 6, count::generate),
    Family::new("aggregate", 8, aggregate::generate),
    Family::new("distinct", 4, distinct::generate),
];

/// The same on a replica set.
pub const OUTLIERS_IN_SESSIONS: &[Family] = &[
    Family::new("insert", 20, insert::generate),
    Family::new("update", 35, update::generate),
    Family::new("delete", 8, delete::generate),
    Family::new("findAndModify", 15, find_and_modify::generate),
    Family::new("find", 12, find::generate),
    Family::new("count", 3, count::generate),
    Family::new("aggregate", 4, aggregate::generate),
    Family {
        needs_sessions: true,
        ..Family::new("transaction", 12, transaction::generate)
    },
];
