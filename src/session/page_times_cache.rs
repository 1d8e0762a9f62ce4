//! Caches the time bounds of pages that were read last. A query that begins at a time then reads its
//! pages by their numbers, together with the key's first page: one query instead of two.
//!
//! An entry is a guess: the reader checks that the page contains the time.

use std::collections::VecDeque;
use std::sync::{Mutex, PoisonError};

use bson::DateTime;

use super::bounded_cache::{Bounded, Weighed};
use super::first_page_cache::FirstPageKey;
use crate::pattern::bucket::read::bucket::PageTimes;

/// Pages of one key. Clients that page through a key need the last two.
const MAX_PAGES: usize = 8;

#[derive(Debug, Default)]
pub(super) struct RecentPages {
    pages: Mutex<Bounded<KeyOfPages, VecDeque<PageTimes>>>,
}

/// A key, weighed with the bounds of its pages.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
struct KeyOfPages(FirstPageKey);

impl Weighed for KeyOfPages {
    fn bytes(&self) -> usize {
        let pages = MAX_PAGES.saturating_mul(size_of::<PageTimes>());
        self.0.bytes().saturating_add(pages)
    }
}

impl RecentPages {
    /// A page that contained `at` when it was last read.
    pub(super) fn containing(&self, key: &FirstPageKey, at: DateTime) -> Option<PageTimes> {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let bounds = pages.get(&KeyOfPages(key.clone()))?;
        bounds.iter().find(|bounds| bounds.contains(at)).copied()
    }

    pub(super) fn learn(&self, key: FirstPageKey, read: impl Iterator<Item = PageTimes>) {
        let key = KeyOfPages(key);
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        let mut bounds = pages.get(&key).cloned().unwrap_or_default();
        for page in read {
            bounds.retain(|known| known.page != page.page);
            bounds.push_front(page);
        }
        bounds.truncate(MAX_PAGES);
        pages.put(key, bounds);
    }

    /// Removes the pages of a key, after one of them did not contain the time.
    pub(super) fn forget(&self, key: &FirstPageKey) {
        let mut pages = self.pages.lock().unwrap_or_else(PoisonError::into_inner);
        pages.pop(&KeyOfPages(key.clone()));
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::namespace::Namespace;

    fn page(page: u64, from: i64, to: i64) -> PageTimes {
        let [from, to] = [from, to].map(DateTime::from_millis);
        PageTimes { page, from, to }
    }

    #[test]
    fn page_that_contains_a_time_is_found_among_the_last_ones() {
        let namespace = Namespace {
            database: "d",
            collection: "c",
        };
        let key = |key: u8| FirstPageKey::new(namespace, vec![key]);
        let pages = RecentPages::default();
        let at = |number: u8, millis: i64| {
            let found = pages.containing(&key(number), DateTime::from_millis(millis));
            found.map(|bounds| bounds.page)
        };
        pages.learn(key(1), [page(3, 30, 39), page(4, 40, 45)].into_iter());
        assert_eq!([at(1, 30), at(1, 39), at(1, 45)], [Some(3), Some(3), Some(4)]);
        assert_eq!([at(1, 46), at(2, 30)], [None, None]);
        // The page was read again.
        pages.learn(key(1), [page(4, 40, 49)].into_iter());
        assert_eq!(at(1, 46), Some(4));
        let others = (10..18).map(|number| page(number, 0, 1));
        pages.learn(key(1), others);
        assert_eq!([at(1, 46), at(1, 0)], [None, Some(17)]);
        pages.forget(&key(1));
        assert_eq!(at(1, 0), None);
    }
}
