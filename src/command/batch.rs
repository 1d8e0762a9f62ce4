//! A batch of a cursor and its reply, written as bytes, because it is the largest document that the
//! proxy makes.

use bson::raw::{RawDocument, RawDocumentBuf};

use super::document::elements;
use super::namespace::Namespace;

/// The most bytes of the documents in one batch (`BSONObjMaxUserSize`). The first document is
/// always accepted.
const MAX_BYTES: usize = 16 * 1024 * 1024;

/// The reply that contains a batch.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum BatchKind {
    /// The reply to the command that opened the cursor.
    First,
    /// The reply to a `getMore`.
    Next,
}

impl BatchKind {
    /// The array's type and name.
    fn element(self) -> &'static [u8] {
        match self {
            Self::First => b"\x04firstBatch\0",
            Self::Next => b"\x04nextBatch\0",
        }
    }
}

/// Documents for one reply, `{cursor: {firstBatch: [..], id, ns}, ok: 1}` or with `nextBatch`.
#[derive(Clone, Debug)]
pub struct ReplyBatch {
    /// The reply so far. The lengths are filled in at the end.
    bytes: Vec<u8>,
    /// The position of the array's length.
    array: usize,
    count: usize,
    /// The next document's position in the array, in decimal. Incremented in place, which is faster
    /// than formatting each number.
    place: Vec<u8>,
    document_bytes: usize,
}

/// The position of the length of the cursor's document: after the length of the reply and the
/// cursor's type and name.
const CURSOR: usize = LENGTH.len() + b"\x03cursor\0".len();
/// Placeholder for a length.
const LENGTH: [u8; 4] = [0; 4];

impl ReplyBatch {
    /// An empty batch.
    #[must_use]
    pub fn new(kind: BatchKind) -> Self {
        let mut bytes = LENGTH.to_vec();
        bytes.extend_from_slice(b"\x03cursor\0");
        bytes.extend_from_slice(&LENGTH);
        bytes.extend_from_slice(kind.element());
        let array = bytes.len();
        bytes.extend_from_slice(&LENGTH);
        Self {
            bytes,
            array,
            count: 0,
            place: b"0".to_vec(),
            document_bytes: 0,
        }
    }

    /// The number of documents.
    #[must_use]
    pub fn count(&self) -> usize {
        self.count
    }

    /// The sum of the documents' lengths, in bytes.
    #[must_use]
    pub fn document_bytes(&self) -> usize {
        self.document_bytes
    }

    /// Whether another document of `bytes` bytes fits. The first always does (`find_common.cpp`,
    /// `haveSpaceForNext`).
    #[must_use]
    pub fn has_space_for(&self, bytes: usize) -> bool {
        self.count == 0 || self.document_bytes.saturating_add(bytes) <= MAX_BYTES
    }

    /// Adds a document.
    pub fn push(&mut self, document: &[u8]) {
        const DOCUMENT: u8 = 3;
        self.bytes.push(DOCUMENT);
        self.bytes.extend_from_slice(&self.place);
        self.bytes.push(0);
        self.bytes.extend_from_slice(document);
        self.count = self.count.saturating_add(1);
        count_on(&mut self.place);
        self.document_bytes = self.document_bytes.saturating_add(document.len());
    }

    /// The reply. `id` is 0 if the cursor is closed.
    #[must_use]
    pub fn into_reply(mut self, namespace: Namespace<'_>, id: i64) -> RawDocumentBuf {
        self.end(self.array);
        self.into_reply_with(namespace, id)
    }

    /// The reply of a change stream. `token`: the position behind the batch.
    #[must_use]
    pub fn into_reply_with_token(mut self, namespace: Namespace<'_>, id: i64, token: &RawDocument) -> RawDocumentBuf {
        self.end(self.array);
        self.bytes.extend_from_slice(b"\x03postBatchResumeToken\0");
        self.bytes.extend_from_slice(token.as_bytes());
        self.into_reply_with(namespace, id)
    }

    fn into_reply_with(mut self, namespace: Namespace<'_>, id: i64) -> RawDocumentBuf {
        let namespace = namespace.to_string();
        self.bytes.extend_from_slice(b"\x12id\0");
        self.bytes.extend_from_slice(&id.to_le_bytes());
        self.bytes.extend_from_slice(b"\x02ns\0");
        self.bytes.extend_from_slice(&length(namespace.len().saturating_add(1)));
        self.bytes.extend_from_slice(namespace.as_bytes());
        self.bytes.push(0);
        self.end(CURSOR);
        self.bytes.extend_from_slice(b"\x01ok\0");
        self.bytes.extend_from_slice(&1.0_f64.to_le_bytes());
        self.end(0);
        // The lengths are right, and `from_bytes` checks nothing else.
        RawDocumentBuf::from_bytes(self.bytes).unwrap_or_default()
    }

    /// One of mongod's replies with this batch in place of its own. `id` is 0 if the cursor is
    /// closed.
    #[must_use]
    pub fn into_reply_like(mut self, reply: &RawDocument, id: i64) -> RawDocumentBuf {
        self.end(self.array);
        let mut rest = Vec::new();
        for field in elements(reply) {
            match field.as_document().filter(|_| field.name == b"cursor") {
                Some(cursor) => elements(cursor).for_each(|field| match field.name {
                    b"firstBatch" | b"nextBatch" => {}
                    b"id" => {
                        self.bytes.extend_from_slice(b"\x12id\0");
                        self.bytes.extend_from_slice(&id.to_le_bytes());
                    }
                    _ => self.bytes.extend_from_slice(field.whole),
                }),
                None => rest.extend_from_slice(field.whole),
            }
        }
        self.end(CURSOR);
        self.bytes.extend_from_slice(&rest);
        self.end(0);
        // The lengths are right, and `from_bytes` checks nothing else.
        RawDocumentBuf::from_bytes(self.bytes).unwrap_or_default()
    }

    fn end(&mut self, start: usize) {
        end(&mut self.bytes, start);
    }
}

/// Begins a document or an array that is written as bytes. Returns the position of its length.
pub fn begin(bytes: &mut Vec<u8>) -> usize {
    let start = bytes.len();
    bytes.extend_from_slice(&LENGTH);
    start
}

/// Ends the document whose length is at `start`.
pub fn end(bytes: &mut Vec<u8>, start: usize) {
    bytes.push(0);
    let whole = length(bytes.len().saturating_sub(start));
    if let Some(place) = bytes.get_mut(start..start.saturating_add(LENGTH.len())) {
        place.copy_from_slice(&whole);
    }
}

/// Increments a decimal number.
pub fn count_on(number: &mut Vec<u8>) {
    for digit in number.iter_mut().rev() {
        if *digit < b'9' {
            *digit = digit.saturating_add(1);
            return;
        }
        *digit = b'0';
    }
    number.insert(0, b'1');
}

fn length(bytes: usize) -> [u8; 4] {
    u32::try_from(bytes).unwrap_or_default().to_le_bytes()
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn a_reply_is_as_mongod_writes_it() {
        let documents: Vec<_> = (0..1200).map(|number| rawdoc! { "n": number }).collect();
        for (kind, name) in [(BatchKind::First, "firstBatch"), (BatchKind::Next, "nextBatch")] {
            for count in [0, 1, 12, 1200] {
                let mut batch = ReplyBatch::new(kind);
                let mut array = bson::RawArrayBuf::new();
                for document in &documents[..count] {
                    batch.push(document.as_bytes());
                    array.push(document);
                }
                let reply = batch.into_reply(Namespace::new("d", "c"), 7);
                let mut cursor = bson::RawDocumentBuf::new();
                cursor.append(<&bson::raw::CStr>::try_from(name).unwrap(), array);
                cursor.append(bson::raw::cstr!("id"), 7_i64);
                cursor.append(bson::raw::cstr!("ns"), "d.c");
                assert_eq!(reply, rawdoc! { "cursor": cursor, "ok": 1.0 });
            }
        }
    }
}
