mod pushes;
mod times;

use std::collections::HashSet;

use bson::raw::{RawBson, RawDocumentBuf};
use bson::spec::BinarySubtype;
use bson::{Binary, Bson, DateTime, bson, rawdoc};

use super::*;
use crate::command::document::single;
use crate::command::error::WriteError;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::{FixedMint, Item};
use crate::pattern::bucket::layout::{PageHeader, path};
use crate::pattern::shapes::{BucketOptions, BucketShape, NamespacePattern};

fn shape(time: Option<&str>) -> BucketShape {
    let options = BucketOptions {
        time: time.map(str::to_owned),
        max_items: 3,
        max_bytes: 1024,
        ..BucketOptions::new(NamespacePattern::parse("d.c").unwrap(), vec!["k".into()])
    };
    BucketShape::new(options).unwrap()
}

fn groups(shape: &BucketShape, documents: &[RawDocumentBuf]) -> Vec<KeyBatch> {
    let mut groups = Groups::default();
    for (index, document) in documents.iter().enumerate() {
        let item = Item::prepare(shape, index, document, &mut FixedMint).unwrap();
        groups.add(item, i32::try_from(index).unwrap());
    }
    groups.into_vec()
}

fn retry_number() -> RetryNumber {
    let session = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![1; 16],
    };
    RetryNumber::of(&rawdoc! { "lsid": { "id": session }, "txnNumber": 7_i64 }).unwrap()
}

/// Plans the next statements of all batches, and applies success to each.
fn step(shape: &BucketShape, care: WriteGuarantee, groups: &mut [KeyBatch]) -> Vec<InsertStatement> {
    let number = retry_number();
    let mut planner = Planner::new(shape, &FixedMint, care).for_retries(Some(&number));
    let mut statements = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        planner.plan(number, group, &mut statements);
    }
    for statement in &statements {
        assert!(
            groups[statement.group]
                .apply(statement, StatementOutcome::Stored)
                .is_none()
        );
    }
    statements
}

/// A statement in words: kind, page name, number of items, marks.
fn outline(statement: &InsertStatement) -> String {
    let what = match statement.kind {
        StatementKind::Push => "push",
        StatementKind::Page => "page",
        StatementKind::Reserve => "announce",
        StatementKind::Close => "close",
        StatementKind::Mark => "mark",
    };
    let id = statement.after.id.as_str().unwrap();
    let late = if statement.late > 0 { " late" } else { "" };
    let is_unordered = || statement.document.get_document("control")?.get_bool("unordered");
    let unordered = if is_unordered().is_ok() { " unordered" } else { "" };
    format!("{what} {id} {}{late}{unordered}", statement.items.len())
}

/// The statements until all items are stored: a line for each round.
fn rounds(shape: &BucketShape, care: WriteGuarantee, groups: &mut [KeyBatch]) -> Vec<String> {
    let mut rounds = Vec::new();
    while groups.iter().any(KeyBatch::has_work) {
        let statements = step(shape, care, groups);
        assert!(!statements.is_empty());
        rounds.push(statements.iter().map(outline).collect::<Vec<_>>().join(", "));
    }
    rounds
}

fn of_key(numbers: std::ops::Range<i32>) -> Vec<RawDocumentBuf> {
    numbers.map(|number| rawdoc! { "_id": number, "k": 1 }).collect()
}

fn page(count: u32) -> PageHeader {
    PageHeader {
        id: RawBson::String("1_5".to_owned()),
        page: 8,
        count,
        bytes: 100,
        to: None,
        short: false,
        late: false,
        unordered: false,
        nonce: Some(7),
        next: Vec::new(),
        anchor: false,
        size: None,
        revision: None,
        ids: None,
        contended: 0,
    }
}

fn check(
    shape: &BucketShape,
    care: WriteGuarantee,
    documents: &[RawDocumentBuf],
    highest: Option<&PageHeader>,
    expected: &[&str],
) {
    let mut groups = groups(shape, documents);
    for group in &mut groups {
        assert!(group.is_lost());
        group.know(highest.cloned());
    }
    assert_eq!(rounds(shape, care, &mut groups), expected);
}

#[test]
fn room_is_filled_and_pages_are_whole() {
    let shape = shape(None);
    let expected = ["page 1_77 3, page 1_77_1 3, page 1_77_2 1"];
    check(&shape, WriteGuarantee::AtLeastOnce, &of_key(0..7), None, &expected);
    let expected = ["push 1_5 2", "page 1_77 3, page 1_77_10 2"];
    check(
        &shape,
        WriteGuarantee::AtLeastOnce,
        &of_key(0..7),
        Some(&page(1)),
        &expected,
    );
    check(
        &shape,
        WriteGuarantee::AtLeastOnce,
        &of_key(0..2),
        Some(&page(1)),
        &["push 1_5 2"],
    );
    check(
        &shape,
        WriteGuarantee::AtLeastOnce,
        &of_key(0..1),
        Some(&page(3)),
        &["announce 1_5 0", "page 1_77 1"],
    );
    // A short page takes no items, even with free space.
    let short = PageHeader { short: true, ..page(0) };
    check(
        &shape,
        WriteGuarantee::AtLeastOnce,
        &of_key(0..2),
        Some(&short),
        &["announce 1_5 0", "page 1_77 2"],
    );
}

#[test]
fn the_first_page_of_a_retryable_command_is_sent_alone() {
    let shape = shape(None);
    let expected = ["push 1_5 2", "page 1_77 3", "page 1_77_10 3, page 1_77_11 1"];
    check(
        &shape,
        WriteGuarantee::ExactlyOnce,
        &of_key(0..9),
        Some(&page(1)),
        &expected,
    );
}

#[test]
fn short_page_is_marked_in_its_name() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..4));
    groups[0].know(None);
    groups[0].refuse(1);
    let expected = ["page 1_77_s 1", "push 1_77_s 2"];
    assert_eq!(rounds(&shape, WriteGuarantee::ExactlyOnce, &mut groups), expected);
}

#[test]
fn page_is_determined_by_the_command_alone() {
    let shape = shape(None);
    // The second item does not fit after the first; the third would.
    let documents =
        [(0, 600), (1, 600), (2, 1)].map(|(id, length)| rawdoc! { "_id": id, "k": 1, "x": "x".repeat(length) });
    let mut groups = groups(&shape, &documents);
    groups[0].know(None);
    groups[0].refuse(1);
    let expected = ["page 1_77_b1024 1", "page 1_77_1_b1024 1"];
    assert_eq!(rounds(&shape, WriteGuarantee::ExactlyOnce, &mut groups), expected);
}

#[test]
fn page_of_another_writer_is_closed_if_a_retry_chain_continues_on_new_pages() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..6));
    groups[0].know(None);
    assert_eq!(step(&shape, WriteGuarantee::ExactlyOnce, &mut groups).len(), 1);
    groups[0].know(Some(page(1)));
    assert_eq!(
        rounds(&shape, WriteGuarantee::ExactlyOnce, &mut groups),
        ["close 1_5 0", "page 1_77 3"]
    );
}

#[test]
fn stored_items_are_found_by_retry_records() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..9));
    let whole = Recorded::Insert(RawBson::String("1_77".to_owned()));
    let lone = Recorded::Insert(RawBson::String("1_77_1_s".to_owned()));
    let recorded = [(0, Recorded::Update), (1, whole), (4, lone)];
    let pushed = HashSet::from([0]);
    assert_eq!(groups[0].recover(&shape, &recorded, &pushed).unwrap(), [0, 1, 2, 3, 4]);
    assert_eq!(groups[0].stored(), 5);
    assert_eq!(groups[0].pending().collect::<Vec<_>>(), [5, 6, 7, 8]);
    assert!(groups[0].is_lost());
    // The pages go one by one until a page of this attempt is stored.
    groups[0].know(None);
    assert_eq!(
        rounds(&shape, WriteGuarantee::ExactlyOnce, &mut groups),
        ["page 1_77 3", "page 1_77_1 1"]
    );
}

/// Two items with repeated `_id`s between the others of a page.
fn with_repeated(shape: &BucketShape) -> KeyBatch {
    let mut groups = Groups::default();
    for (index, document) in of_key(0..6).iter().enumerate() {
        let item = Item::prepare(shape, index, document, &mut FixedMint).unwrap();
        let id = i32::try_from(index).unwrap();
        if matches!(index, 1 | 3) {
            groups.add_repeated(item, id);
        } else {
            groups.add(item, id);
        }
    }
    let mut group = groups.into_vec().remove(0);
    group.know(None);
    group
}

#[test]
fn repeated_items_are_no_part_of_the_chain() {
    let shape = shape(None);
    let care = WriteGuarantee::ExactlyOnce;
    let mut groups = [with_repeated(&shape)];
    groups[0].set_aside(&[1, 3]);
    let statements = step(&shape, care, &mut groups);
    assert_eq!(statements.iter().map(outline).collect::<Vec<_>>(), ["page 1_77 3"]);
    assert_eq!(statements[0].items, [0, 2, 4]);
    groups[0].call_back(&[1, 3]);
    assert_eq!(groups[0].pending().collect::<Vec<_>>(), [1, 3, 5]);
    // The first is refused, and its repetition is sent alone.
    groups[0].set_aside(&[3, 5]);
    groups[0].know(None);
    let statements = step(&shape, care, &mut groups);
    assert_eq!(statements.iter().map(outline).collect::<Vec<_>>(), ["page 1_77_s 1"]);
    // Another attempt finds the items of the page.
    let page = Recorded::Insert(RawBson::String("1_77".to_owned()));
    let none = HashSet::new();
    assert_eq!(
        with_repeated(&shape).recover(&shape, &[(0, page)], &none).unwrap(),
        [0, 2, 4]
    );
    let lone = Recorded::Insert(RawBson::String("1_77_s".to_owned()));
    assert_eq!(with_repeated(&shape).recover(&shape, &[(1, lone)], &none).unwrap(), [1]);
}

#[test]
fn a_resent_statement_of_the_last_item_is_that_items() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..2));
    let mut statements = Vec::new();
    for expected in [true, false] {
        groups[0].know(Some(page(1)));
        statements.clear();
        Planner::new(&shape, &FixedMint, WriteGuarantee::ExactlyOnce).plan(0, &groups[0], &mut statements);
        groups[0].apply(&statements[0], StatementOutcome::Resent);
        assert_eq!(groups[0].is_resent(), expected);
        if expected {
            let pushed = HashSet::from([0]);
            assert_eq!(
                groups[0].recover(&shape, &[(0, Recorded::Update)], &pushed).unwrap(),
                [0]
            );
        }
    }
    assert_eq!(groups[0].stored(), 2);
}

#[test]
fn keys_do_not_collide_and_names_are_distinguished() {
    let documents = [
        rawdoc! { "k": 12 },
        rawdoc! { "k": "12" },
        rawdoc! { "k": 12.0 },
        rawdoc! {},
    ];
    let expected = ["page 12_77 2, page 12_77_0 1, page null_77 1"];
    check(&shape(None), WriteGuarantee::AtLeastOnce, &documents, None, &expected);
}

/// In a transaction the second of two pages with the same name would abort the transaction.
#[test]
fn pages_of_one_command_have_distinct_names() {
    let shape = shape(None);
    let documents = [
        rawdoc! { "k": {} },
        rawdoc! { "k": { "b": 1 } },
        rawdoc! { "k": { "b": 2 } },
    ];
    for taken in 0..3 {
        let mut groups = groups(&shape, &documents);
        for group in &mut groups {
            group.know(None);
            for _ in 0..taken {
                group.name_is_taken();
            }
        }
        let names = step(&shape, WriteGuarantee::Transaction, &mut groups)
            .iter()
            .map(|page| page.after.id.as_str().unwrap().to_owned())
            .collect::<HashSet<_>>();
        assert_eq!(names.len(), documents.len(), "{taken} taken: {names:?}");
    }
}

#[test]
fn a_page_without_room_for_the_bytes_is_closed() {
    let shape = shape(None);
    let large = "x".repeat(600);
    let documents = [0, 1, 2].map(|number| rawdoc! { "_id": number, "k": 1, "x": large.as_str() });
    let expected = ["page 1_77 1, page 1_77_1 1, page 1_77_2 1"];
    check(&shape, WriteGuarantee::AtLeastOnce, &documents, None, &expected);
    let mut groups = groups(&shape, &documents);
    groups[0].know(None);
    let short = step(&shape, WriteGuarantee::AtLeastOnce, &mut groups)
        .iter()
        .map(|page| page.after.short)
        .collect::<Vec<_>>();
    assert_eq!(short, [true, true, false]);
    let nearly_full = PageHeader { bytes: 1000, ..page(1) };
    let expected = ["close 1_5 0", "page 1_77 1"];
    check(
        &shape,
        WriteGuarantee::AtLeastOnce,
        &documents[..1],
        Some(&nearly_full),
        &expected,
    );
    // An item that is larger than a page gets its own page.
    let larger = rawdoc! { "_id": 2, "k": 2, "x": "x".repeat(5000) };
    check(&shape, WriteGuarantee::AtLeastOnce, &[larger], None, &["page 2_77 1"]);
}

/// The size is known in a transaction, in which no statement may fail. Items of a page may have grown since
/// they were inserted.
#[test]
fn a_page_without_space_is_closed_although_it_has_room() {
    let shape = shape(None);
    let grown = |size: i64| PageHeader {
        size: Some(size),
        ..page(1)
    };
    let expected = ["close 1_5 0", "page 1_77 1"];
    let care = WriteGuarantee::Transaction;
    check(&shape, care, &of_key(0..1), Some(&grown((16 << 20) - 1040)), &expected);
    let expected = ["push 1_5 1"];
    check(&shape, care, &of_key(0..1), Some(&grown(15 << 20)), &expected);
    // The first of two items takes the space.
    let expected = ["push 1_5 1", "close 1_5 0", "page 1_77 1"];
    check(
        &shape,
        care,
        &of_key(0..2),
        Some(&grown((16 << 20) - 1024 - 50)),
        &expected,
    );
}

#[test]
fn an_avoided_page_takes_no_item() {
    let shape = shape(None);
    for (avoided, expected) in [("1_5", vec!["close 1_5 0", "page 1_77 1"]), ("1_4", vec!["push 1_5 1"])] {
        let mut groups = groups(&shape, &of_key(0..1));
        groups[0].know(Some(page(1)));
        groups[0].avoid(RawBson::String(avoided.to_owned()));
        assert_eq!(rounds(&shape, WriteGuarantee::Transaction, &mut groups), expected);
    }
}

/// Pages of the replaced collection may have the same names as the known ones.
#[test]
fn a_reservation_in_another_collection_is_made_again() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..1));
    for _ in 0..2 {
        groups[0].know(Some(page(3)));
        assert_eq!(
            step(&shape, WriteGuarantee::AtLeastOnce, &mut groups)[0].kind,
            StatementKind::Reserve
        );
        groups[0].begin_anew();
        assert!(groups[0].abandon().is_empty());
    }
}

#[test]
fn under_the_stable_api_a_page_is_an_upsert_with_a_hint() {
    let bucket = rawdoc! { "_id": "1_77", "k": 1, "count": 1, "history": [{}], "control": { "page": 0 } };
    let statement = page_as_upsert(&shape(None), &bucket);
    let query = rawdoc! { "_id": { "$eq": "1_77" }, "k": { "$eq": 1 }, "count": -1 };
    assert_eq!(statement.get_document("q").unwrap(), &*query);
    assert_eq!(statement.get_document("u").unwrap(), &*bucket);
    assert_eq!(statement.get_str("hint").unwrap(), index::PAGE);
}

#[test]
fn failures_are_distinguished() {
    let shape = shape(None);
    let error = |code, message: &str, detail| WriteError {
        code,
        message: message.to_owned(),
        detail,
    };
    let empty = RawDocumentBuf::new;
    let duplicate = |field: &str| error(11000, "E11000", single("keyPattern", single(field, 1)));
    let is = |error: WriteError, expected: &str| {
        let failure = format!("{:?}", failure(&shape, error));
        assert!(failure.starts_with(expected), "{failure}");
    };
    is(error(66, "immutable", empty()), "Miss");
    is(error(241, "conversion", empty()), "Miss");
    let sum = "Failed to apply $inc operations to current value ((NumberLong)5) for document {_id: 1}";
    is(error(2, sum, empty()), "Miss");
    is(
        error(28, "Cannot create field '0' in element {revision: 0}", empty()),
        "Miss",
    );
    is(error(28, "Cannot create field 'a' in element {b: 0}", empty()), "Final");
    is(duplicate("control.page"), "PageTaken");
    let mut of_item = single("keyPattern", rawdoc! { "control.v": 1, "history.a": 1 });
    of_item.append(bson::raw::cstr!("keyValue"), rawdoc! { "control.v": 1, "history.a": 1 });
    is(error(11000, "E11000", of_item), "Violation");
    let clause = rawdoc! { "$let": { "vars": { "mongoshape_unique_index": { "$literal": "a_1" } } } };
    is(
        error(121, "refused", single("errInfo", single("details", clause))),
        "Violation",
    );
    is(error(121, "frozen", single("errInfo", empty())), "NotReady");
    is(duplicate("_id"), "NameTaken");
    is(duplicate("history._id"), "Duplicate");
    is(error(361, "uuid", empty()), "NotReady");
    is(
        error(2, "hint provided does not correspond to an existing index", empty()),
        "NotReady",
    );
    is(error(2, "other", empty()), "Final");
    is(error(10334, "large", empty()), "TooLarge");
    is(error(17419, "large", empty()), "TooLarge");
}
