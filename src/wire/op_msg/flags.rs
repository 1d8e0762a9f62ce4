//! The flag bits of an `OP_MSG`. The reader of a message acts on them.

use std::ops::BitOr;

use crate::wire::error::WireError;

/// Bits 0 to 15: a reader must refuse a message with an unknown one. It ignores unknown bits above.
const REQUIRED_BITS: u32 = 0xffff;

/// A set of flags.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpMsgFlags(u32);

impl OpMsgFlags {
    /// Bit 0, in requests and replies: the message ends with a checksum.
    pub const CHECKSUM_PRESENT: Self = Self(1);
    /// Bit 1. In a request: send no reply. In a reply: another reply follows.
    pub const MORE_TO_COME: Self = Self(2);
    /// Bit 16, in requests: the sender accepts replies with [`Self::MORE_TO_COME`].
    pub const EXHAUST_ALLOWED: Self = Self(1 << 16);

    /// No flags.
    #[must_use]
    pub const fn empty() -> Self {
        Self(0)
    }

    /// The flags of these bits, known or not.
    #[must_use]
    pub const fn from_bits(bits: u32) -> Self {
        Self(bits)
    }

    /// All bits, known or not.
    #[must_use]
    pub const fn bits(self) -> u32 {
        self.0
    }

    /// Whether all of `other` are set.
    #[must_use]
    pub const fn contains(self, other: Self) -> bool {
        self.0 & other.0 == other.0
    }

    /// Sets all of `other`.
    pub const fn insert(&mut self, other: Self) {
        self.0 |= other.0;
    }

    /// Clears all of `other`.
    pub const fn remove(&mut self, other: Self) {
        self.0 &= !other.0;
    }

    /// Refuses unknown required flags.
    pub(super) fn check_required(self) -> Result<(), WireError> {
        let known = Self::CHECKSUM_PRESENT.0 | Self::MORE_TO_COME.0;
        match self.0 & REQUIRED_BITS & !known {
            0 => Ok(()),
            bits => Err(WireError::UnknownFlags { bits }),
        }
    }
}

impl BitOr for OpMsgFlags {
    type Output = Self;

    fn bitor(self, other: Self) -> Self {
        Self(self.0 | other.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn inserts_removes_and_keeps_unknown_bits() {
        let mut flags = OpMsgFlags::from_bits(1 << 31);
        flags.insert(OpMsgFlags::MORE_TO_COME | OpMsgFlags::EXHAUST_ALLOWED);
        assert!(flags.contains(OpMsgFlags::MORE_TO_COME));
        assert!(!flags.contains(OpMsgFlags::MORE_TO_COME | OpMsgFlags::CHECKSUM_PRESENT));
        flags.remove(OpMsgFlags::MORE_TO_COME | OpMsgFlags::CHECKSUM_PRESENT);
        assert_eq!(flags.bits(), 1 << 31 | 1 << 16);
    }

    #[test]
    fn only_unknown_bits_below_16_are_refused() {
        for bit in 0..32_u32 {
            let refused = OpMsgFlags::from_bits(1 << bit).check_required().is_err();
            assert_eq!(refused, (2..16).contains(&bit), "bit {bit}");
        }
    }
}
