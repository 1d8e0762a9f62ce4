//! Finds documents other than pages in a collection: hand-written buckets, and misfits. Changes
//! nothing.

mod fields;
mod foreign_document;
mod ordered;
mod plain;

use bson::raw::{RawDocument, RawDocumentBuf, cstr};
use futures_util::TryStreamExt;
use mongodb::error::Error;

pub(crate) use self::fields::{FieldCensus, MissingFields, sample};
pub(crate) use self::foreign_document::{ContentsCheck, SCAN_TIMEOUT, first_foreign, first_refused, is_timeout};
pub(crate) use self::ordered::{Fetched, Ordered};
pub(crate) use self::plain::{Plain, has, is_frozen, look, look_shortly, taken};
use super::finding::Finding;
use super::upstream::ShapedCollection;
use crate::command::document::{array_of, get, single};
use crate::command::value_text::{id_text, value_text};
use crate::pattern::bucket::adopt::{AdoptionScan, DocumentKind, InvalidPage, doubled_ids};
use crate::pattern::shapes::{BucketShape, ItemIds};

/// Documents named in a report. Further ones are counted.
const MAX_EXAMPLES: usize = 5;

/// The result of a scan.
#[derive(Debug)]
pub(crate) struct Survey {
    census: FieldCensus,
    by_hand: Named<String>,
    miscounted: u64,
    misfits: Named<(String, String)>,
    misplaced: Named<(String, String)>,
    is_disturbed: bool,
}

/// A count, with the first few examples.
#[derive(Debug)]
struct Named<T> {
    count: u64,
    examples: Vec<T>,
}

impl<T> Default for Named<T> {
    fn default() -> Self {
        Self {
            count: 0,
            examples: Vec::new(),
        }
    }
}

impl<T> Named<T> {
    fn add(&mut self, example: impl FnOnce() -> T) {
        self.count += 1;
        if self.examples.len() < MAX_EXAMPLES {
            self.examples.push(example());
        }
    }
}

impl Survey {
    /// A scan that has not begun.
    pub(crate) fn of(shape: &BucketShape) -> Self {
        Self {
            census: FieldCensus::of_buckets(shape),
            by_hand: Named::default(),
            miscounted: 0,
            misfits: Named::default(),
            misplaced: Named::default(),
            is_disturbed: false,
        }
    }

    /// Scans the whole collection. The results up to an error are kept.
    pub(crate) async fn go(&mut self, target: &ShapedCollection, shape: &BucketShape) -> Result<(), Error> {
        let mut documents = Ordered::open(target, shape).await?;
        let mut scan = AdoptionScan::new(shape);
        while let Some(batch) = documents.next_batch().await? {
            for Fetched {
                document,
                is_adopted_meanwhile,
            } in &batch
            {
                self.census.add(document);
                if *is_adopted_meanwhile {
                    scan.pass_over(document);
                    self.is_disturbed = true;
                } else {
                    self.add(document, scan.look_at(document));
                }
            }
        }
        if shape.item_ids() == ItemIds::Unique {
            self.add_doubled_ids(target, shape).await?;
        }
        Ok(())
    }

    fn add(&mut self, document: &RawDocument, found: Result<DocumentKind, InvalidPage>) {
        match found {
            Ok(DocumentKind::Page) => {}
            Ok(DocumentKind::ByHand(adoption)) => {
                self.by_hand.add(|| id_text(document));
                self.miscounted += u64::from(adoption.is_miscounted);
            }
            Err(misfit) => {
                let misfits = match misfit {
                    InvalidPage::Itself(_) => &mut self.misfits,
                    InvalidPage::Place(_) => &mut self.misplaced,
                };
                misfits.add(|| (id_text(document), misfit.to_string()));
            }
        }
    }

    /// Duplicate `_id`s within one bucket are found by the scan; this finds those in different
    /// buckets.
    async fn add_doubled_ids(&mut self, target: &ShapedCollection, shape: &BucketShape) -> Result<(), Error> {
        let limit = i32::try_from(MAX_EXAMPLES).unwrap_or(i32::MAX);
        let command = aggregate(target, &doubled_ids(shape, limit));
        let doubled = target.database.run_raw_cursor_command(command).await?;
        let mut doubled = doubled.with_type::<RawDocumentBuf>();
        while let Some(doubled) = doubled.try_next().await? {
            let text = |name| get(&doubled, name).map(value_text).unwrap_or_default();
            let reason = format!(
                "one of its items has the _id {} of an item in {}",
                text("_id"),
                text("first")
            );
            self.misfits.add(|| (text("last"), reason));
        }
        Ok(())
    }

    /// Whether another run adopted buckets during the scan, so that the result may be incomplete.
    pub(crate) fn is_disturbed(&self) -> bool {
        self.is_disturbed
    }

    /// Findings about fields that the shape names and no document has.
    pub(crate) fn missing_fields(&self, namespace: &str, missing: MissingFields) -> Vec<Finding> {
        self.census.findings(namespace, missing)
    }

    /// The number of buckets that can be adopted.
    pub(crate) fn by_hand(&self) -> u64 {
        self.by_hand.count
    }

    /// Number of these buckets with a wrong item count.
    pub(crate) fn miscounted(&self) -> u64 {
        self.miscounted
    }

    /// A description of the buckets that can be adopted: their number and the first few.
    pub(crate) fn named_by_hand(&self) -> String {
        let named = self.by_hand.examples.join(", ");
        let buckets = match self.by_hand.count {
            1 => format!("1 hand-written bucket, {named}"),
            count => format!("{count} hand-written buckets, such as {named}"),
        };
        match self.miscounted {
            0 => buckets,
            count => format!("{buckets} ({count} with a wrong number of items, which `setup` corrects)"),
        }
    }

    /// Findings about documents that can be neither read nor adopted: the first few with the
    /// reason, and their number. Documents at a wrong position are left out if another run adopts
    /// buckets concurrently, because they may be correct.
    pub(crate) fn misfits(&self, namespace: &str) -> Vec<Finding> {
        let mut kinds = vec![&self.misfits];
        if !self.is_disturbed {
            kinds.push(&self.misplaced);
        }
        let finding =
            |(id, reason): &(String, String)| Finding::error(namespace, format!("document with _id {id}: {reason}"));
        let examples = kinds.iter().flat_map(|kind| &kind.examples).take(MAX_EXAMPLES);
        let mut findings: Vec<Finding> = examples.map(finding).collect();
        let what = match kinds.iter().map(|kind| kind.count).sum() {
            0 => return findings,
            1 => "1 document is not a bucket".to_owned(),
            count => format!("{count} documents are not buckets"),
        };
        let text = format!(
            "{what} of layout version 1, and cannot be adopted; correct each in place, or move it to another collection and insert it \
             through the proxy"
        );
        findings.push(Finding::error(namespace, text));
        findings
    }
}

/// An `aggregate` of these stages that may use disk.
fn aggregate(target: &ShapedCollection, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let mut command = single("aggregate", target.collection.as_str());
    command.append(cstr!("pipeline"), array_of(stages));
    command.append(cstr!("cursor"), RawDocumentBuf::new());
    command.append(cstr!("allowDiskUse"), true);
    command
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    #[test]
    fn page_is_not_reported_misplaced_during_adoption() {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let page = rawdoc! {
            "_id": "1_3", "k": 1, "count": 0, "history": [], "control": { "v": 1, "page": 3, "bytes": 0 },
        };
        let mut survey = Survey::of(&shape);
        survey.add(&page, AdoptionScan::new(&shape).look_at(&page));
        let findings = survey.misfits("d.c");
        assert_eq!(
            findings[0].to_string(),
            "error: d.c: document with _id \"1_3\": its control.page is 3; the next page of its key should be 0"
        );
        survey.is_disturbed = true;
        assert!(survey.misfits("d.c").is_empty());
    }

    #[test]
    fn the_first_few_are_named_and_all_are_counted() {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let shape = BucketShape::new(options).unwrap();
        let mut survey = Survey::of(&shape);
        assert!(survey.misfits("d.c").is_empty());
        for number in 0..7 {
            let document = rawdoc! { "_id": number };
            survey.add(&document, AdoptionScan::new(&shape).look_at(&document));
            let document = rawdoc! { "_id": number, "count": 1, "history": [] };
            survey.add(&document, AdoptionScan::new(&shape).look_at(&document));
        }
        let lines: Vec<String> = survey.misfits("d.c").iter().map(ToString::to_string).collect();
        assert_eq!(lines.len(), MAX_EXAMPLES + 1);
        assert_eq!(
            lines[0],
            "error: d.c: document with _id 0: it does not have the array 'history'"
        );
        assert!(lines[5].starts_with("error: d.c: 7 documents are not buckets of layout version 1"));
        assert_eq!(
            survey.named_by_hand(),
            "7 hand-written buckets, such as 0, 1, 2, 3, 4 (7 with a wrong number of items, which `setup` corrects)"
        );
    }
}
