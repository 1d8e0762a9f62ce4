//! Push records: the items that a push of a retryable command has stored.
//!
//! mongod's retry record of a push does not have the items. So the push itself records them on the page, in
//! `control.pushes`:
//!
//! ```text
//! { lsid: UUID(..), txnNumber: 7L, stmtIds: BinData(0, ..) }  // 4 bytes for each id, little-endian
//! ```
//!
//! A page keeps the newest [`MAX_RECORDS`]. They are read only if a retry finds that a push was executed before.

use std::collections::VecDeque;

use bson::Binary;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;

use crate::command::document::{as_whole_number, get, get_path, put, single};
use crate::pattern::bucket::expression::{call, field, literal};
use crate::pattern::bucket::key::Key;
use crate::pattern::bucket::layout::{MAX_SIZE, PUSHES, path};
use crate::pattern::shapes::BucketShape;

/// The most records on a page. Each push rewrites them. A page that never becomes full, because its items are
/// deleted, would have ever more of them.
const MAX_RECORDS: u8 = 100;
/// More pages of a key than a command pushes to.
const MAX_PAGES: i32 = 100_000;
/// The field of a record for the ids of the items.
const IDS: &str = "stmtIds";

/// The session and number of a retryable command.
#[derive(Clone, Debug, PartialEq)]
pub struct RetryNumber {
    session: Binary,
    number: i64,
}

impl RetryNumber {
    /// Those of a command. `None` if mongod would refuse them.
    #[must_use]
    pub fn of(command: &RawDocument) -> Option<Self> {
        Self::new(get_path(command, "lsid.id")?, get(command, "txnNumber")?)
    }

    fn new(session: RawBsonRef<'_>, number: RawBsonRef<'_>) -> Option<Self> {
        let RawBsonRef::Binary(session) = session else {
            return None;
        };
        Some(Self {
            session: session.to_binary(),
            number: as_whole_number(number)?,
        })
    }

    /// The record of a push that stores the items with these ids.
    pub(super) fn record(&self, items: impl Iterator<Item = i32>) -> RawDocumentBuf {
        let mut record = self.fields();
        let ids = Binary {
            subtype: BinarySubtype::Generic,
            bytes: items.flat_map(i32::to_le_bytes).collect(),
        };
        put(&mut record, IDS, ids);
        record
    }

    /// Appends the query for the pages of a key on which the command has stored items by pushes: the arguments of a
    /// `find`, without the collection. mongod reads all pages of the key.
    pub fn append_query(&self, shape: &BucketShape, key: &Key, find: &mut RawDocumentBuf) {
        let mut filter = key.filter(shape);
        put(&mut filter, path::PUSHES, single("$elemMatch", self.fields()));
        find.append(cstr!("filter"), &filter);
        find.append(cstr!("projection"), single(path::PUSHES, 1));
        // A command pushes to few pages of a key: it continues with new pages.
        find.append(cstr!("batchSize"), MAX_PAGES);
        find.append(cstr!("singleBatch"), true);
    }

    /// The ids of the items that the command has stored on a page by pushes.
    pub fn items_on<'p>(&'p self, page: &'p RawDocument) -> impl Iterator<Item = i32> + 'p {
        let own = |record: &&RawDocument| {
            let number = get(record, "lsid").zip(get(record, "txnNumber"));
            number.and_then(|(session, number)| Self::new(session, number)).as_ref() == Some(self)
        };
        records(page).filter(own).flat_map(ids)
    }

    fn fields(&self) -> RawDocumentBuf {
        let mut fields = single("lsid", &self.session);
        put(&mut fields, "txnNumber", self.number);
        fields
    }
}

/// The newest push records of pages that are packed again. A retry finds them on any page of the key.
#[derive(Debug, Default)]
pub(in crate::pattern::bucket) struct PushRecords(VecDeque<RawDocumentBuf>);

impl PushRecords {
    /// Adds the records of the next page.
    pub(in crate::pattern::bucket) fn add_page(&mut self, page: &RawDocument) {
        self.0.extend(records(page).map(RawDocument::to_owned));
        let old = self.0.len().saturating_sub(MAX_RECORDS.into());
        self.0.drain(..old);
    }

    /// A page with the records, if it has space for them.
    pub(in crate::pattern::bucket) fn add_to(self, page: &RawDocument) -> RawDocumentBuf {
        let records: RawArrayBuf = self.0.into_iter().collect();
        let bytes = page.as_bytes().len().saturating_add(records.as_bytes().len());
        if records.is_empty() || i64::try_from(bytes).is_ok_and(|bytes| bytes > MAX_SIZE) {
            return page.to_owned();
        }
        let mut with_records = RawDocumentBuf::new();
        for (name, value) in page.iter().flatten() {
            match value {
                RawBsonRef::Document(control) if name.as_str() == BucketShape::CONTROL => {
                    let mut control = control.to_owned();
                    put(&mut control, PUSHES, &records);
                    with_records.append(name, &control);
                }
                _ => with_records.append(name, value),
            }
        }
        with_records
    }
}

/// The expression for the records of a page after a push with this record.
pub(super) fn records_with(record: &RawDocument) -> RawDocumentBuf {
    let before = call("$ifNull", field(path::PUSHES).as_str(), RawArrayBuf::new());
    let new: RawArrayBuf = [record].into_iter().collect();
    let all = call("$concatArrays", &before, literal(&new));
    call("$slice", &all, newest())
}

/// The argument of `$push` that adds a record.
pub(super) fn add_record(record: &RawDocument) -> RawDocumentBuf {
    let new: RawArrayBuf = [record].into_iter().collect();
    let mut added = single("$each", &new);
    put(&mut added, "$slice", newest());
    added
}

/// The argument of `$slice` for the newest records.
fn newest() -> i32 {
    i32::from(MAX_RECORDS).saturating_neg()
}

/// The push records of a page.
fn records(page: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let records = get_path(page, path::PUSHES).and_then(RawBsonRef::as_array);
    let records = records.into_iter().flatten().flatten();
    records.filter_map(RawBsonRef::as_document)
}

fn ids(record: &RawDocument) -> impl Iterator<Item = i32> {
    let bytes = match get(record, IDS) {
        Some(RawBsonRef::Binary(ids)) => ids.bytes,
        _ => &[],
    };
    let (ids, _) = bytes.as_chunks();
    ids.iter().copied().map(i32::from_le_bytes)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn number(session: u8, number: i64) -> RetryNumber {
        let session = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![session; 16],
        };
        let command = rawdoc! { "insert": "c", "lsid": { "id": session }, "txnNumber": number };
        RetryNumber::of(&command).unwrap()
    }

    /// A page after these pushes.
    fn page(pushes: &[(RetryNumber, &[i32])]) -> RawDocumentBuf {
        let record = |(number, items): &(RetryNumber, &[i32])| number.record(items.iter().copied());
        let records: Vec<_> = pushes.iter().map(record).collect();
        rawdoc! { "_id": 1, "control": { "v": 1, "pushes": records.into_iter().collect::<RawArrayBuf>() } }
    }

    #[test]
    fn items_are_those_of_the_session_and_number() {
        let page = page(&[
            (number(1, 7), &[0, 2]),
            (number(2, 7), &[1]),
            (number(1, 8), &[3]),
            (number(1, 7), &[500, i32::MAX]),
        ]);
        let items: Vec<i32> = number(1, 7).items_on(&page).collect();
        assert_eq!(items, [0, 2, 500, i32::MAX]);
        assert_eq!(number(3, 7).items_on(&page).count(), 0);
        assert_eq!(records(&page).count(), 4);
    }

    #[test]
    fn a_damaged_record_has_no_items() {
        let id = || number(1, 7).session;
        let page = rawdoc! { "control": { "pushes": [
            3,
            { "lsid": id(), "txnNumber": "7", "stmtIds": 4 },
            { "lsid": id(), "txnNumber": 7, "stmtIds": 4 },
            { "lsid": id(), "txnNumber": 7, "stmtIds": Binary { subtype: BinarySubtype::Generic, bytes: vec![0; 3] } },
        ] } };
        assert_eq!(number(1, 7).items_on(&page).count(), 0);
        assert!(RetryNumber::of(&rawdoc! { "lsid": { "id": 1 }, "txnNumber": 1_i64 }).is_none());
    }
}
