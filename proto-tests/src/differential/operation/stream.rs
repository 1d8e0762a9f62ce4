//! A change stream, read after each of some writes, and resumed between them.

mod events;
mod reader;

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocumentBuf};
use bson::{Bson, Document, doc};

use self::events::{Events, Updates, by_document, compare, without_shard_key};
use self::reader::Reader;
use super::{Operation, Outcome, delete, find_and_modify, insert, transaction, update};
use crate::differential::compare::Canon;
use crate::differential::grammar::{
    STREAM, StreamBatch, StreamBefore, StreamDocument, StreamEnd, StreamResume, StreamScope, StreamStages, StreamWrite,
};
use crate::differential::sides::{ANOTHER, COLLECTION, Side, field, show};
use crate::differential::{Generator, Sides, Topology};

/// The code of a refusal.
const REFUSED: i32 = 115;

#[derive(Debug)]
struct Stream {
    /// The watched collections.
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
        // mongod may record the change of a pipeline as a replacement on one side, and as an update on the other one.
        StreamStages::Match => vec![doc! { "$match": { "operationType": { "$in": ["insert", "delete"] } } }],
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
    let is_sharded = generator.names_keys;
    Box::new(Stream {
        scope,
        options,
        stages,
        batch_size,
        steps,
        // A collection that is created again is not sharded.
        end: generator.take_where(|end| end != StreamEnd::Drop || !is_sharded),
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
        let reply = sides.shaped.routes.command_raw(&command)?;
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
        let (expected, found) = self.by_document(sides, expected, found);
        // A resumed stream returns events of earlier steps, too.
        let updates = Updates::of_any(self.steps.iter().map(|step| &*step.write));
        compare(&expected, &found, updates).with_context(|| {
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

    fn by_document(&self, sides: &Sides, plain: Vec<RawDocumentBuf>, shaped: Vec<RawDocumentBuf>) -> (Events, Events) {
        // The plain collection is not sharded.
        let shaped = match sides.topology {
            Topology::Sharded => shaped.iter().map(|event| without_shard_key(event)).collect(),
            _ => shaped,
        };
        (
            by_document(self.canon, plain, &sides.plain),
            by_document(self.canon, shaped, &sides.shaped),
        )
    }

    /// A stream that is opened behind one of these events has the others. So has one that is opened at the token of
    /// the first one's empty batch.
    fn check_resumed(&self, side: &mut Side, events: &[RawDocumentBuf], number: usize) -> Result<()> {
        let token = |event: &RawDocumentBuf| Document::try_from(field(event, "_id")?.as_document()?).ok();
        let Some(mut behind) = events.get(number).and_then(token) else {
            return Ok(());
        };
        if number % 2 == 1 {
            behind = Reader::token_of_empty_batch(self, side, behind)?;
        }
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

    /// Ends both streams, by `killCursors` or by a drop of the collection. Compares the events of the drop.
    fn end(&self, sides: &mut Sides, readers: [Reader; 2]) -> Result<()> {
        let [mut plain, mut shaped] = readers;
        if self.end == StreamEnd::Drop {
            sides.both(&doc! { "drop": COLLECTION })?;
            let expected = plain.drain(self, &mut sides.plain)?;
            let found = shaped.drain(self, &mut sides.shaped)?;
            let (expected, found) = self.by_document(sides, expected, found);
            compare(&expected, &found, Updates::Others).context("after a drop")?;
            ensure!((plain.cursor == 0) == (shaped.cursor == 0), "one stream has ended");
            sides.both(&doc! { "create": COLLECTION })?;
        }
        plain.kill(self, &mut sides.plain)?;
        shaped.kill(self, &mut sides.shaped)
    }
}
