//! `cargo +nightly fuzz run command_head`
#![cfg_attr(fuzzing, no_main)]
mongoshape_fuzz::target!(command_head);
