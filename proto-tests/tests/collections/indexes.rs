//! Index commands and hints on a shaped collection answer as on a plain one, or are refused.

mod batches;
mod created;
mod expiry;
mod invalid;
mod recorded;
mod usage;

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{ProxyOptions, mongod};

const OPTIONS: &str = "time = \"at\"\nmax_items = 3\nrename = { quantity = \"qty\" }";
const NOT_SUPPORTED: i32 = 115;

/// A shaped collection through a proxy, and one of the same name in another database on mongod itself.
struct Comparison {
    shaped: Shaped,
    direct: Connection,
    application: Connection,
}

/// What must be equal.
#[derive(Clone, Copy, PartialEq)]
enum Compared {
    /// All of the reply.
    Whole,
    /// The error's code: its text has ids of the build, or what only one side has.
    Code,
}

impl Comparison {
    fn start() -> Result<Self> {
        let set = mongod::shared_replica_set();
        let shaped = Shaped::with(OPTIONS, &ProxyOptions::new(&set.uri()))?;
        Ok(Self {
            direct: Connection::open(set.address())?,
            application: shaped.application()?,
            shaped,
        })
    }

    fn filled() -> Result<Self> {
        let mut sides = Self::start()?;
        let items: Vec<_> = (0..10)
            .map(|number| doc! { "_id": number, "k": number % 2, "quantity": number, "a": number % 3, "tags": ["x", "y"] })
            .collect();
        sides.same(&doc! { "insert": COLLECTION, "documents": items }, Compared::Whole)?;
        Ok(sides)
    }

    /// The replies, plain and shaped, as far as they can be compared.
    fn run(&mut self, command: &Document) -> Result<[Document; 2]> {
        let database = self.shaped.database.clone();
        let plain = format!("{database}_plain");
        let on = |database: &str| {
            let mut command = command.clone();
            if !command.contains_key("$db") {
                command.insert("$db", database);
            }
            // Retryable writes of one number in one session would be one.
            if let Ok(session) = command.get_document_mut("lsid") {
                *session = lsid(&format!("{session}{database}"));
            }
            command
        };
        let mut replies = [
            self.direct.command(&on(&plain))?,
            self.application.command(&on(&database))?,
        ];
        for reply in &mut replies {
            for field in ["$clusterTime", "operationTime", "electionId", "opTime"] {
                reply.remove(field);
            }
            *reply = comparable(reply, &plain, &database);
        }
        Ok(replies)
    }

    fn same(&mut self, command: &Document, compared: Compared) -> Result<Document> {
        let [plain, shaped] = self.run(command)?;
        match compared {
            Compared::Whole => ensure!(plain == shaped, "{command}\nplain  {plain}\nshaped {shaped}"),
            Compared::Code => {
                for field in ["ok", "code", "codeName"] {
                    ensure!(
                        plain.get(field) == shaped.get(field),
                        "{command}\nplain  {plain}\nshaped {shaped}"
                    );
                }
                let text = shaped.get_str("errmsg").unwrap_or_default();
                ensure!(!text.contains("history") && !text.contains("qty"), "{text}");
            }
        }
        Ok(shaped)
    }

    fn create(&mut self, specs: &[Document], compared: Compared) -> Result<Document> {
        self.same(&doc! { "createIndexes": COLLECTION, "indexes": specs }, compared)
    }

    fn list(&mut self) -> Result<Vec<String>> {
        let list = self.same(&doc! { "listIndexes": COLLECTION }, Compared::Whole)?;
        let batch = list.get_document("cursor")?.get_array("firstBatch")?;
        let specs = batch.iter().filter_map(Bson::as_document);
        Ok(specs
            .filter_map(|spec| Some(spec.get_str("name").ok()?.to_owned()))
            .collect())
    }

    /// What mongod holds: the names and keys of all indexes, and whether the collection is there.
    fn stored(&mut self) -> Result<Document> {
        let mut list = self
            .direct
            .command(&doc! { "listIndexes": COLLECTION, "$db": &self.shaped.database })?;
        for field in ["$clusterTime", "operationTime"] {
            list.remove(field);
        }
        Ok(list)
    }

    /// Runs it through the proxy, expects that refusal, and nothing changed.
    fn refused(&mut self, command: &Document, code: i32, reason: &str) -> Result<()> {
        let before = self.stored()?;
        let mut command = command.clone();
        command.insert("$db", &self.shaped.database);
        let reply = self.application.command(&command)?;
        let text = reply.get_str("errmsg").unwrap_or_default();
        ensure!(
            reply.get_i32("code").ok() == Some(code) && text.contains(reason),
            "{command}: {reply}"
        );
        ensure!(self.stored()? == before, "{command} changed something");
        Ok(())
    }
}

/// A reply with the shaped side's database name wherever either stands, and cursor ids that are one or none.
fn comparable(reply: &Document, plain: &str, shaped: &str) -> Document {
    fn value(of: &Bson, plain: &str, shaped: &str) -> Bson {
        match of {
            Bson::String(text) => Bson::String(text.replace(plain, shaped)),
            Bson::Document(document) => Bson::Document(comparable(document, plain, shaped)),
            Bson::Array(values) => Bson::Array(values.iter().map(|of| value(of, plain, shaped)).collect()),
            other => other.clone(),
        }
    }
    let fields = reply.iter().map(|(name, of)| (name.clone(), value(of, plain, shaped)));
    fields.collect()
}

fn spec(key: Document, name: &str) -> Document {
    doc! { "key": key, "name": name }
}

fn with(mut spec: Document, options: Document) -> Document {
    spec.extend(options);
    spec
}
