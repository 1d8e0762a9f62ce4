//! How the pages of one key follow each other.

use bson::raw::RawDocument;

use super::{control, items, time, whole};
use crate::shape::Shape;

pub(super) fn number(bucket: &RawDocument) -> i64 {
    whole(control(bucket, "page")).unwrap_or(i64::MAX)
}

/// Checks the pages of a key, in the order of their numbers.
pub(super) fn check<'a>(pages: &[&'a RawDocument], shape: &Shape, report: &mut impl FnMut(&'a RawDocument, String)) {
    for (expected, bucket) in (0..).zip(pages) {
        if number(bucket) != expected {
            report(
                bucket,
                format!("page {} stands where page {expected} should", number(bucket)),
            );
        }
    }
    let inner = pages.split_last().map_or(&[][..], |(_, inner)| inner);
    for bucket in inner {
        let length = items(bucket, shape).len();
        if length < shape.max_items && control(bucket, "short").is_none() {
            report(bucket, format!("{length} items, not the highest page and not short"));
        }
    }
    let mut before = None;
    for bucket in pages {
        let should = is_late(bucket, before, shape);
        if control(bucket, "late").is_some() != should {
            report(
                bucket,
                format!("control.late should {}be there", if should { "" } else { "not " }),
            );
        }
        before = control(bucket, "to")
            .and_then(bson::RawBsonRef::as_datetime)
            .map(bson::DateTime::timestamp_millis);
    }
}

/// Whether an item is older than one before it, or the first older than the newest of the page before, or one has no date.
fn is_late(bucket: &RawDocument, newest_before: Option<i64>, shape: &Shape) -> bool {
    if shape.time.is_none() {
        return false;
    }
    let mut newest = newest_before;
    items(bucket, shape)
        .into_iter()
        .any(|item| match (time(item, shape), newest) {
            (None, _) => true,
            (Some(time), Some(until)) if time < until => true,
            (time, until) => {
                newest = time.max(until);
                false
            }
        })
}
