//! The `stmtId`s of a retryable write.

use std::collections::HashSet;

use super::error::{CommandError, ErrorCode};

/// The numbering of the statements of a retryable write.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum StatementIds {
    /// Consecutive numbers from 0. The client gave none.
    #[default]
    Absent,
    /// Consecutive numbers from this one.
    From(i32),
    /// One given number for each statement.
    Given(Vec<i32>),
}

impl StatementIds {
    /// The id of statement number `index`.
    #[must_use]
    pub fn of(&self, index: usize) -> i32 {
        let number = i32::try_from(index).unwrap_or(i32::MAX);
        match self {
            Self::Absent => number,
            Self::From(first) => first.saturating_add(number),
            Self::Given(ids) => ids.get(index).copied().unwrap_or(i32::MAX),
        }
    }

    /// Whether other commands may have the same `txnNumber`. Such commands give numbers, because their
    /// statements would otherwise have the same ones.
    #[must_use]
    pub fn may_share_transaction_number(&self) -> bool {
        !matches!(self, Self::Absent)
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
