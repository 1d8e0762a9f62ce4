//! The operations: what they are, and which there are.

mod aggregate;
mod collection;
mod count;
mod cursor;
mod find;
mod insert;

use std::fmt::Debug;

use anyhow::Result;

use super::{Sides, World};

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

/// Something that both sides are asked to do.
pub trait Operation: Debug {
    /// Does it on both sides and compares the answers.
    ///
    /// # Errors
    /// The disagreement, or that a server could not be asked.
    fn run(&self, sides: &mut Sides) -> Result<Outcome>;
}

/// A kind of operation.
#[derive(Debug)]
pub struct Family {
    /// What reports call it.
    pub name: &'static str,
    /// How frequent it is, beside the others.
    pub weight: u32,
    /// Makes one up.
    pub generate: fn(&mut World) -> Box<dyn Operation>,
}

/// All kinds.
pub const FAMILIES: &[Family] = &[
    Family {
        name: "insert",
        weight: 30,
        generate: insert::generate,
    },
    Family {
        name: "find",
        weight: 40,
        generate: find::generate,
    },
    Family {
        name: "count",
        weight: 10,
        generate: count::generate,
    },
    Family {
        name: "aggregate",
        weight: 20,
        generate: aggregate::generate,
    },
    Family {
        name: "create or drop",
        weight: 1,
        generate: collection::generate,
    },
];
