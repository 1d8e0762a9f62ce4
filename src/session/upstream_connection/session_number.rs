//! The sessions of internal transactions.

use bson::Binary;
use bson::raw::{RawDocumentBuf, cstr};
use bson::spec::BinarySubtype;

use crate::command::document::single;

/// The session and number of an internal transaction.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::session) struct SessionNumber {
    pub(in crate::session) session: u128,
    pub(in crate::session) number: i64,
}

impl SessionNumber {
    /// Appends `lsid` and `txnNumber`.
    pub(in crate::session) fn append_to(self, command: &mut RawDocumentBuf) {
        let id = Binary {
            subtype: BinarySubtype::Uuid,
            bytes: self.session.to_be_bytes().to_vec(),
        };
        command.append(cstr!("lsid"), single("id", id));
        command.append(cstr!("txnNumber"), self.number);
    }
}
