//! `completions` and `man`: what shells and `man` know of the command line, made from its own definition.

use std::io::{self, Write};
use std::path::Path;

use anyhow::Context;
use clap::CommandFactory;
use clap_complete::Shell;

use super::Arguments;

/// Prints what this shell completes the command line with.
pub(super) fn completions(shell: Shell) {
    let mut script = Vec::new();
    clap_complete::generate(shell, &mut Arguments::command(), "mongoshape", &mut script);
    // Whoever closed the pipe does not want to know.
    let _ = io::stdout().write_all(&script);
}

/// Writes `mongoshape.1`, and a page for each verb, into a folder that is made if need be.
///
/// # Errors
/// When it cannot be written to.
pub(super) fn write_pages(folder: &Path) -> anyhow::Result<()> {
    let name = || format!("cannot write to {}", folder.display());
    std::fs::create_dir_all(folder).with_context(name)?;
    clap_mangen::generate_to(Arguments::command(), folder).with_context(name)
}
