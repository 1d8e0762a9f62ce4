//! The revision of a page: optimistic concurrency control for pushes.
//!
//! A push costs mongod least if it has update operators and a filter on `_id` alone. Such a push cannot have
//! conditions. So it names the revision of the page that it relies on, and mongod refuses it if the page has another
//! one. No update operator compares values, but `$inc` fails if the sum exceeds an int64.
//!
//! On an open page, `control.revision` is an array of two pairs. One of them is `[r, MAX - r]`, where `r` is the
//! revision and `MAX` the greatest int64. A push that names `r` adds `MAX - r` and `r`. Both sums are at most `MAX`
//! only if the page has the revision `r`. The same push sets the other pair to the next revision. Its own pair is then
//! `[MAX, MAX]`, and any addition to it fails.
//!
//! Each revision is random. An ascending one could come twice: another page may be begun under the same `_id`, and a
//! server may lose its last writes.
//!
//! A statement that changes what pushes rely on sets the field to 0. No operator reaches an array element in a number,
//! so each push that names a revision fails then. The next push has conditions, and sets a new random revision.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocumentBuf};

use super::path;
use crate::command::document::{as_whole_number, put};

/// The value of a page without a revision.
pub(in crate::pattern::bucket) const NO_REVISION: i32 = 0;

/// The revision of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Revision {
    number: i64,
    /// Whether the second pair has it.
    is_second: bool,
}

impl Revision {
    /// The revision of a page that gets its first one. `random` is a number that no proxy has used before.
    #[must_use]
    pub fn first(random: i64) -> Self {
        Self {
            number: of_random(random),
            is_second: false,
        }
    }

    /// Reads `control.revision`. `None`: the page has no revision.
    pub(super) fn parse(stored: RawBsonRef<'_>) -> Option<Self> {
        let numbers: Vec<i64> = stored
            .as_array()?
            .into_iter()
            .flatten()
            .filter_map(as_whole_number)
            .collect();
        let [first, first_rest, second, second_rest] = numbers[..] else {
            return None;
        };
        let has = |number: i64, rest: i64| number >= 0 && number.checked_add(rest) == Some(i64::MAX);
        match [has(first, first_rest), has(second, second_rest)] {
            [true, false] => Some(first),
            [false, true] => Some(second),
            _ => None,
        }
        .map(|number| Self {
            number,
            is_second: has(second, second_rest),
        })
    }

    /// The value of `control.revision`.
    pub(in crate::pattern::bucket) fn stored(self) -> RawArrayBuf {
        let pair = [self.number, self.rest()];
        let other = [i64::MAX, i64::MAX];
        let pairs = if self.is_second { [other, pair] } else { [pair, other] };
        pairs.into_iter().flatten().collect()
    }

    /// The revision after a push that names this one. `random` as in [`first`](Self::first).
    #[must_use]
    pub fn next(self, random: i64) -> Self {
        Self {
            number: of_random(random),
            is_second: !self.is_second,
        }
    }

    /// Adds what a push with this revision increments.
    pub(in crate::pattern::bucket) fn append_increments(self, increments: &mut RawDocumentBuf) {
        for (path, more) in self.paths().into_iter().zip([self.rest(), self.number]) {
            put(increments, &path, more);
        }
    }

    /// Adds what sets this revision, in the push that names the one before.
    pub(in crate::pattern::bucket) fn append_values(self, values: &mut RawDocumentBuf) {
        for (path, value) in self.paths().into_iter().zip([self.number, self.rest()]) {
            put(values, &path, value);
        }
    }

    fn rest(self) -> i64 {
        i64::MAX.saturating_sub(self.number)
    }

    /// The paths of the pair.
    fn paths(self) -> [String; 2] {
        let places = if self.is_second { [2, 3] } else { [0, 1] };
        places.map(|place| format!("{}.{place}", path::REVISION))
    }
}

/// The number of a revision. The greatest number would be equal to a used pair.
fn of_random(random: i64) -> i64 {
    random & (i64::MAX >> 1)
}

/// The value of `control.revision` of a new page.
pub(super) fn of_new_page(revision: Option<Revision>) -> RawBson {
    revision.map_or(RawBson::Int32(NO_REVISION), |revision| revision.stored().into())
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The numbers after a push that names this revision. `None`: mongod refuses the push.
    fn after_push(stored: &RawArrayBuf, named: Revision, next: Revision) -> Option<RawArrayBuf> {
        let mut numbers: Vec<i64> = stored.into_iter().flatten().filter_map(as_whole_number).collect();
        let place = |path: &str| path.rsplit('.').next().unwrap().parse::<usize>().unwrap();
        let mut increments = RawDocumentBuf::new();
        named.append_increments(&mut increments);
        for (path, more) in increments.iter().flatten() {
            let number = &mut numbers[place(path.as_str())];
            *number = number.checked_add(as_whole_number(more)?)?;
        }
        let mut values = RawDocumentBuf::new();
        next.append_values(&mut values);
        for (path, value) in values.iter().flatten() {
            numbers[place(path.as_str())] = as_whole_number(value)?;
        }
        Some(numbers.into_iter().collect())
    }

    fn parse(stored: &RawArrayBuf) -> Option<Revision> {
        Revision::parse(RawBsonRef::Array(stored))
    }

    #[test]
    fn only_a_push_with_the_current_revision_succeeds() {
        let numbers = [0, 1, 77, i64::MAX, i64::MIN, -1, 0];
        let mut current = Revision::first(5);
        let mut page = current.stored();
        for random in numbers {
            assert_eq!(parse(&page), Some(current));
            let next = current.next(random);
            for other in numbers
                .map(Revision::first)
                .into_iter()
                .flat_map(|first| [first, first.next(random)])
            {
                assert!(
                    other == current || after_push(&page, other, next).is_none(),
                    "{other:?} {page:?}"
                );
            }
            page = after_push(&page, current, next).unwrap();
            assert!(next == current || after_push(&page, current, next).is_none());
            current = next;
        }
    }

    #[test]
    fn other_values_are_no_revision() {
        let max = i64::MAX;
        for numbers in [
            vec![max, max, max, max],
            vec![1, 2, 3, 4],
            vec![1, max - 1],
            vec![-1, max, 0, 0],
        ] {
            assert_eq!(parse(&numbers.iter().copied().collect()), None, "{numbers:?}");
        }
        assert_eq!(Revision::parse(RawBsonRef::Int32(NO_REVISION)), None);
    }
}
