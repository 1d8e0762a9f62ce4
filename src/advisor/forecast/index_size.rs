//! The size of an index that was built in one go. `WiredTiger` fills its pages, and leaves out the beginning
//! of an entry that the entry before has, too.

use crate::advisor::rounding::{count, real};

/// Bytes of a leaf page, the bytes of it that are filled (90 %), and the header among these.
const PAGE: f64 = 16_384.0;
const FILLED: f64 = 14_745.0;
const HEADER: f64 = 40.0;
/// File sizes are a multiple of this.
const UNIT: f64 = 4096.0;
/// Shorter common beginnings are not left out, and longer ones only up to this length.
const SHORTEST_PREFIX: usize = 4;
const LONGEST_PREFIX: usize = 255;
/// After an entry with a prefix, a longer one is used only if it is longer by this.
const LONGER_PREFIX: usize = 10;
/// A key up to this length has a header of one byte, and one more for its prefix.
const SHORT_KEY: usize = 63;
/// Bytes of a file beside its leaf pages: its header, the root page, and the lists of free blocks.
const OF_A_FILE: f64 = 20_480.0;

/// Bytes on disk of an index with so many entries.
pub(super) fn file_bytes(entries: f64, of_entry: f64) -> f64 {
    if entries <= 0.0 {
        return OF_A_FILE;
    }
    // The entry that does not fit begins the next page.
    let room = (FILLED - HEADER - of_entry / 2.0).max(of_entry);
    let pages = entries * of_entry / room * PAGE;
    OF_A_FILE + (pages / UNIT).ceil() * UNIT
}

/// Measures entries, which are added in their order.
#[derive(Debug, Default)]
pub(super) struct EntrySizes {
    before: Vec<u8>,
    prefix: usize,
    entries: u64,
    bytes: u64,
}

impl EntrySizes {
    /// Adds an entry: its bytes, and the length of its value.
    pub(super) fn add(&mut self, key: &[u8], value: u64) {
        let common = key
            .iter()
            .zip(&self.before)
            .take_while(|(one, other)| one == other)
            .count()
            .min(LONGEST_PREFIX);
        let is_slightly_longer = self.prefix != 0 && common > self.prefix && common < self.prefix + LONGER_PREFIX;
        self.prefix = match common {
            common if common < SHORTEST_PREFIX => 0,
            _ if is_slightly_longer => self.prefix,
            common => common,
        };
        let stored = key.len() - self.prefix;
        let header = if stored <= SHORT_KEY { 1 } else { 2 } + usize::from(self.prefix > 0);
        let of_value = if value == 0 { 0 } else { value + 1 };
        self.bytes += count(header + stored) + of_value;
        self.entries += 1;
        key.clone_into(&mut self.before);
    }

    /// The next entry does not follow the one before in the index.
    pub(super) fn end_run(&mut self) {
        self.before.clear();
        self.prefix = 0;
    }

    /// Mean bytes of an entry.
    pub(super) fn mean(&self) -> f64 {
        real(self.bytes) / real(self.entries.max(1))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn bytes_of(keys: &[&[u8]]) -> u64 {
        let mut sizes = EntrySizes::default();
        for key in keys {
            sizes.add(key, 0);
        }
        sizes.bytes
    }

    #[test]
    fn a_common_beginning_is_stored_once() {
        assert_eq!(bytes_of(&[b"abcdef"]), 7);
        assert_eq!(bytes_of(&[b"abcdef", b"abcdeg"]), 7 + 3);
        // Three bytes are not worth it.
        assert_eq!(bytes_of(&[b"abcdef", b"abcxyz"]), 7 + 7);
        // The prefix of the second key is kept, although the third has more in common.
        assert_eq!(bytes_of(&[b"abcdef", b"abcdxx", b"abcdxy"]), 7 + 4 + 4);
    }

    #[test]
    fn entries_fill_pages() {
        assert!((file_bytes(0.0, 0.0) - OF_A_FILE).abs() < 1.0);
        let pages = (file_bytes(100_000.0, 16.0) - OF_A_FILE) / PAGE;
        assert!((108.0..=110.0).contains(&pages), "{pages}");
    }
}
