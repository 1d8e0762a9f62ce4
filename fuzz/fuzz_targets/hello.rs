//! `cargo +nightly fuzz run hello`
#![cfg_attr(fuzzing, no_main)]
mongoshape_fuzz::target!(hello);
