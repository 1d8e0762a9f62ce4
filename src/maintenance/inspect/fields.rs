//! Checks whether a collection's documents have the fields that its shape names. With a misspelt
//! key, all documents would get the key `null` and one chain of pages. With a misspelt time, they
//! would have no order.

use std::collections::BTreeSet;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;

use super::foreign_document::SCAN_TIMEOUT;
use super::foreign_document::is_timeout;
use super::plain::has;
use crate::command::document::{array_of, get, single};
use crate::config::suggest;
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::shapes::{BucketShape, OutlierShape};

/// Field names that are collected for a suggestion.
const MAX_NAMES: usize = 200;
/// Field names in a report without a suggestion.
const MAX_LISTED: usize = 12;
/// Documents in a sample.
const SAMPLE: i32 = 100;

/// A field in the configuration of a shape.
#[derive(Debug)]
struct ConfiguredField {
    /// The option of the configuration.
    option: &'static str,
    name: String,
    is_present: bool,
}

/// The fields of a shape that the added documents have.
#[derive(Debug)]
pub(crate) struct FieldCensus {
    fields: Vec<ConfiguredField>,
    /// Top-level field names of the documents, except `_id`.
    names: BTreeSet<String>,
    documents: u64,
}

impl FieldCensus {
    /// The census of a bucket shape's key and time fields.
    pub(crate) fn of_bucket(shape: &BucketShape) -> Self {
        let key = shape.key().iter().map(|name| ("key", name.as_str()));
        Self::of(key.chain(shape.time().map(|name| ("time", name))))
    }

    /// The census of an outlier shape's array.
    pub(crate) fn of_outlier(shape: &OutlierShape) -> Self {
        Self::of([("array", shape.array())])
    }

    fn of<'a>(fields: impl IntoIterator<Item = (&'static str, &'a str)>) -> Self {
        let configured = |(option, name): (&'static str, &str)| ConfiguredField {
            option,
            name: name.to_owned(),
            is_present: false,
        };
        Self {
            fields: fields.into_iter().map(configured).collect(),
            names: BTreeSet::new(),
            documents: 0,
        }
    }

    /// Adds a document in the form in which the application stores it.
    pub(crate) fn add(&mut self, document: &RawDocument) {
        self.documents += 1;
        for field in self.fields.iter_mut().filter(|field| !field.is_present) {
            field.is_present = get(document, &field.name).is_some();
        }
        for (name, _) in document.iter().flatten() {
            if self.names.len() >= MAX_NAMES {
                return;
            }
            if name != "_id" && !self.names.contains(name.as_str()) {
                self.names.insert(name.as_str().to_owned());
            }
        }
    }

    /// An error for each configured field that no document has. Empty if no document was added.
    pub(crate) fn findings(&self, namespace: &str) -> Vec<Finding> {
        let absent = self
            .fields
            .iter()
            .filter(|field| self.documents > 0 && !field.is_present);
        let finding = |field: &ConfiguredField| Finding::error(namespace, self.explain(field));
        absent.map(finding).collect()
    }

    fn explain(&self, field: &ConfiguredField) -> String {
        let ConfiguredField { option, name, .. } = field;
        let looked_at = match self.documents {
            1 => "1 document inspected".to_owned(),
            count => format!("{count} documents inspected"),
        };
        let remedy = match suggest::nearest(name, self.names.iter().map(String::as_str)) {
            Some(near) => format!("did you mean '{near}'?"),
            None => format!("their fields are {}", self.listed()),
        };
        format!("no document has the field '{name}', which `{option}` names ({looked_at}): {remedy}")
    }

    fn listed(&self) -> String {
        let listed: Vec<&str> = self.names.iter().take(MAX_LISTED).map(String::as_str).collect();
        let more = if self.names.len() > MAX_LISTED { ", ..." } else { "" };
        format!("{}{more}", listed.join(", "))
    }
}

/// Adds a random sample of at most [`SAMPLE`] documents. If a field is missing in the sample, the
/// whole collection is searched for it, for at most [`SCAN_TIMEOUT`], because few documents may
/// have it.
pub(crate) async fn sample(target: &ShapedCollection, mut census: FieldCensus) -> Result<FieldCensus, Error> {
    let mut command = single("aggregate", target.collection.as_str());
    let stage = single("$sample", single("size", SAMPLE));
    command.append(cstr!("pipeline"), array_of(&[stage]));
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    let sampled = target.database.run_raw_cursor_command(command).await?;
    let mut sampled = sampled.with_type::<RawDocumentBuf>();
    while let Some(document) = sampled.try_next().await? {
        census.add(&document);
    }
    for field in census.fields.iter_mut().filter(|field| !field.is_present) {
        let filter = single(field.name.as_str(), single("$exists", true));
        let timeout = i64::try_from(SCAN_TIMEOUT.as_millis()).unwrap_or(i64::MAX);
        field.is_present = match has(target, filter, Some(timeout)).await {
            Err(error) if is_timeout(&error) => false,
            found => found?.is_some(),
        };
    }
    Ok(census)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn check(fields: &[(&'static str, &str)], documents: &[RawDocumentBuf], expected: &[&str]) {
        let mut census = FieldCensus::of(fields.iter().copied());
        for document in documents {
            census.add(document);
        }
        let findings: Vec<String> = census.findings("d.c").iter().map(ToString::to_string).collect();
        assert_eq!(findings, expected);
    }

    #[test]
    fn a_field_that_no_document_has_is_named_with_the_nearest() {
        let documents = [
            rawdoc! { "_id": 1, "customerId": 1 },
            rawdoc! { "_id": 2, "customerId": 2, "date": 1 },
        ];
        check(&[("key", "customerId"), ("time", "date")], &documents, &[]);
        check(&[("key", "custmerId")], &[], &[]);
        let near = "error: d.c: no document has the field 'custmerId', which `key` names (2 documents inspected): did you \
                    mean 'customerId'?";
        check(&[("key", "custmerId"), ("time", "date")], &documents, &[near]);
        let far = "error: d.c: no document has the field 'xyzzy', which `time` names (1 document inspected): their fields are \
                   customerId";
        check(&[("time", "xyzzy")], &documents[..1], &[far]);
    }
}
