//! Paths of operators.

use super::*;

#[test]
fn names_that_are_numbers_are_ordered_by_their_value() {
    check(
        doc! {},
        doc! { "$set": { "10": 1, "9": 2, "0": 3, "a.0": 4, "a.10": 5, "a.9": 6 } },
        doc! { "0": 3, "9": 2, "10": 1, "a": { "0": 4, "9": 6, "10": 5 } },
    );
    for odd in ["00", "01", "1x"] {
        check_unsupported(doc! {}, doc! { "$set": { odd: 1, "2": 2 } });
    }
    check(doc! {}, doc! { "$set": { "x0": 1, "2": 2 } }, doc! { "2": 2, "x0": 1 });
}

#[test]
fn an_array_is_filled_with_null_up_to_a_bound() {
    let mut filled = vec![Bson::Null; 1000];
    filled.push(Bson::Int32(1));
    check(doc! { "a": [] }, doc! { "$set": { "a.1000": 1 } }, doc! { "a": filled });
    check_unsupported(doc! { "a": [] }, doc! { "$set": { "a.1001": 1 } });
}

#[test]
fn a_position_consists_of_digits() {
    for name in ["+1", "-1", "x"] {
        let message = format!("Cannot create field '{name}' in element {{a: [ 1 ]}}");
        let path = format!("a.{name}");
        check_error(doc! { "a": [1] }, doc! { "$set": { path: 2 } }, 28, &message);
    }
}

#[test]
fn a_path_of_too_many_parts_is_refused() {
    let path = |parts: usize| vec!["a"; parts].join(".");
    assert!(built(doc! {}, doc! { "$set": { path(180): 1 } }).is_ok());
    check_unsupported(doc! {}, doc! { "$set": { path(181): 1 } });
    check_unsupported(doc! { path(181): 1 }, doc! { "$set": { "b": 1 } });
}

#[test]
fn an_update_of_too_many_paths_is_refused() {
    for (count, is_read) in [(5_000, true), (5_001, false)] {
        let paths: Document = (0..count).map(|number| (format!("f{number}"), Bson::from(1))).collect();
        let operators = RawDocumentBuf::try_from(doc! { "$set": paths }).unwrap();
        let read = super::super::paths::in_order(&operators);
        assert_eq!(
            read.map(|changes| changes.len()).ok(),
            is_read.then_some(count),
            "{count}"
        );
    }
}
