//! Mistakes in a configuration: the place, the problem, and the remedy. Must not contain names of options.

use std::fmt;

/// The place of a mistake.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MistakeLocation {
    /// A line of the file, counted from 1.
    Line {
        /// The name of the file as given to the program.
        file: String,
        /// The line.
        line: usize,
    },
    /// The whole file: it cannot be read, or a required section is missing.
    File(String),
    /// An environment variable, by name.
    Variable(String),
}

impl MistakeLocation {
    /// The order in a report: the file from top to bottom, then the whole file, then the
    /// environment.
    fn rank(&self) -> (u8, usize) {
        match self {
            Self::Line { line, .. } => (0, *line),
            Self::File(_) => (1, 0),
            Self::Variable(_) => (2, 0),
        }
    }
}

impl fmt::Display for MistakeLocation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Line { file, line } => write!(f, "{file}:{line}"),
            Self::File(name) | Self::Variable(name) => f.write_str(name),
        }
    }
}

/// One mistake.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{place}: {problem}; {remedy}")]
pub struct ConfigError {
    /// The place of the mistake.
    pub place: MistakeLocation,
    /// The problem. Never contains a value that may be a credential.
    pub problem: String,
    /// The remedy.
    pub remedy: String,
}

/// All mistakes of a configuration, at least one, in the order of the file's lines. Displays as one
/// line each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `None` if there is no mistake.
    pub(super) fn new(mut errors: Vec<ConfigError>) -> Option<Self> {
        errors.sort_by_key(|error| error.place.rank());
        (!errors.is_empty()).then_some(Self(errors))
    }

    /// The mistakes.
    pub fn iter(&self) -> std::slice::Iter<'_, ConfigError> {
        self.0.iter()
    }
}

impl From<ConfigError> for ConfigErrors {
    fn from(error: ConfigError) -> Self {
        Self(vec![error])
    }
}

impl<'a> IntoIterator for &'a ConfigErrors {
    type Item = &'a ConfigError;
    type IntoIter = std::slice::Iter<'a, ConfigError>;

    fn into_iter(self) -> Self::IntoIter {
        self.iter()
    }
}

impl fmt::Display for ConfigErrors {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (position, error) in self.iter().enumerate() {
            let line_end = if position == 0 { "" } else { "\n" };
            write!(f, "{line_end}{error}")?;
        }
        Ok(())
    }
}

impl std::error::Error for ConfigErrors {}
