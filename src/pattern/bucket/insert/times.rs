//! What a run of items means for a page's times.

use bson::DateTime;

use crate::pattern::bucket::item::Item;

/// The times of items that are put on a page one after the other.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Times {
    /// The first item's.
    pub(super) first: Option<DateTime>,
    /// The least.
    pub(super) from: Option<DateTime>,
    /// The greatest.
    pub(super) to: Option<DateTime>,
    /// How many are older than one before them, or have no time.
    pub(super) late: u32,
}

impl Times {
    /// Those of items that stand behind one of time `before`.
    pub(super) fn of<'a>(items: impl Iterator<Item = &'a Item>, before: Option<DateTime>) -> Self {
        let mut times = Self::default();
        let mut newest = before;
        for (position, item) in items.enumerate() {
            let time = item.time();
            if position == 0 {
                times.first = time;
            }
            if time.is_none() || time < newest {
                times.late = times.late.saturating_add(1);
            }
            times.from = [times.from, time].into_iter().flatten().min();
            times.to = times.to.max(time);
            newest = newest.max(time);
        }
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
        let found = Times::of(items.iter(), before.map(DateTime::from_millis));
        assert_eq!(found.late, late, "{times:?} behind {before:?}");
        let dated = || times.iter().flatten().copied().map(DateTime::from_millis);
        assert_eq!(found.from, dated().min());
        assert_eq!(found.to, dated().max());
        assert_eq!(found.first, times[0].map(DateTime::from_millis));
    }

    #[test]
    fn what_is_older_than_something_before_it_is_late() {
        check(&[Some(5), Some(5), Some(6)], None, 0);
        check(&[Some(5), Some(5), Some(6)], Some(5), 0);
        check(&[Some(5), Some(7), Some(6)], Some(6), 2);
        check(&[Some(5), None, Some(4)], None, 2);
        check(&[None], None, 1);
    }
}
