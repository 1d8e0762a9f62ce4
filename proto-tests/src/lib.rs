//! The library that tests, the demo and the benchmarks share: a real mongod, the real proxy.
//!
//! Everything is started on free ports of 127.0.0.1 in temporary folders, and ends with its owner: when it is
//! dropped, when a test panics, and also when the whole test process is killed (see [`guarded`]).
//!
//! It must not use `mongoshape`'s own code to speak the protocol: what is tested does not check itself.

pub mod attempts;
pub mod balancer;
pub mod books;
pub mod browser;
pub mod buckets;
pub mod certificates;
mod client;
pub mod commands;
pub mod crash;
pub mod cut;
pub mod differential;
pub mod frame;
pub mod guarded;
pub mod install;
pub mod invariants;
pub mod late;
pub mod measure;
pub mod mongod;
pub mod paths;
pub mod ports;
pub mod prometheus;
pub mod proxy;
pub mod raw;
pub mod replies;
pub mod rest;
pub mod retrying;
pub mod sessions;
pub mod shape;
pub mod shaped;
pub mod sides;
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
