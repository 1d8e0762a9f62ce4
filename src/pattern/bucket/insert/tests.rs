//! Where a plan may begin a page.

use bson::oid::ObjectId;
use bson::{Timestamp, rawdoc};

use super::*;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

struct Fixed;

impl Mint for Fixed {
    fn now(&self) -> DateTime {
        DateTime::from_millis(0)
    }
    fn object_id(&mut self) -> ObjectId {
        ObjectId::from_bytes([7; 12])
    }
    fn timestamp(&mut self) -> Timestamp {
        Timestamp { time: 1, increment: 1 }
    }
}

/// Plans 5 items of one key on pages of 2, the highest of which holds `count`, and checks how many statements come of it
/// and which items they place.
fn check(after_failure: AfterFailure, count: u32, expected: &[usize]) {
    let options = BucketOptions {
        max_items: 2,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    let shape = BucketShape::new(options).unwrap();
    let pending: Vec<_> = (0..5)
        .map(|index| Pending {
            item: Item::prepare(&shape, index, &rawdoc! { "k": 1 }, &mut Fixed).unwrap(),
            names_taken: 0,
            misses: 0,
        })
        .collect();
    let facts = PageFacts {
        id: "1_0".into(),
        page: 0,
        count,
        bytes: 0,
        to: None,
        short: false,
    };
    let mut pages = Pages::from([(pending[0].item.identity().to_vec(), Some(facts))]);
    let statements = plan(&shape, &pending, &mut pages, &Fixed, after_failure);
    let placed: Vec<_> = statements.iter().filter_map(|statement| statement.item).collect();
    assert_eq!(placed, expected, "{after_failure:?}, {count} items");
}

#[test]
fn a_page_is_only_begun_where_the_one_before_is_closed_for_certain() {
    check(AfterFailure::Stops, 1, &[0, 1, 2, 3, 4]);
    check(AfterFailure::Stops, 2, &[0, 1, 2, 3, 4]);
    check(AfterFailure::GoesOn, 1, &[0]);
    check(AfterFailure::GoesOn, 2, &[0, 1]);
    check(AfterFailure::GoesOn, 0, &[0, 1]);
}
