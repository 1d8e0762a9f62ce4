//! Commands in running text, and commands that are not run: the test checks that they exist.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Result, ensure};
use proto_tests::paths;
use proto_tests::proxy::find_binary;

use crate::blocks::{self, Document, Kind};

/// The missing part of a command, if any. Commands of other programs are not checked.
fn missing(command: &str) -> Result<Option<String>> {
    let words: Vec<&str> = command.split_whitespace().take_while(|word| *word != "#").collect();
    let sources = |folder: &str, name: &str| {
        let folder = paths::workspace().join(folder);
        folder.join(format!("{name}.rs")).exists() || folder.join(name).is_dir()
    };
    let there = match words.as_slice() {
        ["mongoshape", verb, options @ ..] if verb.chars().all(|letter| letter.is_ascii_lowercase()) => {
            return verb_or_option(verb, options);
        }
        ["cargo", "xtask", name, ..] => is_project_command(name)?,
        ["cargo", "test", .., "--test", name] => sources("tests", name) || sources("proto-tests/tests", name),
        _ => true,
    };
    Ok((!there).then(|| "there is none".to_owned()))
}

/// `cargo xtask NAME`: a variant of the program's enumeration of commands.
fn is_project_command(name: &str) -> Result<bool> {
    let program = fs::read_to_string(paths::workspace().join("xtask/src/main.rs"))?;
    let in_match = |line: &str| {
        let variant = line.trim().strip_prefix("Command::");
        variant.is_some_and(|variant| variant.to_lowercase().starts_with(&format!("{name}(")))
    };
    Ok(program.lines().any(in_match))
}

fn verb_or_option(verb: &str, options: &[&str]) -> Result<Option<String>> {
    let help = Command::new(find_binary()?).args([verb, "--help"]).output()?;
    if !help.status.success() {
        return Ok(Some(format!("there is no verb {verb}")));
    }
    let help = String::from_utf8(help.stdout)?;
    let known = |option: &&&str| {
        help.split_whitespace()
            .any(|word| word.trim_end_matches(',') == **option)
    };
    let mut unknown = options.iter().filter(|word| word.starts_with("--") && !known(word));
    Ok(unknown.next().map(|option| format!("there is no option {option}")))
}

#[test]
fn commands_in_the_text_exist() -> Result<()> {
    let mut wrong = Vec::new();
    for document in blocks::all()? {
        let in_blocks = document.blocks.iter().filter(|block| block.kind == Kind::Sh);
        for command in in_blocks.flat_map(blocks::Block::parts).chain(document.spans) {
            if let Some(reason) = missing(&command)? {
                wrong.push(format!("{}: `{command}`: {reason}", document.path));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}

#[test]
fn links_have_existing_targets() -> Result<()> {
    let mut wrong = Vec::new();
    for document in blocks::all()? {
        let folder = Path::new(&document.path).parent().unwrap_or(Path::new(""));
        for link in document.links.iter().filter(|link| !link.contains("://")) {
            let (file, anchor) = link.split_once('#').unwrap_or((link, ""));
            let path = if file.is_empty() {
                PathBuf::from(&document.path)
            } else {
                folder.join(file)
            };
            let is_there = paths::workspace().join(&path).exists();
            if !is_there || !anchor.is_empty() && !has_heading(&path, anchor)? {
                wrong.push(format!("{}: {link}", document.path));
            }
        }
    }
    ensure!(wrong.is_empty(), "links that lead nowhere:\n{}", wrong.join("\n"));
    Ok(())
}

fn has_heading(path: &Path, anchor: &str) -> Result<bool> {
    let document = Document::read(&path.display().to_string())?;
    Ok(document.anchors.iter().any(|heading| heading == anchor))
}
