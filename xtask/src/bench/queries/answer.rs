//! Answers, to compare those of the shaped collection with those of the plain one.

use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};

use super::query_client::{QueryClient, Request};
use super::servers::Variant;
use super::shape::Order;

/// Documents that an answer keeps to show a difference.
const SHOWN: usize = 2;

/// An answer: a hash of each document, since an answer may be the whole collection.
#[derive(Debug, Default)]
struct Answer {
    hashes: Vec<u64>,
    first: Vec<Document>,
}

impl Answer {
    fn add(&mut self, document: Document) {
        let mut hasher = DefaultHasher::new();
        text(&document).hash(&mut hasher);
        self.hashes.push(hasher.finish());
        if self.first.len() < SHOWN {
            self.first.push(document);
        }
    }

    fn read(client: &mut QueryClient, request: &Request, order: Order) -> Result<Self> {
        let mut answer = Self::default();
        client.documents(request, |document| answer.add(document))?;
        if order == Order::Any {
            answer.hashes.sort_unstable();
        }
        Ok(answer)
    }

    /// Human-readable: how many documents, and the first of them.
    fn shown(&self) -> String {
        let first: Vec<_> = self.first.iter().map(Document::to_string).collect();
        format!("{} documents, {}", self.hashes.len(), first.join(", "))
    }
}

/// A document's text, with fields in the order of their names: the order of fields is not compared.
fn text(document: &Document) -> String {
    let mut fields: Vec<_> = document
        .iter()
        .map(|(name, value)| match value {
            Bson::Document(inner) => format!("{name}: {{{}}}", text(inner)),
            value => format!("{name}: {value}"),
        })
        .collect();
    fields.sort_unstable();
    fields.join(", ")
}

/// The connections and requests of one query with the same values.
#[derive(Debug)]
pub(super) struct Comparison<'a> {
    pub(super) plain: &'a mut QueryClient,
    pub(super) plain_request: &'a Request,
    pub(super) shaped: &'a mut QueryClient,
    pub(super) shaped_request: &'a Request,
}

impl Comparison<'_> {
    /// Fails unless both collections answer the same.
    pub(super) fn check(&mut self, order: Order) -> Result<()> {
        let plain = Answer::read(self.plain, self.plain_request, order).context("the plain collection")?;
        let shaped = Answer::read(self.shaped, self.shaped_request, order).context("the shaped collection")?;
        let is_equal = match order {
            Order::Sorted | Order::Any => plain.hashes == shaped.hashes,
            Order::AnyDocuments => plain.hashes.len() == shaped.hashes.len() && self.exist(&shaped)?,
        };
        ensure!(is_equal, "plain: {}\nshaped: {}", plain.shown(), shaped.shown());
        Ok(())
    }

    /// Whether the first documents of an answer are documents of the plain collection that match the filter.
    fn exist(&mut self, answer: &Answer) -> Result<bool> {
        for document in &answer.first {
            let conditions = [self.plain_request.filter.clone(), doc! { "_id": document.get("_id") }];
            let filter = doc! { "$and": conditions.to_vec() };
            let command = doc! { "find": Variant::Plain.collection(), "filter": filter };
            let request = self.plain.request(&command)?;
            let mut texts = Vec::new();
            self.plain.documents(&request, |found| texts.push(text(&found)))?;
            if texts != [text(document)] {
                return Ok(false);
            }
        }
        Ok(true)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_order_of_fields_is_not_compared_and_values_are() {
        let one = doc! { "a": 1, "b": { "c": 1, "d": 2 } };
        assert_eq!(text(&one), text(&doc! { "b": { "d": 2, "c": 1 }, "a": 1 }));
        assert_ne!(text(&one), text(&doc! { "a": 2, "b": { "c": 1, "d": 2 } }));
    }
}
