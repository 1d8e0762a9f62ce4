//! TLS towards clients and towards the upstream. Must not know listeners, nor what goes through a connection.

mod first_bytes;

pub use self::first_bytes::{Speaks, first_bytes};
