//! Compares the sizes that `advise` forecasts with those that `setup --pack` leaves.
//!
//! Used by an ordinary test with small collections, and by `cargo xtask bench forecast`.

mod data_set;
mod printed;

use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use tempfile::TempDir;

pub use self::data_set::{Content, DataSet};
use crate::raw::Connection;
use crate::{Mongod, database_name};

const COLLECTION: &str = "items";
/// Documents of an insert command.
const BATCH: usize = 1000;
/// Reads of a key that the profiler records, so that `advise` proposes the key.
const PROFILED: i32 = 20;

/// The sizes of a collection of pages.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct PageSizes {
    /// Number of pages.
    pub pages: f64,
    /// Bytes of the collection on disk, without free blocks of its file. Their number depends on the times of
    /// checkpoints.
    pub storage: f64,
    /// Bytes of all indexes on disk.
    pub indexes: f64,
}

impl PageSizes {
    /// Bytes on disk.
    #[must_use]
    pub fn total(&self) -> f64 {
        self.storage + self.indexes
    }
}

/// A forecast and the sizes after packing.
#[derive(Clone, Copy, Debug)]
pub struct Compared {
    /// The sizes that `advise` printed before.
    pub forecast: PageSizes,
    /// The sizes that mongod reports after a checkpoint.
    pub stored: PageSizes,
}

impl Compared {
    /// The deviation of the forecast in percent: of the pages, the storage, the indexes, and storage and
    /// indexes together. Positive if the forecast is larger.
    #[must_use]
    pub fn deviations(&self) -> Deviations {
        let percent = |of: fn(&PageSizes) -> f64| 100.0 * (of(&self.forecast) / of(&self.stored) - 1.0);
        Deviations {
            pages: percent(|sizes| sizes.pages),
            storage: percent(|sizes| sizes.storage),
            indexes: percent(|sizes| sizes.indexes),
            total: percent(PageSizes::total),
        }
    }
}

/// Deviations of a forecast in percent.
#[derive(Clone, Copy, Debug)]
pub struct Deviations {
    /// Of the number of pages.
    pub pages: f64,
    /// Of the storage.
    pub storage: f64,
    /// Of the indexes.
    pub indexes: f64,
    /// Of storage and indexes together.
    pub total: f64,
}

impl Deviations {
    /// The largest deviation of a size on disk, in percent, without its sign.
    #[must_use]
    pub fn largest(&self) -> f64 {
        [self.storage, self.indexes, self.total]
            .into_iter()
            .map(f64::abs)
            .fold(0.0, f64::max)
    }
}

/// Stores the data set, asks `advise`, packs the collection as proposed, and drops everything.
///
/// # Errors
/// If a program fails, or `advise` proposes no bucket shape by the set's key.
pub fn compare(mongod: &Mongod, binary: &Path, set: &DataSet) -> Result<Compared> {
    let database = database_name();
    let mut direct = Connection::open(mongod.address())?;
    store(&mut direct, &database, set)?;
    checkpoint(&mut direct)?;
    let namespace = format!("{database}.{COLLECTION}");
    let uri = mongod.uri();
    let advise = |options: &[&str]| {
        let mut arguments = vec!["advise", "--uri", &uri, "--namespace", &namespace];
        arguments.extend_from_slice(options);
        run(binary, &arguments)
    };
    let forecast = printed::forecast(&advise(&[])?, set.item_ids)?;
    let folder = TempDir::new()?;
    let config = folder.path().join("mongoshape.toml");
    fs::write(&config, configured(&advise(&["--toml"])?, set, &namespace))?;
    let config = config.to_str().context("a temporary folder that is not UTF-8")?;
    run(binary, &["setup", "--pack", "--config", config])?;
    checkpoint(&mut direct)?;
    let stored = stored(&direct.command_ok(&doc! { "collStats": COLLECTION, "$db": &database })?)?;
    direct.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;
    Ok(Compared { forecast, stored })
}

fn store(direct: &mut Connection, database: &str, set: &DataSet) -> Result<()> {
    // The indexes are there before the documents, as in an application.
    let indexes: Vec<Document> = set
        .indexes
        .iter()
        .enumerate()
        .map(|(number, key)| doc! { "name": format!("application_{number}"), "key": key })
        .collect();
    direct.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": indexes, "$db": database })?;
    for batch in set.documents().collect::<Vec<_>>().chunks(BATCH) {
        let reply = direct.command_ok(&doc! { "insert": COLLECTION, "documents": batch, "$db": database })?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
    }
    direct.command_ok(&doc! { "profile": 2, "$db": database })?;
    for key in 0..PROFILED {
        let find = doc! {
            "find": COLLECTION, "filter": { DataSet::KEY: key }, "sort": { DataSet::TIME: 1 }, "limit": set.read_limit,
            "$db": database,
        };
        direct.all(&find)?;
    }
    direct.command_ok(&doc! { "profile": 0, "$db": database })?;
    Ok(())
}

/// Sizes on disk are those of the last checkpoint.
fn checkpoint(direct: &mut Connection) -> Result<()> {
    direct.command_ok(&doc! { "fsync": 1, "$db": "admin" })?;
    Ok(())
}

/// The proposed configuration, as it is used to pack. If `advise` proposes no shape, because it would need
/// more space, the shape that it had in mind.
fn configured(proposed: &str, set: &DataSet, namespace: &str) -> String {
    let setting = set.item_ids.name();
    let rewrite = format!("item_ids = \"{setting}\"\nmode = \"rewrite\"");
    if proposed.contains("[[bucket]]") {
        return proposed.replace("\nmode = \"observe\"\n", &format!("\n{rewrite}\n"));
    }
    let (key, time, most) = (DataSet::KEY, DataSet::TIME, set.read_limit);
    format!(
        "{proposed}\n[[bucket]]\nnamespace = \"{namespace}\"\nkey = \"{key}\"\ntime = \"{time}\"\nmax_items = {most}\n{rewrite}\n"
    )
}

fn stored(statistics: &Document) -> Result<PageSizes> {
    let number = |name| match statistics.get(name) {
        Some(Bson::Int32(number)) => Ok(f64::from(*number)),
        #[expect(clippy::cast_precision_loss, reason = "sizes of a test are far below 2^52")]
        Some(Bson::Int64(number)) => Ok(*number as f64),
        Some(Bson::Double(number)) => Ok(*number),
        _ => Err(anyhow::anyhow!("no {name} in {statistics}")),
    };
    Ok(PageSizes {
        pages: number("count")?,
        storage: number("storageSize")? - number("freeStorageSize")?,
        indexes: number("totalIndexSize")?,
    })
}

/// What the program prints. It must succeed.
fn run(binary: &Path, arguments: &[&str]) -> Result<String> {
    let Output { status, stdout, stderr } = Command::new(binary).args(arguments).output()?;
    let printed = String::from_utf8_lossy(&stdout).into_owned();
    ensure!(status.success(), "{printed}{}", String::from_utf8_lossy(&stderr));
    Ok(printed)
}
