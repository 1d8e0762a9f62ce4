//! A known workload, and every metric after it.

use anyhow::{Context as _, Result, ensure};
use bson::{Binary, DateTime, Document, doc, spec::BinarySubtype};
use proto_tests::raw::{Connection, document, request};
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

use super::exposition::{Expected, check_seconds, scrape};

/// Whether a command gets as far as mongod.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Asks {
    Mongod,
    Nobody,
}

/// The label of a command.
fn label(command: &Document) -> String {
    match command.keys().next().map_or("", String::as_str) {
        "noSuchCommand" | "reIndex" => "other",
        name => name,
    }
    .to_owned()
}

/// A connection whose commands and their bytes are expected in the metrics.
struct Application {
    connection: Connection,
    database: String,
    expected: Expected,
    next_request_id: i32,
}

impl Application {
    fn start(proxy: &Proxy, database: &str) -> Result<Self> {
        let mut expected = Expected::default();
        for series in ["upstream_up", "client_connections", "client_connections_total"] {
            expected.add(series, 1.0);
        }
        expected.add(format!("build_info{{version=\"{}\"}}", env!("CARGO_PKG_VERSION")), 1.0);
        Ok(Self {
            connection: Connection::open(proxy.address())?,
            database: database.to_owned(),
            expected,
            next_request_id: 1,
        })
    }

    /// Runs a command, of which this is to become.
    fn run(&mut self, mut command: Document, outcome: &str, asks: Asks) -> Result<Document> {
        if !command.contains_key("$db") {
            command.insert("$db", &self.database);
        }
        let name = command.keys().next().cloned().unwrap_or_default();
        let sent = request(self.next_request_id, &command)?;
        self.next_request_id += 1;
        self.connection.send(&sent)?;
        let received = self.connection.receive()?;
        let expected = &mut self.expected;
        let mut count = |series: String, by: usize| {
            expected.add(series, f64::from(u32::try_from(by).unwrap_or(u32::MAX)));
        };
        count("bytes_total{direction=\"received\"}".to_owned(), sent.len());
        count("bytes_total{direction=\"sent\"}".to_owned(), received.len());
        let is_unknown = name == "noSuchCommand";
        let label = label(&command);
        count(
            format!("commands_total{{command=\"{label}\",outcome=\"{outcome}\"}}"),
            1,
        );
        count(format!("command_duration_seconds_count{{outcome=\"{outcome}\"}}"), 1);
        count("proxy_overhead_seconds_count".to_owned(), 1);
        if asks == Asks::Mongod {
            let command = if name == "getMore" { "getMore" } else { "other" };
            count(format!("upstream_duration_seconds_count{{command=\"{command}\"}}"), 1);
        }
        let reply = document(&received)?;
        let is_ok = reply.get_f64("ok").unwrap_or_default() > 0.5 && !reply.contains_key("writeErrors");
        ensure!(
            is_ok == (outcome != "rejected" && !is_unknown),
            "{command} is answered {reply}"
        );
        Ok(reply)
    }

    fn rewritten(&mut self, command: Document) -> Result<Document> {
        let (name, target) = command.iter().next().context("an empty command")?;
        if name != "getMore"
            && let Some(collection) = target.as_str()
        {
            let series = format!("shape_duration_seconds_count{{{}}}", self.namespace(collection));
            self.expect(&series, 1.0);
        }
        self.run(command, "rewritten", Asks::Mongod)
    }

    fn relayed(&mut self, command: Document) -> Result<Document> {
        self.run(command, "relayed", Asks::Mongod)
    }

    fn rejected(&mut self, command: Document, (collection, reason): (&str, &str), asks: Asks) -> Result<()> {
        let label = label(&command);
        self.run(command, "rejected", asks)?;
        let labels = format!("command=\"{label}\",{},reason=\"{reason}\"", self.namespace(collection));
        self.expect(&format!("rejected_total{{{labels}}}"), 1.0);
        Ok(())
    }

    fn namespace(&self, collection: &str) -> String {
        format!("namespace=\"{}.{collection}\"", self.database)
    }

    fn expect(&mut self, series: &str, count: f64) {
        self.expected.add(series, count);
    }

    /// Closed buckets with so many items each.
    fn expect_closed(&mut self, buckets: u32, items: u32) {
        for bound in ["1", "2", "5", "9", "10", "20", "50", "100", "1000", "10000", "+Inf"] {
            if bound.parse().is_ok_and(|bound: f64| bound >= f64::from(items)) || bound == "+Inf" {
                self.expect(
                    &format!("bucket_fill_items_bucket{{le=\"{bound}\"}}"),
                    f64::from(buckets),
                );
            }
        }
        self.expect("bucket_fill_items_count", f64::from(buckets));
        self.expect("bucket_fill_items_sum", f64::from(buckets * items));
    }

    /// An insert of so many items under a key.
    fn insert(&mut self, items: &[Document]) -> Result<()> {
        self.rewritten(doc! { "insert": "items", "documents": items })?;
        let series = format!("bucket_items_inserted_total{{{}}}", self.namespace("items"));
        self.expect(&series, f64::from(u32::try_from(items.len())?));
        Ok(())
    }

    fn read(&mut self, collection: &str, strategy: &str) {
        let namespace = self.namespace(collection);
        self.expect(&format!("reads_total{{{namespace},strategy=\"{strategy}\"}}"), 1.0);
    }

    fn statements(&mut self, kind: &str, count: f64) {
        self.expect(&format!("bucket_statements_total{{kind=\"{kind}\"}}"), count);
    }

    fn hint(&mut self, outcome: &str) {
        self.expect(&format!("head_page_lookups_total{{outcome=\"{outcome}\"}}"), 1.0);
    }
}

fn config(database: &str) -> String {
    format!(
        "[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\ntime = \"at\"\n\
         [[bucket]]\nnamespace = \"{database}.strange\"\nkey = \"k\"\n\
         [[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 3\nextras = {{ ref = \"book_id\" }}\n"
    )
}

fn items(ids: std::ops::Range<i32>, key: i32) -> Vec<Document> {
    ids.map(|id| doc! { "_id": id, "k": key, "at": DateTime::from_millis(i64::from(id) * 1000) })
        .collect()
}

#[test]
fn metrics_equal_the_executed_workload() -> Result<()> {
    let database = database_name();
    let options = ProxyOptions::new(&mongod::shared().uri()).config(&config(&database));
    let proxy = Proxy::start(&options)?;
    let mut application = Application::start(&proxy, &database)?;
    plain(&mut application)?;
    inserts(&mut application, &options)?;
    reads(&mut application)?;
    refusals(&mut application)?;
    outliers(&mut application, &proxy)?;
    let is = scrape(&proxy)?;
    application.expected.check(&is)?;
    check_seconds(&is)
}

fn plain(application: &mut Application) -> Result<()> {
    application.relayed(doc! { "hello": 1, "$db": "admin" })?;
    application.relayed(doc! { "ping": 1, "$db": "admin" })?;
    application.relayed(doc! { "insert": "plain", "documents": [{ "_id": 1, "text": "x".repeat(300_000) }] })?;
    // Passed on while it comes in.
    application.relayed(doc! { "find": "plain" })?;
    application.relayed(doc! { "noSuchCommand": 1 })?;
    Ok(())
}

fn inserts(application: &mut Application, options: &ProxyOptions) -> Result<()> {
    for key in [1, 2] {
        application.insert(&items(key * 100..key * 100 + 25, key))?;
        application.statements("page", 3.0);
        application.expect("buckets_opened_total", 3.0);
        application.expect_closed(2, 10);
        application.hint("miss");
    }
    // Older than what is there.
    application.insert(&items(1..2, 2))?;
    application.statements("push", 1.0);
    application.statements("mark", 1.0);
    application.expect("out_of_order_items_total", 1.0);
    application.hint("hit");
    // Another proxy begins the page that this one expects to begin.
    application.insert(&items(300..310, 3))?;
    application.statements("page", 1.0);
    application.expect("buckets_opened_total", 1.0);
    application.hint("miss");
    let other = Proxy::start(options)?;
    let insert = doc! { "insert": "items", "documents": items(310..313, 3), "$db": &application.database };
    Connection::open(other.address())?.command_ok(&insert)?;
    application.insert(&items(313..315, 3))?;
    // It announced that page first.
    application.statements("reserve", 1.0);
    application.statements("push", 1.0);
    application.expect("bucket_conflicts_total", 1.0);
    application.hint("hit");
    Ok(())
}

fn reads(application: &mut Application) -> Result<()> {
    for _ in 0..3 {
        application.rewritten(doc! { "find": "items", "filter": { "k": 1 }, "limit": 10 })?;
        application.read("items", "page");
    }
    application.rewritten(doc! { "find": "items", "filter": { "k": 1 } })?;
    application.read("items", "stream");
    application.rewritten(doc! { "find": "items", "filter": { "x": 1 } })?;
    application.read("items", "pipeline");
    application.rewritten(doc! { "aggregate": "items", "pipeline": [{ "$match": { "x": 1 } }], "cursor": {} })?;
    application.read("items", "pipeline");
    let lookup = doc! { "$unionWith": "items" };
    application.run(
        doc! { "aggregate": "plain", "pipeline": [{ "$limit": 1 }, { "$project": { "_id": 1 } }, lookup], "cursor": {} },
        "rewritten",
        Asks::Mongod,
    )?;
    application.read("items", "pipeline");
    Ok(())
}

fn refusals(application: &mut Application) -> Result<()> {
    use Asks::{Mongod, Nobody};
    application.rejected(
        doc! { "find": "items", "showRecordId": true },
        ("items", "read"),
        Nobody,
    )?;
    application.rejected(
        doc! { "validate": "items", "repair": true },
        ("items", "collection"),
        Nobody,
    )?;
    application.rejected(doc! { "reIndex": "items" }, ("items", "command"), Nobody)?;
    let out = doc! { "aggregate": "plain", "pipeline": [{ "$out": "items" }], "cursor": {} };
    application.rejected(out, ("items", "mention"), Nobody)?;
    let hashed = doc! { "key": { "x": "hashed" }, "name": "x" };
    application.rejected(
        doc! { "createIndexes": "items", "indexes": [hashed] },
        ("items", "index"),
        Mongod,
    )?;
    let upsert = doc! { "q": { "k": 9, "a..b": 1 }, "u": { "$set": { "z": 1 } }, "upsert": true };
    application.rejected(
        doc! { "update": "items", "updates": [upsert] },
        ("items", "write"),
        Mongod,
    )?;
    Connection::open(mongod::shared().address())?
        .command_ok(&doc! { "insert": "strange", "documents": [{ "x": 1 }], "$db": &application.database })?;
    application.rejected(doc! { "find": "strange" }, ("strange", "misfit"), Mongod)?;
    Ok(())
}

fn outliers(application: &mut Application, proxy: &Proxy) -> Result<()> {
    let namespace = application.namespace("books");
    let spills = format!("outlier_spills_total{{{namespace}}}");
    application.relayed(doc! { "insert": "books", "documents": [{ "_id": 1, "buyers": ["a", "b"] }] })?;
    let long: Vec<i32> = (0..10).collect();
    application.rewritten(doc! { "insert": "books", "documents": [{ "_id": 2, "buyers": long }] })?;
    application.expect(&spills, 1.0);
    application.relayed(doc! { "find": "books", "filter": { "_id": 1 } })?;
    application.rewritten(doc! { "find": "books" })?;
    application.expect(&format!("outlier_merged_reads_total{{{namespace}}}"), 1.0);
    application.rewritten(doc! { "count": "books", "query": { "buyers": 9 } })?;
    application.read("books", "pipeline");
    let push = doc! { "q": { "_id": 2 }, "u": { "$push": { "buyers": 10 } } };
    application.rewritten(doc! { "update": "books", "updates": [push] })?;
    // Its tail is moved while the connection pauses.
    application.expect(&spills, 1.0);
    let series = format!("mongoshape_{spills}");
    while proxy.metric(&series) < 1.5 {
        std::thread::sleep(std::time::Duration::from_millis(10));
    }
    Ok(())
}

#[test]
fn refused_database_command_names_a_shape() -> Result<()> {
    let database = database_name();
    let shape = format!("[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\n");
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&shape))?;
    let mut application = Application::start(&proxy, &database)?;
    let stream = doc! { "aggregate": 1, "pipeline": [{ "$changeStream": {} }], "cursor": {} };
    application.rejected(stream, ("items", "change_stream"), Asks::Nobody)?;
    let uuid = Binary {
        subtype: BinarySubtype::Uuid,
        bytes: vec![7; 16],
    };
    application.rejected(doc! { "find": uuid }, ("items", "uuid"), Asks::Nobody)?;
    // A command is counted after its reply is sent.
    for _ in 0..50 {
        if application.expected.check(&scrape(&proxy)?).is_ok() {
            break;
        }
        std::thread::sleep(std::time::Duration::from_millis(20));
    }
    application.expected.check(&scrape(&proxy)?)
}
