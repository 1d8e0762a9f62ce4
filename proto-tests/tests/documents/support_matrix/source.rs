//! The options that the code reads: the names in the arms of its `match name`.

use std::collections::BTreeSet;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

/// Commands, and the files that read them. `find:` before a command's name is where in the file its match
/// begins.
pub(crate) const OPTIONS: [(&str, &str); 15] = [
    ("insert", "insert.rs"),
    ("insert", "write_batch.rs"),
    ("find", "find.rs"),
    ("getMore", "cursor.rs"),
    ("update", "update.rs"),
    ("update", "write_batch.rs"),
    ("delete", "delete.rs"),
    ("delete", "write_batch.rs"),
    ("findAndModify", "find_and_modify.rs"),
    ("count", "count.rs"),
    ("distinct", "distinct.rs"),
    ("create", "collection.rs"),
    ("collMod", "collection.rs"),
    ("validate", "collection.rs"),
    ("every command", "arguments.rs"),
];

/// The names in the arms of a file's matches on names; of a file of several commands those from the line
/// `"command", body`.
pub(crate) fn options(file: &str, command: &str) -> Result<BTreeSet<String>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../src/command").join(file);
    let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
    let text = text.split("#[cfg(test)]").next().unwrap_or_default();
    if file == "arguments.rs" {
        let list = text.split("const GENERIC: &[&str] = &[").nth(1);
        let list = list.and_then(|rest| rest.split("];").next());
        return Ok(quoted(list.context("no list of generic fields")?));
    }
    let text = if file == "collection.rs" {
        let begun = text.split(&format!("find(\"{command}\", body")).nth(1);
        begun
            .and_then(|rest| rest.split("\n}\n").next())
            .context("no such command")?
    } else {
        text
    };
    let matches = text.split("match name {").skip(1);
    let arms = matches.flat_map(|block| block.split("_ =>").next().unwrap_or_default().lines());
    Ok(arms
        .map(str::trim_start)
        .filter(|line| line.starts_with('"') || line.starts_with("| \""))
        .flat_map(|line| quoted(line.split("=>").next().unwrap_or_default()))
        .collect())
}

fn quoted(text: &str) -> BTreeSet<String> {
    text.split('"').skip(1).step_by(2).map(str::to_owned).collect()
}
