//! The `stmtId`s of a retryable write.

use std::collections::HashSet;

use super::error::{CommandError, ErrorCode};

/// The numbering of the statements of a retryable write.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum StatementIds {
    /// Consecutive numbers from this one; the default is 0.
    From(i32),
    /// One given number for each statement.
    Given(Vec<i32>),
}

impl Default for StatementIds {
    fn default() -> Self {
        Self::From(0)
    }
}

impl StatementIds {
    /// The id of statement number `index`.
    #[must_use]
    pub fn of(&self, index: usize) -> i32 {
        match self {
            Self::From(first) => first.saturating_add(i32::try_from(index).unwrap_or(i32::MAX)),
            Self::Given(ids) => ids.get(index).copied().unwrap_or(i32::MAX),
        }
    }

    /// Checks the ids against the number of statements.
    ///
    /// # Errors
    /// Too few or too many ids, or a repeated one: mongod would abort its process (6.0.5: fatal
    /// assertion 40526).
    pub fn check(&self, command: &str, statements: usize) -> Result<(), CommandError> {
        let Self::Given(ids) = self else {
            return Ok(());
        };
        if ids.len() != statements {
            let message = "Number of statement ids must match the number of batch entries";
            return Err(CommandError::new(ErrorCode::InvalidLength, message));
        }
        let mut seen = HashSet::new();
        if ids.iter().all(|id| seen.insert(id)) {
            return Ok(());
        }
        let message = format!("{command}.stmtIds contains an id twice");
        Err(CommandError::new(ErrorCode::InvalidOptions, message))
    }
}
