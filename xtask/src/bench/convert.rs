//! `bench convert`: what a conversion costs the clients of a collection. They write through two proxies with an
//! automatic shape while the collection is converted to pages, to another shape, and to plain documents. One more
//! client writes to mongod directly until all plain documents are copied. Each client knows its documents, which
//! are compared at the end.

mod clients;

use std::fs::{self, File};
use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::Duration;

use anyhow::{Context as _, Result, anyhow, ensure};
use bson::{DateTime, Document, doc};
use clap::{Args, ValueEnum};
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, Shape, mongod};

use self::clients::{Clients, Interval, LongestWrite, Target};
use super::at_least_one;
use super::place::as_f64;

const DATABASE: &str = "convert";
const COLLECTION: &str = "items";
const KEYS: usize = 1_000;
/// The time before each conversion in which the clients' throughput is measured. mongod makes a checkpoint every
/// minute, during which writes are slower: a shorter time may contain none.
const BEFORE: Duration = Duration::from_mins(1);
/// The longest time of a read of all documents.
const MAX_READ: Duration = Duration::from_mins(10);
/// The `--max-share` without pauses.
const MAX_SHARE: u32 = 100;
/// The file of a run's output.
const OUTPUT: &str = "output";

#[derive(Debug, Args)]
pub(crate) struct Options {
    /// Documents at the beginning
    #[arg(long, default_value_t = 200_000, value_parser = at_least_one())]
    documents: usize,
    /// Clients that write, half of them through each proxy
    #[arg(long, default_value_t = 16, value_parser = at_least_one())]
    clients: usize,
    /// Gives this `--max-share` to `convert`, in percent; otherwise its default applies
    #[arg(long)]
    max_share: Option<u32>,
    /// Before each measured conversion, runs it at the default pace for so many seconds, prints the
    /// throughput, and ends it with `--back`
    #[arg(long)]
    sample: Option<u64>,
    /// The size of mongod's cache in GB
    #[arg(long, default_value_t = 2.0)]
    cache: f32,
    /// Measures only this conversion. Those before it are done without clients and without pauses
    #[arg(long)]
    only: Option<Conversion>,
    /// Measures this binary of mongoshape; otherwise the release build is made and measured
    #[arg(long)]
    binary: Option<PathBuf>,
}

impl Options {
    /// The conversions before the measured ones, and those.
    fn split<'d>(&self, directions: &'d [Direction]) -> (&'d [Direction], &'d [Direction]) {
        let Some(only) = self.only else {
            return (&[], directions);
        };
        let (earlier, rest) = directions.split_at(directions.partition_point(|one| one.conversion < only));
        (earlier, &rest[..1])
    }
}

/// The conversions, in their order.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, ValueEnum)]
enum Conversion {
    /// Plain documents to pages
    Pages,
    /// Pages to another shape
    Reshape,
    /// Pages to plain documents
    Plain,
}

/// A conversion.
struct Direction {
    conversion: Conversion,
    name: &'static str,
    /// The shape in the configuration of `convert`.
    shape: Shape,
    options: &'static [&'static str],
}

impl Direction {
    fn all() -> [Self; 3] {
        let by_key = || Shape {
            time: Some("at".to_owned()),
            max_items: 100,
            ..Shape::new(&["k"])
        };
        [
            Self {
                conversion: Conversion::Pages,
                name: "plain documents to pages",
                shape: by_key(),
                options: &[],
            },
            Self {
                conversion: Conversion::Reshape,
                name: "pages to another shape",
                shape: Shape {
                    max_items: 50,
                    ..Shape::new(&["owner"])
                },
                options: &[],
            },
            Self {
                conversion: Conversion::Plain,
                name: "pages to plain documents",
                shape: by_key(),
                options: &["--to", "plain"],
            },
        ]
    }

    fn config(&self) -> String {
        let table = self.shape.toml(&format!("{DATABASE}.{COLLECTION}"));
        table.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1)
    }
}

/// Prints a table with a line per direction.
///
/// # Errors
/// If a client gets an error, a document is lost, or a program fails.
pub(crate) fn run(options: &Options) -> Result<()> {
    let binary = super::binary(options.binary.as_deref())?;
    let settings = mongod::Options::for_measurements(options.cache);
    let mongod = settings.replica_set(1)?;
    let directions = Direction::all();
    let proxy = || {
        let options = ProxyOptions::new(&mongod.uri());
        Proxy::start(&options.config(&directions[0].config()).binary(&binary))
    };
    let proxies = [proxy()?, proxy()?];
    let mut direct = Connection::open(mongod.address())?;
    fill(&mut direct, options.documents)?;
    print_heading(options);
    let (earlier, measured) = options.split(&directions);
    let converter = Converter {
        uri: mongod.uri(),
        binary,
    };
    for direction in earlier {
        converter.convert(direction, Some(MAX_SHARE), None)?;
    }
    let addresses = proxies.each_ref().map(Proxy::address);
    let clients = Clients::start(&addresses, Target::Proxies, 0..options.clients);
    // mongod refuses direct writes to pages.
    let mut bypassing = earlier.is_empty().then(|| {
        let number = options.clients;
        Clients::start(&[mongod.address()], Target::Mongod, number..number + 1)
    });
    let mut of_bypassing = clients::Documents::new();
    let mut reports = String::new();
    for direction in measured {
        if let Some(seconds) = options.sample {
            sample(&converter, direction, Duration::from_secs(seconds), &clients)?;
        }
        let before = measure(&clients, BEFORE)?;
        let begun = clients.begin();
        let ended = AtomicBool::new(false);
        let copying = thread::scope(|scope| -> Result<_> {
            let copying = scope.spawn(|| -> Result<_> {
                wait_for_copy(mongod.address(), &ended)?;
                let copying = clients.since(&begun)?;
                // A program that bypasses the proxies has to end before the swap.
                if let Some(clients) = bypassing.take() {
                    of_bypassing = clients.stop()?;
                }
                Ok(copying)
            });
            let printed = converter.convert(direction, options.max_share, Some(&clients));
            ended.store(true, Ordering::Relaxed);
            let copying = copying.join().map_err(|_| anyhow!("a thread panicked"))?;
            reports += &printed?;
            copying
        })?;
        let throughput = Throughput {
            before,
            copying,
            all: clients.since(&begun)?,
        };
        throughput.print(direction.name, &mut reports);
    }
    let mut expected = clients.stop()?;
    expected.extend(of_bypassing);
    let mut reader = match options.only {
        None | Some(Conversion::Plain) => direct,
        Some(Conversion::Pages | Conversion::Reshape) => Connection::open(proxies[0].address())?,
    };
    reader.stream().set_read_timeout(Some(MAX_READ))?;
    check(&mut reader, options.documents, &expected)?;
    println!(
        "\n{} documents of the clients are as written\n\n{reports}",
        expected.len()
    );
    Ok(())
}

/// The clients' writes in the next time.
fn measure(clients: &Clients, time: Duration) -> Result<Interval> {
    let begun = clients.begin();
    thread::sleep(time);
    clients.since(&begun)
}

/// Prints the clients' throughput while documents are copied at the default pace. The collection stays as it is.
fn sample(converter: &Converter, direction: &Direction, time: Duration, clients: &Clients) -> Result<()> {
    let before = measure(clients, time)?;
    let folder = tempfile::tempdir()?;
    let mut running = converter.start(direction, direction.options, folder.path())?;
    let copying = measure(clients, time);
    let ended = running.try_wait()?;
    running.kill()?;
    running.wait()?;
    let copying = copying?;
    ensure!(ended.is_none(), "the conversion ended within {time:?}");
    println!(
        "{}, the first {} s at the default pace: {:.0} writes/s before, {:.0} while copying, {:.2}, longest write {:.0} ms",
        direction.name,
        time.as_secs(),
        before.rate(),
        copying.rate(),
        copying.rate() / before.rate(),
        copying.longest.time.as_secs_f64() * 1e3,
    );
    converter.run(direction, &["--back"], Some(clients))?;
    Ok(())
}

fn print_heading(options: &Options) {
    let Options { documents, clients, .. } = options;
    println!("{documents} documents, {clients} clients, a replica set of one");
    println!(
        "| conversion | seconds | writes/s before | while copying | ratio | until the end | ratio | longest write before | longest write |"
    );
    println!("|---|---|---|---|---|---|---|---|---|");
}

/// Waits until all documents are copied, or the run has ended.
fn wait_for_copy(address: SocketAddr, ended: &AtomicBool) -> Result<()> {
    let mut direct = Connection::open(address)?;
    let find = doc! { "find": format!("{COLLECTION}.mongoshape_conversion"), "$db": DATABASE };
    while !ended.load(Ordering::Relaxed) {
        let record = direct.all(&find)?;
        let phase = record.first().and_then(|record| record.get_str("phase").ok());
        if phase.is_some_and(|phase| phase == "following") {
            break;
        }
        thread::sleep(Duration::from_millis(200));
    }
    Ok(())
}

/// The clients' writes before and during a conversion.
struct Throughput {
    before: Interval,
    /// Until all documents are copied.
    copying: Interval,
    /// Until the conversion has ended.
    all: Interval,
}

impl Throughput {
    /// The longest write during the conversion, in a sentence.
    fn longest_write(&self, name: &str) -> String {
        let LongestWrite { command, after, time } = &self.all.longest;
        let (after, time) = (after.as_secs_f64(), time.as_secs_f64());
        format!(
            "{name}: the longest write was `{command}` with {time:.2} s, {after:.1} s after the conversion had begun\n\n"
        )
    }

    /// Prints the line of the table, and adds the longest write to the reports.
    fn print(&self, name: &str, reports: &mut String) {
        reports.push_str(&self.longest_write(name));
        let Self { before, copying, all } = self;
        println!(
            "| {name} | {:.1} | {:.0} | {:.0} | {:.2} | {:.0} | {:.2} | {:.0} ms | {:.0} ms |",
            all.time.as_secs_f64(),
            before.rate(),
            copying.rate(),
            copying.rate() / before.rate(),
            all.rate(),
            all.rate() / before.rate(),
            before.longest.time.as_secs_f64() * 1e3,
            all.longest.time.as_secs_f64() * 1e3,
        );
    }
}

/// A document of the beginning.
fn document(number: usize) -> Document {
    let number = i64::try_from(number).unwrap_or(i64::MAX);
    doc! {
        "_id": number,
        "k": number % i64::try_from(KEYS).unwrap_or(1),
        "owner": number % 77,
        "at": DateTime::from_millis(1_700_000_000_000 + number),
        "n": 0,
        "text": "a text of some words, as a message has it, neither short nor long",
    }
}

fn fill(direct: &mut Connection, documents: usize) -> Result<()> {
    let numbers: Vec<usize> = (0..documents).collect();
    for part in numbers.chunks(10_000) {
        let part: Vec<Document> = part.iter().map(|number| document(*number)).collect();
        direct.command_ok(&doc! { "insert": COLLECTION, "documents": part, "$db": DATABASE })?;
    }
    Ok(())
}

/// Runs `convert`.
struct Converter {
    /// mongod's.
    uri: String,
    binary: PathBuf,
}

impl Converter {
    /// Converts, and returns the output. Stops at once if a client has ended.
    fn convert(&self, direction: &Direction, max_share: Option<u32>, clients: Option<&Clients>) -> Result<String> {
        let share = max_share.map(|share| share.to_string());
        let pace = share.as_deref().map(|share| ["--max-share", share]);
        let options = [direction.options, pace.as_ref().map_or(&[][..], |pace| pace)].concat();
        self.run(direction, &options, clients)
    }

    /// Runs `convert` with these options, and returns the output. Stops at once if a client has ended.
    fn run(&self, direction: &Direction, options: &[&str], clients: Option<&Clients>) -> Result<String> {
        let folder = tempfile::tempdir()?;
        let mut running = self.start(direction, options, folder.path())?;
        let status = loop {
            if let Some(status) = running.try_wait()? {
                break status;
            }
            if let Some(Err(error)) = clients.map(Clients::check) {
                running.kill()?;
                running.wait()?;
                return Err(error);
            }
            thread::sleep(Duration::from_millis(200));
        };
        let printed = fs::read_to_string(folder.path().join(OUTPUT))?;
        ensure!(status.success(), "{}: {printed}", direction.name);
        Ok(printed)
    }

    /// Starts `convert` with these options. The folder gets its configuration and its output.
    fn start(&self, direction: &Direction, options: &[&str], folder: &Path) -> Result<Child> {
        let file = folder.join("mongoshape.toml");
        let (uri, shape) = (&self.uri, direction.config());
        fs::write(
            &file,
            format!("[upstream]\nuri = \"{uri}\"\n[listen]\naddress = \"127.0.0.1:0\"\n{shape}"),
        )?;
        let mut command = Command::new(&self.binary);
        command.arg("convert").arg("--config").arg(&file);
        command.args(["--namespace", &format!("{DATABASE}.{COLLECTION}")]);
        command.args(options);
        let printed = File::create(folder.join(OUTPUT))?;
        Ok(command.stdout(printed.try_clone()?).stderr(printed).spawn()?)
    }
}

/// Compares the documents of the clients, and the number of the others.
fn check(direct: &mut Connection, documents: usize, expected: &clients::Documents) -> Result<()> {
    let find = doc! { "find": COLLECTION, "filter": { "_id": { "$type": "string" } }, "$db": DATABASE };
    let stored = direct.all(&find)?;
    ensure!(
        stored.len() == expected.len(),
        "{} documents are stored, {} expected",
        stored.len(),
        expected.len()
    );
    for document in stored {
        let known = expected.get(document.get_str("_id")?).context("a deleted document")?;
        ensure!(document.get_i32("n")? == *known, "{document}, expected {known}");
    }
    let others = doc! { "count": COLLECTION, "query": { "_id": { "$type": "long" }, "n": 0 }, "$db": DATABASE };
    let others = direct.command_ok(&others)?.get_i32("n")?;
    ensure!(f64::from(others) >= as_f64(documents), "{others} of {documents} others");
    Ok(())
}
