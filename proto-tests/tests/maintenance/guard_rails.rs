//! Mistakes in a configuration, and missing rights: `setup` reports them and ends before its first write.

mod fields;
mod fixture;
mod namespaces;
mod rights;
