//! Maintenance of shaped collections through the driver, for an operator with rights of their own: checks,
//! set-up, packing, compaction, and the swap that both conversions share. Serves no client.

pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod finding;
pub(crate) mod fit;
mod inspect;
pub(crate) mod setup;
mod swap;
pub(crate) mod upstream;
