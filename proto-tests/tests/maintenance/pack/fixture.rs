//! A collection of plain documents, and a proxy with a bucket shape for it.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bson::{Binary, Bson, DateTime, Document, doc};
use proto_tests::invariants;
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, database_name};
use rustix::process::{Pid, Signal, kill_process};

pub(super) const COLLECTION: &str = "items";
pub(super) const COPY: &str = "items.mongoshape_pack";
pub(super) const KEPT: &str = "items.mongoshape_plain";

pub(super) struct Fixture {
    pub(super) database: String,
    pub(super) shape: Shape,
    pub(super) proxy: Proxy,
    pub(super) application: Connection,
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

/// Documents of so many keys, which do not come in the order of their times.
pub(super) fn documents(count: i32, keys: i32) -> Vec<Document> {
    let document = |n: i32| {
        let at = DateTime::from_millis(1_698_349_623_000 + i64::from(n * 7919 % count) * 1000);
        doc! { "_id": n, "k": n % keys, "n": n, "at": at, "quantity": n, "tags": [n % 3, n % 5] }
    };
    (0..count).map(document).collect()
}

impl Fixture {
    pub(super) fn open(mongod: &Mongod, shape: Shape) -> Result<Self> {
        let database = database_name();
        let toml = shape.toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
        Ok(Self {
            application: Connection::open(proxy.address())?,
            direct: Connection::open(mongod.address())?,
            shape,
            database,
            proxy,
        })
    }

    /// The same with these documents, written past the proxy.
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

    /// Runs a command through the proxy.
    pub(super) fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.application.command_ok(&command)?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(reply)
    }

    /// Packs. Returns whether the run succeeded, and its output.
    pub(super) fn try_pack(&self) -> Result<(bool, String)> {
        let output = self.proxy.run_with("setup", &["--pack"])?;
        let text = String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr);
        Ok((output.status.success(), text))
    }

    pub(super) fn pack(&self) -> Result<String> {
        let (is_well, printed) = self.try_pack()?;
        ensure!(is_well, "{printed}");
        Ok(printed)
    }

    /// Packs a collection that is refused. The output.
    pub(super) fn refused(&self) -> Result<String> {
        let (is_well, printed) = self.try_pack()?;
        ensure!(!is_well, "{printed}");
        Ok(printed)
    }

    /// Begins to pack.
    pub(super) fn start(&self) -> Result<Child> {
        let mut command = Command::new(find_binary()?);
        command
            .args(["setup", "--pack", "--config"])
            .arg(self.proxy.config_file());
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// The output of another verb.
    pub(super) fn output(&self, verb: &str) -> Result<String> {
        let output = self.proxy.run(verb)?;
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    }

    /// What a collection of the database holds, by `_id`.
    pub(super) fn stored(&mut self, collection: &str) -> Result<Vec<Document>> {
        let find = doc! { "find": collection, "sort": { "_id": 1 }, "$db": &self.database };
        self.direct.all(&find)
    }

    /// What the application reads, by `_id`, with fields in the order of their names.
    pub(super) fn items(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.database };
        Ok(self.application.all(&find)?.into_iter().map(sorted).collect())
    }

    /// Every collection of the database with its options and UUID, and every index, past the proxy.
    pub(super) fn catalog(&mut self) -> Result<Vec<Document>> {
        let list = doc! { "listCollections": 1, "$db": &self.database };
        let mut listed = self.direct.all(&list)?;
        listed.sort_by_key(|listed| listed.get_str("name").unwrap_or_default().to_owned());
        let mut all = Vec::new();
        for listed in listed {
            let indexes = doc! { "listIndexes": listed.get_str("name")?, "$db": &self.database };
            all.push(listed);
            all.extend(self.direct.all(&indexes)?);
        }
        Ok(all)
    }

    pub(super) fn uuid(&mut self, collection: &str) -> Result<Option<Binary>> {
        let list = doc! { "listCollections": 1, "filter": { "name": collection }, "$db": &self.database };
        let listed = self.direct.all(&list)?;
        let Some(listed) = listed.first() else { return Ok(None) };
        match listed.get_document("info")?.get("uuid") {
            Some(Bson::Binary(uuid)) => Ok(Some(uuid.clone())),
            _ => Ok(None),
        }
    }

    /// Fails unless pages have these documents, the original is kept, and the application can write.
    pub(super) fn check_packed(&mut self, documents: &[Document]) -> Result<()> {
        let kept = self.stored(KEPT)?;
        ensure!(kept == documents, "{kept:?}");
        ensure!(self.uuid(COPY)?.is_none(), "the copy is there still");
        let expected: Vec<Document> = documents.iter().cloned().map(sorted).collect();
        let items = self.items()?;
        ensure!(items == expected, "{items:?}");
        invariants::check(&mut self.direct, &self.database, COLLECTION, &self.shape)?;
        let item = doc! { "_id": "one more", "k": 0, "at": DateTime::from_millis(0) };
        self.run(doc! { "insert": COLLECTION, "documents": [&item] })?;
        self.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": "one more" }, "limit": 1 }] })?;
        invariants::check(
            &mut self.direct,
            &self.database,
            COLLECTION,
            &Shape {
                items_change: true,
                ..self.shape.clone()
            },
        )
    }
}

/// A catalog without what mongod keeps of a validator that was taken away again, which means nothing.
pub(super) fn thawed(mut catalog: Vec<Document>) -> Vec<Document> {
    for listed in &mut catalog {
        if let Ok(options) = listed.get_document_mut("options") {
            options.remove("validationLevel");
            options.remove("validationAction");
        }
    }
    catalog
}

/// The shape's own key comes first in an item.
pub(super) fn sorted(document: Document) -> Document {
    let mut fields: Vec<_> = document.into_iter().collect();
    fields.sort_by(|(one, _), (other, _)| one.cmp(other));
    fields.into_iter().collect()
}

pub(super) fn signal(child: &Child, signal: Signal) -> Result<()> {
    let id = Pid::from_raw(i32::try_from(child.id())?).context("a process id")?;
    Ok(kill_process(id, signal)?)
}
