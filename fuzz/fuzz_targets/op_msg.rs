//! `cargo +nightly fuzz run op_msg`
#![cfg_attr(fuzzing, no_main)]
mongoshape_fuzz::target!(op_msg);
