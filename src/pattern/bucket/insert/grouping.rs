//! Groups a command's items by key.

use std::collections::HashMap;

use super::key_batch::KeyBatch;
use super::member::Member;
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
        self.push(Member::new(item, statement_id));
    }

    /// The same for an item with the `_id` of an earlier one.
    pub fn add_repeated(&mut self, item: Item, statement_id: i32) {
        self.push(Member {
            is_repeated: true,
            ..Member::new(item, statement_id)
        });
    }

    fn push(&mut self, member: Member) {
        let item = &member.item;
        let position = self.by_identity.get(item.identity()).copied();
        let identity = position.is_none().then(|| item.identity().to_vec());
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
