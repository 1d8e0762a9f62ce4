//! The command line: `serve`, `check`, `setup`.

use std::process::ExitCode;

/// Runs the program and gives its exit code.
#[must_use]
pub fn main() -> ExitCode {
    ExitCode::SUCCESS
}
