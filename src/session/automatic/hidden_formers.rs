//! The collections in their former layout that a client may not read, as far as it has tried.

use std::collections::VecDeque;

use bson::Binary;

use super::stored::StoredCollection;

/// The most collections of one connection. The client tries the oldest one again then.
const MAX_COLLECTIONS: usize = 64;

/// The converted collections, by UUID, whose former collections the client of a connection may not read.
#[derive(Debug, Default)]
pub(in crate::session) struct HiddenFormers(VecDeque<Binary>);

impl HiddenFormers {
    /// Whether another client, without the right to read the former collection, has listed the collection,
    /// and this client has not tried yet.
    pub(in crate::session) fn may_be_read(&self, stored: &StoredCollection) -> bool {
        let uuid = stored.uuid.as_ref().filter(|_| stored.is_former_hidden);
        uuid.is_some_and(|uuid| !self.0.contains(uuid))
    }

    /// Notes the result of a list of this client.
    pub(in crate::session) fn note(&mut self, stored: &StoredCollection) {
        if self.may_be_read(stored) {
            if self.0.len() == MAX_COLLECTIONS {
                self.0.pop_front();
            }
            self.0.extend(stored.uuid.clone());
        }
    }

    /// Forgets everything, because the users of the connection may change.
    pub(in crate::session) fn clear(&mut self) {
        self.0.clear();
    }
}

#[cfg(test)]
mod tests {
    use bson::spec::BinarySubtype;

    use super::*;
    use crate::pattern::shapes::StoredLayout;

    fn stored(number: u8, is_former_hidden: bool) -> StoredCollection {
        StoredCollection {
            uuid: Some(Binary {
                subtype: BinarySubtype::Uuid,
                bytes: vec![number; 16],
            }),
            layout: StoredLayout::Plain,
            former: None,
            is_former_hidden,
            swap_number: 0,
        }
    }

    #[test]
    fn a_client_tries_once() {
        let mut hidden = HiddenFormers::default();
        assert!(!hidden.may_be_read(&stored(0, false)));
        for number in 0..=64 {
            assert!(hidden.may_be_read(&stored(number, true)));
            hidden.note(&stored(number, true));
            assert!(!hidden.may_be_read(&stored(number, true)));
        }
        assert!(hidden.may_be_read(&stored(0, true)), "the oldest one is forgotten");
        hidden.clear();
        assert!(hidden.may_be_read(&stored(64, true)));
    }
}
