//! A writer of hand-written buckets, as in MongoDB's documentation. A proxy is then started on the
//! collection.

use std::process::{Child, Command, Output, Stdio};

use anyhow::Result;
use bson::{Bson, DateTime, Document, Regex, doc};
use proto_tests::proxy::find_binary;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, invariants, mongod, raw};

/// A collection and its shape, with the key `k`.
pub(crate) struct BucketWriter {
    pub(crate) shaped: Shaped,
    pub(crate) shape: Shape,
    pub(crate) direct: raw::Connection,
}

/// The shape of the pattern's example: times, a rename, and no `_id`s of items.
pub(crate) fn bare() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        rename: vec![("quantity".to_owned(), "qty".to_owned())],
        item_ids: proto_tests::ItemIds::Dropped,
        ..Shape::new(&["k"])
    }
}

/// A time of day, in milliseconds.
pub(crate) fn at(millis: i64) -> DateTime {
    DateTime::from_millis(1_698_335_223_000 + millis)
}

/// A trade as it is stored.
pub(crate) fn trade(number: i32, millis: i64) -> Document {
    doc! { "type": "buy", "qty": number, "at": at(millis) }
}

/// A bucket as it is written by hand, with the right number of items.
pub(crate) fn bucket(id: impl Into<Bson>, key: impl Into<Bson>, history: &[Document]) -> Document {
    let count = i32::try_from(history.len()).unwrap();
    doc! { "_id": id, "k": key, "count": count, "history": history }
}

impl BucketWriter {
    pub(crate) fn start(shape: Shape) -> Result<Self> {
        let database = database_name();
        let config = shape.toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&config))?;
        let shaped = Shaped { proxy, database };
        let mut direct = shaped.direct()?;
        if shape.is_clustered {
            let index = doc! { "key": { "_id": 1 }, "unique": true };
            direct.command_ok(&doc! { "create": COLLECTION, "clusteredIndex": index, "$db": &shaped.database })?;
        }
        Ok(Self { shaped, shape, direct })
    }

    /// The documented upsert. Where a bucket of the same second is there, another name is taken.
    pub(crate) fn push(&mut self, key: i32, item: &Document) -> Result<()> {
        let seconds = item.get_datetime("at")?.timestamp_millis() / 1000;
        let mut name = format!("{key}_{seconds}");
        loop {
            let prefix = Regex {
                pattern: format!("^{key}_").try_into()?,
                options: "".try_into()?,
            };
            let update = doc! {
                "q": { "_id": prefix, "count": { "$lt": i32::try_from(self.shape.max_items)? } },
                "u": {
                    "$push": { "history": item },
                    "$inc": { "count": 1 },
                    "$setOnInsert": { "_id": &name, "k": key },
                },
                "upsert": true,
            };
            let command = doc! { "update": COLLECTION, "updates": [update], "$db": &self.shaped.database };
            let reply = self.direct.command_ok(&command)?;
            if !reply.contains_key("writeErrors") {
                return Ok(());
            }
            name.push_str("_2");
        }
    }

    /// Writes whole documents past the proxy.
    pub(crate) fn write(&mut self, documents: &[Document]) -> Result<()> {
        let insert = self.shaped.insert(documents);
        let reply = self.direct.command_ok(&insert)?;
        assert!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(())
    }

    /// What mongod holds, and the names of its indexes.
    pub(crate) fn state(&self) -> Result<(Vec<Document>, Vec<String>)> {
        Ok((self.shaped.stored()?, self.shaped.indexes()?))
    }

    /// The items of one key as an application is to see them: bucket by bucket in the order of their first
    /// time.
    pub(crate) fn items_by_hand(&self, key: &Bson) -> Result<Vec<Document>> {
        let mut buckets: Vec<Document> = self.shaped.stored()?;
        buckets.retain(|bucket| bucket.get("k") == Some(key));
        let first = |bucket: &Document| {
            let mut items = bucket.get_array("history").unwrap().iter();
            items.find_map(|item| item.as_document()?.get_datetime("at").ok().copied())
        };
        // By `_id` before.
        buckets.sort_by_key(first);
        let items = buckets.iter().flat_map(|bucket| bucket.get_array("history").unwrap());
        Ok(items.map(|item| self.seen(key, item.as_document().unwrap())).collect())
    }

    /// A stored item as the application sees it.
    pub(crate) fn seen(&self, key: &Bson, stored: &Document) -> Document {
        let mut item = Document::new();
        item.extend(stored.get("_id").map(|id| ("_id".to_owned(), id.clone())));
        item.insert("k", stored.get("k").unwrap_or(key).clone());
        for (name, value) in stored.iter().filter(|(name, _)| !["_id", "k"].contains(&name.as_str())) {
            let renamed = self.shape.rename.iter().find(|(_, stored)| stored == name);
            item.insert(renamed.map_or(name, |(item, _)| item), value.clone());
        }
        item
    }

    /// The items of one key through the proxy.
    pub(crate) fn items(&self, key: &Bson) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "filter": { "k": key }, "$db": &self.shaped.database };
        self.shaped.application()?.all(&find)
    }

    /// The proxy's refusal to read.
    pub(crate) fn refusal(&self) -> Result<String> {
        let find = doc! { "find": COLLECTION, "$db": &self.shaped.database };
        let reply = self.shaped.application()?.command(&find)?;
        Ok(reply.get_str("errmsg").unwrap_or_default().to_owned())
    }

    pub(crate) fn check_layout(&mut self) -> Result<()> {
        invariants::check(&mut self.direct, &self.shaped.database, COLLECTION, &self.shape)
    }

    /// `setup` in a process of its own, that may be killed.
    pub(crate) fn spawn_setup(&self) -> Result<Child> {
        let mut command = Command::new(find_binary()?);
        command
            .arg("setup")
            .arg("--config")
            .arg(self.shaped.proxy.config_file());
        Ok(command.stdout(Stdio::piped()).stderr(Stdio::piped()).spawn()?)
    }

    /// Runs `setup`, which must succeed. Its output.
    pub(crate) fn set_up(&self) -> Result<String> {
        let output = self.shaped.proxy.run("setup")?;
        let text = text(&output);
        assert_eq!(output.status.code(), Some(0), "{text}");
        Ok(text)
    }
}

/// Both outputs as text.
pub(crate) fn text(output: &Output) -> String {
    String::from_utf8_lossy(&output.stdout).into_owned() + &String::from_utf8_lossy(&output.stderr)
}

#[track_caller]
pub(crate) fn assert_output(output: &Output, code: i32, parts: &[&str]) {
    let text = text(output);
    assert_eq!(output.status.code(), Some(code), "{text}");
    for part in parts {
        assert!(text.contains(part), "no {part:?} in:\n{text}");
    }
}
