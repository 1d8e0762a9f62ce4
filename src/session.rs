//! One client and its upstream link: relay, rewritten commands, cursors, handshake.
//!
//! [`connection`] is the loop; [`upstream`] is where it connects to, [`handshake`] how that is introduced;
//! [`route`] says what a frame asks for; [`relay`] passes bytes on; [`bucket`] has one file for each command
//! that a shape rewrites. Knows nothing of listeners or of configuration files.

mod aggregate_validation;
mod backoff;
mod bounded;
mod bucket;
mod collection_catalog;
mod command_context;
pub mod connection;
mod cross_collection;
mod cursor;
mod cursor_owner;
mod dry_run;
mod error;
mod first_page_cache;
pub mod handshake;
mod head_page_cache;
mod id_source;
mod kill_cursors;
mod malformed_pipeline;
pub mod memory;
pub mod metrics;
mod outlier;
mod refusal;
mod relay;
mod route;
mod shared;
pub mod socket;
mod stored_shapes;
mod stream;
pub mod upstream;
mod upstream_connection;

pub use self::shared::{SessionLimits, Settings, Shared};
