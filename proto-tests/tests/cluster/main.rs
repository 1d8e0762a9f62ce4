//! The model of a sharded cluster itself, beside a mongod that has no shards.

mod beside;
mod handshake;
mod reads;
mod refusals;
mod retries;
mod slots;
mod transactions;
mod writes;
