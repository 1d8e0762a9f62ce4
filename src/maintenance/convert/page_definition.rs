//! Whether pages can have the application's indexes, and the options of its collection. Otherwise the copy
//! could not be given them: in part when it is created, and in part only after it is filled.

use bson::raw::RawDocumentBuf;
use mongodb::Database;

use super::Conversion;
use super::layout::{Layout, PagesOf};
use super::mirror::side::of_application;
use super::preflight::Preflight;
use crate::maintenance::check::collection;
use crate::maintenance::finding::Finding;
use crate::maintenance::swap::{Halt, options_of};
use crate::maintenance::upstream::{indexes_of, listed_options, raw_specs};
use crate::pattern::bucket::item_index::{self, Indexes, name};
use crate::pattern::bucket::validation::Validation;
use crate::pattern::bucket::validator::{ApplicationValidator, options_of_application};
use crate::pattern::shapes::{BucketShape, Shape};

/// The definition of a collection on pages.
#[derive(Default)]
pub(super) struct PageDefinition {
    /// The application's indexes as they are stored.
    pub(super) indexes: Vec<RawDocumentBuf>,
    /// What pages cannot have.
    pub(super) unfit: Vec<String>,
}

impl PageDefinition {
    /// The definition with these indexes and this validation of the application.
    fn of(shape: &BucketShape, indexes: &[RawDocumentBuf], validation: &Validation) -> Self {
        let mut definition = Self::default();
        for index in indexes {
            match item_index::stored(shape, index) {
                Ok(stored) => definition.indexes.push(stored),
                Err(what) => {
                    let text = format!(
                        "index {} cannot be kept: it is {what}; drop it, then run again",
                        name(index)
                    );
                    definition.unfit.push(text);
                }
            }
        }
        if validation.has_validator()
            && let Err(what) = ApplicationValidator::modified(None, shape, &validation.arguments())
        {
            let text = format!(
                "its validator cannot be kept: pages cannot have {what}; remove it by `collMod`, then run again"
            );
            definition.unfit.push(text);
        }
        definition
    }
}

impl Preflight<'_> {
    /// The definition that the copy will have. Of a copy of plain documents, nothing is unfit.
    pub(super) async fn page_definition(self) -> Result<PageDefinition, Halt> {
        let (subject, plan) = (self.subject, self.plan);
        let (database, collection) = (&subject.database, subject.collection.as_str());
        let Some(to) = bucket_shape(&plan.to, database, collection)? else {
            return Ok(PageDefinition::default());
        };
        let listed = raw_specs(&indexes_of(database, collection).await?);
        let indexes = match bucket_shape(&plan.from, database, collection)? {
            Some(from) => Indexes::of(&from, listed.iter().map(|spec| &**spec)).known,
            None => listed,
        };
        let options = listed_options(database, collection).await?.unwrap_or_default();
        let validation = Validation::of(&options_of_application(&options));
        Ok(PageDefinition::of(&to, &of_application(indexes), &validation))
    }

    /// Errors about options of plain documents that pages cannot have. A validator has an error of its own.
    pub(super) fn unfit_options(self) -> Result<Vec<Finding>, Halt> {
        if !self.plan.from.is_plain() || self.plan.to.is_plain() {
            return Ok(Vec::new());
        }
        let target = self.subject.target(&self.plan.from, &self.plan.to)?;
        let mut described = self.described.clone();
        described.insert("options", options_of(self.described));
        Ok(collection::unfit(&target, &described))
    }
}

impl Conversion<'_> {
    /// Ends the run if pages cannot have an index or a validator that the collection got since the conversion
    /// began.
    pub(super) fn must_fit(&self) -> Result<(), Halt> {
        let copy = &self.mirror.copy.collection;
        let Some(shape) = bucket_shape(&self.record.to, &self.target.database, copy)? else {
            return Ok(());
        };
        let unfit = PageDefinition::of(&shape, &self.indexes, &self.validation).unfit;
        unfit.into_iter().next().map_or(Ok(()), |text| Err(Halt::Words(text)))
    }
}

/// The shape of pages in this layout. `None`: it is of plain documents.
fn bucket_shape(layout: &Layout, database: &Database, collection: &str) -> Result<Option<BucketShape>, Halt> {
    let of = PagesOf {
        database,
        collection,
        has_change_streams: false,
        rejects_direct_writes: false,
    };
    Ok(match layout.shape(&of)? {
        Some(Shape::Bucket(shape)) => Some(shape),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn a_ttl_index_is_kept_unless_it_is_partial() {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let ttl = rawdoc! { "v": 2, "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 60 };
        let partial = rawdoc! {
            "v": 2, "key": { "at": 1 }, "name": "part", "expireAfterSeconds": 60, "partialFilterExpression": { "x": 1 }
        };
        let definition = PageDefinition::of(&shape, &[ttl, partial], &Validation::default());
        let names: Vec<&str> = definition.indexes.iter().map(|index| name(index)).collect();
        assert_eq!(names, ["at_1"]);
        let text = "index part cannot be kept: it is a partial index with expireAfterSeconds; drop it, then run again";
        assert_eq!(definition.unfit, [text]);
    }

    #[test]
    fn a_validator_without_an_equivalent_on_pages_is_unfit() {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let unfit = |options: RawDocumentBuf| PageDefinition::of(&shape, &[], &Validation::of(&options)).unfit;
        assert_eq!(unfit(rawdoc! {}), [""; 0]);
        assert_eq!(unfit(rawdoc! { "validator": { "n": { "$gte": 0 } } }), [""; 0]);
        let text = "its validator cannot be kept: pages cannot have a validator with $expr; remove it by `collMod`, then run again";
        assert_eq!(unfit(rawdoc! { "validator": { "$expr": true } }), [text]);
    }
}
