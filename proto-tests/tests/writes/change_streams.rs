//! Change streams while proxies are killed. The events of single commands are compared by the differential tests.

use std::collections::{HashMap, HashSet};
use std::net::SocketAddr;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::crash::Crashing;
use proto_tests::measure::{is_full, seed, show};
use proto_tests::raw::Connection;
use proto_tests::retrying::{Client, Retries};
use proto_tests::shaped::COLLECTION;
use proto_tests::threads::{self, Answered};
use proto_tests::{Mongod, Shape, database_name};

const WRITERS: i32 = 8;
/// The document that ends the reader.
const LAST: i32 = -1;
const LIMIT: Duration = Duration::from_mins(5);

/// How much is written.
struct Measure {
    documents: i32,
    kills: u32,
}

impl Measure {
    fn chosen() -> Self {
        let (documents, kills) = if is_full("MONGOSHAPE_CRASHES") {
            (800, 40)
        } else {
            (60, 4)
        };
        Self { documents, kills }
    }
}

/// The kinds of events of each document, in order.
type Events = HashMap<i32, Vec<String>>;

/// Each write of eight writers is one event in a stream that is resumed after each lost connection.
#[test]
fn a_resumed_stream_has_each_event_once_under_kills() -> Result<()> {
    let (seed, measure) = (seed(), Measure::chosen());
    let set = Mongod::replica_set(1)?;
    let database = database_name();
    let shape = Shape {
        time: Some("date".to_owned()),
        max_items: 5,
        change_streams: true,
        ..Shape::new(&["k"])
    };
    let config = shape.toml(&format!("{database}.{COLLECTION}"));
    let mut crashing = Crashing::start(seed, &set, &config)?;
    let reader = Reader::open(crashing.address(), &database)?;
    let addresses = [crashing.address()];
    let answered = Answered::default();
    let (found, expected) = thread::scope(|scope| -> Result<(Events, Events)> {
        let reading = scope.spawn(move || reader.read(addresses[0]));
        let writers: Vec<_> = (0..WRITERS)
            .map(|number| {
                let (answered, addresses, database) = (&answered, &addresses, database.as_str());
                scope.spawn(move || -> Result<Events> {
                    let client = Client::new(usize::try_from(number)?, addresses, (database, Retries::Writes));
                    write(client, number, measure.documents / WRITERS, answered)
                })
            })
            .collect();
        for _ in 0..measure.kills {
            crashing.crash()?;
            answered.wait_for(20, || writers.iter().any(|writer| !writer.is_finished()))?;
        }
        let expected = threads::join(writers)?.into_iter().flatten().collect();
        // A session of its own, whose transaction numbers begin again.
        let mut client = Client::new(usize::try_from(WRITERS)?, &addresses, (&database, Retries::Writes));
        client.write_or_fail(&doc! { "insert": COLLECTION, "documents": [{ "_id": LAST, "k": 0 }] })?;
        Ok((threads::join(vec![reading])?.remove(0), expected))
    })?;
    for (id, events) in &expected {
        ensure!(
            found.get(id) == Some(events),
            "document {id}: {:?} instead of {events:?}",
            found.get(id)
        );
    }
    ensure!(found.len() == expected.len() + 1, "events of {} documents", found.len());
    show(&format!("{} documents, {} kills", expected.len(), measure.kills));
    Ok(())
}

/// Inserts, changes, moves, replaces and deletes documents. Returns the expected events.
fn write(mut client: Client<'_>, writer: i32, documents: i32, answered: &Answered) -> Result<Events> {
    let mut events = Events::new();
    for number in 0..documents {
        let id = writer * 100_000 + number;
        let date = DateTime::from_millis(i64::from(number) * 1000);
        let update = |change: Bson| doc! { "update": COLLECTION, "updates": [{ "q": { "_id": id }, "u": change }] };
        let mut commands = vec![
            (
                "insert",
                doc! { "insert": COLLECTION, "documents": [{ "_id": id, "k": number % 3, "date": date, "n": 0 }] },
            ),
            ("update", update(doc! { "$inc": { "n": 1 } }.into())),
            ("update", update(doc! { "$set": { "k": 3 + number % 3 } }.into())),
            (
                "replace",
                update(doc! { "k": 6, "date": date, "text": "replaced" }.into()),
            ),
        ];
        if number % 2 == 0 {
            let delete = doc! { "q": { "_id": id }, "limit": 1 };
            commands.push(("delete", doc! { "delete": COLLECTION, "deletes": [delete] }));
        }
        for (event, command) in commands {
            let reply = client.write_or_fail(&command)?;
            ensure!(
                !reply.contains_key("writeErrors") && reply.get_i32("n")? == 1,
                "{command}: {reply}"
            );
            events.entry(id).or_default().push(event.to_owned());
            answered.count();
        }
    }
    Ok(events)
}

/// An application that reads a change stream.
struct Reader {
    database: String,
    connection: Option<Connection>,
    cursor: i64,
    token: Document,
    tokens: HashSet<String>,
    /// Tokens that came more than once.
    repeated: Vec<String>,
    events: Events,
}

impl Reader {
    fn open(address: SocketAddr, database: &str) -> Result<Self> {
        let mut reader = Self {
            database: database.to_owned(),
            connection: Some(Connection::open(address)?),
            cursor: 0,
            token: Document::new(),
            tokens: HashSet::new(),
            repeated: Vec::new(),
            events: Events::new(),
        };
        reader.watch(doc! { "fullDocument": "updateLookup" })?;
        Ok(reader)
    }

    fn watch(&mut self, options: Document) -> Result<()> {
        let stage = doc! { "$changeStream": options };
        let aggregate = doc! { "aggregate": COLLECTION, "pipeline": [stage], "cursor": {} };
        self.run(aggregate)
    }

    /// Runs a command, and takes its events over.
    fn run(&mut self, mut command: Document) -> Result<()> {
        command.insert("$db", &self.database);
        let reply = self
            .connection
            .as_mut()
            .context("no connection")?
            .command_ok(&command)?;
        let cursor = reply.get_document("cursor")?;
        self.cursor = cursor.get_i64("id")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        for event in batch.iter().filter_map(Bson::as_document) {
            let token = event.get_document("_id")?.get_str("_data")?;
            let is_new = self.tokens.insert(token.to_owned());
            self.repeated.extend((!is_new).then(|| token.to_owned()));
            let id = event.get_document("documentKey")?.get_i32("_id")?;
            let kind = event.get_str("operationType")?;
            self.events.entry(id).or_default().push(kind.to_owned());
        }
        self.token = cursor.get_document("postBatchResumeToken")?.clone();
        Ok(())
    }

    /// Reads until the last document, through proxies that are killed.
    fn read(mut self, address: SocketAddr) -> Result<Events> {
        let begun = Instant::now();
        while !self.events.contains_key(&LAST) {
            ensure!(begun.elapsed() < LIMIT, "the last event has not come");
            let more = doc! { "getMore": self.cursor, "collection": COLLECTION, "maxTimeMS": 200 };
            if self.cursor != 0 && self.run(more).is_ok() {
                continue;
            }
            self.cursor = 0;
            self.connection = Connection::open(address).ok();
            let resumed = doc! { "fullDocument": "updateLookup", "resumeAfter": self.token.clone() };
            if self.watch(resumed).is_err() {
                thread::sleep(Duration::from_millis(20));
            }
        }
        ensure!(self.repeated.is_empty(), "events came twice: {:?}", self.repeated);
        Ok(self.events)
    }
}
