//! Reads the parts of a message from front to back, never beyond its end. Does not interpret the parts.

use bson::RawDocument;

use super::error::WireError;
use super::limits::MIN_DOCUMENT_BYTES;

/// The unread bytes of a message. `part` names what is being read, for an error message.
#[derive(Clone, Debug)]
pub(super) struct Reader<'a> {
    rest: &'a [u8],
}

impl<'a> Reader<'a> {
    pub(super) fn new(bytes: &'a [u8]) -> Self {
        Self { rest: bytes }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.rest.is_empty()
    }

    pub(super) fn remaining(&self) -> usize {
        self.rest.len()
    }

    /// All unread bytes.
    pub(super) fn into_rest(self) -> &'a [u8] {
        self.rest
    }

    /// Refuses bytes after the last part.
    pub(super) fn finish(self) -> Result<(), WireError> {
        if self.is_empty() {
            Ok(())
        } else {
            Err(WireError::TrailingBytes {
                count: self.remaining(),
            })
        }
    }

    fn array<const N: usize>(&mut self, part: &'static str) -> Result<[u8; N], WireError> {
        let (first, rest) = self.rest.split_first_chunk().ok_or(WireError::Truncated { part })?;
        self.rest = rest;
        Ok(*first)
    }

    pub(super) fn u8(&mut self, part: &'static str) -> Result<u8, WireError> {
        self.array(part).map(u8::from_le_bytes)
    }

    pub(super) fn u32(&mut self, part: &'static str) -> Result<u32, WireError> {
        self.array(part).map(u32::from_le_bytes)
    }

    pub(super) fn i32(&mut self, part: &'static str) -> Result<i32, WireError> {
        self.array(part).map(i32::from_le_bytes)
    }

    pub(super) fn i64(&mut self, part: &'static str) -> Result<i64, WireError> {
        self.array(part).map(i64::from_le_bytes)
    }

    /// The next `count` bytes. `None`, and nothing is read, if there are fewer.
    pub(super) fn bytes(&mut self, count: usize) -> Option<&'a [u8]> {
        let (first, rest) = self.rest.split_at_checked(count)?;
        self.rest = rest;
        Some(first)
    }

    /// A name that ends with a zero byte.
    pub(super) fn c_string(&mut self, part: &'static str) -> Result<&'a str, WireError> {
        let end = self
            .rest
            .iter()
            .position(|&byte| byte == 0)
            .ok_or(WireError::Truncated { part })?;
        let name = self.bytes(end).ok_or(WireError::Truncated { part })?;
        self.u8(part)?;
        std::str::from_utf8(name).map_err(|_| WireError::NotUtf8 { part })
    }

    /// A document. Only its length and terminator are checked; readers of its elements check them.
    pub(super) fn document(&mut self) -> Result<&'a RawDocument, WireError> {
        let remaining = self.remaining();
        let length = self.clone().i32("document")?;
        let size = usize::try_from(length).ok().filter(|&size| size >= MIN_DOCUMENT_BYTES);
        let bytes = size
            .and_then(|size| self.bytes(size))
            .ok_or(WireError::DocumentLength { length, remaining })?;
        RawDocument::from_bytes(bytes).map_err(|_| WireError::MalformedDocument)
    }
}
