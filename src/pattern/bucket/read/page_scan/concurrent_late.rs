//! Pages that become late during a scan by time.

use bson::DateTime;
use bson::raw::RawDocument;

use super::{PageScan, ScanDirection};
use crate::pattern::bucket::read::bucket::Bucket;

/// Whether the page may have items that were stored out of order, or got another time, after the
/// scan began.
pub(super) fn is_disturbed(bucket: &Bucket<'_>) -> bool {
    bucket.is_late || (bucket.page > 0 && bucket.is_unordered)
}

impl PageScan {
    /// Sorts the page's items, and removes items that were stored out of order at a time that the
    /// scan has passed. Also removes items that got another time after the scan began, if that time
    /// is beyond the page's other items. The page's previous bounds show which items those are.
    pub(super) fn put_in_order(&self, bucket: &Bucket<'_>, items: &mut Vec<(Option<DateTime>, &RawDocument)>) {
        let (least, greatest) = match self.direction {
            ScanDirection::Forward => (self.reached, bucket.kept.to),
            ScanDirection::Backward => (bucket.kept.from, self.reached),
        };
        let is_between =
            |time: DateTime| least.is_none_or(|least| time >= least) && greatest.is_none_or(|most| time <= most);
        items.retain(|(time, _)| time.is_some_and(is_between));
        items.sort_by_key(|(time, _)| *time);
    }

    /// Records that the scan has reached a time.
    pub(super) fn reach(&mut self, time: Option<DateTime>) {
        let Some(time) = time else { return };
        self.reached = Some(match (self.reached, self.direction) {
            (None, _) => time,
            (Some(reached), ScanDirection::Forward) => reached.max(time),
            (Some(reached), ScanDirection::Backward) => reached.min(time),
        });
    }
}
