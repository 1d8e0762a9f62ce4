//! Runs programs to completion.

use std::ffi::OsStr;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, bail};

/// Runs a command to completion and returns its output.
///
/// # Errors
/// One line with the program, its first arguments, the last line of its stderr, and `remedy`: what to install
/// or to do about it.
pub fn run(command: &mut Command, remedy: &str) -> Result<Output> {
    let program = command.get_program().display().to_string();
    let output = command
        .output()
        .with_context(|| format!("{program} cannot be run: {remedy}"))?;
    if !output.status.success() {
        let arguments: Vec<_> = command.get_args().take(3).map(OsStr::to_string_lossy).collect();
        let last_line = last_line(&output);
        bail!("`{program} {}` failed ({last_line}): {remedy}", arguments.join(" "));
    }
    Ok(output)
}

/// The last line that a program wrote to its standard error.
#[must_use]
pub fn last_line(output: &Output) -> String {
    let stderr = String::from_utf8_lossy(&output.stderr);
    stderr.trim().lines().last().unwrap_or("no reason given").to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(script: &str, expected: &str) {
        let failed = run(Command::new("sh").args(["-c", script]), "do this").unwrap_err();
        assert_eq!(failed.to_string(), expected);
    }

    #[test]
    fn command_failure_is_reported_in_one_line_with_stderr_and_remedy() {
        check(
            "echo one >&2; echo two >&2; exit 1",
            "`sh -c echo one >&2; echo two >&2; exit 1` failed (two): do this",
        );
        check("exit 1", "`sh -c exit 1` failed (no reason given): do this");
        let missing = run(&mut Command::new("no-such-program"), "do this").unwrap_err();
        assert_eq!(missing.to_string(), "no-such-program cannot be run: do this");
        let output = run(Command::new("sh").args(["-c", "echo out"]), "do this").unwrap();
        assert_eq!(output.stdout, b"out\n");
    }
}
