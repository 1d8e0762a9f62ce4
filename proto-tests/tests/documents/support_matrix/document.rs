//! The tables of a support document.

use std::collections::{BTreeMap, BTreeSet};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, bail};

/// The code of what is refused, where a row names no other.
pub(crate) const NOT_SUPPORTED: i32 = 115;

/// The support of an option in a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Class {
    /// As on a plain collection.
    Exact,
    /// The same, but for the difference in its note.
    Note,
    /// An error of this code.
    Refused(i32),
    /// A field between servers, which is relayed to mongod: there is nothing to try.
    Passed,
}

/// The document.
#[derive(Debug)]
pub(crate) struct Support {
    commands: BTreeSet<String>,
    rows: BTreeMap<(String, String), Row>,
}

/// The row of an option.
#[derive(Debug)]
struct Row {
    class: Class,
    note: String,
}

impl Support {
    /// Reads the document of this name. The heading of a table of options has its command's names in
    /// backticks, the first cell of a row those of options, the second their class.
    pub(crate) fn read(name: &str) -> Result<Self> {
        let file = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs").join(name);
        let text = fs::read_to_string(&file).with_context(|| file.display().to_string())?;
        let mut support = Self {
            commands: BTreeSet::new(),
            rows: BTreeMap::new(),
        };
        let mut of: Vec<String> = Vec::new();
        for line in text.lines() {
            if let Some(heading) = line.strip_prefix('#') {
                of = in_backticks(heading);
                support.commands.extend(of.iter().cloned());
            } else if let Some(row) = line.strip_prefix("| `").map(|_| line)
                && let Some(command) = of.first()
            {
                support.add(command, row)?;
            }
        }
        Ok(support)
    }

    fn add(&mut self, command: &str, row: &str) -> Result<()> {
        let cells: Vec<&str> = row.split('|').map(str::trim).collect();
        let (options, class, note) = match cells.as_slice() {
            [_, options, class, note, ..] => (in_backticks(options), *class, *note),
            _ => bail!("no row: {row}"),
        };
        let class = match class.split_once(' ') {
            _ if class == "exact" => Class::Exact,
            _ if class == "with a note" => Class::Note,
            _ if class == "passed on" => Class::Passed,
            _ if class == "refused" => Class::Refused(NOT_SUPPORTED),
            Some(("refused", code)) => Class::Refused(code.trim_matches(['(', ')']).parse()?),
            _ => bail!("a class of its own: {row}"),
        };
        for option in options {
            let row = Row {
                class,
                note: note.to_owned(),
            };
            let twice = self.rows.insert((command.to_owned(), option.clone()), row);
            if twice.is_some() {
                bail!("{command} has `{option}` twice");
            }
        }
        Ok(())
    }

    /// The support of an option.
    pub(crate) fn class(&self, command: &str, option: &str) -> Option<Class> {
        let row = self.rows.get(&(command.to_owned(), option.to_owned()))?;
        Some(row.class)
    }

    /// All rows that can be tried, by command and option.
    pub(crate) fn rows(&self) -> BTreeSet<(String, String)> {
        let tried = self.rows.iter().filter(|(_, row)| row.class != Class::Passed);
        tried.map(|(row, _)| row.clone()).collect()
    }

    /// The rows that are refused, all or in part.
    pub(crate) fn refused_in_part(&self) -> BTreeSet<(String, String)> {
        let in_part = |row: &Row| row.class == Class::Note && row.note.contains("refused");
        let rows = self.rows.iter().filter(|(_, row)| in_part(row));
        rows.map(|(row, _)| row.clone()).collect()
    }

    /// The rows that are refused without a reason.
    pub(crate) fn without_reason(&self) -> Vec<&(String, String)> {
        let lacks = |row: &Row| matches!(row.class, Class::Refused(_)) && row.note.is_empty();
        self.rows
            .iter()
            .filter(|(_, row)| lacks(row))
            .map(|(of, _)| of)
            .collect()
    }

    /// Whether a command has an option, at its top or in a statement.
    pub(crate) fn names(&self, command: &str, option: &str) -> bool {
        let of_command = self.rows.keys().filter(|(name, _)| name == command);
        let mut named = of_command.map(|(_, named)| named.rsplit_once('.').map_or(named.as_str(), |(_, last)| last));
        named.any(|named| named == option)
    }

    /// Whether a command has a table.
    pub(crate) fn has_command(&self, name: &str) -> bool {
        self.commands.contains(name)
    }
}

fn in_backticks(text: &str) -> Vec<String> {
    text.split('`').skip(1).step_by(2).map(str::to_owned).collect()
}
