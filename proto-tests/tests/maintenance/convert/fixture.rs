//! A collection, and the commands that convert it.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name, invariants};
use rustix::process::Signal;

pub(super) const COLLECTION: &str = "items";
pub(super) const COPY: &str = "items.mongoshape_convert";
pub(super) const KEPT: &str = "items.mongoshape_kept";
pub(super) const RECORD: &str = "items.mongoshape_conversion";

pub(super) struct Fixture {
    pub(super) database: String,
    pub(super) shape: Shape,
    pub(super) proxy: Proxy,
    pub(super) direct: Connection,
}

/// A shape by time, with a field that is stored under another name.
pub(super) fn with_time() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        ..Shape::new(&["k"])
    }
}

/// A document that differs in some fields from the others.
pub(super) fn document(n: i32) -> Document {
    let at = DateTime::from_millis(1_698_349_623_000 + i64::from(n * 7919 % 10_007) * 1000);
    let mut document = doc! { "_id": n, "n": n, "k": n % 7, "at": at, "quantity": n, "tags": [n % 3, n % 5] };
    match n % 11 {
        0 => drop(document.remove("k")),
        1 => drop(document.insert("k", bson::Bson::Null)),
        2 => drop(document.insert("k", i64::from(n % 7))),
        3 => drop(document.insert("at", bson::Bson::Null)),
        4 => drop(document.insert("_id", format!("text {n}"))),
        5 => drop(document.insert("_id", f64::from(n) + 0.5)),
        6 => drop(document.insert("more", doc! { "a": [1, { "b": n }], "z": -0.0 })),
        _ => {}
    }
    document
}

impl Fixture {
    /// A collection without documents, before a proxy with this shape.
    pub(super) fn open(mongod: &Mongod, shape: Shape) -> Result<Self> {
        let database = database_name();
        let toml = shape.toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
        Ok(Self {
            direct: Connection::open(mongod.address())?,
            shape,
            database,
            proxy,
        })
    }

    /// The same with these plain documents.
    pub(super) fn with(mongod: &Mongod, shape: Shape, documents: &[Document]) -> Result<Self> {
        let mut fixture = Self::open(mongod, shape)?;
        for part in documents.chunks(10_000) {
            fixture.past(doc! { "insert": COLLECTION, "documents": part })?;
        }
        Ok(fixture)
    }

    /// Runs a command past the proxy.
    pub(super) fn past(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.direct.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// A new connection: one that is idle during a conversion would be closed.
    fn application(&self) -> Result<Connection> {
        Connection::open(self.proxy.address())
    }

    /// Runs a command through the proxy.
    pub(super) fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.application()?.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    fn namespace(&self) -> String {
        format!("{}.{COLLECTION}", self.database)
    }

    /// Runs `convert` or another verb on the collection. Returns whether the run succeeded, and its output.
    pub(super) fn try_verb(&self, verb: &str, options: &[&str]) -> Result<(bool, String)> {
        let namespace = self.namespace();
        let mut arguments = vec!["--namespace", &namespace];
        arguments.extend(options);
        let output = self.proxy.run_with(verb, &arguments)?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), text))
    }

    pub(super) fn convert(&self, options: &[&str]) -> Result<String> {
        let (is_well, printed) = self.try_verb("convert", options)?;
        ensure!(is_well, "{printed}");
        Ok(printed)
    }

    /// Converts a collection that is refused. The output.
    pub(super) fn refused(&self, options: &[&str]) -> Result<String> {
        let (is_well, printed) = self.try_verb("convert", options)?;
        ensure!(!is_well, "{printed}");
        Ok(printed)
    }

    /// Converts to another shape. The proxy then serves that one.
    pub(super) fn reshape(&mut self, shape: Shape) -> Result<()> {
        let file = self.proxy.config_file();
        let text = std::fs::read_to_string(&file)?;
        let (others, _) = text.split_once("[[bucket]]").context("there is no shape")?;
        std::fs::write(&file, others.to_owned() + &shape.toml(&self.namespace()))?;
        self.convert(&[])?;
        self.proxy.signal(Signal::HUP)?;
        self.proxy.wait_for_log("\"reloaded\"")?;
        self.shape = shape;
        Ok(())
    }

    /// Begins to convert.
    pub(super) fn start(&self, options: &[&str]) -> Result<Child> {
        let mut command = Command::new(find_binary()?);
        command.args(["convert", "--namespace", &self.namespace(), "--config"]);
        command.arg(self.proxy.config_file()).args(options);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// The documents of a collection of the server itself, by `_id`.
    pub(super) fn stored(&mut self, collection: &str) -> Result<Vec<Document>> {
        let find = doc! { "find": collection, "sort": { "_id": 1 }, "$db": &self.database };
        self.direct.all(&find)
    }

    /// The documents that the proxy returns, by `_id`.
    pub(super) fn seen(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.database };
        self.application()?.all(&find)
    }

    /// The names of the database's collections on the server, sorted.
    pub(super) fn collections(&mut self) -> Result<Vec<String>> {
        let command = doc! { "listCollections": 1, "nameOnly": true, "$db": &self.database };
        let listed = self.direct.all(&command)?;
        let names = listed.iter().filter_map(|one| one.get_str("name").ok());
        let mut names: Vec<String> = names
            .filter(|name| !name.starts_with("system."))
            .map(str::to_owned)
            .collect();
        names.sort();
        Ok(names)
    }

    /// Checks that the pages are well-formed.
    pub(super) fn check_pages(&mut self) -> Result<()> {
        invariants::check(&mut self.direct, &self.database, COLLECTION, &self.shape)
    }
}

/// The documents with their fields sorted by name: the order of an item's fields may differ.
pub(super) fn sorted_fields(documents: Vec<Document>) -> Vec<Document> {
    let sorted = |document: Document| {
        let mut fields: Vec<_> = document.into_iter().collect();
        fields.sort_by(|(one, _), (other, _)| one.cmp(other));
        fields.into_iter().collect()
    };
    documents.into_iter().map(sorted).collect()
}
