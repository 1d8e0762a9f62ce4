//! Refusals of planners.

use std::fmt;
use std::ops::Deref;

/// A feature of a command that a shape does not support. The text is the subject of the error message, for
/// example "a filter with $where".
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Unsupported(String);

impl<T: Into<String>> From<T> for Unsupported {
    fn from(feature: T) -> Self {
        Self(feature.into())
    }
}

impl Deref for Unsupported {
    type Target = str;

    fn deref(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Unsupported {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
