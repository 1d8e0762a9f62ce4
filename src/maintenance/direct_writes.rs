//! Whether the clause that refuses direct writes is as the shape demands.

use bson::Document;
use mongodb::error::Error;

use super::finding::Finding;
use super::inspect::{ContentsCheck, SCAN_TIMEOUT, first_refused};
use super::upstream::{ShapedCollection, described_validator};
use crate::pattern::bucket::validator::{PageValidator, direct_writes};
use crate::pattern::shapes::BucketShape;

/// The state of the clause in a collection.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ClauseState {
    /// As the shape demands.
    Wanted,
    Missing,
    /// It has another form.
    Differs,
    /// mongod does not enforce the validator.
    NotEnforced,
    /// It is there, and the shape does not have the option.
    Unwanted,
}

impl ClauseState {
    /// The state in a listed collection.
    pub(crate) fn of(shape: &BucketShape, described: &Document) -> Self {
        let validator = described_validator(described).and_then(|validator| PageValidator::parse(&validator));
        let found = validator.and_then(|validator| validator.direct_writes);
        match found {
            None if shape.rejects_direct_writes() => Self::Missing,
            Some(_) if !shape.rejects_direct_writes() => Self::Unwanted,
            Some(found) if found != direct_writes::clause(shape) => Self::Differs,
            Some(_) if !is_enforced(described) => Self::NotEnforced,
            None | Some(_) => Self::Wanted,
        }
    }

    fn problem(self) -> Option<&'static str> {
        match self {
            Self::Wanted => None,
            Self::Missing => Some("accepts direct writes, although its shape has reject_direct_writes = true"),
            Self::Differs => Some("refuses direct writes by a validator of another version or shape"),
            Self::NotEnforced => Some("accepts direct writes, because another program has switched its validator off"),
            Self::Unwanted => Some("refuses direct writes, although its shape has reject_direct_writes = false"),
        }
    }
}

/// Whether mongod refuses documents that do not satisfy the validator.
fn is_enforced(described: &Document) -> bool {
    let options = described.get_document("options").ok();
    let is = |name, value| {
        let found = options.and_then(|options| options.get_str(name).ok());
        found == Some(value)
    };
    !is("validationLevel", "off") && !is("validationAction", "warn")
}

/// The finding of `check`, if any. Reads the whole collection if it has the clause, for at most
/// [`SCAN_TIMEOUT`].
pub(crate) async fn check(
    target: &ShapedCollection,
    shape: &BucketShape,
    described: &Document,
) -> Result<Option<Finding>, Error> {
    if let Some(problem) = ClauseState::of(shape, described).problem() {
        let text = format!("{problem}; run `mongoshape setup`");
        return Ok(Some(Finding::warning(target.namespace(), text)));
    }
    if !shape.rejects_direct_writes() {
        return Ok(None);
    }
    let found = first_refused(target, direct_writes::clause(shape), Some(SCAN_TIMEOUT)).await?;
    Ok(match found {
        ContentsCheck::Pages => None,
        ContentsCheck::Unfinished(finding) => Some(finding),
        ContentsCheck::Foreign(id) => {
            let text = format!("{}; mongod checks no direct write of it", malformed(&id));
            Some(Finding::warning(target.namespace(), text))
        }
    })
}

/// The part of a finding that names a document.
pub(crate) fn malformed(id: &str) -> String {
    format!(
        "the document with _id {id} is not a page as mongoshape writes it: it has a field that pages do not have, or lacks one, or its \
         number of items is wrong; correct it by a direct write"
    )
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape(reject_direct_writes: bool) -> BucketShape {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        BucketShape::new(BucketOptions {
            reject_direct_writes,
            ..options
        })
        .unwrap()
    }

    #[test]
    fn clause_is_compared_with_the_shape() {
        let check = |shape: &BucketShape, options: Document, expected| {
            assert_eq!(ClauseState::of(shape, &doc! { "options": options }), expected);
        };
        let (on, off) = (shape(true), shape(false));
        let validator = Document::try_from(PageValidator::of_new(&on).document()).unwrap();
        let listed =
            doc! { "validator": validator.clone(), "validationLevel": "moderate", "validationAction": "error" };
        check(&on, listed.clone(), ClauseState::Wanted);
        check(&off, listed.clone(), ClauseState::Unwanted);
        check(&on, doc! {}, ClauseState::Missing);
        check(&off, doc! {}, ClauseState::Wanted);
        let mut warns = listed.clone();
        warns.insert("validationAction", "warn");
        check(&on, warns, ClauseState::NotEnforced);
        let other = doc! { "$jsonSchema": { "title": "mongoshape_direct_writes" } };
        check(&on, doc! { "validator": { "$and": [other] } }, ClauseState::Differs);
    }
}
