//! Counts which of a shape's fields documents have. Pure.

use std::collections::BTreeSet;

use bson::raw::{RawBsonRef, RawDocument};

use crate::command::document::get;
use crate::config::suggest;
use crate::maintenance::finding::Finding;
use crate::pattern::shapes::{BucketShape, OutlierShape};

/// Field names that are collected for a suggestion.
const MAX_NAMES: usize = 200;
/// Documents whose field names are collected.
const MAX_DOCUMENTS: u64 = 1_000;
/// Field names in a report without a suggestion.
const MAX_LISTED: usize = 12;

/// The handling of fields that the shape names and no document has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum MissingFields {
    /// An error: they are probably misspelt.
    Refused,
    /// They are only reported.
    Allowed,
}

/// A field in the configuration of a shape.
#[derive(Debug)]
struct ConfiguredField {
    /// Its role in the shape, such as "key", for a report.
    role: &'static str,
    name: String,
    is_present: bool,
}

/// Fields that are looked for in documents of one kind, and the fields that these have.
#[derive(Debug)]
struct Level {
    fields: Vec<ConfiguredField>,
    /// Field names of the documents, except `_id`.
    names: BTreeSet<String>,
    documents: u64,
}

impl Level {
    fn of<'a>(fields: impl IntoIterator<Item = (&'static str, &'a str)>) -> Self {
        let configured = |(role, name): (&'static str, &str)| ConfiguredField {
            role,
            name: name.to_owned(),
            is_present: false,
        };
        Self {
            fields: fields.into_iter().map(configured).collect(),
            names: BTreeSet::new(),
            documents: 0,
        }
    }

    fn add(&mut self, document: &RawDocument) {
        self.documents += 1;
        if self.is_complete() {
            return;
        }
        for field in self.fields.iter_mut().filter(|field| !field.is_present) {
            field.is_present = get(document, &field.name).is_some();
        }
        for (name, _) in document.iter().flatten() {
            if self.names.len() >= MAX_NAMES || self.documents > MAX_DOCUMENTS {
                return;
            }
            if name != "_id" && !self.names.contains(name.as_str()) {
                self.names.insert(name.as_str().to_owned());
            }
        }
    }

    /// Whether each field was found.
    fn is_complete(&self) -> bool {
        self.fields.iter().all(|field| field.is_present)
    }

    fn absent(&self) -> impl Iterator<Item = &ConfiguredField> {
        self.fields
            .iter()
            .filter(|field| self.documents > 0 && !field.is_present)
    }

    fn explain(&self, field: &ConfiguredField) -> String {
        let ConfiguredField { role, name, .. } = field;
        let near = suggest::near_misses(name, self.names.iter().map(String::as_str));
        let remedy = match near.as_slice() {
            [] => format!("the sampled documents have the fields {}", self.listed()),
            near => format!("did you mean {}?", quoted(near, " or ")),
        };
        format!("no sampled document has the {role} field \"{name}\"; {remedy}")
    }

    fn listed(&self) -> String {
        let listed: Vec<&str> = self.names.iter().take(MAX_LISTED).map(String::as_str).collect();
        let more = if self.names.len() > MAX_LISTED { ", ..." } else { "" };
        format!("{}{more}", quoted(&listed, ", "))
    }
}

fn quoted(names: &[&str], separator: &str) -> String {
    let quoted: Vec<String> = names.iter().map(|name| format!("\"{name}\"")).collect();
    quoted.join(separator)
}

/// The fields of a shape that the added documents have.
#[derive(Debug)]
pub(crate) struct FieldCensus {
    documents: Level,
    /// The array of items of buckets, and the fields that are looked for in items.
    items: Option<(String, Level)>,
}

impl FieldCensus {
    /// The census of a bucket shape's key, time and renamed fields in plain documents.
    pub(crate) fn of_plain(shape: &BucketShape) -> Self {
        let key = shape.key().iter().map(|name| ("key", name.as_str()));
        let time = shape.time().map(|name| ("time", name));
        let renamed = shape.rename().configured().map(|(item, _)| ("renamed", item));
        Self {
            documents: Level::of(key.chain(time).chain(renamed)),
            items: None,
        }
    }

    /// The census of the same fields in buckets: the key in the bucket, the others under their stored names
    /// in its items.
    pub(crate) fn of_buckets(shape: &BucketShape) -> Self {
        let key = shape.key().iter().map(|name| ("key", name.as_str()));
        let time = shape.time().map(|name| ("time", shape.rename().stored(name)));
        let renamed = shape.rename().configured().map(|(_, stored)| ("renamed", stored));
        let items = Level::of(time.into_iter().chain(renamed));
        Self {
            documents: Level::of(key),
            items: Some((shape.items().to_owned(), items)),
        }
    }

    /// The census of an outlier shape's array.
    pub(crate) fn of_outlier(shape: &OutlierShape) -> Self {
        Self {
            documents: Level::of([("array", shape.array())]),
            items: None,
        }
    }

    /// Adds a document as it is stored.
    pub(crate) fn add(&mut self, document: &RawDocument) {
        self.documents.add(document);
        let Some((array, level)) = &mut self.items else { return };
        if level.is_complete() {
            return;
        }
        let items = get(document, array).and_then(RawBsonRef::as_array);
        let items = items.into_iter().flatten().flatten();
        items
            .filter_map(RawBsonRef::as_document)
            .for_each(|item| level.add(item));
    }

    /// The fields that no added document has.
    pub(super) fn absent(&self) -> Vec<String> {
        self.documents.absent().map(|field| field.name.clone()).collect()
    }

    /// Records that another document has the field.
    pub(super) fn is_present(&mut self, name: &str) {
        let mut fields = self.documents.fields.iter_mut();
        if let Some(field) = fields.find(|field| field.name == name) {
            field.is_present = true;
        }
    }

    /// A finding for each configured field that no document has. Empty if no document was added.
    pub(crate) fn findings(&self, namespace: &str, missing: MissingFields) -> Vec<Finding> {
        let levels = [Some(&self.documents), self.items.as_ref().map(|(_, level)| level)];
        let texts = levels
            .into_iter()
            .flatten()
            .flat_map(|level| level.absent().map(|field| level.explain(field)));
        let finding = |text: String| match missing {
            MissingFields::Refused => {
                let remedy = "if the name is right, run `mongoshape setup` or `convert` with `--allow-missing-key`";
                Finding::error(namespace, format!("{text} ({remedy})"))
            }
            MissingFields::Allowed => Finding::note(namespace, text),
        };
        texts.map(finding).collect()
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape(key: &str, time: &str) -> BucketShape {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec![key.into()]);
        let time = Some(time.to_owned());
        let rename = [("quantity".to_owned(), "qty".to_owned())].into();
        BucketShape::new(BucketOptions {
            time,
            rename,
            ..options
        })
        .unwrap()
    }

    fn check(mut census: FieldCensus, documents: &[RawDocumentBuf], expected: &[&str]) {
        for document in documents {
            census.add(document);
        }
        let findings = census.findings("d.c", MissingFields::Allowed);
        let texts: Vec<String> = findings.iter().map(ToString::to_string).collect();
        assert_eq!(texts, expected);
        let is_error = |finding: &Finding| finding.is_error();
        assert!(census.findings("d.c", MissingFields::Refused).iter().all(is_error));
    }

    #[test]
    fn a_field_that_no_document_has_is_named_with_the_nearest() {
        let documents = [
            rawdoc! { "_id": 1, "customerId": 1 },
            rawdoc! { "_id": 2, "customerId": 2, "date": 1, "quantity": 1 },
        ];
        check(FieldCensus::of_plain(&shape("customerId", "date")), &documents, &[]);
        check(FieldCensus::of_plain(&shape("custmerId", "date")), &[], &[]);
        let near = "note: d.c: no sampled document has the key field \"custmerId\"; did you mean \"customerId\"?";
        check(FieldCensus::of_plain(&shape("custmerId", "date")), &documents, &[near]);
        let far = "note: d.c: no sampled document has the time field \"xyzzy\"; the sampled documents have the fields \
                   \"customerId\"";
        let renamed = "note: d.c: no sampled document has the renamed field \"quantity\"; the sampled documents have the \
                       fields \"customerId\"";
        check(
            FieldCensus::of_plain(&shape("customerId", "xyzzy")),
            &documents[..1],
            &[far, renamed],
        );
    }

    #[test]
    fn times_of_buckets_are_in_their_items() {
        let shape = shape("k", "date");
        let bucket = |item: RawDocumentBuf| rawdoc! { "_id": 1, "k": 1, "count": 1, "history": [item] };
        check(
            FieldCensus::of_buckets(&shape),
            &[bucket(rawdoc! { "date": 1, "qty": 1 })],
            &[],
        );
        let empty = rawdoc! { "_id": 1, "k": 1, "count": 0, "history": [] };
        check(FieldCensus::of_buckets(&shape), &[empty], &[]);
        let words = [
            "note: d.c: no sampled document has the time field \"date\"; did you mean \"Date\"?",
            "note: d.c: no sampled document has the renamed field \"qty\"; did you mean \"qt\"?",
        ];
        check(
            FieldCensus::of_buckets(&shape),
            &[bucket(rawdoc! { "Date": 1, "qt": 1 })],
            &words,
        );
    }
}
