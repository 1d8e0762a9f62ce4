//! The library of the tests, the demo and the benchmarks: a real mongod and the real proxy.
//!
//! Servers listen on free ports of 127.0.0.1 and have temporary folders. They end with their owner: when it
//! is dropped, when a test panics, and when the test process is killed (see [`guarded`]).
//!
//! The library must not use `mongoshape`'s code for the protocol: the tested code must not check itself.

pub mod altering_relay;
pub mod attempts;
pub mod balancer;
pub mod books;
pub mod breaking_relay;
pub mod browser;
pub mod buckets;
pub mod cargo;
pub mod certificates;
mod client;
pub mod cluster;
pub mod commands;
pub mod crash;
pub mod delaying_relay;
pub mod differential;
pub mod forecast;
pub mod frame;
pub mod guarded;
pub mod http;
pub mod install;
pub mod invariants;
pub mod measure;
pub mod mongod;
pub mod newer_server;
pub mod paths;
pub mod ports;
pub mod prometheus;
pub mod proxy;
pub mod raw;
pub mod replies;
pub mod rest;
mod resume_token;
pub mod retrying;
pub mod search;
pub mod sessions;
pub mod shape;
pub mod shaped;
pub mod sides;
pub mod snapshots;
pub mod stopping_relay;
pub mod threads;
mod uri;

pub use browser::{Browser, Scripts};
pub use certificates::{Certificates, Identity};
pub use client::{Pair, client, database_name};
pub use mongod::Mongod;
pub use prometheus::Prometheus;
pub use proxy::{Level, Proxy, ProxyOptions};
pub use shape::{ItemIds, Names, Outlier, Reads, Shape};
pub use shaped::Shaped;
