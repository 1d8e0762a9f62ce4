//! The sources, line by line as rustfmt writes them.

use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::COMMENT_COLUMNS;

/// A file of `src/`, without code that is compiled for tests only.
#[derive(Debug, Default)]
pub(super) struct SourceFile {
    /// Below `src/`, without the extension: `pattern/bucket/read`.
    pub(super) module: String,
    pub(super) lines: usize,
    pub(super) functions: Vec<Function>,
    /// Names of its structs, enums, traits and type aliases.
    pub(super) types: Vec<String>,
    /// Functions with a parameter that is a tuple.
    pub(super) tuple_parameters: Vec<String>,
    /// Functions whose signature has an `Option` of an `Option`, or a `Result` of a `Result`.
    pub(super) nested_types: Vec<String>,
    /// Comment lines that are too long, by file and line.
    pub(super) long_comments: Vec<String>,
    /// Paths of its `use` declarations, by their segments.
    pub(super) imports: Vec<Vec<String>>,
}

/// A function with a body.
#[derive(Debug)]
pub(super) struct Function {
    /// Its file and first line.
    pub(super) place: String,
    /// Of the body.
    pub(super) lines: usize,
}

/// Reads all sources below a folder.
pub(super) fn read(root: &Path) -> Result<Vec<SourceFile>> {
    let mut files = Vec::new();
    below(root, root, &mut files)?;
    files.sort_by(|one, other| one.module.cmp(&other.module));
    Ok(files)
}

fn below(root: &Path, folder: &Path, files: &mut Vec<SourceFile>) -> Result<()> {
    for entry in fs::read_dir(folder)? {
        let path = entry?.path();
        if path.file_stem().is_some_and(|name| name == "tests") {
            continue;
        }
        if path.is_dir() {
            below(root, &path, files)?;
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            let module = path.strip_prefix(root)?.with_extension("").display().to_string();
            let text = fs::read_to_string(&path).with_context(|| path.display().to_string())?;
            files.push(parse(module, &text));
        }
    }
    Ok(())
}

fn parse(module: String, text: &str) -> SourceFile {
    let all: Vec<&str> = text.lines().collect();
    let mut file = SourceFile {
        module,
        ..SourceFile::default()
    };
    let mut number = 0;
    while let Some(line) = all.get(number) {
        if line.trim() == "#[cfg(test)]" {
            number = end_of_item(&all, number + 1) + 1;
            continue;
        }
        file.lines += 1;
        file.line(&all, number);
        number += 1;
    }
    file
}

/// The last line of the item that begins at a line.
fn end_of_item(all: &[&str], start: usize) -> usize {
    let indent = all.get(start).map_or(0, |line| indent(line));
    let ends = |line: &&str| self::indent(line) == indent && (line.ends_with('}') || line.ends_with(';'));
    let end = all.iter().skip(start).position(ends);
    end.map_or(all.len(), |end| start + end)
}

fn indent(line: &str) -> usize {
    line.len() - line.trim_start().len()
}

impl SourceFile {
    fn line(&mut self, all: &[&str], number: usize) {
        let line = all[number];
        let code = line.trim_start();
        if code.starts_with("//") {
            if line.chars().count() > COMMENT_COLUMNS {
                self.long_comments.push(format!("{}.rs:{}", self.module, number + 1));
            }
            return;
        }
        let item = without_visibility(code);
        if let Some(name) = name_after(item, &["fn "]) {
            self.function(all, number, name);
        } else if indent(line) == 0
            && let Some(name) = name_after(item, &["struct ", "enum ", "trait ", "type "])
        {
            self.types.push(name.to_owned());
        } else if let Some(first) = item.strip_prefix("use ") {
            let rest = all[number + 1..=end_of_item(all, number).min(all.len() - 1)].iter();
            let tree: String = std::iter::once(first).chain(rest.map(|line| line.trim())).collect();
            self.import(&[], tree.trim_end_matches(';'));
        }
    }

    fn function(&mut self, all: &[&str], number: usize, name: &str) {
        let is_end = |line: &&str| line.ends_with('{') || line.ends_with(';') || line.ends_with('}');
        let Some(length) = all[number..].iter().position(is_end) else {
            return;
        };
        let place = format!("{}.rs:{} {name}", self.module, number + 1);
        let signature: String = all[number..=number + length].iter().map(|line| line.trim()).collect();
        if parameters(&signature).into_iter().any(is_tuple) {
            self.tuple_parameters.push(place.clone());
        }
        if ["Option<Option<", "Result<Result<", "Result<Option<Option<"]
            .iter()
            .any(|nested| signature.contains(nested))
        {
            self.nested_types.push(place.clone());
        }
        if all[number + length].ends_with('{') {
            let close = format!("{}}}", " ".repeat(indent(all[number])));
            let body = all[number + length..].iter().position(|line| *line == close);
            self.functions.push(Function {
                place,
                lines: body.unwrap_or_default().saturating_sub(1),
            });
        }
    }

    fn import(&mut self, before: &[String], tree: &str) {
        let tree = tree.trim();
        if let Some(group) = tree.strip_prefix('{').and_then(|tree| tree.strip_suffix('}')) {
            for part in split(group) {
                self.import(before, part);
            }
        } else if let Some((name, rest)) = tree.split_once("::") {
            self.import(&[before, &[name.to_owned()]].concat(), rest);
        } else if tree == "*" {
            self.imports.push(before.to_vec());
        } else if !tree.is_empty() {
            let name = tree.split(' ').next().unwrap_or(tree);
            self.imports.push([before, &[name.to_owned()]].concat());
        }
    }
}

fn without_visibility(code: &str) -> &str {
    let Some(rest) = code.strip_prefix("pub") else {
        return code;
    };
    match rest.strip_prefix('(') {
        Some(rest) => rest.split_once(") ").map_or(code, |(_, item)| item),
        None => rest.trim_start(),
    }
}

/// The name of an item that begins with one of these words.
fn name_after<'c>(item: &'c str, words: &[&str]) -> Option<&'c str> {
    let mut item = item;
    for qualifier in ["const ", "async ", "unsafe "] {
        item = item.strip_prefix(qualifier).unwrap_or(item);
    }
    let rest = words.iter().find_map(|word| item.strip_prefix(word))?;
    let end = rest.find(|character: char| !character.is_alphanumeric() && character != '_');
    Some(&rest[..end.unwrap_or(rest.len())])
}

/// The parameters of a signature.
fn parameters(signature: &str) -> Vec<&str> {
    let after_visibility = signature.find("fn ").unwrap_or_default();
    let Some(start) = signature[after_visibility..]
        .find('(')
        .map(|start| after_visibility + start)
    else {
        return Vec::new();
    };
    let mut depth = 0_i32;
    for (position, character) in signature[start..].char_indices() {
        depth += change_of_depth(character, '(', ')');
        if depth == 0 {
            return split(&signature[start + 1..start + position]);
        }
    }
    Vec::new()
}

fn change_of_depth(character: char, open: char, close: char) -> i32 {
    i32::from(character == open) - i32::from(character == close)
}

/// Splits at the commas that are in no brackets.
fn split(text: &str) -> Vec<&str> {
    let mut parts = Vec::new();
    let (mut depth, mut start, mut before) = (0_i32, 0, ' ');
    for (position, character) in text.char_indices() {
        // The `>` of an arrow closes nothing.
        if character != '>' || before != '-' {
            let brackets = [('(', ')'), ('[', ']'), ('{', '}'), ('<', '>')];
            depth += brackets
                .iter()
                .map(|(open, close)| change_of_depth(character, *open, *close))
                .sum::<i32>();
        }
        before = character;
        if character == ',' && depth == 0 {
            parts.push(&text[start..position]);
            start = position + 1;
        }
    }
    parts.push(&text[start..]);
    parts.retain(|part| !part.trim().is_empty());
    parts
}

/// Whether a parameter's type is a tuple, or a reference to one.
fn is_tuple(parameter: &str) -> bool {
    let parameter = parameter.trim();
    // A pattern that takes a tuple apart is of one.
    if parameter.starts_with('(') {
        return true;
    }
    let Some((_, of)) = parameter.split_once(": ") else {
        return false;
    };
    let of = of.trim_start_matches(['&', ' ']);
    let of = of
        .strip_prefix('\'')
        .and_then(|rest| rest.split_once(' '))
        .map_or(of, |(_, of)| of);
    of.trim_start_matches("mut ").starts_with('(') && split(of.trim_matches(['(', ')'])).len() > 1
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_file_is_measured() {
        let text = "use crate::a::{b::C, d};\n\
                    pub(super) struct One;\n\
                    impl One {\n    type Item = u8;\n    pub(super) fn two(&self, (a, b): (u8, u8)) -> Option<Option<u8>> {\n        None\n    }\n}\n\
                    #[cfg(test)]\nmod tests {\n    struct Two;\n}\n";
        let file = parse("m".to_owned(), text);
        assert_eq!(file.types, ["One"]);
        assert_eq!(file.lines, 8);
        assert_eq!(file.tuple_parameters, ["m.rs:5 two"]);
        assert_eq!(file.nested_types, ["m.rs:5 two"]);
        assert_eq!(
            file.functions.iter().map(|function| function.lines).collect::<Vec<_>>(),
            [1]
        );
        assert_eq!(file.imports, [vec!["crate", "a", "b", "C"], vec!["crate", "a", "d"]]);
    }
}
