//! Position arithmetic: on which page the item number i of a key lies.
//!
//! Every page but a key's highest is full or `short`, so item i is on page ⌊i / `max_items`⌋, shifted by the
//! items that the short pages before it lack. The exceptions' index alone answers how many those are.

use bson::raw::{RawBsonRef, RawDocument};

use super::read::bucket::Bucket;
use crate::command::document::{as_whole_number, get};
use crate::pattern::shapes::BucketShape;

/// Exceptions read for one key at most; a key with more is read by pipeline.
pub const MAX_EXCEPTIONS: u32 = 1000;

/// The pages of one key that arithmetic must know of.
#[derive(Clone, Debug, Default)]
pub struct PageExceptions {
    /// (page, items in it) of the short pages, ascending.
    shorts: Vec<(u64, u64)>,
    /// Whether any page is late.
    pub late: bool,
    /// Whether there were more than could be read.
    pub too_many: bool,
}

/// A place among a key's pages.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Location {
    /// The page.
    pub page: u64,
    /// Items on that page before the place.
    pub offset: u64,
}

impl PageExceptions {
    /// Reads the answer to the exceptions' query.
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

    /// Where the item number `position` lies, or would lie if the key had so many.
    #[must_use]
    pub fn locate(&self, shape: &BucketShape, position: u64) -> Location {
        let max_items = u64::from(shape.max_items()).max(1);
        let mut missing = 0_u64;
        for (page, count) in &self.shorts {
            // Items on all pages up to and with this one.
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

    /// How many items lie on the pages before that one.
    #[must_use]
    pub fn before(&self, shape: &BucketShape, page: u64) -> u64 {
        let max_items = u64::from(shape.max_items());
        let shorts = self.shorts.iter().filter(|(short, _)| *short < page);
        let missing: u64 = shorts.map(|(_, count)| max_items.saturating_sub(*count)).sum();
        page.saturating_mul(max_items).saturating_sub(missing)
    }

    /// How many items a page has, given one that it is or that lies behind it.
    #[must_use]
    pub fn count_on(&self, shape: &BucketShape, page: u64, from: &Bucket<'_>) -> u64 {
        let short = self.shorts.iter().find(|(short, _)| *short == page);
        match short {
            Some((_, count)) => *count,
            None if page == from.page => from.count,
            None => shape.max_items().into(),
        }
    }

    /// How many items the key has, given its highest page.
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
        /// Arithmetic agrees with walking the pages, whatever they hold.
        #[test]
        fn locates_as_walking_does(max_items in 1_u32..12, counts in prop::collection::vec(0_u32..12, 1..20)) {
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
