//! `cargo +nightly fuzz run frame`
#![cfg_attr(fuzzing, no_main)]
mongoshape_fuzz::target!(frame);
