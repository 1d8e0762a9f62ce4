//! The sources of a configuration (a file's text and the environment), and the list of its mistakes. Must not
//! contain names of options.

use std::cell::RefCell;
use std::ops::Range;

use toml::de::DeTable;

use super::error::{ConfigError, ConfigErrors, MistakeLocation};

/// A lookup of environment variables, passed in so that this module does not read those of the
/// process.
pub(super) type Environment<'a> = &'a dyn Fn(&str) -> Option<String>;

/// The file and the environment, with the mistakes found in them.
///
/// Mistakes are collected in a `RefCell`, because readers of nested sections share the source.
pub(super) struct ConfigSource<'a> {
    file: &'a str,
    text: &'a str,
    environment: Environment<'a>,
    mistakes: RefCell<Vec<ConfigError>>,
    syntax: Syntax,
}

/// The syntax mistakes of the file. They suppress mistakes that only follow from them.
#[derive(Default)]
struct Syntax {
    /// Lines with a mistake. The value that the parser recovered there is not the user's.
    lines: Vec<usize>,
    /// Whether a bracket is missing, so that fields may be in the wrong section.
    structure_lost: bool,
}

impl<'a> ConfigSource<'a> {
    /// Parses as much of the text as possible, and records its syntax mistakes.
    pub(super) fn parse(file: &'a str, text: &'a str, environment: Environment<'a>) -> (Self, DeTable<'a>) {
        let mut source = Self {
            file,
            text,
            environment,
            mistakes: RefCell::default(),
            syntax: Syntax::default(),
        };
        let (table, mut errors) = DeTable::parse_recoverable(text);
        errors.sort_by_key(|error| error.span().map(|span| span.start));
        // The line of the last mistake in an array. The parser reports an array again on each
        // following line.
        let mut broken_array = None;
        for error in errors {
            let line = source.line(&error.span().unwrap_or_default());
            if source.syntax.lines.contains(&line) {
                continue;
            }
            source.syntax.lines.push(line);
            let of_array = error.message().contains("array");
            source.syntax.structure_lost |= of_array || error.message().contains("table");
            if of_array && broken_array.replace(line).is_some_and(|last| last + 1 == line) {
                continue;
            }
            let (problem, expected) = error.message().split_once(", expected ").unzip();
            let problem = problem.unwrap_or(error.message()).to_owned();
            let remedy = expected.map_or("write valid TOML".to_owned(), |what| {
                format!("TOML expects {what} here")
            });
            let place = source.place(line);
            source.mistakes.get_mut().push(ConfigError { place, problem, remedy });
        }
        (source, table.into_inner())
    }

    /// The value of an environment variable.
    pub(super) fn variable(&self, name: &str) -> Option<String> {
        (self.environment)(name)
    }

    /// The line on which a span begins, from 1.
    pub(super) fn line(&self, span: &Range<usize>) -> usize {
        let before = self.text.as_bytes().iter().take(span.start);
        1 + before.filter(|byte| **byte == b'\n').count()
    }

    /// Whether there is a syntax mistake on any line of a span.
    pub(super) fn has_syntax_mistake(&self, span: &Range<usize>) -> bool {
        let lines = self.line(span)..=self.line(&(span.end..span.end));
        self.syntax.lines.iter().any(|line| lines.contains(line))
    }

    /// A line of the file as a place.
    pub(super) fn place(&self, line: usize) -> MistakeLocation {
        let file = self.file.to_owned();
        MistakeLocation::Line { file, line }
    }

    /// The whole file as a place.
    pub(super) fn whole_file(&self) -> MistakeLocation {
        MistakeLocation::File(self.file.to_owned())
    }

    /// Records a mistake, unless it only follows from a syntax mistake on the same line.
    pub(super) fn mistake(&self, place: &MistakeLocation, problem: impl Into<String>, remedy: impl Into<String>) {
        if matches!(place, MistakeLocation::Line { line, .. } if self.syntax.lines.contains(line)) {
            return;
        }
        self.mistakes.borrow_mut().push(ConfigError {
            place: place.clone(),
            problem: problem.into(),
            remedy: remedy.into(),
        });
    }

    /// Records a field that is missing or in the wrong section, unless a missing bracket may have
    /// moved it.
    pub(super) fn misplaced(&self, place: &MistakeLocation, problem: impl Into<String>, remedy: impl Into<String>) {
        if !self.syntax.structure_lost {
            self.mistake(place, problem, remedy);
        }
    }

    /// All mistakes. `None` if there are none.
    pub(super) fn into_errors(self) -> Option<ConfigErrors> {
        ConfigErrors::new(self.mistakes.into_inner())
    }
}
