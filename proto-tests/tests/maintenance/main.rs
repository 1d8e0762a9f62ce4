//! The commands `setup`, `compact`, `advise` and `check`, and the command line.

mod adopt;
mod advise;
mod cli;
mod compact;
mod convert;
mod direct_writes;
mod earlier_versions;
mod forecast;
mod guard_rails;
mod outlier_setup;
mod pack;
mod plain_collection;
mod refused_unique_indexes;
mod unique_indexes;
mod validators;
