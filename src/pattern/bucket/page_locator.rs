//! Position arithmetic: computes the page of a key's item number i.
//!
//! Every page but a key's highest is full or `short`. So item i is on page ⌊i / `max_items`⌋,
//! shifted by the items that the short pages before it lack. The index of exceptions alone has
//! these numbers.

use bson::raw::{RawBsonRef, RawDocument};

use super::read::bucket::Bucket;
use crate::command::document::{as_whole_number, get};
use crate::pattern::shapes::BucketShape;

/// The most exceptions that are read for one key. A key with more is read by pipeline.
pub const MAX_EXCEPTIONS: u32 = 1000;

/// The pages of one key that position arithmetic must take into account.
#[derive(Clone, Debug, Default)]
pub struct PageExceptions {
    /// The short pages as (page number, number of items), ascending.
    shorts: Vec<(u64, u64)>,
    /// Whether any page is late.
    pub late: bool,
    /// Whether there are more exceptions than the limit.
    pub too_many: bool,
}

/// A position among a key's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The page number.
    pub page: u64,
    /// The position on the page.
    pub offset: u64,
}

impl PageExceptions {
    /// Reads the result of the query for exceptions.
    pub fn parse<'a>(shape: &BucketShape, buckets: impl Iterator<Item = &'a RawDocument>) -> Self {
        let mut exceptions = Self::default();
        let mut read = 0_u32;
        for bucket in buckets {
            read = read.saturating_add(1);
            let Some(control) = get(bucket, BucketShape::CONTROL).and_then(RawBsonRef::as_document) else {
                continue;
            };
            exceptions.late |= get(control, "late").is_some();
            let page = get(control, "page")
                .and_then(as_whole_number)
                .and_then(|page| u64::try_from(page).ok());
            let count = get(bucket, shape.count())
                .and_then(as_whole_number)
                .and_then(|count| u64::try_from(count).ok());
            if let (Some(page), Some(count), Some(_)) = (page, count, get(control, "short")) {
                exceptions.shorts.push((page, count));
            }
        }
        exceptions.shorts.sort_unstable();
        exceptions.too_many = read >= MAX_EXCEPTIONS;
        exceptions
    }

    /// Where item number `position` is, or would be if the key had as many items.
    #[must_use]
    pub fn locate(&self, shape: &BucketShape, position: u64) -> Location {
        let max_items = u64::from(shape.max_items()).max(1);
        let mut missing = 0_u64;
        for (page, count) in &self.shorts {
            // The number of items on all pages up to and including this one.
            let until = page
                .saturating_mul(max_items)
                .saturating_sub(missing)
                .saturating_add(*count);
            if position < until {
                break;
            }
            missing = missing.saturating_add(max_items.saturating_sub(*count));
        }
        let slot = position.saturating_add(missing);
        Location {
            page: slot.checked_div(max_items).unwrap_or_default(),
            offset: slot.checked_rem(max_items).unwrap_or_default(),
        }
    }

    /// The number of items on the pages before this one.
    #[must_use]
    pub fn before(&self, shape: &BucketShape, page: u64) -> u64 {
        let max_items = u64::from(shape.max_items());
        let shorts = self.shorts.iter().filter(|(short, _)| *short < page);
        let missing: u64 = shorts.map(|(_, count)| max_items.saturating_sub(*count)).sum();
        page.saturating_mul(max_items).saturating_sub(missing)
    }

    /// The number of items on a page. `from` is that page or a later page of the key.
    #[must_use]
    pub fn count_on(&self, shape: &BucketShape, page: u64, from: &Bucket<'_>) -> u64 {
        let short = self.shorts.iter().find(|(short, _)| *short == page);
        match short {
            Some((_, count)) => *count,
            None if page == from.page => from.count,
            None => shape.max_items().into(),
        }
    }

    /// The number of the key's items. `highest` is its highest page.
    #[must_use]
    pub fn total(&self, shape: &BucketShape, highest: Option<&Bucket<'_>>) -> u64 {
        let Some(highest) = highest else { return 0 };
        self.before(shape, highest.page).saturating_add(highest.count)
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;
    use proptest::prelude::*;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shape(max_items: u32) -> BucketShape {
        let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()]);
        BucketShape::new(BucketOptions { max_items, ..options }).unwrap()
    }

    proptest! {
        /// The arithmetic agrees with counting the items page by page.
        #[test]
        fn locates_as_a_scan_of_all_pages_does(max_items in 1_u32..12, counts in prop::collection::vec(0_u32..12, 1..20)) {
            let counts: Vec<u64> = counts.iter().map(|count| u64::from((*count).min(max_items))).collect();
            let highest = counts.len() - 1;
            let shorts = counts[..highest].iter().enumerate().filter(|(_, count)| **count < u64::from(max_items));
            let shorts = shorts.map(|(page, count)| (page as u64, *count)).collect();
            let exceptions = PageExceptions { shorts, late: false, too_many: false };
            let mut position = 0;
            for (page, count) in counts.iter().enumerate() {
                for offset in 0..*count {
                    let expected = Location { page: page as u64, offset };
                    prop_assert_eq!(exceptions.locate(&shape(max_items), position), expected);
                    position += 1;
                }
            }
            let open = rawdoc! {
                "count": i32::try_from(counts[highest]).unwrap(),
                "control": { "v": 1, "page": i32::try_from(highest).unwrap() },
            };
            let highest = Bucket::open(&shape(max_items), &open).unwrap();
            prop_assert_eq!(exceptions.total(&shape(max_items), Some(&highest)), position);
        }
    }
}
