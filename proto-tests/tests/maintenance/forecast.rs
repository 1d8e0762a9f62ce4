//! The sizes that `mongoshape advise` forecasts are those that `setup --pack` leaves, within some percent.
//! `cargo xtask bench forecast` compares more and larger collections.

use anyhow::Result;
use bson::doc;
use proto_tests::ItemIds;
use proto_tests::forecast::{Content, DataSet, compare};
use proto_tests::mongod::Options;
use proto_tests::proxy::find_binary;

/// The largest deviation, in percent. mongod allocates files in units of 4 kB, and the files of these
/// collections have only some hundred kB.
const TOLERANCE: f64 = 20.0;

#[test]
fn sizes_are_as_forecast() -> Result<()> {
    let mongod = Options::default().standalone()?;
    let by_status = doc! { "status": 1, DataSet::TIME: 1 };
    let sets = [
        DataSet::new(Content::Messages, 40_000, 20).index(doc! { "user": 1 }),
        DataSet::new(Content::Readings, 20_000, 500)
            .index(by_status)
            .item_ids(ItemIds::Dropped),
    ];
    for set in sets {
        let compared = compare(&mongod, &find_binary()?, &set)?;
        let largest = compared.deviations().largest();
        assert!(largest <= TOLERANCE, "{largest:.1} %: {compared:?}");
        let pages = compared.deviations().pages;
        assert!(pages.abs() <= TOLERANCE, "{pages:.1} %: {compared:?}");
    }
    Ok(())
}
