//! Maintenance of shaped collections through the driver, with the operator's own rights: checks,
//! set-up, packing, compaction, and the swap that packing and compaction share. Serves no client.

mod background;
pub(crate) mod check;
pub(crate) mod compact;
pub(crate) mod conversion_watch;
pub(crate) mod convert;
pub(crate) mod direct_writes;
mod embedded_proxy;
pub(crate) mod expiry;
pub(crate) mod finding;
mod inspect;
mod misspelt;
mod outlier_documents;
mod privileges;
pub(crate) mod setup;
pub(crate) mod shadow_reads;
pub(crate) mod shape_fit;
mod swap;
pub(crate) mod unique_index_record;
pub(crate) mod upstream;
