//! The validation of plain documents: the options of their collection, and the freeze that records them.
//!
//! ```js
//! { $and: [
//!   { mongoshape_pack: { $exists: true } },
//!   { $expr: { $let: {
//!     vars: { mongoshape_validation: { $literal: { validator, validationLevel, validationAction } } },
//!     in: false } } } ] }
//! ```
//!
//! A freeze replaces the validator, the level and the action. So it records them, and a thaw restores them,
//! also that of the next run. mongod does not parse a literal.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

use super::freeze::VALIDATOR;
use super::pack;
use crate::command::collection::VALIDATION;
use crate::command::document::{array_of, get, put, single};

/// The variable that contains the recorded options.
const RECORD: &str = "mongoshape_validation";
/// The level and the action of a collection without these options.
const STRICT: &str = "strict";
const ERROR: &str = "error";

/// The validator of a collection, its level and its action, as applications see them.
#[derive(Clone, Debug, PartialEq)]
pub struct Validation {
    /// Empty: there is none.
    validator: RawDocumentBuf,
    level: String,
    action: String,
}

impl Default for Validation {
    fn default() -> Self {
        Self::given(&RawDocumentBuf::new())
    }
}

impl Validation {
    /// That of a collection with these options, as `listCollections` returns them. If it contains plain
    /// documents and is frozen, that before the freeze.
    #[must_use]
    pub fn of(options: &RawDocument) -> Self {
        if pack::is_frozen(options) {
            return recorded(options).map(Self::given).unwrap_or_default();
        }
        Self::given(options)
    }

    fn given(options: &RawDocument) -> Self {
        let [validator, level, action] = VALIDATION;
        let validator = get(options, validator).and_then(RawBsonRef::as_document);
        let text = |name: &str| get(options, name).and_then(RawBsonRef::as_str);
        Self {
            validator: validator.map(RawDocument::to_owned).unwrap_or_default(),
            level: text(level).unwrap_or(STRICT).to_owned(),
            action: text(action).unwrap_or(ERROR).to_owned(),
        }
    }

    /// Whether there is a validator. The level and the action of one that was removed remain.
    #[must_use]
    pub fn has_validator(&self) -> bool {
        !self.validator.is_empty()
    }

    /// Whether mongod validates the same in both.
    #[must_use]
    pub fn is_same(&self, other: &Self) -> bool {
        self == other || !(self.has_validator() || other.has_validator())
    }

    /// The arguments of a `collMod` that sets it.
    #[must_use]
    pub fn arguments(&self) -> RawDocumentBuf {
        let [validator, level, action] = VALIDATION;
        let mut arguments = single(validator, &self.validator);
        put(&mut arguments, level, self.level.as_str());
        put(&mut arguments, action, self.action.as_str());
        arguments
    }

    /// The validator that freezes the collection, and records this.
    #[must_use]
    pub fn frozen(&self) -> RawDocumentBuf {
        if *self == Self::default() {
            return pack::freeze();
        }
        let record = rawdoc! { "$expr": { "$let": {
            "vars": single(RECORD, single("$literal", self.arguments())),
            "in": false,
        } } };
        single("$and", array_of(&[pack::freeze(), record]))
    }
}

/// The options of plain documents as applications see them: those before a freeze.
#[must_use]
pub fn without_freeze(options: &RawDocument) -> RawDocumentBuf {
    if !pack::is_frozen(options) {
        return options.to_owned();
    }
    let mut before = recorded(options);
    let mut shown = RawDocumentBuf::new();
    for (name, value) in options.iter().flatten() {
        if !VALIDATION.contains(&name.as_str()) {
            shown.append(name, value);
            continue;
        }
        for (name, value) in before.take().into_iter().flatten().flatten() {
            let is_none = value.as_document().is_some_and(RawDocument::is_empty);
            if !is_none {
                shown.append(name, value);
            }
        }
    }
    shown
}

/// The options that a freeze records. `None`: those of a collection without such options.
fn recorded(options: &RawDocument) -> Option<&RawDocument> {
    let validator = get(options, VALIDATOR)?.as_document()?;
    let clause = get(validator, "$and")?.as_array()?.into_iter().nth(1)?;
    let expression = get(clause.ok()?.as_document()?, "$expr")?.as_document()?;
    let variables = get(get(expression, "$let")?.as_document()?, "vars")?.as_document()?;
    get(get(variables, RECORD)?.as_document()?, "$literal")?.as_document()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_freeze_records_the_options() {
        let by_fields = rawdoc! { "n": { "$gte": 0 }, "m.x": 1 };
        for options in [
            rawdoc! { "validator": by_fields, "validationLevel": "moderate", "validationAction": "warn" },
            rawdoc! { "validator": { "$expr": { "$gt": ["$n", 0] } } },
            rawdoc! { "validationLevel": "off" },
        ] {
            let validation = Validation::of(&options);
            let mut frozen = rawdoc! { "validationLevel": "strict", "validationAction": "error" };
            put(&mut frozen, "validator", validation.frozen());
            assert!(pack::is_frozen(&frozen) && !pack::is_frozen(&options));
            assert_eq!(Validation::of(&frozen), validation, "{options:?}");
        }
    }

    #[test]
    fn a_freeze_without_options_records_nothing() {
        for options in [
            RawDocumentBuf::new(),
            rawdoc! { "validationLevel": "strict", "validationAction": "error" },
        ] {
            let validation = Validation::of(&options);
            assert_eq!(validation.frozen(), pack::freeze());
            let frozen = single("validator", validation.frozen());
            assert_eq!(Validation::of(&frozen), Validation::default());
        }
    }

    #[test]
    fn applications_see_the_options_before_a_freeze() {
        let check = |validation: &RawDocument| {
            let mut frozen = rawdoc! { "capped": false };
            put(&mut frozen, "validator", Validation::of(validation).frozen());
            frozen.append(bson::raw::cstr!("validationLevel"), "strict");
            frozen.append(bson::raw::cstr!("validationAction"), "error");
            frozen.append(bson::raw::cstr!("size"), 7);
            let mut expected = rawdoc! { "capped": false };
            for (name, value) in validation.iter().flatten() {
                expected.append(name, value);
            }
            expected.append(bson::raw::cstr!("size"), 7);
            assert_eq!(without_freeze(&frozen), expected);
            assert_eq!(without_freeze(&expected), expected);
        };
        check(&rawdoc! {});
        check(&rawdoc! { "validationLevel": "off", "validationAction": "error" });
        check(&rawdoc! { "validator": { "n": 1 }, "validationLevel": "moderate", "validationAction": "warn" });
    }

    #[test]
    fn the_level_of_no_validator_is_of_no_importance() {
        let off = Validation::of(&rawdoc! { "validationLevel": "off" });
        assert!(off.is_same(&Validation::default()) && off != Validation::default());
        let one = Validation::of(&rawdoc! { "validator": { "n": 1 } });
        let other = Validation::of(&rawdoc! { "validator": { "n": 1.0 } });
        assert!(one.is_same(&one) && !one.is_same(&other) && !one.is_same(&Validation::default()));
    }
}
