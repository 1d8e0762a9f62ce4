//! mongoshape: a proxy that speaks MongoDB's wire protocol on both sides and stores configured collections in
//! the bucket or the outlier pattern.
//!
//! Each module is a layer and depends only on those listed before it. The test `tests/layering.rs`
//! enforces that. `ARCHITECTURE.md` describes the path of one request.

/// Bytes and frames of the wire protocol.
pub mod wire;

/// Commands, parsed and typed; replies and errors.
pub mod command;

/// Layouts and planners of both patterns, without I/O.
pub mod pattern;

/// One client and its upstream connection.
pub mod session;

/// Listeners, admission control, worker threads and topology.
pub mod server;

/// Metrics, logs and the admin endpoints.
pub mod telemetry;

/// The configuration.
pub mod config;

/// Checks, set-up and conversions of shaped collections.
mod maintenance;

/// Proposes shapes for existing collections.
mod advisor;

/// Runs an application on a shaped collection, and prints the stored pages.
mod demo;

/// The command line.
pub mod cli;
