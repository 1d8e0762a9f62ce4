//! What must be true afterwards.
//!
//! - An application's own items, which no other application changes, are exactly as it has written them.
//! - Of items that all change, `n` is the sum of what was added to it: what is stored and what was answered
//!   of those that were removed add up to all increments that were acknowledged. None is removed twice, none
//!   that was removed is there.
//! - Of items in the queue, as many are there as were inserted and not deleted.

use std::collections::{BTreeMap, BTreeSet};

use anyhow::{Result, ensure};
use bson::Document;

/// The acknowledged writes.
#[derive(Debug, Default)]
pub(crate) struct Ledger {
    /// Own items, by `_id`, as they must be.
    pub(crate) own: BTreeMap<i64, Document>,
    /// Items that all change, by `_id`.
    pub(crate) inserted: BTreeSet<i64>,
    /// What was answered of those that were removed: `_id`, and `n` where it is known.
    pub(crate) removed: Vec<(i64, Option<i64>)>,
    /// The sum of acknowledged increments.
    pub(crate) added: i64,
    /// Items put into the queue.
    pub(crate) queued: BTreeSet<i64>,
    /// Items taken out of it one by one.
    pub(crate) taken: Vec<i64>,
    /// Items deleted of it without a word which.
    pub(crate) swept: i64,
    /// Operations done, by what they do.
    pub(crate) done: BTreeMap<&'static str, u64>,
    pub(crate) conflicts: u64,
    pub(crate) resent: u64,
    pub(crate) forgotten: u64,
}

impl Ledger {
    /// Takes in another application's.
    pub(crate) fn add(&mut self, other: Self) {
        self.own.extend(other.own);
        self.inserted.extend(other.inserted);
        self.removed.extend(other.removed);
        self.added += other.added;
        self.queued.extend(other.queued);
        self.taken.extend(other.taken);
        self.swept += other.swept;
        for (what, times) in other.done {
            *self.done.entry(what).or_default() += times;
        }
        self.conflicts += other.conflicts;
        self.resent += other.resent;
        self.forgotten += other.forgotten;
    }

    pub(crate) fn summary(&self) -> String {
        format!(
            "{} operations, {} lost their races, {} sent again, {} of these without an answer: {:?}",
            self.done.values().sum::<u64>(),
            self.conflicts,
            self.resent,
            self.forgotten,
            self.done
        )
    }

    /// Holds it against all items that there are.
    pub(crate) fn judge(&self, items: &[Document]) -> Result<()> {
        let mut ids = BTreeSet::new();
        for item in items {
            ensure!(ids.insert(item.get_i64("_id")?), "twice there: {item}");
        }
        let of_class = |class: &str| -> Vec<&Document> {
            let of_class = items
                .iter()
                .filter(|item| item.get_str("class").is_ok_and(|is| is == class));
            of_class.collect()
        };
        let classes = ["own", "shared", "queue"].map(of_class);
        ensure!(
            classes.iter().map(Vec::len).sum::<usize>() == items.len(),
            "items of no class"
        );
        let [own, shared, queue] = classes;
        let mut wrong = self.own_wrong(&own)?;
        wrong.extend(self.shared_wrong(&shared)?);
        wrong.extend(self.queue_wrong(&queue)?);
        ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
        Ok(())
    }

    fn own_wrong(&self, own: &[&Document]) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let mut expected = self.own.clone();
        for item in own {
            match expected.remove(&item.get_i64("_id")?) {
                None => wrong.push(format!("deleted or never made: {item}")),
                Some(expected) if !same(&expected, item) => wrong.push(format!("{item} should be {expected}")),
                Some(_) => {}
            }
        }
        wrong.extend(expected.values().map(|item| format!("lost: {item}")));
        Ok(wrong)
    }

    fn shared_wrong(&self, shared: &[&Document]) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let mut expected = self.inserted.clone();
        let mut sum = 0;
        let mut is_sum_known = true;
        for (id, n) in &self.removed {
            if !expected.remove(id) {
                wrong.push(format!("removed twice, or never made: {id}"));
            }
            is_sum_known &= n.is_some();
            sum += n.unwrap_or(0);
        }
        for item in shared {
            if !expected.remove(&item.get_i64("_id")?) {
                wrong.push(format!("removed or never made: {item}"));
            }
            sum += item.get_i64("n")?;
        }
        if !expected.is_empty() {
            wrong.push(format!("lost: {expected:?}"));
        }
        if is_sum_known && sum != self.added {
            wrong.push(format!("{sum} was added, and {} acknowledged", self.added));
        }
        Ok(wrong)
    }

    fn queue_wrong(&self, queue: &[&Document]) -> Result<Vec<String>> {
        let mut wrong = Vec::new();
        let mut left = self.queued.clone();
        for id in &self.taken {
            if !left.remove(id) {
                wrong.push(format!("taken twice, or never queued: {id}"));
            }
        }
        for item in queue {
            if !left.remove(&item.get_i64("_id")?) {
                wrong.push(format!("taken or never queued: {item}"));
            }
        }
        if i64::try_from(left.len())? != self.swept {
            wrong.push(format!("{} are gone, and {} were deleted", left.len(), self.swept));
        }
        Ok(wrong)
    }
}

/// Whether two items have the same fields, in whichever order.
pub(crate) fn same(one: &Document, other: &Document) -> bool {
    one.len() == other.len() && one.iter().all(|(name, value)| other.get(name) == Some(value))
}
