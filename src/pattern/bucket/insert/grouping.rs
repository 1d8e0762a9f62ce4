//! Groups a command's items by key.

use std::collections::HashMap;

use super::key_batch::{ItemState, KeyBatch, Member};
use crate::pattern::bucket::item::Item;

/// Groups the items of a command into batches, ordered by the first item of each.
#[derive(Debug, Default)]
pub struct Groups {
    groups: Vec<KeyBatch>,
    by_identity: HashMap<Vec<u8>, usize>,
}

impl Groups {
    /// Adds the next item. `statement_id` is its number in the client's command.
    pub fn add(&mut self, item: Item, statement_id: i32) {
        let position = self.by_identity.get(item.identity()).copied();
        let identity = position.is_none().then(|| item.identity().to_vec());
        let member = Member {
            item,
            statement_id,
            state: ItemState::Pending,
        };
        match (position.and_then(|position| self.groups.get_mut(position)), identity) {
            (Some(group), _) => group.members.push(member),
            (None, identity) => {
                self.by_identity.insert(identity.unwrap_or_default(), self.groups.len());
                self.groups.push(KeyBatch::new(member));
            }
        }
    }

    /// The batches.
    #[must_use]
    pub fn into_vec(self) -> Vec<KeyBatch> {
        self.groups
    }
}
