use bson::rawdoc;

use super::*;
use crate::command::document::get;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape() -> BucketShape {
    let options = BucketOptions {
        time: Some("at".to_owned()),
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".to_owned()])
    };
    BucketShape::new(options).unwrap()
}

fn end(stages: &[RawDocumentBuf]) -> Option<End> {
    End::of_stages("at", stages)
}

fn sort(direction: i32) -> RawDocumentBuf {
    rawdoc! { "$sort": { "at": direction } }
}

fn limit(number: i32) -> RawDocumentBuf {
    rawdoc! { "$limit": number }
}

fn stages(wanted: WantedKey<'_>, client: &[RawDocumentBuf]) -> Option<Vec<RawDocumentBuf>> {
    let lookup = KeyLookup {
        shape: &shape(),
        collection: "c",
        key: "k",
        wanted,
        prefix: "p",
    };
    lookup.of_end(client)
}

const LOCAL: WantedKey<'_> = WantedKey::LocalField {
    variable: "p",
    rest: ".a",
};

#[test]
fn a_sort_by_time_and_a_limit_need_items_at_one_end() {
    let newest = |items| Some(End { is_first: false, items });
    assert_eq!(end(&[sort(-1), limit(3)]), newest(3));
    assert_eq!(end(&[sort(-1), rawdoc! { "$skip": 4 }, limit(3)]), newest(7));
    assert_eq!(
        end(&[
            sort(-1),
            rawdoc! { "$skip": 4 },
            rawdoc! { "$skip": 1.0 },
            limit(3),
            rawdoc! { "$skip": 9 }
        ]),
        newest(8)
    );
    assert_eq!(
        end(&[sort(1), rawdoc! { "$limit": 2_i64 }, rawdoc! { "$match": {} }]),
        Some(End {
            is_first: true,
            items: 2
        })
    );
}

#[test]
fn other_stages_need_all_items() {
    let others = [
        vec![],
        vec![sort(-1)],
        vec![limit(1)],
        vec![limit(1), sort(-1)],
        vec![sort(-1), limit(0)],
        vec![sort(-1), limit(-1)],
        vec![sort(-1), rawdoc! { "$limit": "1" }],
        vec![sort(-1), rawdoc! { "$skip": -1 }, limit(1)],
        vec![sort(-1), rawdoc! { "$match": { "a": 1 } }, limit(1)],
        vec![rawdoc! { "$match": { "a": 1 } }, sort(-1), limit(1)],
        vec![rawdoc! { "$sort": { "at": -1, "_id": -1 } }, limit(1)],
        vec![rawdoc! { "$sort": { "a": -1 } }, limit(1)],
        vec![
            sort(-1),
            rawdoc! { "$skip": i64::MAX },
            rawdoc! { "$skip": i64::MAX },
            rawdoc! { "$limit": i64::MAX },
        ],
    ];
    for stages in others {
        assert_eq!(end(&stages), None, "{stages:?}");
    }
}

#[test]
fn the_highest_page_may_have_one_item() {
    let pages = |is_first, items| End { is_first, items }.pages(10);
    assert_eq!(pages(false, 1), Some(1));
    assert_eq!(pages(false, 2), Some(2));
    assert_eq!(pages(false, 11), Some(2));
    assert_eq!(pages(false, 12), Some(3));
    assert_eq!(pages(true, 1), Some(1));
    assert_eq!(pages(true, 10), Some(1));
    assert_eq!(pages(true, 11), Some(2));
    assert_eq!(pages(true, 640), Some(64));
    assert_eq!(pages(true, 641), None);
    assert_eq!(pages(false, u64::MAX), None);
}

#[test]
fn the_last_pages_are_read_before_all_pages_of_a_key() {
    let client = [sort(-1), limit(12)];
    let stages = stages(LOCAL, &client).unwrap();
    let last = stages[1].get_document("$lookup").unwrap();
    assert_eq!(last.get_str("localField").unwrap(), "local.a");
    assert_eq!(last.get_str("foreignField").unwrap(), "k");
    let text = bson::Document::try_from(last).unwrap().to_string();
    assert!(
        text.contains("control.late") && text.contains("control.unordered"),
        "{text}"
    );
    let pipeline: Vec<_> = last
        .get_array("pipeline")
        .unwrap()
        .into_iter()
        .map(|stage| stage.unwrap().as_document().unwrap().to_owned())
        .collect();
    assert_eq!(pipeline[1], rawdoc! { "$sort": { "control.page": -1 } });
    assert_eq!(pipeline[2], rawdoc! { "$limit": 3_i64 });
    let all = stages[3].get_document("$lookup").unwrap();
    assert_eq!(all.get_array("pipeline").unwrap().into_iter().count(), 1);
    assert_eq!(&stages[stages.len() - 2..], &client);
}

#[test]
fn the_condition_on_a_variable_stays_in_front_of_the_sort() {
    let condition = rawdoc! { "$match": { "$expr": { "$eq": ["$k", "$$wanted"] } } };
    let client = [condition.clone(), sort(1), limit(1)];
    let stages = stages(WantedKey::Variable("$$wanted"), &client).unwrap();
    assert_eq!(&stages[stages.len() - 3..], &client);
    let last = stages[1].get_document("$lookup").unwrap();
    assert_eq!(get(last, "localField"), None);
    assert_eq!(
        last.get_document("let").unwrap(),
        &*rawdoc! { "p_first": "$first", "p_key": "$local" }
    );
}

#[test]
fn a_shape_without_a_time_has_no_order_of_time() {
    let options = BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".to_owned()]);
    let lookup = KeyLookup {
        shape: &BucketShape::new(options).unwrap(),
        collection: "c",
        key: "k",
        wanted: LOCAL,
        prefix: "p",
    };
    assert_eq!(lookup.of_end(&[sort(-1), limit(1)]), None);
}
