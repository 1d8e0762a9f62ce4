//! What must hold for any bytes: one function a target, which panics when it does not.
//!
//! The functions know nothing of libFuzzer, so that the corpus runs as an ordinary test. A new target is a module here and
//! a line in [`TARGETS`], a file in `fuzz_targets`, a `[[bin]]` in `Cargo.toml` and a folder in `corpus`;
//! `tests/corpus.rs` misses what is forgotten.
#![expect(
    clippy::missing_panics_doc,
    reason = "panicking is how a target says that something does not hold"
)]

mod command_head;
mod frame;
mod hello;
mod message;
mod op_compressed;
mod op_msg;
mod op_query;

pub use command_head::command_head;
pub use frame::frame;
pub use hello::hello;
pub use op_compressed::op_compressed;
pub use op_msg::op_msg;
pub use op_query::op_query;

/// libFuzzer's macro for [`target!`].
#[cfg(fuzzing)]
pub use libfuzzer_sys::fuzz_target;

/// A target's function: panics when something does not hold for these bytes.
pub type Target = fn(&[u8]);

/// All targets, by the name of their corpus.
pub const TARGETS: &[(&str, Target)] = &[
    ("command_head", command_head),
    ("frame", frame),
    ("hello", hello),
    ("op_compressed", op_compressed),
    ("op_msg", op_msg),
    ("op_query", op_query),
];

/// The program of a target: under cargo-fuzz libFuzzer's, otherwise one that runs the files it is given.
#[macro_export]
macro_rules! target {
    ($name:ident) => {
        #[cfg(fuzzing)]
        $crate::fuzz_target!(|data: &[u8]| $crate::$name(data));
        #[cfg(not(fuzzing))]
        fn main() -> std::io::Result<()> {
            std::env::args_os()
                .skip(1)
                .try_for_each(|path| std::fs::read(path).map(|data| $crate::$name(&data)))
        }
    };
}
