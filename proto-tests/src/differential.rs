//! Differential tests: the same random commands on a plain collection, directly, and on a shaped one, through
//! one of two proxies.
//!
//! A [`Generator`] makes up values, documents, filters and stages from a seed. An [`Operation`] is one command,
//! or a few that belong together, with its own idea of what must be equal: one file a family under
//! `operation/`, listed in [`operation::FAMILIES`]. The [`runner`] runs them, and every few steps compares
//! whole contents and has the layout checked ([`crate::invariants`]).
//!
//! What may differ, by contract: the order of an item's top-level fields; natural order where several keys
//! are read; the text of an error message other than that of a duplicate key; `_id`s, where the shape drops
//! them. And the proxy may refuse what [`refusal`] lists, for the reason given there and for no other.
//!
//! Every choice of the generator is a site of the [`grammar`]; [`coverage`] counts what was taken, and
//! [`mongodb`] holds it against what MongoDB has. `MONGOSHAPE_DIFFERENTIAL=full` runs 50,000 operations over
//! 100 seeds; `collect` lists all disagreements and continues.
//! The reasons are in `docs/decisions/0026-random-tests-by-a-grammar.md`.
//!
//! To add a command: a file under `operation/` with a `generate` and an `impl Operation`, and a line in
//! `FAMILIES`.

mod changes;
mod command_names;
pub mod compare;
mod contents;
mod conversions;
pub mod coverage;
mod deployment;
mod expressions;
mod filter;
mod generator;
pub mod grammar;
pub mod mongodb;
mod moving_ranges;
pub mod operation;
mod plain;
mod refusal;
mod routes;
pub mod runner;
mod sides;
mod stages;
mod values;

pub use coverage::Coverage;
pub use deployment::{Deployment, Topology};
pub use generator::Generator;
pub use moving_ranges::RangesMove;
pub use operation::{Operation, Outcome};
pub use runner::{Report, Run};
pub use sides::{Side, Sides};
