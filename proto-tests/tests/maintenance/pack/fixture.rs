//! The commands that pack a collection.

use std::process::{Child, Command, Stdio};

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::{Shape, invariants};
use rustix::process::{Pid, Signal, kill_process};

use crate::plain_collection::sorted;
pub(super) use crate::plain_collection::{COLLECTION, PlainCollection as Fixture, with_time};

pub(super) const COPY: &str = "items.mongoshape_pack";
pub(super) const KEPT: &str = "items.mongoshape_plain";

/// Documents of so many keys, which do not come in the order of their times.
pub(super) fn documents(count: i32, keys: i32) -> Vec<Document> {
    let document = |n: i32| {
        let at = DateTime::from_millis(1_698_349_623_000 + i64::from(n * 7919 % count) * 1000);
        doc! { "_id": n, "k": n % keys, "n": n, "at": at, "quantity": n, "tags": [n % 3, n % 5] }
    };
    (0..count).map(document).collect()
}

impl Fixture {
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

pub(super) fn signal(child: &Child, signal: Signal) -> Result<()> {
    let id = Pid::from_raw(i32::try_from(child.id())?).context("a process id")?;
    Ok(kill_process(id, signal)?)
}
