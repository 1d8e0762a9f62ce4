//! Pages that become out of order during a scan by time.

use bson::DateTime;
use bson::raw::RawDocument;

use super::{PageScan, ScanDirection};
use crate::pattern::bucket::read::bucket::Bucket;

/// Whether a page that is met on the way has items which came, or got another time, since the walk began.
pub(super) fn is_disturbed(bucket: &Bucket<'_>) -> bool {
    bucket.is_late || (bucket.page > 0 && bucket.is_unordered)
}

impl PageScan {
    /// Puts what came late since the walk began in its place, or leaves it. An item that got another time
    /// since is left, too, where that lies behind the page's other items: what they are is told by the bounds
    /// that the page has had before.
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

    /// Notes that the walk has come to a time.
    pub(super) fn reach(&mut self, time: Option<DateTime>) {
        let Some(time) = time else { return };
        self.reached = Some(match (self.reached, self.direction) {
            (None, _) => time,
            (Some(reached), ScanDirection::Forward) => reached.max(time),
            (Some(reached), ScanDirection::Backward) => reached.min(time),
        });
    }
}
