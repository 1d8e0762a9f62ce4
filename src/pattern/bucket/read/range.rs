//! A time range.

use bson::DateTime;
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use crate::command::document::{put, single};
use crate::pattern::bucket::layout::path;

/// One end of a time range.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct RangeEnd {
    /// The time of the end.
    pub at: DateTime,
    /// Whether an item of exactly that time is in the range.
    pub inclusive: bool,
}

/// A range on the time of items. Without an end the range is open on that side.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct TimeRange {
    /// The older end.
    pub from: Option<RangeEnd>,
    /// The newer end.
    pub to: Option<RangeEnd>,
}

impl TimeRange {
    /// Whether the range contains every time.
    #[must_use]
    pub fn is_open(&self) -> bool {
        *self == Self::default()
    }

    /// Whether the range has both ends.
    #[must_use]
    pub fn is_closed(&self) -> bool {
        self.from.is_some() && self.to.is_some()
    }

    /// The length in milliseconds. `None` if the range is not closed.
    #[must_use]
    pub fn length(&self) -> Option<u64> {
        let (from, to) = self.from.zip(self.to)?;
        let length = to.at.timestamp_millis().saturating_sub(from.at.timestamp_millis());
        Some(u64::try_from(length).unwrap_or_default())
    }

    /// Narrows the range by a condition on the time field. `None` if the condition is not a range
    /// of dates, or sets an end that is set already.
    #[must_use]
    pub fn narrowed(mut self, condition: RawBsonRef<'_>) -> Option<Self> {
        match condition {
            RawBsonRef::DateTime(at) => self.give("$eq", at)?,
            RawBsonRef::Document(operators) if !operators.is_empty() => {
                for operator in operators {
                    let (name, value) = operator.ok()?;
                    self.give(name.as_str(), value.as_datetime()?)?;
                }
            }
            _ => return None,
        }
        Some(self)
    }

    fn give(&mut self, operator: &str, at: DateTime) -> Option<()> {
        let inclusive = matches!(operator, "$gte" | "$lte" | "$eq");
        let end = RangeEnd { at, inclusive };
        let (older, newer) = match operator {
            "$gt" | "$gte" => (true, false),
            "$lt" | "$lte" => (false, true),
            "$eq" => (true, true),
            _ => return None,
        };
        if (older && self.from.is_some()) || (newer && self.to.is_some()) {
            return None;
        }
        if older {
            self.from = Some(end);
        }
        if newer {
            self.to = Some(end);
        }
        Some(())
    }

    /// Whether the range is after a time.
    #[must_use]
    pub fn is_after(&self, time: DateTime) -> bool {
        self.from
            .is_some_and(|end| time < end.at || (time == end.at && !end.inclusive))
    }

    /// Whether the range is before a time.
    #[must_use]
    pub fn is_before(&self, time: DateTime) -> bool {
        self.to
            .is_some_and(|end| time > end.at || (time == end.at && !end.inclusive))
    }

    /// Whether the range contains a time.
    #[must_use]
    pub fn contains(&self, time: DateTime) -> bool {
        !self.is_after(time) && !self.is_before(time)
    }

    /// The condition on a page's greatest time that excludes pages whose items are all before the
    /// range. Negated, because a page with open bounds must match it (see the layout).
    #[must_use]
    pub fn newest_condition(&self) -> Option<RawDocumentBuf> {
        self.from
            .map(|end| unless(if end.inclusive { "$lt" } else { "$lte" }, end.at))
    }

    /// The condition on a page's least time that excludes pages whose items are all after the
    /// range.
    #[must_use]
    pub fn oldest_condition(&self) -> Option<RawDocumentBuf> {
        self.to
            .map(|end| unless(if end.inclusive { "$gt" } else { "$gte" }, end.at))
    }

    /// Appends both conditions to a filter for pages.
    pub fn append_to(&self, filter: &mut RawDocumentBuf) {
        if let Some(condition) = self.newest_condition() {
            put(filter, path::TO, &condition as &RawDocument);
        }
        if let Some(condition) = self.oldest_condition() {
            put(filter, path::FROM, &condition as &RawDocument);
        }
    }
}

fn unless(operator: &str, at: DateTime) -> RawDocumentBuf {
    single("$not", single(operator, at))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    fn date(millis: i64) -> DateTime {
        DateTime::from_millis(millis)
    }

    fn check(conditions: &[RawDocumentBuf], inside: &[i64], outside: &[i64]) {
        let range = conditions.iter().try_fold(TimeRange::default(), |range, condition| {
            range.narrowed(condition.get("t").unwrap().unwrap())
        });
        let range = range.unwrap_or_else(|| panic!("{conditions:?} is no range"));
        assert!(inside.iter().all(|time| range.contains(date(*time))), "{range:?}");
        assert!(outside.iter().all(|time| !range.contains(date(*time))), "{range:?}");
    }

    #[test]
    fn range_bounds_are_inclusive_or_exclusive() {
        check(
            &[rawdoc! { "t": { "$gte": date(5), "$lt": date(8) } }],
            &[5, 7],
            &[4, 8],
        );
        check(
            &[
                rawdoc! { "t": { "$gt": date(5) } },
                rawdoc! { "t": { "$lte": date(8) } },
            ],
            &[6, 8],
            &[5, 9],
        );
        check(&[rawdoc! { "t": date(5) }], &[5], &[4, 6]);
        check(&[rawdoc! { "t": { "$gt": date(5), "$lt": date(5) } }], &[], &[4, 5, 6]);
    }

    #[test]
    fn other_conditions_are_no_ranges() {
        for condition in [
            rawdoc! { "t": { "$gte": 5 } },
            rawdoc! { "t": { "$gte": date(5), "$gt": date(4) } },
            rawdoc! { "t": { "$ne": date(5) } },
            rawdoc! { "t": {} },
            rawdoc! { "t": null },
        ] {
            let found = TimeRange::default().narrowed(condition.get("t").unwrap().unwrap());
            assert_eq!(found, None, "{condition:?}");
        }
    }
}
