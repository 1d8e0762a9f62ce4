//! `cargo +nightly fuzz run op_compressed`
#![cfg_attr(fuzzing, no_main)]
mongoshape_fuzz::target!(op_compressed);
