//! The metrics of inserts equal the executed inserts.

use anyhow::Result;
use bson::{DateTime, Document, doc};
use proto_tests::sessions::lsid;
use proto_tests::shaped::Shaped;
use proto_tests::{Proxy, ProxyOptions, mongod};

/// The series that inserts count in, without their prefix.
const SERIES: &[&str] = &[
    "bucket_statements_total{kind=\"push\"}",
    "bucket_statements_total{kind=\"page\"}",
    "bucket_statements_total{kind=\"close\"}",
    "bucket_statements_total{kind=\"mark\"}",
    "head_page_lookups_total{outcome=\"hit\"}",
    "head_page_lookups_total{outcome=\"miss\"}",
    "bucket_conflicts_total",
    "bucket_resent_items_total",
    "buckets_opened_total",
    "bucket_fill_items_count",
    "bucket_fill_items_sum",
    "out_of_order_items_total",
];

/// The series that are not 0, by what they have counted since `before`.
fn counted(proxy: &Proxy, before: &mut Vec<f64>) -> Vec<(&'static str, f64)> {
    let now: Vec<f64> = SERIES
        .iter()
        .map(|series| proxy.metric(&format!("mongoshape_{series}")))
        .collect();
    let since = now.iter().zip(before.iter()).map(|(now, before)| now - before);
    let since = SERIES
        .iter()
        .copied()
        .zip(since)
        .filter(|(_, count)| *count > 0.0)
        .collect();
    *before = now;
    since
}

fn items(ids: std::ops::Range<i32>, key: i32) -> Vec<Document> {
    ids.map(|id| doc! { "_id": id, "k": key, "at": DateTime::from_millis(i64::from(id) * 1000) })
        .collect()
}

#[test]
fn statements_hints_conflicts_and_fill_are_counted() -> Result<()> {
    const OPTIONS: &str = "time = \"at\"\nmax_bytes = 1024";
    let shaped = Shaped::start(OPTIONS)?;
    let mut application = shaped.application()?;
    let mut before = vec![0.0; SERIES.len()];
    let mut insert = |items: &[Document]| -> Result<Vec<(&'static str, f64)>> {
        application.command_ok(&shaped.insert(items))?;
        Ok(counted(&shaped.proxy, &mut before))
    };
    // Three pages of a key that is not in the cache, the third with room.
    assert_eq!(
        insert(&items(0..25, 1))?,
        [
            ("bucket_statements_total{kind=\"page\"}", 3.0),
            ("head_page_lookups_total{outcome=\"miss\"}", 1.0),
            ("buckets_opened_total", 3.0),
            ("bucket_fill_items_count", 2.0),
            ("bucket_fill_items_sum", 20.0),
        ]
    );
    // Five into its room, five on a page of their own.
    assert_eq!(
        insert(&items(25..35, 1))?,
        [
            ("bucket_statements_total{kind=\"push\"}", 1.0),
            ("bucket_statements_total{kind=\"page\"}", 1.0),
            ("head_page_lookups_total{outcome=\"hit\"}", 1.0),
            ("buckets_opened_total", 1.0),
            ("bucket_fill_items_count", 1.0),
            ("bucket_fill_items_sum", 10.0),
        ]
    );
    // Older than what is there, and one without a time.
    assert_eq!(
        insert(&[items(-2..-1, 1), vec![doc! { "_id": -1, "k": 1 }]].concat())?,
        [
            ("bucket_statements_total{kind=\"push\"}", 1.0),
            ("bucket_statements_total{kind=\"mark\"}", 1.0),
            ("head_page_lookups_total{outcome=\"hit\"}", 1.0),
            ("out_of_order_items_total", 2.0),
        ]
    );
    // Too large for the room in bytes: the page of seven is closed.
    let mut large = items(50..51, 1);
    large[0].insert("x", "x".repeat(900));
    assert_eq!(
        insert(&large)?,
        [
            ("bucket_statements_total{kind=\"page\"}", 1.0),
            ("bucket_statements_total{kind=\"close\"}", 1.0),
            ("head_page_lookups_total{outcome=\"hit\"}", 1.0),
            ("buckets_opened_total", 1.0),
            ("bucket_fill_items_count", 1.0),
            ("bucket_fill_items_sum", 7.0),
        ]
    );
    // Another proxy begins the page that this one expects to begin.
    insert(&items(100..110, 2))?;
    let proxy = shaped.another_proxy(OPTIONS)?;
    let mut other = proto_tests::raw::Connection::open(proxy.address())?;
    other.command_ok(&shaped.insert(&items(110..113, 2)))?;
    assert_eq!(
        insert(&items(113..115, 2))?,
        [
            ("bucket_statements_total{kind=\"push\"}", 1.0),
            ("head_page_lookups_total{outcome=\"hit\"}", 1.0),
            ("bucket_conflicts_total", 1.0),
        ]
    );
    Ok(())
}

#[test]
fn resent_statements_are_counted() -> Result<()> {
    let options = ProxyOptions::new(&mongod::shared_replica_set().uri());
    let shaped = Shaped::with("", &options)?;
    let mut application = shaped.application()?;
    let mut command = shaped.insert(&items(0..12, 1));
    command.extend(doc! { "lsid": lsid(&shaped.database), "txnNumber": 1_i64 });
    let mut before = vec![0.0; SERIES.len()];
    application.command_ok(&command)?;
    assert!(
        counted(&shaped.proxy, &mut before)
            .iter()
            .all(|(name, _)| *name != "bucket_resent_items_total")
    );
    let again = application.command_ok(&command)?;
    assert_eq!(again.get_i32("n")?, 12);
    let counted = counted(&shaped.proxy, &mut before);
    assert!(counted.contains(&("bucket_resent_items_total", 12.0)), "{counted:?}");
    let items = shaped.proxy.metric(&format!(
        "mongoshape_bucket_items_inserted_total{{namespace=\"{}.items\"}}",
        shaped.database
    ));
    assert!((items - 12.0).abs() < 0.5, "{items}");
    Ok(())
}
