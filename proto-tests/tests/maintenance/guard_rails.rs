//! Mistakes in a configuration, missing rights and writes that bypass the proxy: `setup` stops before its first
//! write, and says what is wrong.

mod fields;
mod fixture;
mod namespaces;
mod rights;
