//! What is wrong with a configuration: where, what, and what to write instead. Knows no option by name.

use std::fmt;

/// Where a mistake was made.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum MistakeLocation {
    /// A line of the file, counted from 1.
    Line {
        /// The file as it was named to the program.
        file: String,
        /// The line.
        line: usize,
    },
    /// The file as a whole: it cannot be read, or a section that must be there is not.
    File(String),
    /// An environment variable, by name.
    Variable(String),
}

impl MistakeLocation {
    /// Orders a report: the file from top to bottom, then the file as a whole, then the environment.
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
    /// Where it was made.
    pub place: MistakeLocation,
    /// What is wrong. Never holds a value that may be a credential.
    pub problem: String,
    /// What to write instead.
    pub remedy: String,
}

/// Every mistake of a configuration, one at least, in the order of the file's lines. Displays as one line
/// each.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ConfigErrors(Vec<ConfigError>);

impl ConfigErrors {
    /// `None` when there is no mistake.
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
