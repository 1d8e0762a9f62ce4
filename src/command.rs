//! Typed, borrowed views of commands, and builders of replies and errors. Must not depend on patterns or
//! sockets.
#![cfg_attr(
    not(test),
    deny(
        clippy::unwrap_used,
        clippy::expect_used,
        clippy::panic,
        clippy::unreachable,
        clippy::indexing_slicing,
        clippy::arithmetic_side_effects
    )
)]

pub mod aggregate;
pub mod arguments;
pub mod batch;
pub mod bulk_write;
pub mod change_stream;
pub mod collection;
pub mod concerns;
pub mod count;
pub mod cursor;
pub mod delete;
pub mod distinct;
pub mod document;
pub mod duplicate;
pub mod error;
pub mod find;
pub mod find_and_modify;
pub mod header;
pub mod indexes;
pub mod insert;
pub mod merge;
pub mod namespace;
pub mod referenced_namespaces;
pub mod registry;
pub mod reply;
pub mod server_version;
pub mod statement_ids;
pub mod time_limit;
pub mod unused_name;
pub mod update;
pub mod value_text;
pub mod write_batch;
pub mod write_reply;
