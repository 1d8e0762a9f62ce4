//! The checksum at the end of an `OP_MSG`: CRC-32C (Castagnoli) of everything before it, header included. The
//! flags of a message determine whether it has a checksum.

use super::error::WireError;

/// The length of a checksum, in bytes.
pub(super) const CHECKSUM_BYTES: usize = 4;

/// The checksum of `message`, which must have its final length, with the checksum, in the header.
pub(super) fn compute(message: &[u8]) -> u32 {
    crc32c::crc32c(message)
}

/// Checks the last four bytes of a message against the others.
///
/// # Errors
/// [`WireError::ChecksumMismatch`]; [`WireError::Truncated`] if there are fewer than four bytes.
pub(super) fn verify(message: &[u8]) -> Result<(), WireError> {
    let (before, last) = message
        .split_last_chunk()
        .ok_or(WireError::Truncated { part: "checksum" })?;
    let found = u32::from_le_bytes(*last);
    let computed = compute(before);
    if found == computed {
        Ok(())
    } else {
        Err(WireError::ChecksumMismatch { found, computed })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// RFC 3720, B.4, and the usual check value.
    #[test]
    fn is_castagnoli() {
        assert_eq!(compute(b"123456789"), 0xe306_9283);
        assert_eq!(compute(&[0; 32]), 0x8a91_36aa);
        assert_eq!(compute(&[0xff; 32]), 0x62a8_ab43);
    }
}
