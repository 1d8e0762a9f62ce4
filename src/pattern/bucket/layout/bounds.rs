//! The time bounds of a page.

use bson::DateTime;
use bson::raw::RawBson;

/// The time bounds of a page: `control.from` and `control.to`.
///
/// A filter or a sort on the bounds must not leave out a page that may hold a matching item. So a
/// page with an item whose time is not a date gets bounds that enclose every value. In a filter,
/// `{$lte: date}` matches only dates. To include such pages a filter uses `{$not: {$gt: date}}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBounds {
    /// All items have a date; the least and the greatest.
    Dates(DateTime, DateTime),
    /// Some item has no date: the bounds are `MinKey` and `MaxKey`.
    Open,
}

impl TimeBounds {
    /// The bounds of items with these times. `None` if there are no items.
    #[must_use]
    pub fn of(times: impl IntoIterator<Item = Option<DateTime>>) -> Option<Self> {
        let each = times.into_iter().map(|time| match time {
            Some(time) => Self::Dates(time, time),
            None => Self::Open,
        });
        each.reduce(|one, other| match (one, other) {
            (Self::Dates(from, to), Self::Dates(other_from, other_to)) => {
                Self::Dates(from.min(other_from), to.max(other_to))
            }
            _ => Self::Open,
        })
    }

    /// Whether `others` lie within these bounds.
    #[must_use]
    pub fn enclose(self, others: Self) -> bool {
        match (self, others) {
            (Self::Open, _) => true,
            (Self::Dates(from, to), Self::Dates(other_from, other_to)) => from <= other_from && to >= other_to,
            (Self::Dates(..), Self::Open) => false,
        }
    }

    /// The lower bound as it is stored.
    #[must_use]
    pub fn from(self) -> RawBson {
        match self {
            Self::Dates(from, _) => RawBson::DateTime(from),
            Self::Open => RawBson::MinKey,
        }
    }

    /// The upper bound as it is stored.
    #[must_use]
    pub fn to(self) -> RawBson {
        match self {
            Self::Dates(_, to) => RawBson::DateTime(to),
            Self::Open => RawBson::MaxKey,
        }
    }

    /// The upper bound, if it is a date.
    #[must_use]
    pub fn newest(self) -> Option<DateTime> {
        match self {
            Self::Dates(_, to) => Some(to),
            Self::Open => None,
        }
    }
}
