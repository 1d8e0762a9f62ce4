//! `cargo +nightly fuzz run op_query`
#![cfg_attr(fuzzing, no_main)]
mongoshape_fuzz::target!(op_query);
