//! The `mongoshape` binary: hands the command line to the library.

use std::process::ExitCode;

fn main() -> ExitCode {
    mongoshape::cli::main()
}
