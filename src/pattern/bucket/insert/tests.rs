use std::collections::HashSet;

use bson::raw::{RawBson, RawDocumentBuf};
use bson::{Bson, DateTime, bson, rawdoc};

use super::*;
use crate::command::document::single;
use crate::command::error::WriteError;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item::{FixedMint, Item};
use crate::pattern::bucket::layout::{PageFacts, path};
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

fn groups(shape: &BucketShape, documents: &[RawDocumentBuf]) -> Vec<Group> {
    let mut groups = Groups::default();
    for (index, document) in documents.iter().enumerate() {
        let item = Item::prepare(shape, index, document, &mut FixedMint).unwrap();
        groups.add(item, i32::try_from(index).unwrap());
    }
    groups.into_vec()
}

/// A group's next statements, which then succeed.
fn step(shape: &BucketShape, care: Care, groups: &mut [Group]) -> Vec<Statement> {
    let mut planner = Planner::new(shape, &FixedMint, care);
    let mut statements = Vec::new();
    for (number, group) in groups.iter().enumerate() {
        planner.plan(number, group, &mut statements);
    }
    for statement in &statements {
        assert!(groups[statement.group].apply(statement, Outcome::Stored).is_none());
    }
    statements
}

/// What a statement does, in a word, the page's name and how many items it stores.
fn outline(statement: &Statement) -> String {
    let what = match statement.kind {
        StatementKind::Push => "push",
        StatementKind::Page => "page",
        StatementKind::Announce => "announce",
        StatementKind::Close => "close",
        StatementKind::Mark => "mark",
    };
    let id = statement.after.id.as_str().unwrap();
    let late = if statement.late > 0 { " late" } else { "" };
    let is_unordered = || statement.document.get_document("control")?.get_bool("unordered");
    let unordered = if is_unordered().is_ok() { " unordered" } else { "" };
    format!("{what} {id} {}{late}{unordered}", statement.items.len())
}

/// What happens until all is stored: a line each round.
fn rounds(shape: &BucketShape, care: Care, groups: &mut [Group]) -> Vec<String> {
    let mut rounds = Vec::new();
    while groups.iter().any(Group::has_work) {
        let statements = step(shape, care, groups);
        assert!(!statements.is_empty());
        rounds.push(statements.iter().map(outline).collect::<Vec<_>>().join(", "));
    }
    rounds
}

fn of_key(numbers: std::ops::Range<i32>) -> Vec<RawDocumentBuf> {
    numbers.map(|number| rawdoc! { "_id": number, "k": 1 }).collect()
}

fn page(count: u32) -> PageFacts {
    PageFacts {
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
    }
}

fn check(
    shape: &BucketShape,
    care: Care,
    documents: &[RawDocumentBuf],
    highest: Option<&PageFacts>,
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
    check(&shape, Care::Free, &of_key(0..7), None, &expected);
    let expected = ["push 1_5 2", "page 1_77 3, page 1_77_10 2"];
    check(&shape, Care::Free, &of_key(0..7), Some(&page(1)), &expected);
    check(&shape, Care::Free, &of_key(0..2), Some(&page(1)), &["push 1_5 2"]);
    check(
        &shape,
        Care::Free,
        &of_key(0..1),
        Some(&page(3)),
        &["announce 1_5 0", "page 1_77 1"],
    );
    // A short page takes nothing, whatever room it has.
    let short = PageFacts { short: true, ..page(0) };
    check(
        &shape,
        Care::Free,
        &of_key(0..2),
        Some(&short),
        &["announce 1_5 0", "page 1_77 2"],
    );
}

#[test]
fn what_may_be_sent_again_is_pushed_one_by_one_and_its_first_page_goes_alone() {
    let shape = shape(None);
    let expected = [
        "push 1_5 1",
        "push 1_5 1",
        "page 1_77 3",
        "page 1_77_10 3, page 1_77_11 1",
    ];
    check(&shape, Care::Once, &of_key(0..9), Some(&page(1)), &expected);
}

#[test]
fn a_page_of_fewer_items_than_could_be_says_so_in_its_name() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..4));
    groups[0].know(None);
    groups[0].refuse(1);
    let expected = ["page 1_77_s 1", "push 1_77_s 1", "push 1_77_s 1"];
    assert_eq!(rounds(&shape, Care::Once, &mut groups), expected);
}

#[test]
fn a_page_has_what_follows_from_the_command_and_no_more() {
    let shape = shape(None);
    // Of the first two only one has room, of the first and the third both would.
    let documents =
        [(0, 600), (1, 600), (2, 1)].map(|(id, length)| rawdoc! { "_id": id, "k": 1, "x": "x".repeat(length) });
    let mut groups = groups(&shape, &documents);
    groups[0].know(None);
    groups[0].refuse(1);
    let expected = ["page 1_77 1", "page 1_77_1 1"];
    assert_eq!(rounds(&shape, Care::Once, &mut groups), expected);
}

#[test]
fn another_writers_page_is_closed_where_a_chain_goes_on_with_pages() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..6));
    groups[0].know(None);
    assert_eq!(step(&shape, Care::Once, &mut groups).len(), 1);
    groups[0].know(Some(page(1)));
    assert_eq!(rounds(&shape, Care::Once, &mut groups), ["close 1_5 0", "page 1_77 3"]);
}

#[test]
fn what_was_stored_before_is_found_by_what_mongod_remembers() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..9));
    let whole = Recorded::Insert(RawBson::String("1_77".to_owned()));
    let lone = Recorded::Insert(RawBson::String("1_77_1_s".to_owned()));
    let recorded = [(0, Recorded::Update), (1, whole), (4, lone)];
    assert_eq!(groups[0].recover(&shape, &recorded), [0, 1, 2, 3, 4]);
    assert_eq!(groups[0].stored(), 5);
    assert_eq!(groups[0].pending().collect::<Vec<_>>(), [5, 6, 7, 8]);
    assert!(groups[0].is_lost());
    // Not several at once before one of this attempt is stored.
    groups[0].know(None);
    assert_eq!(
        rounds(&shape, Care::Once, &mut groups),
        ["page 1_77 3", "page 1_77_1 1"]
    );
}

#[test]
fn a_resent_statement_of_the_last_item_is_that_items() {
    let shape = shape(None);
    let mut groups = groups(&shape, &of_key(0..2));
    let mut statements = Vec::new();
    for expected in [true, false] {
        groups[0].know(Some(page(1)));
        statements.clear();
        Planner::new(&shape, &FixedMint, Care::Once).plan(0, &groups[0], &mut statements);
        groups[0].apply(&statements[0], Outcome::Resent);
        assert_eq!(groups[0].is_resent(), expected);
        if expected {
            assert_eq!(groups[0].recover(&shape, &[(0, Recorded::Update)]), [0]);
        }
    }
    assert_eq!(groups[0].stored(), 2);
}

#[test]
fn keys_do_not_meet_and_names_are_told_apart() {
    let documents = [
        rawdoc! { "k": 12 },
        rawdoc! { "k": "12" },
        rawdoc! { "k": 12.0 },
        rawdoc! {},
    ];
    let expected = ["page 12_77 2, page 12_77_0 1, page null_77 1"];
    check(&shape(None), Care::Free, &documents, None, &expected);
}

/// In a transaction the second of two pages of one name would end it.
#[test]
fn no_two_pages_of_one_flight_get_one_name_whatever_is_taken() {
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
        let names = step(&shape, Care::Transaction, &mut groups)
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
    check(&shape, Care::Free, &documents, None, &expected);
    let mut groups = groups(&shape, &documents);
    groups[0].know(None);
    let short = step(&shape, Care::Free, &mut groups)
        .iter()
        .map(|page| page.after.short)
        .collect::<Vec<_>>();
    assert_eq!(short, [true, true, false]);
    let nearly_full = PageFacts { bytes: 1000, ..page(1) };
    let expected = ["close 1_5 0", "page 1_77 1"];
    check(&shape, Care::Free, &documents[..1], Some(&nearly_full), &expected);
    // An item that is larger than a page has one of its own.
    let larger = rawdoc! { "_id": 2, "k": 2, "x": "x".repeat(5000) };
    check(&shape, Care::Free, &[larger], None, &["page 2_77 1"]);
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
    let expected = ["page 1_5 3 late unordered, page 1_3 3 late unordered, page 1_77 1 late unordered"];
    check(&shape, Care::Free, &documents, None, &expected);
}

#[test]
fn a_push_demands_what_it_assumes() {
    let shape = shape(Some("t"));
    let at = |id: i32, seconds: i64| rawdoc! { "_id": id, "k": 1, "t": DateTime::from_millis(seconds * 1000) };
    let mut groups = groups(&shape, &[at(1, 7), at(2, 8)]);
    let to = Some(DateTime::from_millis(7500));
    groups[0].know(Some(PageFacts { to, ..page(1) }));
    assert_eq!(step(&shape, Care::Free, &mut groups)[0].kind, StatementKind::Mark);
    let statements = step(&shape, Care::Free, &mut groups);
    assert_eq!(statements[0].late, 1);
    let update = &statements[0].document;
    assert_eq!(update.get_document("q").unwrap(), &*rawdoc! { "_id": "1_5" });
    // An upsert of a page that is gone fails the guard.
    assert!(update.get_bool("upsert").unwrap());
    let set = update
        .get_array("u")
        .unwrap()
        .get_document(0)
        .unwrap()
        .get_document("$set")
        .unwrap();
    let lists = set.get_document("history").unwrap().get_array("$concatArrays").unwrap();
    let chosen = lists.get_document(0).unwrap().get_document("$cond").unwrap();
    let guard = rawdoc! { "$and": [
        { "$eq": ["$control.page", 8] },
        { "$eq": ["$k", { "$literal": 1 }] },
        { "$eq": [{ "$type": "$control.short" }, "missing"] },
        { "$lte": ["$count", 1_i64] },
        { "$lte": ["$control.bytes", 1024_i64 - 2 * 25] },
        { "$eq": [{ "$setIntersection": ["$history._id", { "$literal": [1, 2] }] }, []] },
        { "$gt": ["$control.to", DateTime::from_millis(7000)] },
        { "$eq": ["$control.nonce", 7_i64] },
    ] };
    assert_eq!(chosen.get_document("if").unwrap(), &*guard);
    assert!(set.get_bool(path::LATE).unwrap());
}

/// What a push of one item sets, and the page after it.
fn pushed(page: PageFacts, time: RawBson) -> (bson::Document, PageFacts) {
    let mut groups = groups(&shape(Some("t")), &[rawdoc! { "_id": 1, "k": 1, "t": time }]);
    groups[0].know(Some(page));
    groups[0].first = group::First::Marked;
    let [push] = <[_; 1]>::try_from(step(&shape(Some("t")), Care::Free, &mut groups)).unwrap();
    assert_eq!(push.kind, StatementKind::Push);
    let update = bson::Document::try_from(&*push.document).unwrap();
    let stage = update.get_array("u").unwrap()[0].as_document().unwrap().clone();
    (stage.get_document("$set").unwrap().clone(), push.after)
}

fn assumes_times(set: &bson::Document) -> bool {
    set.get("history").unwrap().to_string().contains(path::TO)
}

#[test]
fn an_item_without_a_date_opens_the_bounds_and_nothing_is_assumed_of_a_late_page() {
    let at = |seconds: i64| DateTime::from_millis(seconds * 1000);
    let dated = PageFacts {
        to: Some(at(5)),
        ..page(1)
    };
    let (set, after) = pushed(dated.clone(), RawBson::Int32(7));
    assert_eq!(
        set.get(path::FROM),
        Some(&bson!({ "$min": ["$control.from", Bson::MinKey] }))
    );
    assert_eq!(
        set.get(path::TO),
        Some(&bson!({ "$max": ["$control.to", Bson::MaxKey] }))
    );
    assert!(after.late && after.to.is_none() && !assumes_times(&set));
    // Known to be late, and so that page 0 is marked.
    let is_late = bson!({ "$not": { "$eq": [{ "$type": "$control.late" }, "missing"] } }).to_string();
    let guard = |set: &bson::Document| set.get("history").unwrap().to_string();
    assert!(!guard(&set).contains(&is_late));
    let (set, _) = pushed(after.clone(), RawBson::Int32(7));
    assert!(guard(&set).contains(&is_late));
    // It stays open, whatever comes.
    let (set, after) = pushed(after, RawBson::DateTime(at(9)));
    assert_eq!(set.get(path::TO), Some(&bson!({ "$max": ["$control.to", at(9)] })));
    assert!(after.late && after.to.is_none() && !assumes_times(&set));
    let (set, after) = pushed(dated, RawBson::DateTime(at(9)));
    assert!(!after.late && after.to == Some(at(9)) && assumes_times(&set));
}

/// Items of these times, and what happens until all are stored on pages behind one with the time 50.
fn check_marks(care: Care, times: &[i64], highest: Option<PageFacts>, expected: &[&str]) {
    let shape = shape(Some("t"));
    let documents: Vec<_> = (0..)
        .zip(times)
        .map(|(id, seconds)| rawdoc! { "_id": id, "k": 1, "t": DateTime::from_millis(seconds * 1000) })
        .collect();
    let to = Some(DateTime::from_millis(50_000));
    check(
        &shape,
        care,
        &documents,
        highest.map(|page| PageFacts { to, ..page }).as_ref(),
        expected,
    );
}

#[test]
fn page_0_is_marked_before_a_page_behind_it_becomes_late() {
    let late = PageFacts { late: true, ..page(1) };
    let unordered = PageFacts {
        unordered: true,
        ..page(1)
    };
    let first = PageFacts { page: 0, ..page(1) };
    check_marks(Care::Free, &[60, 70], Some(page(1)), &["push 1_5 2"]);
    check_marks(Care::Free, &[40, 30], Some(page(1)), &["mark 1_5 0", "push 1_5 2 late"]);
    check_marks(
        Care::Transaction,
        &[40],
        Some(page(1)),
        &["mark 1_5 0", "push 1_5 1 late"],
    );
    check_marks(Care::Free, &[40], Some(late), &["push 1_5 1 late"]);
    check_marks(Care::Free, &[40], Some(unordered), &["push 1_5 1 late"]);
    // It says so itself.
    check_marks(Care::Free, &[40], Some(first), &["push 1_5 1 late"]);
    let expected = ["push 1_5 1", "mark 1_5 0", "push 1_5 1 late"];
    check_marks(Care::Once, &[60, 55], Some(page(1)), &expected);
}

#[test]
fn pages_say_whether_one_before_them_is_late() {
    // The third of them is.
    let times = [60, 61, 62, 63, 64, 65, 59, 66, 67, 68];
    let pages = "page 1_60 3, page 1_63 3, page 1_59 3 late, page 1_68 1 unordered";
    check_marks(
        Care::Free,
        &times,
        Some(page(3)),
        &["announce 1_5 0", "mark 1_5 0", pages],
    );
    let first = PageFacts { page: 0, ..page(3) };
    check_marks(
        Care::Free,
        &times,
        Some(first.clone()),
        &["announce 1_5 0", "mark 1_5 0", pages],
    );
    let is_marked = PageFacts {
        unordered: true,
        ..first.clone()
    };
    check_marks(Care::Free, &times, Some(is_marked), &["announce 1_5 0", pages]);
    let behind = pages.replace(" unordered", "").replace(", page", " unordered, page") + " unordered";
    let is_late = PageFacts { late: true, ..first };
    check_marks(Care::Free, &times, Some(is_late), &["announce 1_5 0", &behind]);
    let is_unordered = PageFacts {
        unordered: true,
        ..page(3)
    };
    check_marks(Care::Free, &times, Some(is_unordered), &["announce 1_5 0", &behind]);
    // A first page is begun with the mark where it is not alone.
    let begun = pages.replacen("3,", "3 unordered,", 1);
    check_marks(Care::Free, &times, None, &[&begun]);
    let rest = "page 1_63 3, page 1_59 3 late, page 1_68 1 unordered";
    check_marks(Care::Once, &times, None, &["page 1_60 3", "mark 1_60 0", rest]);
}

/// The page to be begun is told what was known of this one: an item's new time may have changed that.
#[test]
fn a_push_that_announces_demands_the_marks_as_they_are_known() {
    let shape = shape(Some("t"));
    let items: Vec<RawDocumentBuf> = (0..3_i64)
        .map(|n| rawdoc! { "_id": n, "k": 1, "t": DateTime::from_millis(n) })
        .collect();
    for (items, announces) in [(&items[..2], false), (&items[..], true)] {
        let mut groups = groups(&shape, items);
        groups[0].know(Some(page(1)));
        let mut statements = Vec::new();
        Planner::new(&shape, &FixedMint, Care::Free).plan(0, &groups[0], &mut statements);
        assert_eq!(statements[0].kind, StatementKind::Push);
        assert_eq!(statements[0].announces.is_some(), announces);
        let text = bson::Document::try_from(statements[0].document.as_ref())
            .unwrap()
            .to_string();
        for mark in ["$control.late", "$control.unordered"] {
            assert_eq!(text.contains(mark), announces, "{text}");
        }
    }
}

#[test]
fn a_mark_is_sent_again_when_what_was_known_is_not_true() {
    let shape = shape(Some("t"));
    let mut groups = groups(&shape, &[rawdoc! { "k": 1 }]);
    let mut marked = || {
        groups[0].know(Some(page(1)));
        let mut statements = Vec::new();
        for outcome in [Outcome::Stored, Outcome::Failed(Failure::Miss)] {
            Planner::new(&shape, &FixedMint, Care::Once).plan(0, &groups[0], &mut statements);
            groups[0].apply(statements.last().unwrap(), outcome);
        }
        assert!(groups[0].is_lost());
        statements
    };
    for statements in [marked(), marked()] {
        let kinds = [statements[0].kind, statements[1].kind];
        assert_eq!(kinds, [StatementKind::Mark, StatementKind::Push]);
        let mark = &statements[0].document;
        let query = rawdoc! { "k": { "$eq": 1 }, "control.page": 0 };
        assert_eq!(mark.get_document("q").unwrap(), &*query);
        assert_eq!(mark.get_str("hint").unwrap(), index::PAGE);
    }
}

#[test]
fn behind_an_empty_page_that_others_precede_nothing_is_known_to_ascend() {
    let time = RawBson::DateTime(DateTime::from_millis(5000));
    let (set, after) = pushed(page(0), time.clone());
    assert!(after.late && set.contains_key(path::LATE) && !assumes_times(&set));
    let first = PageFacts { page: 0, ..page(0) };
    let (set, after) = pushed(first, time);
    assert!(!after.late && !set.contains_key(path::LATE) && assumes_times(&set));
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
fn failures_are_told_apart() {
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
    is(duplicate("k"), "PageTaken");
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
