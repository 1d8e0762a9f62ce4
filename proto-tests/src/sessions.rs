//! Logical sessions, as drivers make them up.

use bson::spec::BinarySubtype;
use bson::{Binary, Document, doc};

/// The `lsid` of a session of this name: the same for the same name, and of another name another.
#[must_use]
pub fn lsid(name: &str) -> Document {
    let mix = |sum: u128, byte: u8| sum.wrapping_mul(1_000_003).wrapping_add(byte.into());
    let id = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: name.bytes().fold(7, mix).to_le_bytes().to_vec(),
    };
    doc! { "id": id }
}
