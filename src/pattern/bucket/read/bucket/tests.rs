use bson::{RawDocumentBuf, rawdoc};

use super::*;
use crate::command::document::put;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        max_items: 3,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn page(count: i32, control: RawDocumentBuf) -> RawDocumentBuf {
    rawdoc! { "k": 1, "count": count, "control": control }
}

#[test]
fn a_bucket_has_a_version_a_number_and_a_count() {
    let bucket = page(2, rawdoc! { "v": 1, "page": 4 });
    let opened = Bucket::open(&shape(), &bucket).unwrap();
    assert_eq!((opened.page, opened.count), (4, 2));
    for stray in [
        rawdoc! {},
        rawdoc! { "k": 1, "control": { "v": 1, "page": 4 } },
        rawdoc! { "k": 1, "count": 2 },
        page(2, rawdoc! { "page": 4 }),
        page(2, rawdoc! { "v": 2, "page": 4 }),
        page(2, rawdoc! { "v": 1 }),
        page(2, rawdoc! { "v": 1, "page": -1 }),
        page(-1, rawdoc! { "v": 1, "page": 4 }),
    ] {
        assert!(Bucket::open(&shape(), &stray).is_none(), "{stray:?}");
    }
}

#[test]
fn a_page_that_is_short_or_full_is_closed() {
    for (count, mark, is_closed) in [
        (2, "late", false),
        (2, "short", true),
        (3, "late", true),
        (4, "late", true),
    ] {
        let mut control = rawdoc! { "v": 1, "page": 4 };
        put(&mut control, mark, true);
        let bucket = page(count, control);
        let bucket = Bucket::open(&shape(), &bucket).unwrap();
        assert_eq!(bucket.is_closed(&shape()), is_closed, "{count} {mark}");
    }
}

#[test]
fn moving_time_bounds_are_marked() {
    for (mark, tells) in [("unsteady", true), ("unordered", false)] {
        let mut control = rawdoc! { "v": 1, "page": 0 };
        put(&mut control, mark, true);
        let bucket = page(2, control);
        assert_eq!(
            Bucket::open(&shape(), &bucket).unwrap().has_unsteady_bounds(),
            tells,
            "{mark}"
        );
    }
}
