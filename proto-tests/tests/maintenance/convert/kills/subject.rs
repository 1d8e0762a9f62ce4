//! A collection with an automatic shape in two proxies, and a converter behind a relay of its own.

use std::process::{Child, Command, Stdio};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::{Moment, StoppingRelay};
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name, invariants};
use tempfile::TempDir;

use super::super::fixture::{COLLECTION, COPY, KEPT, RECORD};
use super::clients::{BASE, base_document};

/// The longest time of a run on a busy machine.
const MAX_RUN: Duration = Duration::from_mins(1);

/// What a collection contains.
#[derive(Clone, Debug)]
pub(super) enum Layout {
    Plain,
    Pages(Shape),
}

/// The shape of the proxies.
pub(super) fn shape() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        items_change: true,
        ..Shape::new(&["k"])
    }
}

/// Another shape.
pub(super) fn other_shape() -> Shape {
    Shape {
        max_items: 7,
        items: "docs".to_owned(),
        items_change: true,
        ..Shape::new(&["k", "at"])
    }
}

fn automatic(shape: &Shape, namespace: &str) -> String {
    let table = shape.toml(namespace);
    table.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1)
}

pub(super) struct Subject {
    pub(super) database: String,
    pub(super) proxies: [Proxy; 2],
    pub(super) direct: Connection,
    pub(super) relay: StoppingRelay,
    uri: String,
    folder: TempDir,
}

/// A run of the converter, which is killed when it is dropped.
pub(super) struct Run(Child);

/// The end of a run.
pub(super) struct Ended {
    pub(super) code: Option<i32>,
    pub(super) printed: String,
}

impl Subject {
    pub(super) fn start(mongod: &Mongod) -> Result<Self> {
        Self::counting(mongod, changes_state)
    }

    /// The relay counts the commands that this names.
    pub(super) fn counting(mongod: &Mongod, counted: fn(&Document) -> Option<String>) -> Result<Self> {
        let database = database_name();
        let options =
            ProxyOptions::new(&mongod.uri()).config(&automatic(&shape(), &format!("{database}.{COLLECTION}")));
        Ok(Self {
            proxies: [Proxy::start(&options)?, Proxy::start(&options)?],
            direct: Connection::open(mongod.address())?,
            relay: StoppingRelay::to(mongod.address(), counted)?,
            uri: mongod.uri(),
            folder: tempfile::tempdir()?,
            database,
        })
    }

    /// Runs a command past the proxies.
    pub(super) fn past(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.direct.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// Runs a command through a proxy.
    pub(super) fn run(&self, number: usize, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = Connection::open(self.proxies[number].address())?.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// Begins again with a new collection of plain documents or of pages.
    pub(super) fn renew(&mut self, plain: bool) -> Result<()> {
        for name in [COLLECTION, COPY, KEPT, RECORD] {
            let command = doc! { "drop": name, "$db": &self.database };
            // An error: it does not exist.
            self.direct.command(&command)?;
        }
        let documents: Vec<Document> = (0..BASE).map(base_document).collect();
        let insert = doc! { "insert": COLLECTION, "documents": documents };
        if plain {
            self.past(doc! { "create": COLLECTION })?;
            return self.past(insert).map(drop);
        }
        self.run(0, insert).map(drop)
    }

    /// Begins a run of `mongoshape convert` whose configuration has this shape.
    fn convert(&self, shape: &Shape, options: &[&str]) -> Result<Run> {
        let namespace = format!("{}.{COLLECTION}", self.database);
        let own = std::fs::read_to_string(self.proxies[0].config_file())?;
        let (others, _) = own.split_once("[[bucket]]").context("there is no shape")?;
        ensure!(others.contains(&self.uri), "{others}");
        let others = others.replace(&self.uri, &self.relay.uri());
        let file = self.folder.path().join("mongoshape.toml");
        std::fs::write(&file, others + &automatic(shape, &namespace))?;
        let mut command = Command::new(find_binary()?);
        command.arg("convert").arg("--config").arg(&file);
        command.args(["--namespace", &namespace]).args(options);
        Ok(Run(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?))
    }

    /// Begins a run that the relay stops at a command.
    pub(super) fn begin(&self, shape: &Shape, options: &[&str], stop_at: Option<(usize, Moment)>) -> Result<Run> {
        self.relay.arm(stop_at);
        self.convert(shape, options)
    }

    /// Waits until the relay has stopped the run. `false`: the run has ended.
    pub(super) fn stops(&self, run: &mut Run) -> Result<bool> {
        let deadline = Instant::now() + MAX_RUN;
        while !run.has_ended()? {
            if self.relay.has_stopped() {
                return Ok(true);
            }
            ensure!(
                Instant::now() < deadline,
                "the run does not end; its commands: {:?}",
                self.relay.commands()
            );
            thread::sleep(Duration::from_millis(5));
        }
        Ok(false)
    }

    /// Runs the converter, and kills it at a command. `None`: it was killed.
    pub(super) fn convert_until(
        &self,
        shape: &Shape,
        options: &[&str],
        stop_at: Option<(usize, Moment)>,
    ) -> Result<Option<Ended>> {
        let mut run = self.begin(shape, options, stop_at)?;
        if self.stops(&mut run)? {
            return Ok(None);
        }
        run.end().map(Some)
    }

    /// Runs the converter, which must succeed. Its output.
    pub(super) fn convert_well(&self, shape: &Shape, options: &[&str]) -> Result<String> {
        let ended = self.convert_until(shape, options, None)?.context("it was killed")?;
        ensure!(
            ended.code == Some(0),
            "{options:?} ended with {:?}: {}",
            ended.code,
            ended.printed
        );
        Ok(ended.printed)
    }

    /// The names of the database's collections, sorted.
    pub(super) fn collections(&mut self) -> Result<Vec<String>> {
        let mut names: Vec<String> = self.listed()?.iter().filter_map(name).collect();
        names.retain(|name| !name.starts_with("system."));
        names.sort();
        Ok(names)
    }

    fn listed(&mut self) -> Result<Vec<Document>> {
        self.direct.all(&doc! { "listCollections": 1, "$db": &self.database })
    }

    /// Checks that no collection is frozen, has a fence, or stores images.
    pub(super) fn check_definitions(&mut self) -> Result<()> {
        for listed in self.listed()? {
            let Some(name) = name(&listed).filter(|name| [COLLECTION, KEPT].contains(&name.as_str())) else {
                continue;
            };
            let options = listed.get_document("options")?;
            let is_set = |option| options.get_document(option).is_ok_and(|value| !value.is_empty());
            ensure!(!is_set("validator"), "{name} is frozen: {options}");
            let images = options.get_document("changeStreamPreAndPostImages");
            ensure!(
                !images.is_ok_and(|images| images.get_bool("enabled").unwrap_or(false)),
                "{name} stores images: {options}"
            );
            let indexes = self.direct.all(&doc! { "listIndexes": &name, "$db": &self.database })?;
            let fences = ["mongoshape_freeze", "mongoshape_thaw", "mongoshape_validator"];
            let is_fence = |index: &&Document| {
                let name = index.get_str("name").unwrap_or_default();
                fences.iter().any(|fence| name.starts_with(fence))
            };
            let fence = indexes.iter().find(is_fence);
            ensure!(fence.is_none(), "{name} has a fence: {fence:?}");
        }
        Ok(())
    }

    /// Checks that the collection has this layout, and that documents can be written into it.
    pub(super) fn check_layout(&mut self, layout: &Layout) -> Result<()> {
        let (database, direct) = (self.database.clone(), &mut self.direct);
        match layout {
            Layout::Pages(shape) => {
                invariants::check(direct, &database, COLLECTION, shape)?;
            }
            Layout::Plain => {
                let stored = direct.find(&database, COLLECTION, doc! { "n": { "$exists": false } })?;
                ensure!(stored.is_empty(), "not plain: {stored:?}");
                self.past(doc! { "insert": COLLECTION, "documents": [base_document(BASE)] })?;
                self.past(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": BASE }, "limit": 1 }] })?;
            }
        }
        for number in 0..2 {
            self.run(
                number,
                doc! { "insert": COLLECTION, "documents": [base_document(BASE)] },
            )?;
            self.run(
                number,
                doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": BASE }, "limit": 1 }] },
            )?;
        }
        Ok(())
    }

    /// Every document through a proxy.
    pub(super) fn items(&self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "$db": &self.database };
        Connection::open(self.proxies[1].address())?.all(&find)
    }
}

impl Run {
    fn has_ended(&mut self) -> Result<bool> {
        Ok(self.0.try_wait()?.is_some())
    }

    /// Waits for the end.
    pub(super) fn end(mut self) -> Result<Ended> {
        let (mut printed, mut errors) = (String::new(), String::new());
        std::io::Read::read_to_string(&mut self.0.stdout.take().context("no output")?, &mut printed)?;
        std::io::Read::read_to_string(&mut self.0.stderr.take().context("no output")?, &mut errors)?;
        Ok(Ended {
            code: self.0.wait()?.code(),
            printed: printed + &errors,
        })
    }
}

impl Drop for Run {
    fn drop(&mut self) {
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
}

fn name(listed: &Document) -> Option<String> {
    listed.get_str("name").ok().map(str::to_owned)
}

/// Names a command that changes the state of a conversion, with its collection.
pub(super) fn changes_state(command: &Document) -> Option<String> {
    let (name, value) = command.iter().next()?;
    let collection = value.as_str().unwrap_or_default();
    let phase = || {
        let update = command.get_array("updates").ok()?.first()?.as_document()?;
        update
            .get_document("u")
            .ok()?
            .get_document("$set")
            .ok()?
            .get_str("phase")
            .ok()
    };
    let is_counted = match name.as_str() {
        "collMod" | "createIndexes" | "dropIndexes" | "create" | "renameCollection" | "drop" => true,
        // An update without a phase records the progress, which is not the state.
        "update" => collection == RECORD && phase().is_some(),
        _ => false,
    };
    let collection = collection
        .split_once('.')
        .filter(|_| name == "renameCollection")
        .map_or(collection, |(_, rest)| rest);
    is_counted.then(|| {
        format!("{name} {collection} {}", phase().unwrap_or_default())
            .trim_end()
            .to_owned()
    })
}
