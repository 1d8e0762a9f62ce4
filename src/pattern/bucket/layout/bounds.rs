//! Between which times a page's items lie.

use bson::DateTime;
use bson::raw::RawBson;

/// Between which times a page's items lie: `control.from` and `control.to`.
///
/// A filter or a sort by them is to leave no page out that it might mean. So a page with an item whose time
/// is no date has bounds that lie around every value that there is. In a filter `{$lte: date}` compares with
/// dates alone; what it is to find is not `{$gt: date}`.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TimeBounds {
    /// All items have a date; the least and the greatest.
    Dates(DateTime, DateTime),
    /// An item has none: `MinKey` and `MaxKey`.
    Open,
}

impl TimeBounds {
    /// Those of items with these times; `None` where there are no items.
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

    /// Whether others lie within.
    #[must_use]
    pub fn enclose(self, others: Self) -> bool {
        match (self, others) {
            (Self::Open, _) => true,
            (Self::Dates(from, to), Self::Dates(other_from, other_to)) => from <= other_from && to >= other_to,
            (Self::Dates(..), Self::Open) => false,
        }
    }

    /// The lower one, as it is stored.
    #[must_use]
    pub fn from(self) -> RawBson {
        match self {
            Self::Dates(from, _) => RawBson::DateTime(from),
            Self::Open => RawBson::MinKey,
        }
    }

    /// The upper one, as it is stored.
    #[must_use]
    pub fn to(self) -> RawBson {
        match self {
            Self::Dates(_, to) => RawBson::DateTime(to),
            Self::Open => RawBson::MaxKey,
        }
    }

    /// The upper one, if it is a date.
    #[must_use]
    pub fn newest(self) -> Option<DateTime> {
        match self {
            Self::Dates(_, to) => Some(to),
            Self::Open => None,
        }
    }
}
