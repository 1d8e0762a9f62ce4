//! `bench forecast`: the deviation of the sizes that `advise` forecasts from those after `setup --pack`.

use std::path::PathBuf;

use anyhow::{Result, ensure};
use bson::doc;
use clap::Args;
use proto_tests::forecast::{Compared, Content, DataSet, compare};
use proto_tests::{ItemIds, mongod};

/// The largest deviation of a size that `docs/choosing-shapes.md` promises, in percent.
const PROMISED: f64 = 15.0;

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Documents of a collection
    #[arg(long, default_value_t = 100_000, value_parser = clap::value_parser!(u32).range(1000..))]
    items: u32,
    /// The sets to measure, by their numbers in the table, separated by commas; otherwise all
    #[arg(long, value_delimiter = ',')]
    only: Vec<usize>,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

/// Prints a table with a line per set.
///
/// # Errors
/// If a program fails, or a size deviates by more than is promised.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let settings = mongod::Options::for_measurements(1.0);
    let mongod = settings.standalone()?;
    println!(
        "{} documents a set; sizes as forecast and after packing; deviations of the forecast in percent",
        options.items
    );
    println!("| set | pages | storage, MB | indexes, MB | pages | storage | indexes | both |");
    println!("|---|---|---|---|---|---|---|---|");
    let mut largest = 0.0_f64;
    for (number, set) in sets(options.items).iter().enumerate() {
        if !options.only.is_empty() && !options.only.contains(&number) {
            continue;
        }
        let compared = compare(&mongod, &binary, set)?;
        println!("| {number} {} {}", describe(set), figures(&compared));
        largest = largest.max(compared.deviations().largest());
    }
    println!("largest deviation of a size: {largest:.1} %");
    ensure!(largest <= PROMISED, "a size deviates by more than {PROMISED} %");
    Ok(())
}

fn sets(items: u32) -> Vec<DataSet> {
    let by_status = doc! { "status": 1, DataSet::TIME: 1 };
    let by_user = doc! { "user": 1 };
    let with = |content, per_key, item_ids| {
        let set = DataSet::new(content, items, per_key).item_ids(item_ids);
        set.index(by_status.clone())
    };
    let (unique, stored, dropped) = (ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped);
    vec![
        with(Content::Messages, 5, unique).index(by_user.clone()),
        with(Content::Messages, 50, stored).index(by_user.clone()),
        with(Content::Messages, 3000, dropped).index(by_user.clone()),
        with(Content::Messages, 3000, unique).read_limit(50),
        with(Content::Readings, 5, stored),
        with(Content::Readings, 50, unique).index(doc! { DataSet::KEY: 1 }),
        with(Content::Readings, 3000, stored).read_limit(50),
        with(Content::Orders, 5, unique).index(by_user.clone()),
        with(Content::Orders, 50, dropped),
        with(Content::Orders, 3000, stored).index(by_user.clone()),
        with(Content::Random, 5, dropped),
        with(Content::Random, 50, unique).index(by_user),
        with(Content::Random, 3000, stored),
        DataSet::new(Content::Messages, items, 50).index(doc! { "status": 1 }),
    ]
}

/// The contents, the items a key, the `item_ids` and the indexes.
fn describe(set: &DataSet) -> String {
    let content = match set.content {
        Content::Messages => "messages",
        Content::Readings => "readings",
        Content::Orders => "orders",
        Content::Random => "random strings",
    };
    let item_ids = set.item_ids.name();
    let names = |index: &bson::Document| format!("{{{}}}", index.keys().cloned().collect::<Vec<_>>().join(", "));
    let indexes: Vec<String> = set.indexes.iter().map(names).collect();
    format!(
        "{content}, {} a key, read by {}, `{item_ids}`, {}",
        set.per_key,
        set.read_limit,
        indexes.join(" ")
    )
}

fn figures(compared: &Compared) -> String {
    let Compared { forecast, stored } = compared;
    let deviations = compared.deviations();
    let sizes = |of: fn(&proto_tests::forecast::PageSizes) -> f64| {
        format!("{:.2} / {:.2}", of(forecast) / 1e6, of(stored) / 1e6)
    };
    format!(
        "| {:.0} / {:.0} | {} | {} | {:+.1} | {:+.1} | {:+.1} | {:+.1} |",
        forecast.pages,
        stored.pages,
        sizes(|sizes| sizes.storage),
        sizes(|sizes| sizes.indexes),
        deviations.pages,
        deviations.storage,
        deviations.indexes,
        deviations.total
    )
}
