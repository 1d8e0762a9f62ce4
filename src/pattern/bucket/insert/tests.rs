use bson::{DateTime, rawdoc};

use super::*;
use crate::command::error::WriteError;
use crate::pattern::bucket::item::FixedMint;
use crate::pattern::shapes::{BucketOptions, NamespacePattern};

fn shape(time: Option<&str>) -> BucketShape {
    let options = BucketOptions {
        time: time.map(str::to_owned),
        max_items: 3,
        max_bytes: 1024,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn pending(shape: &BucketShape, documents: &[RawDocumentBuf]) -> Vec<Pending> {
    let item =
        |(index, document): (usize, &RawDocumentBuf)| Item::prepare(shape, index, document, &mut FixedMint).unwrap();
    let items = documents.iter().enumerate().map(item);
    items
        .map(|item| Pending {
            item,
            names_taken: 0,
            misses: 0,
        })
        .collect()
}

/// What each statement does, in a word and the page's name.
fn outline(shape: &BucketShape, documents: &[RawDocumentBuf], pages: &mut Pages) -> Vec<String> {
    let statements = plan(shape, &pending(shape, documents), pages, &FixedMint);
    let outline = |statement: &Statement| {
        let query = statement.update.get_document("q").unwrap();
        let change = statement.update.get_document("u").unwrap();
        let id = |id: bson::raw::RawBsonRef<'_>| id.as_str().map(str::to_owned);
        let id = query.get("_id").unwrap().and_then(|value| {
            id(value).or_else(|| {
                value
                    .as_document()
                    .and_then(|value| id(value.get("$eq").unwrap().unwrap()))
            })
        });
        let what = match statement.kind {
            StatementKind::Push => "push",
            StatementKind::Open => "open",
            StatementKind::Close => "close",
        };
        let late = change
            .get_document("control")
            .is_ok_and(|control| control.get("late").unwrap().is_some())
            || change
                .get_document("$set")
                .is_ok_and(|marks| marks.get(path::LATE).unwrap().is_some());
        format!("{what} {}{}", id.unwrap(), if late { " late" } else { "" })
    };
    statements.iter().map(outline).collect()
}

#[test]
fn a_page_is_filled_before_the_next_is_begun() {
    let documents: Vec<_> = (0..7).map(|number| rawdoc! { "_id": number, "k": 1 }).collect();
    let expected = [
        "open 1_77",
        "push 1_77",
        "push 1_77",
        "open 1_77_1",
        "push 1_77_1",
        "push 1_77_1",
        "open 1_77_2",
    ];
    assert_eq!(outline(&shape(None), &documents, &mut Pages::new()), expected);
}

#[test]
fn keys_do_not_meet_and_names_are_told_apart() {
    let documents = [
        rawdoc! { "k": 12 },
        rawdoc! { "k": "12" },
        rawdoc! { "k": 12.0 },
        rawdoc! {},
    ];
    let expected = ["open 12_77", "open 12_77_0", "push 12_77", "open null_77"];
    assert_eq!(outline(&shape(None), &documents, &mut Pages::new()), expected);
}

#[test]
fn a_page_without_room_for_the_bytes_is_closed() {
    let large = "x".repeat(600);
    let documents = [0, 1].map(|number| rawdoc! { "_id": number, "k": 1, "x": large.as_str() });
    assert_eq!(
        outline(&shape(None), &documents, &mut Pages::new()),
        ["open 1_77", "close 1_77", "open 1_77_1"]
    );
    // An item that is larger than a page has one of its own.
    let larger = rawdoc! { "_id": 2, "k": 2, "x": "x".repeat(5000) };
    assert_eq!(outline(&shape(None), &[larger], &mut Pages::new()), ["open 2_77"]);
}

#[test]
fn late_items_mark_their_page() {
    let shape = shape(Some("t"));
    let at = |seconds: i64| rawdoc! { "k": 1, "t": DateTime::from_millis(seconds * 1000) };
    let documents = [
        at(5),
        at(5),
        at(4),
        at(3),
        at(9),
        rawdoc! { "k": 1 },
        rawdoc! { "k": 1, "t": "no date" },
    ];
    let expected = [
        "open 1_5",
        "push 1_5",
        "push 1_5 late",
        "open 1_3 late",
        "push 1_3",
        "push 1_3 late",
        "open 1_77 late",
    ];
    assert_eq!(outline(&shape, &documents, &mut Pages::new()), expected);
}

#[test]
fn a_known_page_is_used_as_it_is() {
    let shape = shape(None);
    let documents = [rawdoc! { "_id": 1, "k": 1 }, rawdoc! { "_id": 2, "k": 1 }];
    let facts = PageFacts {
        id: RawBson::Int32(5),
        page: 8,
        count: 2,
        bytes: 100,
        to: None,
        short: false,
    };
    let identity = pending(&shape, &documents).first().unwrap().item.identity().to_vec();
    let mut pages = Pages::from([(identity.clone(), Some(facts.clone()))]);
    let statements = plan(&shape, &pending(&shape, &documents), &mut pages, &FixedMint);
    let pushed = &statements.first().unwrap().update;
    let query = pushed.get_document("q").unwrap();
    assert_eq!(query.get_document("_id").unwrap(), &*rawdoc! { "$eq": 5 });
    assert_eq!(query.get_i32(path::PAGE).unwrap(), 8);
    assert_eq!(query.get_document("history._id").unwrap(), &*rawdoc! { "$ne": 1 });
    assert!(pushed.get_bool("upsert").unwrap());
    assert_eq!(statements.get(1).unwrap().update.get_str("hint").unwrap(), index::PAGE);
    assert_eq!(pages.get(&identity).unwrap().as_ref().unwrap().page, 9);
    // A short page takes nothing, whatever room it has.
    let short = PageFacts {
        short: true,
        count: 0,
        ..facts
    };
    let mut pages = Pages::from([(identity, Some(short))]);
    assert_eq!(outline(&shape, &documents, &mut pages), ["open 1_77", "push 1_77"]);
}

#[test]
fn failures_are_told_apart() {
    let shape = shape(None);
    let error = |code, message: &str, detail| WriteError {
        code,
        message: message.to_owned(),
        detail,
    };
    let empty = RawDocumentBuf::new;
    let duplicate = |field: &str| error(11000, "E11000", single("keyPattern", single(field, 1)));
    assert!(matches!(
        failure(&shape, error(66, "immutable", empty())),
        Failure::Miss
    ));
    assert!(matches!(failure(&shape, duplicate("k")), Failure::Miss));
    assert!(matches!(failure(&shape, duplicate("_id")), Failure::NameTaken));
    assert!(matches!(
        failure(&shape, error(361, "uuid", empty())),
        Failure::NotReady
    ));
    let hint = "hint provided does not correspond to an existing index";
    assert!(matches!(failure(&shape, error(2, hint, empty())), Failure::NotReady));
    assert!(matches!(failure(&shape, error(2, "other", empty())), Failure::Final(_)));
    assert!(matches!(
        failure(&shape, error(10334, "large", empty())),
        Failure::Final(_)
    ));
}

#[test]
fn a_duplicate_is_told_in_the_applications_names() {
    let mut detail = single("keyPattern", single("history._id", 1));
    detail.append(cstr!("keyValue"), single("history._id", 5));
    let message = "E11000 duplicate key error collection: d.c index: mongoshape_item_id dup key: { history._id: 5 }";
    let error = WriteError {
        code: 11000,
        message: message.to_owned(),
        detail,
    };
    let Failure::Final(error) = failure(&shape(None), error) else {
        panic!("not final")
    };
    assert_eq!(
        error.message,
        "E11000 duplicate key error collection: d.c index: _id_ dup key: { _id: 5 }"
    );
    assert_eq!(
        error.detail,
        rawdoc! { "keyPattern": { "_id": 1 }, "keyValue": { "_id": 5 } }
    );
}
