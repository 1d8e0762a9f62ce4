//! Pushes at a revision, pushes with conditions, and push records.

use super::*;
use crate::pattern::bucket::item::IdSource as _;
use crate::pattern::bucket::layout::Revision;

fn is_at_revision(statement: &InsertStatement) -> bool {
    let increments = statement
        .document
        .get_document("u")
        .and_then(|change| change.get_document("$inc"));
    increments.is_ok_and(|increments| {
        increments
            .iter()
            .flatten()
            .any(|(path, _)| path.as_str().starts_with("control.revision."))
    })
}

/// Plans a push to a page with one item and a revision.
fn push_to(shape: &BucketShape, page: PageHeader, numbers: std::ops::Range<i32>, look_up: bool) -> InsertStatement {
    let mut group = groups(shape, &of_key(numbers)).remove(0);
    group.suspect_ids();
    group.know(Some(page));
    if look_up {
        group.record_id_lookup();
    }
    let mut statements = Vec::new();
    Planner::new(shape, &FixedMint, WriteGuarantee::AtLeastOnce).plan(0, &group, &mut statements);
    statements.remove(0)
}

#[test]
fn a_push_names_the_revision_that_it_may_rely_on() {
    let shape = shape(None);
    let revision = Revision::first(5);
    let known = || PageHeader {
        revision: Some(revision),
        ..page(1)
    };
    let push = push_to(&shape, known(), 0..1, true);
    assert!(is_at_revision(&push));
    assert_eq!(push.after.revision, Some(revision.next(FixedMint.nonce())));
    // It is not known whether the page has the `_id`.
    assert!(!is_at_revision(&push_to(&shape, known(), 0..1, false)));
    // The page must be full after the push, because it reserves the next.
    assert!(!is_at_revision(&push_to(&shape, known(), 0..3, true)));
    // It demands the known header, so the header after it is known, and its revision.
    let unknown = push_to(&shape, page(1), 0..1, true);
    assert!(!is_at_revision(&unknown));
    assert!(unknown.after.revision.is_some());
}

/// Stores items of one key one by one. Each has the header that the one before left.
fn store_singly(shape: &BucketShape, ids: &[i32]) -> Vec<InsertStatement> {
    let mut head = None;
    let mut sent = Vec::new();
    for id in ids {
        let mut group = groups(shape, &[rawdoc! { "_id": *id, "k": 1 }]).remove(0);
        group.know(head.take());
        let mut statements = Vec::new();
        Planner::new(shape, &FixedMint, WriteGuarantee::AtLeastOnce).plan(0, &group, &mut statements);
        let statement = statements.remove(0);
        head = Some(statement.after.clone());
        sent.push(statement);
    }
    sent
}

#[test]
fn the_ids_of_a_page_are_known_to_the_proxy_that_began_it() {
    let shape = shape(None);
    for (ids, expected) in [
        ([1, 2, 3], [true, true]),
        ([1, 2, 1], [true, false]),
        ([1, 1, 2], [false, true]),
    ] {
        let statements = store_singly(&shape, &ids);
        let at_revision: Vec<bool> = statements.iter().skip(1).map(is_at_revision).collect();
        assert_eq!(at_revision, expected, "{ids:?}");
    }
    // Another client may have pushed to a page with the known header.
    let page = PageHeader {
        revision: None,
        ..store_singly(&shape, &[1]).remove(0).after
    };
    let push = push_to(&shape, page, 7..8, true);
    assert!(!is_at_revision(&push) && push.after.revision.is_some() && push.after.ids.is_none());
}

#[test]
fn pushes_after_a_miss_have_conditions() {
    let shape = shape(None);
    let mut group = groups(&shape, &of_key(0..1)).remove(0);
    let known = |contended| PageHeader {
        revision: Some(Revision::first(5)),
        contended,
        ..page(1)
    };
    group.know(Some(known(0)));
    let push = push_to(&shape, known(0), 0..1, true);
    group.apply(&push, StatementOutcome::Failed(Failure::Miss));
    group.know(Some(known(0)));
    let contended = group.highest().unwrap().contended;
    assert!(contended > 1);
    let push = push_to(&shape, known(contended), 0..1, true);
    assert!(!is_at_revision(&push));
    assert_eq!(push.after.contended, contended - 1);
    // Other pushes may have come before.
    assert_eq!(push.after.revision, None);
}

/// A page had room for some of the items, and no page has the record of the push.
#[test]
fn items_of_a_push_are_those_of_its_record() {
    let shape = shape(None);
    let update = [(1, Recorded::Update)];
    let mut batch = groups(&shape, &of_key(0..4)).remove(0);
    assert!(batch.needs_push_records(&update));
    assert!(batch.recover(&shape, &update, &HashSet::new()).is_err());
    assert_eq!(batch.recover(&shape, &update, &HashSet::from([1, 2])).unwrap(), [1, 2]);
    // Nothing follows the last item.
    let last = [(3, Recorded::Update)];
    assert!(!batch.needs_push_records(&last));
    assert_eq!(batch.recover(&shape, &last, &HashSet::new()).unwrap(), [3]);
    assert_eq!(batch.pending().collect::<Vec<_>>(), [0]);
}
