//! mongoshape: a proxy that speaks MongoDB's wire protocol on both sides and stores configured collections in the
//! bucket or the outlier pattern.
//!
//! This file is the map of the house. Each module is a floor; a floor uses only the floors above it in this list,
//! which the test `tests/floors.rs` enforces. `ARCHITECTURE.md` walks one request through all of them.

pub mod wire;

pub mod command;

pub mod pattern;

pub mod session;

pub mod server;

pub mod telemetry;

pub mod config;

pub mod cli;
