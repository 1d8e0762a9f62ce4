//! The two collections and the connections to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use anyhow::{Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};

use super::deployment::{Deployment, Topology};
use super::refusal::{self, WriteRequest};
use super::routes::Routes;
use super::values::TWICE;
use crate::sessions::lsid;
use crate::{Outlier, Proxy, Shape, database_name, raw};

/// The collection's name, in every database.
pub(super) const COLLECTION: &str = "things";
/// Another collection of the same shape, in every database.
pub(super) const ANOTHER: &str = "others";

/// A collection as a client reaches it.
#[derive(Debug)]
pub struct Side {
    pub(super) routes: Routes,
    pub(super) database: String,
    /// The logical session, of this side alone: both sides are on one mongod.
    lsid: Document,
}

impl Side {
    /// Runs a command that does not name its `$db` yet.
    pub fn run(&mut self, command: &Document) -> Result<RawDocumentBuf> {
        let mut command = command.clone();
        command.insert("$db", self.database.as_str());
        if !Bson::Document(command.clone()).to_string().contains(TWICE[1]) {
            return self.routes.command_raw(&command);
        }
        let mut request = raw::request(0, &command)?;
        for start in 0..request.len() {
            if request[start..].starts_with(TWICE[1].as_bytes()) {
                request[start..start + TWICE[0].len()].copy_from_slice(TWICE[0].as_bytes());
            }
        }
        self.routes.exchange(&command, &request)
    }

    /// Sends a command to each proxy but that of the last command.
    pub(super) fn run_on_other_proxies(&mut self, command: &Document) -> Result<()> {
        let mut command = command.clone();
        command.insert("$db", self.database.as_str());
        self.routes.on_others(&command)
    }

    /// The command as part of this side's session, with these fields of a retryable write or a transaction.
    #[must_use]
    pub fn in_session(&self, command: &Document, fields: Document) -> Document {
        let mut command = command.clone();
        command.insert("lsid", self.lsid.clone());
        command.extend(fields);
        command
    }

    /// A text that names no database of ours.
    #[must_use]
    pub fn neutral(&self, text: &str) -> String {
        text.replace(&self.database, "<db>")
    }
}

/// A plain collection, a shaped one, and the shaped one as it is stored.
#[derive(Debug)]
pub struct Sides {
    /// A plain collection on mongod: the reference for every reply.
    pub plain: Side,
    /// Through the proxies.
    pub shaped: Side,
    /// The buckets.
    pub stored: Side,
    /// Of the shaped one.
    pub shape: Shape,
    /// Of the shaped one, if it is of the other pattern.
    pub outlier: Option<Outlier>,
    pub(super) topology: Topology,
    /// Whether the current command is a resent one.
    pub(super) is_sent_again: bool,
    /// The last transaction number given.
    number: i64,
    /// How many databases of their own operations had.
    elsewhere: u32,
    /// The number of refused operations, or parts of them, by reason.
    pub refusals: BTreeMap<String, u32>,
}

impl Sides {
    /// Fresh databases with names of equal length. The seed determines the proxy of each command.
    pub fn open(servers: impl Into<Deployment>, proxies: &[Proxy], shape: &Shape, seed: u64) -> Result<Self> {
        let servers = servers.into();
        let name = database_name();
        let proxies: Vec<SocketAddr> = proxies.iter().map(Proxy::address).collect();
        let side = |addresses: &[SocketAddr], suffix| -> Result<Side> {
            Ok(Side {
                routes: Routes::open(addresses, seed)?,
                database: format!("{name}_{suffix}"),
                lsid: lsid(&format!("{suffix}{name}")),
            })
        };
        Ok(Self {
            plain: side(&[servers.direct], "n")?,
            shaped: side(&proxies, "s")?,
            stored: side(&[servers.stored], "s")?,
            shape: shape.clone(),
            outlier: None,
            topology: servers.topology,
            is_sent_again: false,
            number: 0,
            elsewhere: 0,
            refusals: BTreeMap::new(),
        })
    }

    /// Makes the collections as clustered ones.
    pub(super) fn cluster(&mut self) -> Result<()> {
        for collection in [COLLECTION, ANOTHER] {
            let index = doc! { "key": { "_id": 1 }, "unique": true };
            for reply in self.both(&doc! { "create": collection, "clusteredIndex": index })? {
                ensure!(reply.get_f64("ok")? > 0.0, "{}", show(&reply));
            }
        }
        Ok(())
    }

    /// Shards the shaped collection by the key of the shape. The first insert creates their indexes.
    pub(super) fn shard(&mut self) -> Result<()> {
        let key: Document = self.shape.key.iter().map(|field| (field.clone(), 1.into())).collect();
        let namespace = format!("{}.{COLLECTION}", self.stored.database);
        let shard = doc! { "shardCollection": namespace, "key": &key, "$db": "admin" };
        let reply = self.stored.routes.command_raw(&shard)?;
        ensure!(field(&reply, "ok") == Some(RawBsonRef::Double(1.0)), "{}", show(&reply));
        // The cluster has created this index, which the application sees.
        let name: Vec<String> = self.shape.key.iter().map(|field| format!("{field}_1")).collect();
        let index = doc! { "key": &key, "name": name.join("_") };
        self.plain
            .run(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
        let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 0 }] };
        let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": {}, "limit": 0 }] };
        for command in [insert, delete] {
            for reply in self.both(&command)? {
                ensure!(field(&reply, "n") == Some(RawBsonRef::Int32(1)), "{}", show(&reply));
            }
        }
        Ok(())
    }

    /// Makes the collection, and that of its pages: no transaction sees one that is made after its beginning.
    pub(super) fn begin(&mut self, outlier: &Outlier) -> Result<()> {
        let document = doc! { "_id": 0, &outlier.array: vec![0; outlier.threshold + 1] };
        let insert = doc! { "insert": COLLECTION, "documents": [document] };
        let delete = doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 0 }, "limit": 1 }] };
        for command in [insert, delete] {
            for reply in self.both(&command)? {
                ensure!(field(&reply, "n") == Some(RawBsonRef::Int32(1)), "{}", show(&reply));
            }
        }
        Ok(())
    }

    /// Runs something in fresh databases, which are dropped behind it.
    pub(super) fn elsewhere<T>(&mut self, run: impl FnOnce(&mut Self) -> Result<T>) -> Result<T> {
        self.elsewhere += 1;
        let suffix = format!("_{}", self.elsewhere);
        let sides = [&mut self.plain, &mut self.shaped, &mut self.stored];
        let names = sides.map(|side| {
            let name = side.database.clone();
            side.database.push_str(&suffix);
            name
        });
        let result = run(self);
        for side in [&mut self.plain, &mut self.shaped] {
            side.run(&doc! { "dropDatabase": 1 })?;
        }
        for (side, name) in [&mut self.plain, &mut self.shaped, &mut self.stored]
            .into_iter()
            .zip(names)
        {
            side.database = name;
        }
        result
    }

    /// Counts a refusal.
    pub(super) fn refused(&mut self, kind: impl Into<String>) {
        *self.refusals.entry(kind.into()).or_default() += 1;
    }

    /// Whether a read is refused for a reason that it gives, which is counted.
    pub(super) fn is_refused(&mut self, command: &Document, reply: &RawDocument) -> bool {
        let reason = match &self.outlier {
            Some(_) => refusal::of_outlier_read(command, reply),
            None => refusal::of_read(command, reply),
        };
        if let Some(reason) = reason {
            self.refused(reason);
        }
        reason.is_some()
    }

    /// The features of a write.
    pub(super) fn write_request<'a>(&'a self, statement: &'a Document) -> WriteRequest<'a> {
        WriteRequest {
            statement,
            shape: &self.shape,
            outlier: self.outlier.as_ref(),
            topology: self.topology,
            is_sent_again: self.is_sent_again,
        }
    }

    /// A transaction number that none had before.
    pub fn next_number(&mut self) -> i64 {
        self.number += 1;
        self.number
    }

    /// The same command on both: plain, then shaped.
    pub fn both(&mut self, command: &Document) -> Result<[RawDocumentBuf; 2]> {
        Ok([self.plain.run(command)?, self.shaped.run(command)?])
    }
}

/// A field of a raw document.
pub(super) fn field<'a>(document: &'a RawDocument, name: &str) -> Option<RawBsonRef<'a>> {
    document.get(name).ok().flatten()
}

/// The documents of the first batch.
pub(super) fn first_batch(reply: &RawDocument) -> Vec<&RawDocument> {
    let cursor = field(reply, "cursor").and_then(RawBsonRef::as_document);
    let batch = cursor.and_then(|cursor| field(cursor, "firstBatch")?.as_array());
    let documents = batch.into_iter().flatten().flatten();
    documents.filter_map(RawBsonRef::as_document).collect()
}

/// A raw document as a person reads it, with its types.
pub(super) fn show(document: &RawDocument) -> String {
    Document::try_from(document).map_or_else(|error| error.to_string(), |document| format!("{document:?}"))
}
