//! A change stream, read after each of some writes, and resumed between them.

use std::collections::BTreeMap;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, Timestamp, doc};

use super::{Operation, Outcome, delete, find_and_modify, insert, transaction, update};
use crate::differential::compare::{Canon, GENERATED_ID};
use crate::differential::grammar::{
    STREAM, StreamBatch, StreamBefore, StreamDocument, StreamEnd, StreamResume, StreamScope, StreamStages, StreamWrite,
};
use crate::differential::sides::{ANOTHER, COLLECTION, Side, field, show};
use crate::differential::{Generator, Sides};

const DESCRIPTION: &str = "updateDescription";
const OPERATION: &str = "operationType";
/// In place of the description of a document that got its fields in another order.
const REORDERED: &[u8] = b"reordered";
/// The longest time in which a stream reaches the last write.
const LIMIT: Duration = Duration::from_secs(20);
/// The code of a refusal.
const REFUSED: i32 = 115;

#[derive(Debug)]
struct Stream {
    /// What it watches.
    scope: StreamScope,
    /// The options of `$changeStream`, without a position.
    options: Document,
    /// The stages behind it.
    stages: Vec<Document>,
    batch_size: Option<i32>,
    steps: Vec<Step>,
    end: StreamEnd,
    /// Whether the shape has change streams.
    is_supported: bool,
    canon: Canon,
}

#[derive(Debug)]
struct Step {
    write: Box<dyn Operation>,
    /// How the stream is opened again before its events are read.
    resume: StreamResume,
    /// The number of steps whose events come again, and the event of this step behind which the shaped stream is
    /// opened once more.
    back: usize,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    generator.group(&STREAM, make_up)
}

fn make_up(generator: &mut Generator) -> Box<dyn Operation> {
    let scope = generator.take::<StreamScope>();
    let mut options = Document::new();
    match generator.take::<StreamDocument>() {
        StreamDocument::Absent => {}
        StreamDocument::Default => drop(options.insert("fullDocument", "default")),
        StreamDocument::Lookup => drop(options.insert("fullDocument", "updateLookup")),
        StreamDocument::WhenAvailable => drop(options.insert("fullDocument", "whenAvailable")),
        StreamDocument::Required => drop(options.insert("fullDocument", "required")),
    }
    match generator.take::<StreamBefore>() {
        StreamBefore::Absent => {}
        StreamBefore::Off => drop(options.insert("fullDocumentBeforeChange", "off")),
        StreamBefore::WhenAvailable => drop(options.insert("fullDocumentBeforeChange", "whenAvailable")),
        StreamBefore::Required => drop(options.insert("fullDocumentBeforeChange", "required")),
    }
    let stages = match generator.take::<StreamStages>() {
        StreamStages::None => vec![],
        StreamStages::Match => vec![doc! { "$match": { "operationType": { "$in": ["insert", "replace", "delete"] } } }],
        StreamStages::MatchDocument => vec![doc! { "$match": { "fullDocument.quantity": { "$gte": 3 } } }],
        StreamStages::Project => vec![doc! { "$project": { "fullDocument": 0, "ns": 0 } }],
        StreamStages::Set => vec![
            doc! { "$set": { "id": "$documentKey._id" } },
            doc! { "$unset": "updateDescription" },
        ],
    };
    let batch_size = match generator.take::<StreamBatch>() {
        StreamBatch::Default => None,
        StreamBatch::One => Some(1),
        StreamBatch::Two => Some(2),
    };
    let steps = (0..8).map(|_| step(generator)).collect();
    Box::new(Stream {
        scope,
        options,
        stages,
        batch_size,
        steps,
        end: generator.take(),
        is_supported: generator.shape.change_streams,
        canon: generator.canon(),
    })
}

fn step(generator: &mut Generator) -> Step {
    let has_sessions = generator.has_sessions;
    let write = match generator.take_where(|form| form != StreamWrite::Transaction || has_sessions) {
        StreamWrite::Insert => insert::generate(generator),
        StreamWrite::Update => update::generate(generator),
        StreamWrite::Delete => delete::generate(generator),
        StreamWrite::FindAndModify => find_and_modify::generate(generator),
        StreamWrite::Transaction => transaction::generate(generator),
    };
    Step {
        write,
        resume: generator.take(),
        back: usize::try_from(generator.below(4)).unwrap_or_default(),
    }
}

impl Operation for Stream {
    fn commands(&self) -> Vec<Document> {
        let mut commands: Vec<Document> = self.steps.iter().flat_map(|step| step.write.commands()).collect();
        let mut stages = vec![doc! { "$changeStream": &self.options }];
        stages.extend(self.stages.clone());
        commands.push(doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} });
        commands
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        for collection in [COLLECTION, ANOTHER] {
            let images = doc! { "changeStreamPreAndPostImages": { "enabled": true } };
            for command in ["create", "collMod"] {
                let mut command = doc! { command: collection };
                command.extend(images.clone());
                sides.both(&command)?;
            }
        }
        if !self.is_supported {
            return self.refused(sides);
        }
        let mut readers = [
            Reader::open(self, &mut sides.plain)?,
            Reader::open(self, &mut sides.shaped)?,
        ];
        let mut outcome = Outcome::Done;
        for step in &self.steps {
            let of_step = step.write.run(sides).with_context(|| format!("{:?}", step.write))?;
            if of_step != Outcome::Done {
                outcome = of_step;
            }
            self.read(sides, &mut readers, step)
                .with_context(|| format!("after {:?}", step.write))?;
        }
        self.end(sides, readers)?;
        Ok(outcome)
    }
}

impl Stream {
    /// A shape without change streams refuses the stream.
    fn refused(&self, sides: &mut Sides) -> Result<Outcome> {
        let command = self.aggregate(&sides.shaped, None);
        let reply = sides.shaped.connection.command_raw(&command)?;
        ensure!(
            field(&reply, "code") == Some(RawBsonRef::Int32(REFUSED)),
            "{}",
            show(&reply)
        );
        sides.refused("a change stream without `change_streams`");
        Ok(Outcome::Refused)
    }

    /// The command that opens the stream at a position.
    fn aggregate(&self, side: &Side, position: Option<(&str, Bson)>) -> Document {
        let mut options = self.options.clone();
        options.extend(position.map(|(name, value)| (name.to_owned(), value)));
        if self.scope == StreamScope::Cluster {
            options.insert("allChangesForCluster", true);
        }
        let mut stages = vec![doc! { "$changeStream": options }];
        if self.scope == StreamScope::Cluster {
            stages.push(doc! { "$match": { "ns.db": &side.database } });
        }
        stages.extend(self.stages.clone());
        let target = match self.scope {
            StreamScope::Collection => Bson::from(COLLECTION),
            StreamScope::Database | StreamScope::Cluster => Bson::from(1),
        };
        let cursor = self.batch_size.map_or(doc! {}, |size| doc! { "batchSize": size });
        doc! { "aggregate": target, "pipeline": stages, "cursor": cursor, "$db": self.database(side) }
    }

    fn database<'a>(&self, side: &'a Side) -> &'a str {
        if self.scope == StreamScope::Cluster {
            "admin"
        } else {
            &side.database
        }
    }

    /// Reads the events of a step on both sides, and compares them.
    fn read(&self, sides: &mut Sides, readers: &mut [Reader; 2], step: &Step) -> Result<()> {
        let [plain, shaped] = readers;
        plain.resume(self, &mut sides.plain, step)?;
        shaped.resume(self, &mut sides.shaped, step)?;
        let expected = plain.drain(self, &mut sides.plain)?;
        plain.remember(&expected)?;
        let found = shaped.drain(self, &mut sides.shaped)?;
        shaped.remember(&found)?;
        self.check_resumed(&mut sides.shaped, &found, step.back)?;
        let (expected, found) = (
            self.by_document(expected, &sides.plain),
            self.by_document(found, &sides.shaped),
        );
        compare(&expected, &found, Updates::of(&*step.write)).with_context(|| {
            let Self {
                scope,
                options,
                batch_size,
                ..
            } = self;
            format!(
                "{scope:?}, {options:?}, batches of {batch_size:?}, resumed: {:?}",
                step.resume
            )
        })?;
        Ok(())
    }

    /// A stream that is opened behind one of these events has the others.
    fn check_resumed(&self, side: &mut Side, events: &[RawDocumentBuf], number: usize) -> Result<()> {
        let token = |event: &RawDocumentBuf| Document::try_from(field(event, "_id")?.as_document()?).ok();
        let Some(behind) = events.get(number).and_then(token) else {
            return Ok(());
        };
        let mut reader = Reader::default();
        reader.open_at(self, side, Some(("resumeAfter", behind.into())))?;
        let found: Vec<_> = reader.drain(self, side)?.iter().map(token).collect();
        reader.kill(self, side)?;
        let expected: Vec<_> = events.iter().skip(number + 1).map(token).collect();
        ensure!(
            found == expected,
            "the stream behind event {number} has\n  {found:?}\ninstead of\n  {expected:?}"
        );
        Ok(())
    }

    /// The events of each document in their order. The order of several documents of one command is that of the
    /// server.
    fn by_document(&self, events: Vec<RawDocumentBuf>, side: &Side) -> Events {
        let mut sorted = Events::new();
        for event in events {
            let mut comparable = Vec::new();
            let mut key = Vec::new();
            for (name, value) in event.iter().flatten() {
                let value = match (name.as_str(), value) {
                    ("_id" | "clusterTime" | "wallTime" | "lsid" | "txnNumber", _) => continue,
                    ("fullDocument" | "fullDocumentBeforeChange" | "documentKey", RawBsonRef::Document(document)) => {
                        self.canon.of(document)
                    }
                    (DESCRIPTION, RawBsonRef::Document(description)) => self.description(description),
                    (_, value) => {
                        let mut document = RawDocumentBuf::new();
                        document.append(name, value);
                        let text = String::from_utf8_lossy(&self.canon.of(&document)).into_owned();
                        side.neutral(&text).into_bytes()
                    }
                };
                if name.as_str() == "documentKey" {
                    key.clone_from(&value);
                }
                comparable.push((name.as_str().to_owned(), value));
            }
            let is_in_transaction = field(&event, "txnNumber").is_some() && field(&event, "lsid").is_some();
            comparable.push(("in a transaction".to_owned(), vec![u8::from(is_in_transaction)]));
            let event = Event {
                comparable,
                text: show(&event),
            };
            sorted.entry(key).or_default().push(event);
        }
        // Documents with generated `_id`s cannot be told apart by them.
        let generated = GENERATED_ID.as_bytes();
        let is_generated = |key: &[u8]| key.windows(generated.len()).any(|part| part == generated);
        for (key, events) in &mut sorted {
            if is_generated(key) {
                events.sort_by(|one, other| one.comparable.cmp(&other.comparable));
            }
        }
        sorted
    }

    fn description(&self, description: &RawDocument) -> Vec<u8> {
        let mut parts = Vec::new();
        for (name, value) in description.iter().flatten() {
            parts.extend_from_slice(name.as_str().as_bytes());
            match value {
                RawBsonRef::Document(fields) if field(fields, "_id").is_some() => return REORDERED.to_vec(),
                RawBsonRef::Document(fields) => parts.extend(self.canon.of(fields)),
                RawBsonRef::Array(values) => {
                    let mut values: Vec<String> =
                        values.into_iter().flatten().map(|value| format!("{value:?}")).collect();
                    values.sort();
                    parts.extend(values.concat().into_bytes());
                }
                other => parts.extend(format!("{other:?}").into_bytes()),
            }
        }
        parts
    }

    /// Ends the streams by `killCursors`, or by a drop, of which both have the events.
    fn end(&self, sides: &mut Sides, readers: [Reader; 2]) -> Result<()> {
        let [mut plain, mut shaped] = readers;
        if self.end == StreamEnd::Drop {
            sides.both(&doc! { "drop": COLLECTION })?;
            let expected = plain.drain(self, &mut sides.plain)?;
            let found = shaped.drain(self, &mut sides.shaped)?;
            let (expected, found) = (
                self.by_document(expected, &sides.plain),
                self.by_document(found, &sides.shaped),
            );
            compare(&expected, &found, Updates::Others).context("after a drop")?;
            ensure!((plain.cursor == 0) == (shaped.cursor == 0), "one stream has ended");
            sides.both(&doc! { "create": COLLECTION })?;
        }
        plain.kill(self, &mut sides.plain)?;
        shaped.kill(self, &mut sides.shaped)
    }
}

/// Events by their document.
type Events = BTreeMap<Vec<u8>, Vec<Event>>;

#[derive(Debug, Clone)]
struct Event {
    /// Fields by name, in a form that is equal for equal ones.
    comparable: Vec<(String, Vec<u8>)>,
    /// For a person.
    text: String,
}

/// The updates of a step.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Updates {
    ByPipeline,
    Others,
}

impl Updates {
    fn of(write: &dyn Operation) -> Self {
        let commands = format!("{:?}", write.commands());
        let has_pipeline = ["\"u\": Array", "\"update\": Array"]
            .iter()
            .any(|form| commands.contains(form));
        if has_pipeline { Self::ByPipeline } else { Self::Others }
    }
}

impl Event {
    /// Whether the plain document got its fields in another order, so that mongod describes nearly all of them as
    /// updated, the `_id` among them. A shaped collection does not keep that order.
    fn is_reordered(&self) -> bool {
        let description = self.comparable.iter().find(|(name, _)| name == DESCRIPTION);
        description.is_some_and(|(_, bytes)| bytes == REORDERED)
    }

    fn is_like(&self, plain: &Self, updates: Updates) -> bool {
        let is_reordered = plain.is_reordered();
        let operation = |event: &Self| event.comparable.iter().find(|(name, _)| name == OPERATION).cloned();
        // mongod logs the result of a pipeline as a replacement if that is shorter than the difference.
        let is_other_form = updates == Updates::ByPipeline && operation(self) != operation(plain);
        let compared = |event: &Self| -> Vec<(String, Vec<u8>)> {
            let fields = event.comparable.iter().filter(|(name, _)| match name.as_str() {
                DESCRIPTION => !is_reordered && !is_other_form,
                OPERATION | "fullDocument" => !is_other_form,
                _ => true,
            });
            fields.cloned().collect()
        };
        compared(self) == compared(plain)
    }
}

/// Fails unless both sides have the same events of each document.
fn compare(plain: &Events, shaped: &Events, updates: Updates) -> Result<()> {
    let mut differences = Vec::new();
    for key in plain
        .keys()
        .chain(shaped.keys().filter(|key| !plain.contains_key(*key)))
    {
        let events = |side: &'_ Events| side.get(key).map(Vec::as_slice).unwrap_or_default().to_vec();
        let (expected, found) = (events(plain), events(shaped));
        let is_like = |(plain, shaped): (&Event, &Event)| shaped.is_like(plain, updates);
        if expected.len() != found.len() || !expected.iter().zip(&found).all(is_like) {
            differences.extend(expected.into_iter().map(|event| format!("plain:  {}", event.text)));
            differences.extend(found.into_iter().map(|event| format!("shaped: {}", event.text)));
        }
    }
    ensure!(
        differences.is_empty(),
        "the streams differ\n  {}",
        differences.join("\n  ")
    );
    Ok(())
}

/// The stream of one side.
#[derive(Debug, Default)]
struct Reader {
    cursor: i64,
    /// Events that the opening reply had.
    first: Vec<RawDocumentBuf>,
    /// The positions of the opening and behind each step.
    past: Vec<Position>,
}

#[derive(Debug, Clone)]
struct Position {
    token: Document,
    /// The time behind it.
    time: Timestamp,
}

impl Reader {
    fn open(stream: &Stream, side: &mut Side) -> Result<Self> {
        let mut reader = Self::default();
        let opened = reader.open_at(stream, side, None)?;
        reader.past.push(opened);
        Ok(reader)
    }

    /// Opens the stream. Returns the position of the reply.
    fn open_at(&mut self, stream: &Stream, side: &mut Side, position: Option<(&str, Bson)>) -> Result<Position> {
        let command = stream.aggregate(side, position);
        let reply = side.connection.command_raw(&command)?;
        let token = self.take(&reply).with_context(|| format!("{command}"))?;
        let time = reply.get_timestamp("operationTime")?;
        let after = Timestamp {
            increment: time.increment + 1,
            ..time
        };
        Ok(Position { token, time: after })
    }

    /// Takes a reply's cursor, events and token.
    fn take(&mut self, reply: &RawDocument) -> Result<Document> {
        let cursor = reply.get_document("cursor").with_context(|| show(reply))?;
        self.cursor = cursor.get_i64("id")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        for event in batch.into_iter().flatten().filter_map(RawBsonRef::as_document) {
            self.first.push(event.to_owned());
        }
        Ok(Document::try_from(cursor.get_document("postBatchResumeToken")?)?)
    }

    /// Opens the stream again behind an earlier event, if the step says so.
    fn resume(&mut self, stream: &Stream, side: &mut Side, step: &Step) -> Result<()> {
        let mut kept = self.past.len().saturating_sub(step.back).max(1);
        let last = self.past[kept - 1].clone();
        let position = match step.resume {
            StreamResume::Continue => return Ok(()),
            StreamResume::ResumeAfter => ("resumeAfter", last.token.into()),
            StreamResume::StartAfter => ("startAfter", last.token.into()),
            StreamResume::StartAtTime => {
                // All events come again: on the shaped side several may have one time.
                kept = 1;
                ("startAtOperationTime", self.past[0].time.into())
            }
        };
        self.kill(stream, side)?;
        self.past.truncate(kept);
        self.open_at(stream, side, Some(position)).map(drop)
    }

    /// All events up to the present: until mongod has read the last write.
    fn drain(&mut self, stream: &Stream, side: &mut Side) -> Result<Vec<RawDocumentBuf>> {
        let ping = side.run(&doc! { "ping": 1 })?;
        let last_write = ping.get_timestamp("operationTime")?;
        let mut events = std::mem::take(&mut self.first);
        let mut reached = Timestamp { time: 0, increment: 0 };
        let deadline = Instant::now() + LIMIT;
        while self.cursor != 0 && (reached < last_write || !self.first.is_empty()) {
            ensure!(Instant::now() < deadline, "the stream does not reach {last_write}");
            events.append(&mut self.first);
            let collection = match stream.scope {
                StreamScope::Collection => COLLECTION,
                StreamScope::Database | StreamScope::Cluster => "$cmd.aggregate",
            };
            let mut more = doc! { "getMore": self.cursor, "collection": collection, "maxTimeMS": 20, "$db": stream.database(side) };
            more.extend(stream.batch_size.map(|size| ("batchSize".to_owned(), Bson::from(size))));
            let reply = side.connection.command_raw(&more)?;
            reached = time_of(&self.take(&reply)?)?;
        }
        events.append(&mut self.first);
        Ok(events)
    }

    /// Records the position behind the events of a step.
    fn remember(&mut self, events: &[RawDocumentBuf]) -> Result<()> {
        let last = self.past.last().cloned().context("a position")?;
        self.past.push(match events.last() {
            Some(event) => Position {
                token: Document::try_from(event.get_document("_id")?)?,
                time: event.get_timestamp("clusterTime")?,
            },
            None => last,
        });
        Ok(())
    }

    fn kill(&mut self, stream: &Stream, side: &mut Side) -> Result<()> {
        if self.cursor != 0 {
            let kill = doc! { "killCursors": COLLECTION, "cursors": [self.cursor], "$db": stream.database(side) };
            let reply = side.connection.command_raw(&kill)?;
            ensure!(show(&reply).contains("cursorsKilled"), "{}", show(&reply));
            self.cursor = 0;
        }
        Ok(())
    }
}

/// The time that mongod's token begins with.
fn time_of(token: &Document) -> Result<Timestamp> {
    let data = token.get_str("_data")?.trim_start_matches("mongoshape:");
    let part = |from: usize| -> Result<u32> {
        let digits = data.get(from..from + 8).context("a token without a time")?;
        Ok(u32::from_str_radix(digits, 16)?)
    };
    Ok(Timestamp {
        time: part(2)?,
        increment: part(10)?,
    })
}
