//! The items of a batch that an earlier attempt at the command has stored.

use std::collections::{BTreeSet, HashSet};

use bson::raw::RawBson;

use super::super::member::ItemState;
use super::super::page_name::CUT_BY;
use super::{KeyBatch, RetryChain, is_lone};
use crate::pattern::shapes::BucketShape;

/// mongod's retry record of a statement.
#[derive(Clone, Debug)]
pub enum Recorded {
    /// An update.
    Update,
    /// An insert of a document with this `_id`.
    Insert(RawBson),
}

impl Recorded {
    /// The `_id` of the inserted document.
    #[must_use]
    pub fn into_inserted(self) -> Option<RawBson> {
        match self {
            Self::Update => None,
            Self::Insert(id) => Some(id),
        }
    }
}

/// A push was executed, and no page has its record: the items that it has stored are unknown.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UnknownPush;

impl KeyBatch {
    /// Whether an earlier attempt may have stored pending items.
    #[must_use]
    pub fn is_resent(&self) -> bool {
        self.resent && self.has_work()
    }

    /// Records that an earlier attempt may have stored pending items.
    pub fn suspect_resend(&mut self) {
        self.resent = true;
    }

    /// Whether a push that begins with the item at this position has a push record: it may have stored later items,
    /// too. An item with a repeated `_id` is pushed alone.
    #[must_use]
    pub fn is_push_recorded(&self, position: usize) -> bool {
        let mut behind = self.members.iter().skip(position.saturating_add(1));
        !self.is_repeated(position) && behind.any(|member| !member.is_repeated)
    }

    /// Whether [`recover`](Self::recover) needs push records.
    #[must_use]
    pub fn needs_push_records(&self, recorded: &[(usize, Recorded)]) -> bool {
        let mut recorded = recorded.iter();
        recorded.any(|(position, recorded)| matches!(recorded, Recorded::Update) && self.is_push_recorded(*position))
    }

    /// Marks the items that earlier attempts stored. `recorded` are mongod's retry records, with
    /// the position of each statement's first item. `pushed` are the ids of the items in push records. Returns the
    /// positions of the items that were pending until now.
    ///
    /// # Errors
    /// A push has no push record.
    pub fn recover(
        &mut self,
        shape: &BucketShape,
        recorded: &[(usize, Recorded)],
        pushed: &HashSet<i32>,
    ) -> Result<Vec<usize>, UnknownPush> {
        let mut found: BTreeSet<usize> = self
            .pending()
            .filter(|position| self.is_among(*position, pushed))
            .collect();
        for (position, recorded) in recorded {
            match recorded {
                // Executed while the collection contained plain documents: the statement inserted the item.
                Recorded::Insert(id) if self.item(*position).is_some_and(|item| item.id() == Some(id)) => {
                    found.insert(*position);
                }
                Recorded::Insert(id) if !is_lone(id) => {
                    self.chain = RetryChain::Pages;
                    // A name without `CUT_BY` has one of two reasons. Either the items are cut
                    // alike under any `max_bytes`, or an earlier build began the page, with the
                    // same `max_bytes` as here.
                    self.chain_bytes = recorded_max_bytes(id).or(self.chain_bytes);
                    found.extend(self.extent(shape, *position));
                }
                Recorded::Update if self.is_push_recorded(*position) && !self.is_among(*position, pushed) => {
                    return Err(UnknownPush);
                }
                Recorded::Insert(_) | Recorded::Update => {
                    found.insert(*position);
                }
            }
        }
        let is_pending = |position: &usize| {
            let member = self.members.get(*position);
            member.is_some_and(|member| member.state == ItemState::Pending)
        };
        let found: Vec<usize> = found.into_iter().filter(is_pending).collect();
        self.mark(&found, ItemState::Stored);
        self.resent = false;
        self.forget();
        Ok(found)
    }

    fn is_among(&self, position: usize, ids: &HashSet<i32>) -> bool {
        self.statement_id(position).is_some_and(|id| ids.contains(&id))
    }
}

/// The `max_bytes` in the name of a page, see [`CUT_BY`].
fn recorded_max_bytes(page: &RawBson) -> Option<i64> {
    let (_, bytes) = page.as_str()?.rsplit_once(CUT_BY)?;
    bytes.parse().ok().filter(|bytes| *bytes > 0)
}
