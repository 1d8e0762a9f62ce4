//! Change streams beside writes.

use anyhow::Result;
use proto_tests::differential::operation::STREAMS;
use proto_tests::differential::{Coverage, Run};
use proto_tests::{Mongod, Shape};

use super::{is_full, small_pages_of_two_key_fields, with_time};

/// Both streams have the same events. An ordinary run takes one seed of each shape;
/// `MONGOSHAPE_DIFFERENTIAL=full` 20 seeds in all, each of 40 streams with 8 writes.
#[test]
#[expect(
    clippy::print_stderr,
    reason = "the test's own output, which the test runner captures"
)]
fn streams_have_the_same_events() -> Result<()> {
    let shapes = [
        with_time(&["k"]),
        small_pages_of_two_key_fields(),
        Shape {
            max_bytes: 1024,
            ..Shape::new(&["k"])
        },
        Shape {
            max_items: 4,
            is_clustered: true,
            ..with_time(&["k"])
        },
    ];
    // A stream of the cluster must not read collections of other tests, which may have no images.
    let set = Mongod::replica_set(1)?;
    for (shape, seed) in shapes.into_iter().zip(501..) {
        let seeds = if is_full() { 5 } else { 1 };
        let run = Run {
            shape: Shape {
                items_change: true,
                change_streams: true,
                ..shape
            },
            outlier: None,
            seeds: (0..seeds).map(|number| seed + 100 * number).collect(),
            operations: if is_full() { 40 } else { 6 },
            moves: true,
            families: STREAMS,
            coverage: Coverage::default(),
        };
        let report = run.against(&set)?;
        eprintln!("{report}");
        assert!(report.disagreements.is_empty(), "there are disagreements");
    }
    Ok(())
}
