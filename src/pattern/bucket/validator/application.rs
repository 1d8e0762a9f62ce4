//! The application's validation options, and the clause that records and enforces them.
//!
//! ```js
//! { $or: [
//!   { $and: [
//!     { $expr: { $let: {
//!       vars: { mongoshape_validator: { $literal: { validationLevel, .. } } }, in: null } } },
//!     <the application's validator> ] },
//!   { $and: [ { "control.v": { $exists: true } }, <conditions on a page> ] } ] }
//! ```
//!
//! The first alternative is never satisfied, because of its first part. It records the options. A document
//! that is no page satisfies neither alternative, and mongod's error for it contains the part of the
//! application's validator that it does not satisfy: so the application's own validator is evaluated for an
//! item without storing it. If nothing is enforced, `in` is `false`.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::rawdoc;

use super::PageValidator;
use super::page_condition::conditions;
use crate::command::collection::{VALIDATION, given};
use crate::command::document::{append_fields, array_of, first_field, get, put, single};
use crate::pattern::bucket::freeze::{VALIDATOR, is_frozen};
use crate::pattern::bucket::layout::path;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;

/// The variable that contains the recorded options.
const RECORD: &str = "mongoshape_validator";
pub(super) const LEVEL: &str = "validationLevel";
pub(super) const ACTION: &str = "validationAction";

/// The validation options of an application's collection, with the clause for pages.
#[derive(Clone, Debug, PartialEq)]
pub struct ApplicationValidator {
    validator: RawDocumentBuf,
    /// The level and the action, if the collection has them.
    record: RawDocumentBuf,
    clause: RawDocumentBuf,
}

impl ApplicationValidator {
    /// The options of a `create`. `None`: it has none.
    ///
    /// # Errors
    /// A validator that has no equivalent on pages, with the reason.
    pub fn of_create(shape: &BucketShape, body: &RawDocument) -> Result<Option<Self>, Unsupported> {
        let validator = given(body, VALIDATOR).and_then(RawBsonRef::as_document);
        let validator = validator.map(RawDocument::to_owned).unwrap_or_default();
        let mut record = RawDocumentBuf::new();
        for name in [LEVEL, ACTION] {
            if let Some(value) = given(body, name) {
                put(&mut record, name, value);
            }
        }
        let is_none = validator.is_empty() && record.is_empty();
        (!is_none).then(|| Self::new(shape, validator, record)).transpose()
    }

    /// The options after a `collMod`. mongod then records a level and an action, too.
    ///
    /// # Errors
    /// Those of [`Self::of_create`].
    pub fn modified(before: Option<&Self>, shape: &BucketShape, body: &RawDocument) -> Result<Self, Unsupported> {
        let validator = given(body, VALIDATOR).and_then(RawBsonRef::as_document);
        let validator = validator.or(before.map(|before| &*before.validator));
        let mut record = RawDocumentBuf::new();
        for (name, default) in [(LEVEL, "strict"), (ACTION, "error")] {
            let recorded = before.and_then(|before| get(&before.record, name));
            let value = given(body, name).or(recorded);
            put(&mut record, name, value.unwrap_or(RawBsonRef::String(default)));
        }
        Self::new(shape, validator.map(RawDocument::to_owned).unwrap_or_default(), record)
    }

    fn new(shape: &BucketShape, validator: RawDocumentBuf, record: RawDocumentBuf) -> Result<Self, Unsupported> {
        let is_off = get(&record, LEVEL) == Some(RawBsonRef::String("off"))
            || get(&record, ACTION) == Some(RawBsonRef::String("warn"));
        let is_enforced = !is_off && !validator.is_empty();
        let mut of_page = vec![single(path::VERSION, single("$exists", true))];
        if is_enforced {
            of_page.extend(conditions(shape, &validator)?);
        }
        let marker = rawdoc! { "$expr": { "$let": {
            "vars": single(RECORD, single("$literal", &record)),
            "in": if is_enforced { RawBsonRef::Null } else { RawBsonRef::Boolean(false) },
        } } };
        let alternatives = [
            single("$and", array_of(&[marker, validator.clone()])),
            single("$and", array_of(&of_page)),
        ];
        Ok(Self {
            validator,
            record,
            clause: single("$or", array_of(&alternatives)),
        })
    }

    /// Parses a clause. `None`: it is another one.
    #[must_use]
    pub fn of_clause(clause: &RawDocument) -> Option<Self> {
        let Recorded { marker, validator } = Recorded::of(clause)?;
        let Some(("$expr", RawBsonRef::Document(expression))) = first_field(marker) else {
            return None;
        };
        let variables = get(get(expression, "$let")?.as_document()?, "vars")?.as_document()?;
        let record = get(get(variables, RECORD)?.as_document()?, "$literal")?.as_document()?;
        Some(Self {
            validator: validator.to_owned(),
            record: record.to_owned(),
            clause: clause.to_owned(),
        })
    }

    /// The clause of the validator of pages.
    #[must_use]
    pub fn clause(&self) -> &RawDocument {
        &self.clause
    }

    /// The application's validator. Empty: it has none.
    #[must_use]
    pub fn validator(&self) -> &RawDocument {
        &self.validator
    }

    /// The condition that a page with an invalid item satisfies. `None`: nothing is enforced.
    #[must_use]
    pub fn violated(&self) -> Option<RawDocumentBuf> {
        let alternatives = get(&self.clause, "$or")?.as_array()?;
        let of_page = alternatives.into_iter().nth(1)?.ok()?.as_document()?;
        let demands = get(of_page, "$and")?.as_array()?;
        (demands.into_iter().count() > 1).then(|| single("$nor", array_of(&[of_page.to_owned()])))
    }

    /// The options as `listCollections` shows them in a plain collection.
    fn listed(&self) -> RawDocumentBuf {
        let mut listed = RawDocumentBuf::new();
        if !self.validator.is_empty() {
            put(&mut listed, VALIDATOR, &self.validator);
        }
        append_fields(&mut listed, &self.record);
        listed
    }
}

/// The options of a collection of pages as `listCollections` shows them in a plain collection. A validator
/// of another program is shown.
#[must_use]
pub fn options_of_application(options: &RawDocument) -> RawDocumentBuf {
    let validator = get(options, VALIDATOR).and_then(RawBsonRef::as_document);
    let parsed = validator.map(PageValidator::parse);
    if matches!(parsed, Some(None)) && !is_frozen(options) {
        return options.to_owned();
    }
    let application = parsed.flatten().and_then(|parsed| parsed.application);
    let mut listed = application.map(|application| application.listed());
    let mut shown = RawDocumentBuf::new();
    for (name, value) in options.iter().flatten() {
        if !VALIDATION.contains(&name.as_str()) {
            put(&mut shown, name.as_str(), value);
        } else if let Some(listed) = listed.take() {
            append_fields(&mut shown, &listed);
        }
    }
    shown
}

/// The first alternative of a clause.
struct Recorded<'a> {
    marker: &'a RawDocument,
    validator: &'a RawDocument,
}

impl<'a> Recorded<'a> {
    fn of(clause: &'a RawDocument) -> Option<Self> {
        let alternatives = get(clause, "$or")?.as_array()?;
        let first = alternatives.into_iter().next()?.ok()?.as_document()?;
        let mut parts = get(first, "$and")?.as_array()?.into_iter();
        Some(Self {
            marker: parts.next()?.ok()?.as_document()?,
            validator: parts.next()?.ok()?.as_document()?,
        })
    }
}
