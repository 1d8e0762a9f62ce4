//! The commands that convert a collection.

use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::{Shape, invariants};
use rustix::process::{Pid, Signal, kill_process};

pub(super) use crate::plain_collection::{COLLECTION, PlainCollection as Fixture, sorted, with_time};

pub(super) const COPY: &str = "items.mongoshape_convert";
pub(super) const KEPT: &str = "items.mongoshape_kept";
pub(super) const RECORD: &str = "items.mongoshape_conversion";

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
        7..=9 => drop(document.insert("_id", doc! { "tenant": n % 5, "number": n })),
        _ => {}
    }
    document
}

impl Fixture {
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
    pub(super) fn convert_refused(&self, options: &[&str]) -> Result<String> {
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
    pub(super) fn start_convert(&self, options: &[&str]) -> Result<Child> {
        let mut command = Command::new(find_binary()?);
        command.args(["convert", "--namespace", &self.namespace(), "--config"]);
        command.arg(self.proxy.config_file()).args(options);
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Waits until the former collection is up to date, and stops the run that applies changes to it.
    pub(super) fn end_when_equal(&self, mut run: Child) -> Result<()> {
        let deadline = Instant::now() + Duration::from_secs(20);
        let (mut is_equal, mut printed) = (false, String::new());
        while !is_equal && Instant::now() < deadline && run.try_wait()?.is_none() {
            (is_equal, printed) = self.try_verb("verify", &[])?;
        }
        let has_ended = kill_process(Pid::from_child(&run), Signal::TERM).is_err();
        let output = run.wait_with_output()?;
        ensure!(
            is_equal && !has_ended && output.status.success(),
            "{printed}{}{}",
            String::from_utf8_lossy(&output.stdout),
            String::from_utf8_lossy(&output.stderr)
        );
        Ok(())
    }

    /// Whether mongod stores images for a collection of the server itself.
    pub(super) fn stores_images(&mut self, collection: &str) -> Result<bool> {
        let listed = self.past(doc! { "listCollections": 1, "filter": { "name": collection } })?;
        Ok(listed.to_string().contains("\"enabled\": true"))
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

/// The documents with the fields of each in the order of their names.
pub(super) fn sorted_fields(documents: Vec<Document>) -> Vec<Document> {
    documents.into_iter().map(sorted).collect()
}
