//! The validator of a collection of pages: a clause that refuses [direct writes](direct_writes), if the shape
//! has it, the clauses of [unique indexes](super::unique_index), and one clause for the validator of the
//! application.
//!
//! mongod evaluates a validator on pages. The application's clause demands that every item of a page
//! satisfies the application's validator, so mongod refuses every write, of any client, after which an item
//! does not ([decision](../../../docs/decisions/0038-a-validator-is-evaluated-for-every-item.md)).

mod application;
pub mod direct_writes;
mod json_schema;
mod page_condition;
mod violation;

#[cfg(test)]
mod tests;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use self::application::{ACTION, LEVEL};
pub use self::application::{ApplicationValidator, options_of_application};
pub use self::violation::{Verdict, is_invalid, verdict};
use super::freeze::{VALIDATOR, freeze, freeze_with};
use super::unique_index::{ClauseOfIndex, clause_of_index};
use crate::command::document::{array_of, first_field, put, single};
use crate::pattern::shapes::BucketShape;

/// The clauses of a validator of pages.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct PageValidator {
    /// The clause that refuses [direct writes](direct_writes).
    pub direct_writes: Option<RawDocumentBuf>,
    /// The clauses of unique indexes.
    pub indexes: Vec<ClauseOfIndex>,
    /// The application's options.
    pub application: Option<ApplicationValidator>,
}

impl PageValidator {
    /// Parses the validator of a collection, or that of a frozen one. `None`: it has a clause of another
    /// program.
    #[must_use]
    pub fn parse(validator: &RawDocument) -> Option<Self> {
        let mut parsed = Self::default();
        let all = match first_field(validator) {
            Some(("$and", RawBsonRef::Array(all))) if validator.iter().count() == 1 => all,
            first => return first.is_none().then_some(parsed),
        };
        for clause in all {
            let clause = clause.ok()?.as_document()?;
            if let Some(index) = clause_of_index(clause) {
                parsed.indexes.push(index);
            } else if let Some(application) = ApplicationValidator::of_clause(clause) {
                parsed.application = Some(application);
            } else if direct_writes::is_clause(clause) {
                parsed.direct_writes = Some(clause.to_owned());
            } else if *clause != *freeze() {
                return None;
            }
        }
        Some(parsed)
    }

    /// The validator of a new collection of the shape.
    #[must_use]
    pub fn of_new(shape: &BucketShape) -> Self {
        Self {
            direct_writes: shape.rejects_direct_writes().then(|| direct_writes::clause(shape)),
            ..Self::default()
        }
    }

    /// The application's validator, if items must satisfy it.
    #[must_use]
    pub fn enforced(&self) -> Option<RawDocumentBuf> {
        let application = self.application.as_ref();
        let application = application.filter(|application| application.violated().is_some())?;
        Some(application.validator().to_owned())
    }

    /// The validator, as in a `collMod`. Empty without clauses.
    #[must_use]
    pub fn document(&self) -> RawDocumentBuf {
        let direct_writes = self.direct_writes.iter().cloned();
        let indexes = self.indexes.iter().map(|index| index.clause.clone());
        let application = self.application.iter().map(ApplicationValidator::clause);
        let clauses = direct_writes
            .chain(indexes)
            .chain(application.map(RawDocument::to_owned));
        let clauses: Vec<RawDocumentBuf> = clauses.collect();
        if clauses.is_empty() {
            return RawDocumentBuf::new();
        }
        single("$and", array_of(&clauses))
    }

    /// Appends the validator to a `create` or `collMod`: an empty one without options. A page that does not
    /// satisfy it already may still be changed (`moderate`): its items are older than the validator.
    pub fn append_to(&self, command: &mut RawDocumentBuf) {
        let validator = self.document();
        put(command, VALIDATOR, &validator);
        if !validator.is_empty() {
            put(command, LEVEL, "moderate");
            put(command, ACTION, "error");
        }
    }

    /// The validator that freezes the collection, and records the clauses that do not follow from its
    /// indexes.
    #[must_use]
    pub fn frozen(&self) -> RawDocumentBuf {
        let application = self.application.iter().map(ApplicationValidator::clause);
        let recorded = application.chain(self.direct_writes.as_deref());
        freeze_with(recorded.map(RawDocument::to_owned))
    }
}
