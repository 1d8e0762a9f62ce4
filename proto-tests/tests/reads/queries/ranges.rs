//! Time ranges with every sort of a key's items.

use anyhow::Result;
use bson::{DateTime, Document, doc};
use proto_tests::Shape;
use proto_tests::measure::rows;
use proto_tests::sides::{COLLECTION, Sides};

use crate::queries::comparison::Comparison;

fn at(second: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + second * 1000)
}

fn shape(key: &[&str]) -> Shape {
    Shape {
        time: Some("t".to_owned()),
        max_items: 3,
        ..Shape::new(key)
    }
}

/// Items of two values of `k` and, within those, two of `j`. The second key's times do not ascend.
fn items() -> Vec<Document> {
    let of = |id: i32, key: i32, second: i32| {
        doc! { "_id": id, "k": key, "j": second % 2, "t": at(second.into()), "x": second % 4 }
    };
    let ascending = (0..14).map(|number| of(number, 1, number));
    let descending = (0..14).map(|number| of(100 + number, 2, 13 - number));
    ascending.chain(descending).collect()
}

fn ranges() -> Vec<Document> {
    vec![
        doc! {},
        doc! { "t": { "$gte": at(3), "$lt": at(7) } },
        doc! { "t": { "$gt": at(5) } },
        doc! { "t": { "$lte": at(5) } },
        doc! { "t": at(4) },
        doc! { "t": { "$gte": at(7), "$lt": at(3) } },
        doc! { "$and": [{ "t": { "$gte": at(2) } }, { "t": { "$lt": at(11) } }] },
    ]
}

/// Skips, limits and sizes of batches.
fn stretches() -> Vec<Document> {
    vec![
        doc! {},
        doc! { "skip": 1 },
        doc! { "limit": 2 },
        doc! { "skip": 1, "limit": 2 },
        doc! { "limit": 1, "singleBatch": true },
        doc! { "batchSize": 2 },
        doc! { "projection": { "x": 1 } },
    ]
}

/// The same as stages of a pipeline.
fn stages_of(find: &Document) -> Vec<Document> {
    let of = [
        ("$match", "filter"),
        ("$sort", "sort"),
        ("$skip", "skip"),
        ("$limit", "limit"),
        ("$project", "projection"),
    ];
    let stage = |(stage, field)| find.get(field).map(|value| doc! { stage: value });
    of.into_iter().filter_map(stage).collect()
}

/// An ordinary run takes every fourth of the stretches. Which ones depends on the key, the range and the
/// sort.
fn check(comparison: &mut Comparison, keys: &[Document], sorts: &[Document]) -> Result<()> {
    for (of_key, key) in keys.iter().enumerate() {
        for (of_range, range) in ranges().into_iter().enumerate() {
            let mut filter = key.clone();
            filter.extend(range);
            for (of_sort, sort) in sorts.iter().enumerate() {
                for stretch in rows(stretches(), 4, of_key + of_range + of_sort) {
                    let mut find = doc! { "find": COLLECTION, "filter": &filter };
                    if !sort.is_empty() {
                        find.insert("sort", sort);
                    }
                    find.extend(stretch);
                    comparison.alike(&find)?;
                    let stages = stages_of(&find);
                    comparison.alike(&doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} })?;
                }
            }
            comparison.alike(&doc! { "count": COLLECTION, "query": &filter })?;
            comparison.alike(&doc! { "count": COLLECTION, "query": &filter, "skip": 1, "limit": 2 })?;
            comparison.alike(&doc! { "distinct": COLLECTION, "key": "x", "query": &filter })?;
        }
    }
    Ok(())
}

#[test]
fn time_range_is_applied_with_every_sort() -> Result<()> {
    let sorts = [
        doc! {},
        doc! { "k": 1 },
        doc! { "k": -1 },
        doc! { "t": 1 },
        doc! { "t": -1 },
        doc! { "k": 1, "t": 1 },
        doc! { "k": -1, "t": -1 },
        doc! { "t": 1, "k": 1 },
        doc! { "t": -1, "k": 1 },
    ];
    let mut comparison = Comparison::open(Sides::on_a_standalone(shape(&["k"]))?, &items())?;
    check(
        &mut comparison,
        &[doc! { "k": 1 }, doc! { "k": 2 }, doc! { "k": 3 }],
        &sorts,
    )
}

#[test]
fn a_range_of_time_is_applied_where_the_order_names_a_part_of_the_key() -> Result<()> {
    let mut comparison = Comparison::open(Sides::on_a_standalone(shape(&["k", "j"]))?, &items())?;
    let sorts = [
        doc! {},
        doc! { "k": 1 },
        doc! { "j": -1 },
        doc! { "j": 1, "k": 1 },
        doc! { "j": 1, "t": -1 },
        doc! { "t": 1, "j": 1 },
    ];
    check(
        &mut comparison,
        &[doc! { "k": 1, "j": 1 }, doc! { "k": 2, "j": 0 }],
        &sorts,
    )?;
    // Across keys there is no natural order, so the sort is of all items.
    let sorts = [doc! { "j": 1, "t": 1 }, doc! { "t": -1 }];
    check(
        &mut comparison,
        &[doc! { "k": 1 }, doc! { "k": 1, "j": { "$in": [0, 1] } }],
        &sorts,
    )
}
