//! The times of items that are appended to a page.

use bson::DateTime;

use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::TimeBounds;

/// The times of items that are put on a page in this order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(in crate::pattern::bucket) struct ItemTimes {
    /// The time of the first item.
    pub(in crate::pattern::bucket) first: Option<DateTime>,
    /// The time bounds. `None` if there are no items.
    pub(in crate::pattern::bucket) bounds: Option<TimeBounds>,
    /// The number of items that are older than an item before them, or have no time.
    pub(in crate::pattern::bucket) late: u32,
}

impl ItemTimes {
    /// The times of items that follow an item of time `before`.
    pub(in crate::pattern::bucket) fn of<'a>(items: impl Iterator<Item = &'a Item>, before: Option<DateTime>) -> Self {
        let mut times = Self::default();
        let mut newest = before;
        let mut all = Vec::new();
        for (position, item) in items.enumerate() {
            let time = item.time();
            if position == 0 {
                times.first = time;
            }
            if time.is_none() || time < newest {
                times.late = times.late.saturating_add(1);
            }
            newest = newest.max(time);
            all.push(time);
        }
        times.bounds = TimeBounds::of(all);
        times
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::bucket::item::FixedMint;
    use crate::pattern::shapes::{BucketOptions, BucketShape, NamespacePattern};

    fn check(times: &[Option<i64>], before: Option<i64>, late: u32) {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        let time = Some("t".to_owned());
        let shape = BucketShape::new(BucketOptions { time, ..options }).unwrap();
        let items = times.iter().enumerate().map(|(index, millis)| {
            let date = millis.map(DateTime::from_millis);
            let item = date.map_or_else(|| rawdoc! { "t": "no date" }, |date| rawdoc! { "t": date });
            Item::prepare(&shape, index, &item, &mut FixedMint).unwrap()
        });
        let items: Vec<Item> = items.collect();
        let found = ItemTimes::of(items.iter(), before.map(DateTime::from_millis));
        assert_eq!(found.late, late, "{times:?} behind {before:?}");
        assert_eq!(found.first, times[0].map(DateTime::from_millis));
        let dated: Option<Vec<_>> = times.iter().map(|time| time.map(DateTime::from_millis)).collect();
        let bounds = dated.map_or(TimeBounds::Open, |dated| {
            TimeBounds::Dates(*dated.iter().min().unwrap(), *dated.iter().max().unwrap())
        });
        assert_eq!(found.bounds, Some(bounds));
    }

    #[test]
    fn item_older_than_a_previous_one_is_late() {
        check(&[Some(5), Some(5), Some(6)], None, 0);
        check(&[Some(5), Some(5), Some(6)], Some(5), 0);
        check(&[Some(5), Some(7), Some(6)], Some(6), 2);
        check(&[Some(5), None, Some(4)], None, 2);
        check(&[None], None, 1);
    }
}
