//! Plans for items with times.

use super::*;

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
    check(&shape, WriteGuarantee::AtLeastOnce, &documents, None, &expected);
}

/// A page to which another proxy pushes, too. Pushes do not demand that it has the known header.
fn contended(count: u32) -> PageHeader {
    PageHeader {
        contended: 9,
        ..page(count)
    }
}

#[test]
fn a_push_demands_what_it_assumes() {
    let shape = shape(Some("t"));
    let at = |id: i32, seconds: i64| rawdoc! { "_id": id, "k": 1, "t": DateTime::from_millis(seconds * 1000) };
    let mut groups = groups(&shape, &[at(1, 7), at(2, 8)]);
    let to = Some(DateTime::from_millis(7500));
    groups[0].know(Some(PageHeader { to, ..contended(1) }));
    assert_eq!(
        step(&shape, WriteGuarantee::AtLeastOnce, &mut groups)[0].kind,
        StatementKind::Mark
    );
    let statements = step(&shape, WriteGuarantee::AtLeastOnce, &mut groups);
    assert_eq!(statements[0].late, 1);
    let update = &statements[0].document;
    assert_eq!(update.get_document("q").unwrap(), &*rawdoc! { "_id": "1_5" });
    // If the page is gone, the upsert fails the guard.
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
        { "$eq": ["$control.v", 1] },
        { "$eq": ["$control.page", 8] },
        { "$eq": ["$k", { "$literal": 1 }] },
        { "$eq": [{ "$type": "$control.short" }, "missing"] },
        { "$lte": ["$count", 1_i64] },
        { "$lte": ["$control.bytes", 1024_i64 - 2 * 25] },
        { "$gt": ["$control.to", DateTime::from_millis(7000)] },
        { "$eq": ["$control.nonce", 7_i64] },
        { "$eq": [{ "$setIntersection": ["$history._id", { "$literal": [1, 2] }] }, []] },
    ] };
    assert_eq!(chosen.get_document("if").unwrap(), &*guard);
    assert!(set.get_bool(path::LATE).unwrap());
}

/// The `$set` of a push of one item, and the page header after the push.
fn pushed(page: PageHeader, time: RawBson) -> (bson::Document, PageHeader) {
    let mut groups = groups(&shape(Some("t")), &[rawdoc! { "_id": 1, "k": 1, "t": time }]);
    groups[0].know(Some(page));
    groups[0].first = key_batch::FirstPageState::Marked;
    let [push] = <[_; 1]>::try_from(step(&shape(Some("t")), WriteGuarantee::AtLeastOnce, &mut groups)).unwrap();
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
    let dated = PageHeader {
        to: Some(at(5)),
        ..contended(1)
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
    // The mark shows that page 0 is marked, too.
    let is_late = bson!({ "$not": { "$eq": [{ "$type": "$control.late" }, "missing"] } }).to_string();
    let guard = |set: &bson::Document| set.get("history").unwrap().to_string();
    assert!(!guard(&set).contains(&is_late));
    let (set, _) = pushed(after.clone(), RawBson::Int32(7));
    assert!(guard(&set).contains(&is_late));
    // The upper bound stays open.
    let (set, after) = pushed(after, RawBson::DateTime(at(9)));
    assert_eq!(set.get(path::TO), Some(&bson!({ "$max": ["$control.to", at(9)] })));
    assert!(after.late && after.to.is_none() && !assumes_times(&set));
    let (set, after) = pushed(dated, RawBson::DateTime(at(9)));
    assert!(!after.late && after.to == Some(at(9)) && assumes_times(&set));
}

/// Checks the statements for items of these times, appended after a page whose newest time is 50.
fn check_marks(care: WriteGuarantee, times: &[i64], highest: Option<PageHeader>, expected: &[&str]) {
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
        highest.map(|page| PageHeader { to, ..page }).as_ref(),
        expected,
    );
}

#[test]
fn page_0_is_marked_before_a_page_behind_it_becomes_late() {
    let late = PageHeader { late: true, ..page(1) };
    let unordered = PageHeader {
        unordered: true,
        ..page(1)
    };
    let first = PageHeader { page: 0, ..page(1) };
    check_marks(WriteGuarantee::AtLeastOnce, &[60, 70], Some(page(1)), &["push 1_5 2"]);
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &[40, 30],
        Some(page(1)),
        &["mark 1_5 0", "push 1_5 2 late"],
    );
    check_marks(
        WriteGuarantee::Transaction,
        &[40],
        Some(page(1)),
        &["mark 1_5 0", "push 1_5 1 late"],
    );
    check_marks(WriteGuarantee::AtLeastOnce, &[40], Some(late), &["push 1_5 1 late"]);
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &[40],
        Some(unordered),
        &["push 1_5 1 late"],
    );
    // Page 0 records the mark itself.
    check_marks(WriteGuarantee::AtLeastOnce, &[40], Some(first), &["push 1_5 1 late"]);
    let expected = ["mark 1_5 0", "push 1_5 2 late"];
    check_marks(WriteGuarantee::ExactlyOnce, &[60, 55], Some(page(1)), &expected);
}

#[test]
fn pages_say_whether_one_before_them_is_late() {
    // The third page is late.
    let times = [60, 61, 62, 63, 64, 65, 59, 66, 67, 68];
    let pages = "page 1_60 3, page 1_63 3, page 1_59 3 late, page 1_68 1 unordered";
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &times,
        Some(page(3)),
        &["announce 1_5 0", "mark 1_5 0", pages],
    );
    let first = PageHeader { page: 0, ..page(3) };
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &times,
        Some(first.clone()),
        &["announce 1_5 0", "mark 1_5 0", pages],
    );
    let is_marked = PageHeader {
        unordered: true,
        ..first.clone()
    };
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &times,
        Some(is_marked),
        &["announce 1_5 0", pages],
    );
    let behind = pages.replace(" unordered", "").replace(", page", " unordered, page") + " unordered";
    let is_late = PageHeader { late: true, ..first };
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &times,
        Some(is_late),
        &["announce 1_5 0", &behind],
    );
    let is_unordered = PageHeader {
        unordered: true,
        ..page(3)
    };
    check_marks(
        WriteGuarantee::AtLeastOnce,
        &times,
        Some(is_unordered),
        &["announce 1_5 0", &behind],
    );
    // Page 0 is begun with the mark if other pages follow it.
    let begun = pages.replacen("3,", "3 unordered,", 1);
    check_marks(WriteGuarantee::AtLeastOnce, &times, None, &[&begun]);
    let rest = "page 1_63 3, page 1_59 3 late, page 1_68 1 unordered";
    check_marks(
        WriteGuarantee::ExactlyOnce,
        &times,
        None,
        &["page 1_60 3", "mark 1_60 0", rest],
    );
}

/// The next page relies on the known marks of this page. A changed time of an item may have set a
/// mark since.
#[test]
fn a_push_that_reserves_requires_the_known_marks() {
    let shape = shape(Some("t"));
    let items: Vec<RawDocumentBuf> = (0..3_i64)
        .map(|n| rawdoc! { "_id": n, "k": 1, "t": DateTime::from_millis(n) })
        .collect();
    for (items, reserves) in [(&items[..2], false), (&items[..], true)] {
        let mut groups = groups(&shape, items);
        groups[0].know(Some(contended(1)));
        let mut statements = Vec::new();
        Planner::new(&shape, &FixedMint, WriteGuarantee::AtLeastOnce).plan(0, &groups[0], &mut statements);
        assert_eq!(statements[0].kind, StatementKind::Push);
        assert_eq!(statements[0].reserves.is_some(), reserves);
        let text = bson::Document::try_from(statements[0].document.as_ref())
            .unwrap()
            .to_string();
        for mark in ["$control.late", "$control.unordered"] {
            assert_eq!(text.contains(mark), reserves, "{text}");
        }
    }
}

#[test]
fn mark_is_sent_again_if_the_cached_state_was_stale() {
    let shape = shape(Some("t"));
    let mut groups = groups(&shape, &[rawdoc! { "k": 1 }]);
    let mut marked = || {
        groups[0].know(Some(page(1)));
        let mut statements = Vec::new();
        for outcome in [StatementOutcome::Stored, StatementOutcome::Failed(Failure::Miss)] {
            Planner::new(&shape, &FixedMint, WriteGuarantee::ExactlyOnce).plan(0, &groups[0], &mut statements);
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
fn after_an_empty_page_with_predecessors_times_may_not_ascend() {
    let time = RawBson::DateTime(DateTime::from_millis(5000));
    let (set, after) = pushed(contended(0), time.clone());
    assert!(after.late && set.contains_key(path::LATE) && !assumes_times(&set));
    let first = PageHeader {
        page: 0,
        ..contended(0)
    };
    let (set, after) = pushed(first, time);
    assert!(!after.late && !set.contains_key(path::LATE) && assumes_times(&set));
}
