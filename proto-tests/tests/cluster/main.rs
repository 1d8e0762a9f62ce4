//! The model of a sharded cluster itself, beside a mongod that has no shards, and mongoshape before the model.

mod beside;
mod change_streams;
mod differential;
mod explained;
mod handshake;
mod reads;
mod refusals;
mod retries;
mod shaped;
mod shard_key;
mod sharded;
mod slots;
mod statistics;
mod transactions;
mod writes;
