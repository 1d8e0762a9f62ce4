//! The dates whose items are deleted by one command.

use bson::DateTime;

/// Dates that are deleted in parts, from the earliest on. In milliseconds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Dates {
    /// The date after which the next part begins.
    after: i64,
    /// The length of the next part.
    length: i64,
    /// The last date of all.
    last: i64,
}

impl Dates {
    /// All dates up to this one, as one part.
    pub(super) fn up_to(last: DateTime) -> Self {
        let last = last.timestamp_millis();
        // A part contains all earlier dates, so few items need a part that ends before 1970.
        let after = last.saturating_sub(1).min(0);
        Self {
            after,
            length: last.saturating_sub(after),
            last,
        }
    }

    /// The last date of the next part.
    pub(super) fn until(&self) -> DateTime {
        DateTime::from_millis(self.after.saturating_add(self.length).min(self.last))
    }

    /// The same with half of the next part. `None`: it is one date.
    pub(super) fn halved(self) -> Option<Self> {
        let length = self.length / 2;
        (length > 0).then_some(Self { length, ..self })
    }

    /// The dates after the next part. Their own next part is twice as long. `None`: no dates are left.
    pub(super) fn rest(self) -> Option<Self> {
        let after = self.until().timestamp_millis();
        let left = self.last.saturating_sub(after);
        (left > 0).then(|| Self {
            after,
            length: self.length.saturating_mul(2).min(left),
            ..self
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The ends of the parts. A part is halved while it has more than one of these dates.
    fn ends(dates: &[i64], last: i64) -> Vec<i64> {
        let mut ends = Vec::new();
        let mut next = Some(Dates::up_to(DateTime::from_millis(last)));
        let mut deleted = i64::MIN;
        while let Some(mut part) = next {
            let count = |part: Dates| {
                let until = part.until().timestamp_millis();
                dates
                    .iter()
                    .filter(|date| (deleted + 1..=until).contains(*date))
                    .count()
            };
            while count(part) > 1
                && let Some(half) = part.halved()
            {
                part = half;
            }
            deleted = part.until().timestamp_millis();
            ends.push(deleted);
            next = part.rest();
        }
        ends
    }

    #[test]
    fn parts_cover_all_dates_without_gaps() {
        assert_eq!(ends(&[5], 100), [100]);
        assert_eq!(ends(&[-7], -3), [-3]);
        assert_eq!(ends(&[], i64::MIN), [i64::MIN]);
        assert_eq!(ends(&[10, 90], 100), [50, 100]);
        assert_eq!(ends(&[10, 11, 90], 16), [8, 10, 14, 16]);
        // Equal dates are not divided.
        assert_eq!(ends(&[3, 3, 3], 4), [2, 3, 4]);
    }

    #[test]
    fn a_part_ends_at_the_last_date() {
        for last in [i64::MIN, i64::MIN + 1, -1, 0, 1, i64::MAX] {
            let mut part = Dates::up_to(DateTime::from_millis(last));
            assert_eq!(part.until().timestamp_millis(), last);
            while let Some(half) = part.halved() {
                assert!(half.until() < part.until());
                part = half;
            }
            let rest = part.rest().map_or(last, |rest| rest.last);
            assert_eq!(rest, last);
        }
    }
}
