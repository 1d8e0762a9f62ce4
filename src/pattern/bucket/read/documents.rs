//! Items that are decoded and not returned yet.

/// A queue of documents in one buffer.
#[derive(Clone, Debug, Default)]
pub struct DocumentBuffer {
    bytes: Vec<u8>,
    /// The position of the first document that was not taken.
    start: usize,
    /// The number of documents that were not taken.
    count: u64,
}

impl DocumentBuffer {
    /// Adds a document. `write` appends its bytes to the buffer.
    pub fn add(&mut self, write: impl FnOnce(&mut Vec<u8>)) {
        if self.count == 0 {
            self.bytes.clear();
            self.start = 0;
        }
        write(&mut self.bytes);
        self.count = self.count.saturating_add(1);
    }

    /// The number of documents in the queue.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// The bytes of the first document, if there is one.
    #[must_use]
    pub fn first(&self) -> Option<&[u8]> {
        let rest = self.bytes.get(self.start..)?;
        let length = rest.first_chunk().map(|bytes| u32::from_le_bytes(*bytes))?;
        rest.get(..usize::try_from(length).ok()?)
    }

    /// Removes the first document.
    pub fn advance(&mut self) {
        let length = self.first().map_or(0, <[u8]>::len);
        self.start = self.start.saturating_add(length);
        self.count = self.count.saturating_sub(1);
    }

    /// Whether the queue is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// The bytes of the documents in the queue.
    #[must_use]
    pub fn weight(&self) -> usize {
        self.bytes.len().saturating_sub(self.start)
    }

    /// Frees unused memory. Called before the documents wait for a `getMore`.
    pub fn compact(&mut self) {
        self.bytes.drain(..self.start);
        self.bytes.shrink_to_fit();
        self.start = 0;
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn document_buffer_returns_the_stored_documents() {
        let documents = [rawdoc! { "a": 1 }, rawdoc! {}, rawdoc! { "b": "text" }];
        for compacts in [false, true] {
            let mut buffer = DocumentBuffer::default();
            assert!(buffer.is_empty() && buffer.first().is_none());
            for _ in 0..2 {
                for document in &documents {
                    buffer.add(|bytes| bytes.extend_from_slice(document.as_bytes()));
                }
                for taken in 0..documents.len() {
                    if compacts {
                        buffer.compact();
                        assert_eq!(buffer.bytes.len(), buffer.weight());
                    }
                    let left = &documents[taken..];
                    assert!(!buffer.is_empty());
                    assert_eq!(buffer.count(), u64::try_from(left.len()).unwrap());
                    let weight: usize = left.iter().map(|document| document.as_bytes().len()).sum();
                    assert_eq!(buffer.weight(), weight);
                    assert_eq!(buffer.first(), Some(left[0].as_bytes()));
                    buffer.advance();
                }
                assert!(buffer.is_empty() && buffer.first().is_none());
                assert_eq!((buffer.count(), buffer.weight()), (0, 0));
            }
        }
    }
}
