//! `completions` and `man`: generated from the definition of the command line.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::Arguments;

/// Prints the completion script for a shell.
pub(super) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "mongoshape", &mut script);
    // A closed pipe is ignored.
    let _ = io::stdout().write_all(&script);
}

/// Writes `mongoshape.1`, and a page for each command, into a folder. Creates the folder.
///
/// # Errors
/// If the folder cannot be written.
pub(super) fn write_pages(folder: &Path) -> anyhow::Result<()> {
    let name = || format!("cannot write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(name)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(name)
}
