//! The `mongoshape` binary: calls the library's command line.

use std::process::ExitCode;

fn main() -> ExitCode {
    mongoshape::cli::main()
}
