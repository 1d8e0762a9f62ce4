//! The fence of a run that swaps a collection: two empty indexes, named after the run.
//!
//! A `collMod` that names an index fails as a whole if that index is missing. A freeze names one
//! index of the fence, a thaw the other. After its index was dropped, a delayed freeze or thaw
//! therefore has no effect. All fences have the same two keys, and mongod allows only one index
//! with a given key and filter, so a collection has at most one fence. See
//! `docs/decisions/0027-late-messages-are-fenced.md`.

use bson::raw::{RawDocumentBuf, cstr};

use crate::command::document::single;

/// The prefix of the name of the index that a freeze demands, and the field of that index. No
/// document has the field.
const FREEZE: &str = "mongoshape_freeze";
/// The same for a thaw.
const THAW: &str = "mongoshape_thaw";

/// The fence of one run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fence {
    run: u64,
}

impl Fence {
    /// The fence of the run with this number. No other run may have the number.
    #[must_use]
    pub fn of_run(run: u64) -> Self {
        Self { run }
    }

    /// The name of the index that a freeze demands.
    #[must_use]
    pub fn freeze(self) -> String {
        self.named(FREEZE)
    }

    /// The name of the index that a thaw demands.
    #[must_use]
    pub fn thaw(self) -> String {
        self.named(THAW)
    }

    fn named(self, kind: &str) -> String {
        format!("{kind}_{:016x}", self.run)
    }

    /// Both indexes, as in the `indexes` of a `createIndexes`. They are hidden and contain no
    /// document.
    #[must_use]
    pub fn specs(self) -> [RawDocumentBuf; 2] {
        [FREEZE, THAW].map(|kind| {
            let mut spec = single("key", single(kind, 1));
            spec.append(cstr!("name"), self.named(kind));
            spec.append(cstr!("partialFilterExpression"), single(kind, single("$exists", true)));
            spec.append(cstr!("hidden"), true);
            spec
        })
    }
}

/// Whether an index of that name is part of a fence.
#[must_use]
pub fn is_fence(name: &str) -> bool {
    [FREEZE, THAW].iter().any(|kind| {
        let run = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('_'));
        run.is_some_and(|run| u64::from_str_radix(run, 16).is_ok())
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_are_recognised_by_their_names() {
        let fence = Fence::of_run(255);
        assert_eq!(fence.freeze(), "mongoshape_freeze_00000000000000ff");
        assert_eq!(fence.thaw(), "mongoshape_thaw_00000000000000ff");
        assert!(is_fence(&fence.freeze()) && is_fence(&fence.thaw()));
        for other in ["mongoshape_page", "mongoshape_freeze", "mongoshape_freeze_x", "k_1"] {
            assert!(!is_fence(other), "{other}");
        }
    }

    #[test]
    fn fences_of_two_runs_differ_in_their_names_alone() {
        let (one, other) = (Fence::of_run(1).specs(), Fence::of_run(2).specs());
        for (one, other) in one.iter().zip(&other) {
            let differing = one.iter().flatten().zip(other.iter().flatten());
            let differing: Vec<&str> = differing
                .filter(|(one, other)| one != other)
                .map(|((name, _), _)| name.as_str())
                .collect();
            assert_eq!(differing, ["name"]);
        }
    }
}
