//! One client and its upstream connection.
//!
//! [`connection`] is the loop. [`route`] plans the handling of a command: [`relay`] forwards it, and
//! [`automatic`], [`bucket`], [`outlier`], [`cross_collection`], [`merge`] and [`change_stream`] execute it
//! in a [`command_context`]. [`shadow`] chooses relayed reads that
//! a background task compares. [`shared`] has the state of all sessions. Must not depend on listeners or on
//! configuration files.

mod aggregate_validation;
mod automatic;
mod backoff;
mod bounded_cache;
mod bucket;
mod change_stream;
mod collection_catalog;
mod command_context;
pub mod command_trace;
pub mod connection;
mod cross_collection;
mod cursor;
mod cursor_owner;
mod dotted_names;
mod dry_run;
mod error;
mod fence;
mod first_page_cache;
pub mod handshake;
mod head_page_cache;
mod id_source;
mod insert_groups;
mod key_length_cache;
mod kill_cursors;
mod malformed_pipeline;
mod many_values_cache;
pub mod memory;
mod merge;
pub mod metrics;
mod namespace_cache;
mod outlier;
mod outlier_shape_markers;
mod page_times_cache;
mod refusal;
pub mod refused_unique_indexes;
mod relay;
mod reserving_page_deletions;
mod route;
pub mod shadow;
mod shared;
pub mod socket;
mod stream;
mod thaw_watch;
mod upsert_race;
pub mod upstream;
mod upstream_connection;
pub mod write_delay;

pub use self::shared::{SessionLimits, Settings, Shared};
