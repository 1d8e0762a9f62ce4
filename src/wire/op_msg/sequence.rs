//! A section of kind 1: a name, and consecutive documents. Independent of the command.

use bson::RawDocument;

use crate::wire::error::WireError;
use crate::wire::reader::Reader;

/// The length of the size at the beginning of a sequence, in bytes. The size includes itself, but
/// not the kind byte.
const SIZE_BYTES: usize = 4;

/// Documents in place of an array in the body.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DocumentSequence<'a> {
    /// The name of the argument, such as `documents` of `insert`.
    pub identifier: &'a str,
    /// The consecutive documents, not checked; see [`DocumentSequence::documents`].
    pub documents: &'a [u8],
}

impl<'a> DocumentSequence<'a> {
    /// Reads a sequence after its kind byte. Checks only its bounds.
    pub(super) fn read(sections: &mut Reader<'a>) -> Result<Self, WireError> {
        const PART: &str = "document sequence";
        let remaining = sections.remaining();
        let size = sections.i32(PART)?;
        let rest = usize::try_from(size).ok().and_then(|size| size.checked_sub(SIZE_BYTES));
        let bytes = rest
            .and_then(|rest| sections.bytes(rest))
            .ok_or(WireError::SequenceSize { size, remaining })?;
        let mut section = Reader::new(bytes);
        let identifier = section.c_string("document sequence's identifier")?;
        Ok(Self {
            identifier,
            documents: section.into_rest(),
        })
    }

    /// The documents. Each is checked when it is reached. Nothing follows an error.
    #[must_use]
    pub fn documents(&self) -> Documents<'a> {
        Documents {
            rest: Reader::new(self.documents),
        }
    }
}

/// The documents of a [`DocumentSequence`].
#[derive(Clone, Debug)]
pub struct Documents<'a> {
    rest: Reader<'a>,
}

impl<'a> Iterator for Documents<'a> {
    type Item = Result<&'a RawDocument, WireError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.rest.is_empty() {
            return None;
        }
        let document = self.rest.document();
        if document.is_err() {
            self.rest = Reader::new(&[]);
        }
        Some(document)
    }
}

impl std::iter::FusedIterator for Documents<'_> {}
