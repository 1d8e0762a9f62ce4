//! The storage of pages: `WiredTiger` collects documents in images, compresses each, and writes it as a
//! block.

use std::io;

use bson::raw::RawDocumentBuf;

use crate::advisor::rounding::{count, real};
use crate::wire::{Compressor, compress};

/// Bytes of an image. Its limit is 128 KiB, but packed collections had means of 45 to 54 kB: presumably a new
/// document counts twice while a checkpoint writes it, once for the image and once for its update.
const IMAGE: usize = 54 << 10;
/// Mean bytes of a block of documents that compress little. The limit is 32 KiB.
const LARGEST_BLOCK: f64 = 28_672.0;
/// A block ends with part of an allocation unit of 4096 bytes: half of it on average.
const END_OF_BLOCK: f64 = 2048.0;
/// The header of a document in an image.
const OF_DOCUMENT: usize = 4;
/// Bytes of a file beside its blocks.
const OF_A_FILE: f64 = 20_480.0;

/// Bytes on disk of documents of so many bytes.
pub(super) fn file_bytes(data: f64, stored_share: f64) -> f64 {
    OF_A_FILE + data * stored_share
}

/// Bytes on disk for each byte of documents that are inserted in this order. `None`: there are none.
///
/// `compressor` is the collection's, if it has one. Compresses all documents.
pub(super) fn stored_share<'a>(
    documents: impl Iterator<Item = &'a RawDocumentBuf>,
    compressor: Option<Compressor>,
) -> Option<f64> {
    let mut images = Images {
        compressor,
        image: Vec::new(),
        compressed: Vec::new(),
        written: 0,
        bytes: 0,
    };
    let mut data = 0;
    for document in documents {
        data += count(document.as_bytes().len());
        images.add(document.as_bytes()).ok()?;
    }
    images.write().ok()?;
    if data == 0 {
        return None;
    }
    let block = (real(images.bytes) / real(images.written)).min(LARGEST_BLOCK);
    Some(real(images.bytes) / real(data) * (1.0 + END_OF_BLOCK / block))
}

struct Images {
    compressor: Option<Compressor>,
    image: Vec<u8>,
    compressed: Vec<u8>,
    /// Number of compressed images, and their bytes.
    written: u64,
    bytes: u64,
}

impl Images {
    fn add(&mut self, document: &[u8]) -> io::Result<()> {
        if self.image.len() + document.len() > IMAGE {
            self.write()?;
        }
        self.image.extend_from_slice(&[0; OF_DOCUMENT]);
        self.image.extend_from_slice(document);
        Ok(())
    }

    fn write(&mut self) -> io::Result<()> {
        if self.image.is_empty() {
            return Ok(());
        }
        let mut stored = self.image.len();
        if let Some(compressor) = self.compressor {
            self.compressed.clear();
            compress(compressor, &self.image, &mut self.compressed)?;
            stored = stored.min(self.compressed.len());
        }
        self.written += 1;
        self.bytes += count(stored);
        self.image.clear();
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn similar_documents_compress() {
        let documents: Vec<_> = (0..2000)
            .map(|number| rawdoc! { "a": number, "text": "x".repeat(90) })
            .collect();
        let share = |compressor| stored_share(documents.iter(), compressor).unwrap();
        assert!((1.05..1.15).contains(&share(None)));
        let (snappy, zlib) = (share(Some(Compressor::Snappy)), share(Some(Compressor::Zlib)));
        assert!(zlib < snappy && snappy < 0.5, "{zlib} {snappy}");
        assert_eq!(stored_share([].iter(), Some(Compressor::Snappy)), None);
    }
}
