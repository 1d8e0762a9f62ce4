//! `mongoshape convert` and `mongoshape verify`: a collection changes its layout while applications use it.

mod direct_writes;
mod directions;
mod ended;
mod expiry;
mod fixture;
mod indexes;
mod kills;
mod pauses;
mod progress;
mod rollback;
mod shadow;
mod stopped;
mod while_clients_write;
mod writers;
