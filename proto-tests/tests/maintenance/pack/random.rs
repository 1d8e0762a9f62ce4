//! Random documents are packed, and random operations run on them.

use anyhow::Result;
use proto_tests::differential::operation::FAMILIES;
use proto_tests::differential::{Coverage, Run};
use proto_tests::{ItemIds, Shape, mongod};

use super::fixture::with_time;

const DOCUMENTS: u32 = 150;
const OPERATIONS: u32 = 25;

fn check(shape: Shape, seeds: &[u64]) -> Result<()> {
    let run = Run {
        shape,
        outlier: None,
        seeds: seeds.to_vec(),
        operations: OPERATIONS,
        moves: false,
        families: FAMILIES,
        coverage: Coverage::default(),
    };
    run.against_packed(mongod::shared(), DOCUMENTS).map(|_| ())
}

fn by_date(shape: Shape) -> Shape {
    Shape {
        time: Some("date".to_owned()),
        ..shape
    }
}

#[test]
fn with_time_and_rename() -> Result<()> {
    check(by_date(with_time()), &[1, 2])
}

#[test]
fn a_key_of_two_fields_on_small_pages() -> Result<()> {
    let shape = Shape {
        max_items: 3,
        max_bytes: 1024,
        ..by_date(Shape::new(&["k", "region"]))
    };
    check(shape, &[11])
}

#[test]
fn without_time() -> Result<()> {
    check(Shape::new(&["k"]), &[21])
}

#[test]
fn without_ids() -> Result<()> {
    let shape = Shape {
        item_ids: ItemIds::Dropped,
        ..by_date(with_time())
    };
    check(shape, &[31])
}
