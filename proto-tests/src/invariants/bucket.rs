//! The invariants of a single bucket.

use bson::raw::{RawBsonRef, RawDocument};

use super::{control, items, key, time, value, whole};
use crate::shape::{Names, Shape};

pub(super) fn check(bucket: &RawDocument, shape: &Shape, report: &mut impl FnMut(String)) {
    if whole(control(bucket, "v")) != Some(1) {
        report(format!("control.v is {:?}, not 1", control(bucket, "v")));
    }
    check_size(bucket, shape, report);
    check_times(bucket, shape, report);
    if shape.names == Names::AsTheProxy {
        check_name(bucket, shape, report);
    }
    let marked = control(bucket, "short").is_some() || control(bucket, "late").is_some();
    if control(bucket, "exception").is_some() != marked {
        report("control.exception is not there exactly when short or late is".to_owned());
    }
    check_revision(bucket, report);
    for mark in ["exception", "short", "late", "unordered", "unsteady", "anchor"] {
        if control(bucket, mark).is_some_and(|mark| mark != RawBsonRef::Boolean(true)) {
            report(format!("control.{mark} is neither true nor absent"));
        }
    }
}

/// The revision is 0 or an array of two pairs. The numbers of exactly one pair add up to the greatest int64. Pages of
/// earlier versions have no revision.
fn check_revision(bucket: &RawDocument, report: &mut impl FnMut(String)) {
    let is_revision = |revision: RawBsonRef<'_>| {
        let Some(array) = revision.as_array() else {
            return revision == RawBsonRef::Int32(0);
        };
        let numbers: Vec<i64> = array.into_iter().flatten().filter_map(RawBsonRef::as_i64).collect();
        let [a, b, c, d] = numbers[..] else { return false };
        let has = |number: i64, rest: i64| number >= 0 && number.checked_add(rest) == Some(i64::MAX);
        has(a, b) != has(c, d)
    };
    if let Some(revision) = control(bucket, "revision").filter(|revision| !is_revision(*revision)) {
        report(format!("control.revision is {revision:?}"));
    }
}

fn check_size(bucket: &RawDocument, shape: &Shape, report: &mut impl FnMut(String)) {
    let items = items(bucket, shape);
    let elements = value(bucket, &shape.items).and_then(RawBsonRef::as_array);
    let elements = elements.map(|array| array.into_iter().count());
    if elements != Some(items.len()) {
        report(format!("{} is no array of documents", shape.items));
    }
    let count = whole(value(bucket, &shape.count));
    if count.and_then(|count| usize::try_from(count).ok()) != Some(items.len()) {
        report(format!(
            "{} is {count:?}, and there are {} items",
            shape.count,
            items.len()
        ));
    }
    if items.len() > shape.max_items {
        report(format!("{} items, and at most {} may be", items.len(), shape.max_items));
    }
    let bytes: usize = items.iter().map(|item| item.as_bytes().len()).sum();
    let recorded = whole(control(bucket, "bytes")).and_then(|bytes| usize::try_from(bytes).ok());
    if recorded != Some(bytes) && !shape.items_change {
        report(format!("control.bytes is {recorded:?}, and the items have {bytes}"));
    }
    if recorded > Some(shape.max_bytes) && items.len() > 1 {
        report(format!(
            "{bytes} bytes of items, and at most {} may be",
            shape.max_bytes
        ));
    }
}

fn check_times(bucket: &RawDocument, shape: &Shape, report: &mut impl FnMut(String)) {
    let times = items(bucket, shape).into_iter().map(|item| time(item, shape));
    let times: Vec<Option<i64>> = times.filter(|_| shape.time.is_some()).collect();
    let dates: Option<Vec<i64>> = times.iter().copied().collect();
    let (from, to) = match &dates {
        Some(dates) => {
            let date = |millis: &i64| RawBsonRef::DateTime(bson::DateTime::from_millis(*millis));
            (dates.iter().min().map(date), dates.iter().max().map(date))
        }
        // Around everything, so that nothing leaves the page out.
        None => (Some(RawBsonRef::MinKey), Some(RawBsonRef::MaxKey)),
    };
    for (bound, expected) in [("from", from), ("to", to)] {
        let recorded = control(bucket, bound);
        if recorded != expected && !(shape.items_change && encloses(recorded, bound, expected)) {
            report(format!(
                "control.{bound} is {recorded:?}, and the items say {expected:?}"
            ));
        }
    }
}

/// A delete does not narrow the time bounds.
fn encloses(recorded: Option<RawBsonRef<'_>>, bound: &str, expected: Option<RawBsonRef<'_>>) -> bool {
    match (recorded, expected) {
        (_, None) | (Some(RawBsonRef::MinKey | RawBsonRef::MaxKey), _) => true,
        (Some(RawBsonRef::DateTime(recorded)), Some(RawBsonRef::DateTime(expected))) => {
            if bound == "from" {
                recorded <= expected
            } else {
                recorded >= expected
            }
        }
        _ => false,
    }
}

/// `_id` is the key's text, "_", seconds (of the first item's time, where it has one), and perhaps a suffix.
fn check_name(bucket: &RawDocument, shape: &Shape, report: &mut impl FnMut(String)) {
    let Some(id) = value(bucket, "_id").and_then(RawBsonRef::as_str) else {
        return report("_id is no string".to_owned());
    };
    // A long key is cut, a rare one has a text of the proxy's choice: then there is only a form to check.
    let Some(text) = key::text(bucket, shape) else {
        return;
    };
    let Some(rest) = id.strip_prefix(&format!("{text}_")) else {
        return report(format!("_id does not begin with the key's text {text:?} and \"_\""));
    };
    let seconds = rest.split('_').next().unwrap_or_default();
    let first = items(bucket, shape).first().and_then(|item| time(item, shape));
    let expected = first
        .filter(|_| !shape.items_change)
        .map(|millis| millis.div_euclid(1000));
    match (seconds.parse::<i64>(), expected) {
        (Ok(seconds), Some(expected)) if seconds != expected => {
            report(format!("_id has {seconds} s, its first item {expected} s"));
        }
        (Err(_), _) => report(format!("no seconds behind the key's text but {rest:?}")),
        _ => {}
    }
}
