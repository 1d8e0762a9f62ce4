//! The compressors of the protocol, and sets of them. Does not compress.

use std::fmt;

/// The compressor of an `OP_COMPRESSED`.
///
/// The protocol's `noop` (0) is left out: mongod closes the connection on it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Compressor {
    /// Snappy's raw format, not its framed one.
    Snappy,
    /// RFC 1950.
    Zlib,
    /// RFC 8878.
    Zstd,
}

impl Compressor {
    /// All compressors, in the order of their numbers.
    pub const ALL: [Self; 3] = [Self::Snappy, Self::Zlib, Self::Zstd];

    /// The number in a message.
    #[must_use]
    pub const fn id(self) -> u8 {
        match self {
            Self::Snappy => 1,
            Self::Zlib => 2,
            Self::Zstd => 3,
        }
    }

    /// The compressor of a number in a message. `None` for any other number, `noop` (0) included.
    #[must_use]
    pub fn from_id(id: u8) -> Option<Self> {
        Self::ALL.into_iter().find(|compressor| compressor.id() == id)
    }

    /// The name in the `compression` of a `hello` and its reply.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Snappy => "snappy",
            Self::Zlib => "zlib",
            Self::Zstd => "zstd",
        }
    }

    /// The compressor with a name in a `hello`. `None` for an unknown name, which a server ignores.
    #[must_use]
    pub fn from_name(name: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|compressor| compressor.name() == name)
    }

    /// The most bytes that `compressed` bytes can expand to. No real message is that dense. A
    /// message that announces more is invalid, and can be refused before memory is allocated for
    /// it.
    pub(super) const fn most_expanded(self, compressed: usize) -> usize {
        let ratio = match self {
            // The densest element: a copy of 64 bytes, in three.
            Self::Snappy => 22,
            // The densest code: a match of 258 bytes, in two bits.
            Self::Zlib => 1032,
            // The densest block: 128 KiB of one byte, in four.
            Self::Zstd => 32 * 1024,
        };
        compressed.saturating_mul(ratio)
    }
}

impl fmt::Display for Compressor {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.name())
    }
}

/// A set of compressors, such as those that both ends of a connection agreed on. The set has no
/// order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Compressors {
    /// Bit 0 for number 1, and so on.
    bits: u8,
}

impl Compressors {
    /// No compressor: every message is plain.
    pub const NONE: Self = Self { bits: 0 };

    const fn bit(compressor: Compressor) -> u8 {
        match compressor {
            Compressor::Snappy => 1,
            Compressor::Zlib => 1 << 1,
            Compressor::Zstd => 1 << 2,
        }
    }

    /// Adds a compressor.
    pub const fn insert(&mut self, compressor: Compressor) {
        self.bits |= Self::bit(compressor);
    }

    /// Whether the set contains a compressor.
    #[must_use]
    pub const fn contains(self, compressor: Compressor) -> bool {
        self.bits & Self::bit(compressor) != 0
    }

    /// Whether the set is empty.
    #[must_use]
    pub const fn is_empty(self) -> bool {
        self.bits == 0
    }

    /// The compressors of the set, in the order of their numbers.
    pub fn iter(self) -> impl Iterator<Item = Compressor> {
        let mut all = Compressor::ALL.into_iter();
        std::iter::from_fn(move || all.find(|compressor| self.contains(*compressor)))
    }
}

impl FromIterator<Compressor> for Compressors {
    fn from_iter<I: IntoIterator<Item = Compressor>>(compressors: I) -> Self {
        let mut set = Self::NONE;
        compressors.into_iter().for_each(|compressor| set.insert(compressor));
        set
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_and_names_are_the_protocols() {
        for (id, name) in [(1, "snappy"), (2, "zlib"), (3, "zstd")] {
            let compressor = Compressor::from_id(id).unwrap();
            assert_eq!((compressor.id(), compressor.name()), (id, name));
            assert_eq!(Compressor::from_name(name), Some(compressor));
            assert_eq!(compressor.to_string(), name);
        }
        for id in (0..=u8::MAX).filter(|id| !(1..=3).contains(id)) {
            assert_eq!(Compressor::from_id(id), None, "{id}");
        }
        for name in ["", "noop", "Snappy", "zlib ", "lz4"] {
            assert_eq!(Compressor::from_name(name), None, "{name}");
        }
    }

    #[test]
    fn a_set_holds_what_was_put_into_it() {
        for bits in 0..8_u8 {
            let members: Vec<Compressor> = Compressor::ALL
                .into_iter()
                .filter(|compressor| bits >> (compressor.id() - 1) & 1 == 1)
                .collect();
            let set: Compressors = members.iter().rev().chain(&members).copied().collect();
            assert_eq!(set.iter().collect::<Vec<_>>(), members);
            assert_eq!(set.is_empty(), members.is_empty());
            for compressor in Compressor::ALL {
                assert_eq!(set.contains(compressor), members.contains(&compressor));
            }
        }
        assert_eq!(Compressors::default(), Compressors::NONE);
    }
}
