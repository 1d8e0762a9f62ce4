//! Fences: empty indexes, named after a run, that a `collMod` of the run demands.
//!
//! A `collMod` that names an index fails as a whole if that index is missing. After the index was dropped, a
//! delayed `collMod` therefore has no effect. All fences of one kind have the same key, and mongod allows
//! only one index with a given key and filter, so a collection has at most one fence of each kind. See
//! `docs/decisions/0027-late-messages-are-fenced.md`.
//!
//! A run that swaps a collection has a [`Fence`] of two indexes: a freeze names one, a thaw the other. A
//! proxy that changes the [validator](super::validator) has a [`ValidatorFence`].

use bson::raw::{RawDocumentBuf, cstr};

use crate::command::document::single;

/// The prefix of the name of the index that a freeze demands, and the field of that index. No
/// document has the field.
const FREEZE: &str = "mongoshape_freeze";
/// The same for a thaw.
const THAW: &str = "mongoshape_thaw";
/// The same for a change of the validator.
const VALIDATOR: &str = "mongoshape_validator";

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
        named(FREEZE, self.run)
    }

    /// The name of the index that a thaw demands.
    #[must_use]
    pub fn thaw(self) -> String {
        named(THAW, self.run)
    }

    /// Both indexes, as in the `indexes` of a `createIndexes`. They are hidden and contain no
    /// document.
    #[must_use]
    pub fn specs(self) -> [RawDocumentBuf; 2] {
        [FREEZE, THAW].map(|kind| spec(kind, self.run))
    }
}

/// The fence of one change of the validator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ValidatorFence {
    run: u64,
}

impl ValidatorFence {
    /// The fence of the change with this number. No other change may have the number.
    #[must_use]
    pub fn of_run(run: u64) -> Self {
        Self { run }
    }

    /// The name of its index.
    #[must_use]
    pub fn name(self) -> String {
        named(VALIDATOR, self.run)
    }

    /// Its index, as in the `indexes` of a `createIndexes`.
    #[must_use]
    pub fn spec(self) -> RawDocumentBuf {
        spec(VALIDATOR, self.run)
    }
}

fn named(kind: &str, run: u64) -> String {
    format!("{kind}_{run:016x}")
}

fn spec(kind: &str, run: u64) -> RawDocumentBuf {
    let mut spec = single("key", single(kind, 1));
    spec.append(cstr!("name"), named(kind, run));
    spec.append(cstr!("partialFilterExpression"), single(kind, single("$exists", true)));
    spec.append(cstr!("hidden"), true);
    spec
}

/// Whether an index of that name is part of a fence.
#[must_use]
pub fn is_fence(name: &str) -> bool {
    [FREEZE, THAW, VALIDATOR].iter().any(|kind| is_of_kind(name, kind))
}

/// Whether an index of that name is part of the fence of a swap.
#[must_use]
pub fn is_swap_fence(name: &str) -> bool {
    is_fence(name) && !is_validator_fence(name)
}

/// Whether an index of that name is the fence of a change of the validator.
#[must_use]
pub fn is_validator_fence(name: &str) -> bool {
    is_of_kind(name, VALIDATOR)
}

fn is_of_kind(name: &str, kind: &str) -> bool {
    let run = name.strip_prefix(kind).and_then(|rest| rest.strip_prefix('_'));
    run.is_some_and(|run| u64::from_str_radix(run, 16).is_ok())
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
