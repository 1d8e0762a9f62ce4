//! The checkout that is released.

use std::process::Command;

use anyhow::{Context as _, Result, ensure};
use proto_tests::paths;

use crate::tool::output;

/// A file of the checkout, by its path from the root.
pub(super) fn read(path: &str) -> Result<String> {
    std::fs::read_to_string(paths::workspace().join(path)).with_context(|| format!("{path} cannot be read"))
}

/// The output of a git command, without its last line end.
pub(super) fn git(arguments: &[&str]) -> Result<String> {
    let printed = output(Command::new("git").args(arguments))?;
    Ok(String::from_utf8_lossy(&printed).trim_end().to_owned())
}

pub(super) fn check_is_clean() -> Result<()> {
    let changes = git(&["status", "--porcelain"])?;
    ensure!(changes.is_empty(), "commit or remove these changes first:\n{changes}");
    Ok(())
}

pub(super) fn check_is_new(version: &str) -> Result<()> {
    let tags = git(&["tag", "--list", &tag_name(version)])?;
    ensure!(
        tags.is_empty(),
        "the tag {tags} exists: raise `version` in Cargo.toml first"
    );
    Ok(())
}

pub(super) fn tag(version: &str) -> Result<()> {
    let name = tag_name(version);
    git(&[
        "tag",
        "--annotate",
        &name,
        "--message",
        &format!("mongoshape {version}"),
    ])?;
    println!("created the tag {name}; `git push origin {name}` publishes it");
    Ok(())
}

fn tag_name(version: &str) -> String {
    format!("v{version}")
}
