//! Reads the cursors of both sides batch by batch.

use std::fmt::{Display, Formatter};

use anyhow::{Context as _, Result, bail, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Document, doc};

use super::Outcome;
use crate::differential::compare;
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Side, Sides};

/// The longest answer that is read to its end.
const MOST_DOCUMENTS: usize = 50_000;

/// The options of `getMore`.
#[derive(Debug, Clone)]
pub(super) struct Batches {
    /// The size of each; the last one also of all further ones. `None`: not given.
    pub(super) sizes: Vec<Option<i32>>,
    /// How many of them, before the cursor is killed.
    pub(super) until_killed: usize,
    /// Whether one side may need one more batch to see its end: not when the command itself sets where that
    /// is.
    pub(super) may_end_later: bool,
    /// Whether documents come in any order. Then any batch may have the one for which an expression fails.
    pub(super) in_any_order: bool,
}

/// What both sides gave.
#[derive(Debug)]
pub(super) struct Answers {
    pub(super) plain: Vec<RawDocumentBuf>,
    pub(super) shaped: Vec<RawDocumentBuf>,
    /// Whether the cursors were killed before their end.
    pub(super) killed: bool,
}

/// The result of a command that returns a cursor.
pub(super) enum Reading {
    /// Both cursors were read.
    Answers(Answers),
    /// Both sides failed, or the proxy refused the command.
    Ended(Outcome),
}

/// Sends a command to both sides and reads their cursors.
pub(super) fn answers(sides: &mut Sides, command: &Document, batches: &Batches) -> Result<Reading> {
    let replies = sides.both(command)?;
    if sides.is_refused(command, &replies[1]) {
        return Ok(Reading::Ended(Outcome::Refused));
    }
    if !outcomes(sides, &replies, batches)? {
        return Ok(Reading::Ended(Outcome::Failed));
    }
    let answers = read(sides, &replies, batches)?;
    Ok(answers.map_or(Reading::Ended(Outcome::Failed), Reading::Answers))
}

/// Reads on from two first replies. The batches must be of equal lengths. They must end together too, but for
/// one thing: where `may_end_later`, one cursor may need another, empty batch to find out that it is at its
/// end. That depends on the plan in mongod, and the plain side's own cursors do it now and then. `None` where
/// both fail, in any order: which documents came before is then any.
pub(super) fn read(sides: &mut Sides, first: &[RawDocumentBuf; 2], batches: &Batches) -> Result<Option<Answers>> {
    let mut answers = Answers {
        plain: Vec::new(),
        shaped: Vec::new(),
        killed: false,
    };
    let mut replies = first.clone();
    for number in 0.. {
        let ids = answers.take(&replies, sides)?;
        let size = batches.sizes.get(number).or(batches.sizes.last()).copied().flatten();
        match ids {
            [0, 0] => break,
            [0, id] if batches.may_end_later => {
                expect_end(&sides.shaped.run(&get_more(id, size))?)?;
                break;
            }
            [id, 0] if batches.may_end_later => {
                expect_end(&sides.plain.run(&get_more(id, size))?)?;
                break;
            }
            [0, _] | [_, 0] => bail!("only one cursor is at its end: {replies:?}"),
            _ => {}
        }
        if number == batches.until_killed {
            kill(sides, ids)?;
            answers.killed = true;
            break;
        }
        replies = [
            sides.plain.run(&get_more(ids[0], size))?,
            sides.shaped.run(&get_more(ids[1], size))?,
        ];
        if !outcomes(sides, &replies, batches)? {
            if batches.in_any_order {
                return Ok(None);
            }
            break;
        }
    }
    Ok(Some(answers))
}

/// Fails unless both succeeded or both failed with the same code; whether they succeeded. In any order, one
/// side may fail in a later batch than the other.
pub(super) fn outcomes(sides: &mut Sides, replies: &[RawDocumentBuf; 2], batches: &Batches) -> Result<bool> {
    let [plain, shaped] = replies;
    if !batches.in_any_order || compare::succeeded(plain) == compare::succeeded(shaped) {
        return compare::outcomes(plain, shaped);
    }
    let rest = if compare::succeeded(plain) {
        last(&mut sides.plain, plain)?
    } else {
        last(&mut sides.shaped, shaped)?
    };
    let failed = if compare::succeeded(plain) { shaped } else { plain };
    ensure!(
        field(&rest, "code") == field(failed, "code"),
        "only the {} side failed.\n  {}",
        if compare::succeeded(plain) { "shaped" } else { "plain" },
        show(failed)
    );
    Ok(false)
}

/// The last reply of a cursor.
fn last(side: &mut Side, first: &RawDocument) -> Result<RawDocumentBuf> {
    let mut reply = first.to_owned();
    while compare::succeeded(&reply) {
        let (id, ..) = parse(&reply)?;
        if id == 0 {
            break;
        }
        reply = side.run(&get_more(id, None))?;
    }
    Ok(reply)
}

fn expect_end(reply: &RawDocument) -> Result<()> {
    let (id, documents, _) = parse(reply)?;
    ensure!(
        id == 0 && documents.is_empty(),
        "more behind the other side's end: {}",
        show(reply)
    );
    Ok(())
}

fn get_more(id: i64, size: Option<i32>) -> Document {
    let mut command = doc! { "getMore": id, "collection": COLLECTION };
    if let Some(size) = size {
        command.insert("batchSize", size);
    }
    command
}

impl Answers {
    /// Takes the documents of two replies, and gives the ids of their cursors.
    fn take(&mut self, replies: &[RawDocumentBuf; 2], sides: &Sides) -> Result<[i64; 2]> {
        let [plain, shaped] = replies;
        let (before, after) = (parse(plain)?, parse(shaped)?);
        ensure!(
            before.1.len() == after.1.len(),
            "a batch of {} (cursor {}) instead of one of {} (cursor {}).\n  plain:  {}\n  shaped: {}",
            after.1.len(),
            after.0,
            before.1.len(),
            before.0,
            show(plain),
            show(shaped)
        );
        ensure!(
            sides.plain.neutral(&before.2) == sides.shaped.neutral(&after.2),
            "a cursor with {:?}, not {:?}",
            after.2,
            before.2
        );
        self.plain.extend(before.1);
        self.shaped.extend(after.1);
        Ok([before.0, after.0])
    }
}

/// Cursor id, documents and a text of the cursor's other fields.
fn parse(reply: &RawDocument) -> Result<(i64, Vec<RawDocumentBuf>, String)> {
    let cursor = field(reply, "cursor")
        .and_then(RawBsonRef::as_document)
        .context("no cursor")?;
    let (mut documents, mut rest) = (Vec::new(), Vec::new());
    for (name, value) in cursor.iter().flatten() {
        match (name.as_str(), value) {
            ("firstBatch" | "nextBatch", RawBsonRef::Array(batch)) => {
                rest.push(name.as_str().to_owned());
                let batch = batch.into_iter().flatten().filter_map(RawBsonRef::as_document);
                documents.extend(batch.map(RawDocument::to_owned));
            }
            ("id", _) => {}
            (name, value) => rest.push(format!("{name}: {value:?}")),
        }
    }
    let id = field(cursor, "id")
        .and_then(RawBsonRef::as_i64)
        .context("a cursor without an id")?;
    // mongod has them in another order where the collection is missing.
    rest.sort();
    Ok((id, documents, rest.join(", ")))
}

/// What one side's cursor came to.
#[derive(Debug)]
pub(super) enum Rest {
    /// All documents.
    Documents(Vec<RawDocumentBuf>),
    /// More than [`MOST_DOCUMENTS`]. The cursor is left.
    TooMany,
    /// The reply that was an error, be it the first.
    Failed(RawDocumentBuf),
}

impl Display for Rest {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Documents(documents) => write!(f, "{} documents", documents.len()),
            Self::TooMany => write!(f, "more than {MOST_DOCUMENTS} documents"),
            Self::Failed(reply) => write!(f, "{}", show(reply)),
        }
    }
}

/// Reads one side's cursor to its end.
pub(super) fn rest(side: &mut Side, mut reply: RawDocumentBuf) -> Result<Rest> {
    let mut all = Vec::new();
    loop {
        if !compare::succeeded(&reply) {
            return Ok(Rest::Failed(reply));
        }
        let (id, documents, _) = parse(&reply)?;
        all.extend(documents);
        if all.len() > MOST_DOCUMENTS {
            return Ok(Rest::TooMany);
        }
        if id == 0 {
            return Ok(Rest::Documents(all));
        }
        let cursor = field(&reply, "cursor").and_then(RawBsonRef::as_document);
        let namespace = cursor.context("no cursor")?.get_str("ns")?;
        let (_, collection) = namespace.split_once('.').context("a namespace")?;
        reply = side.run(&doc! { "getMore": id, "collection": collection })?;
    }
}

/// Kills both cursors, and expects of both that they are gone.
fn kill(sides: &mut Sides, ids: [i64; 2]) -> Result<()> {
    for attempt in 0..2 {
        let lists = [(&mut sides.plain, ids[0]), (&mut sides.shaped, ids[1])].map(|(side, id)| -> Result<Vec<usize>> {
            let reply = side.run(&doc! { "killCursors": COLLECTION, "cursors": [id] })?;
            let lists = ["cursorsKilled", "cursorsNotFound", "cursorsAlive", "cursorsUnknown"].map(|name| {
                let list = field(&reply, name).and_then(RawBsonRef::as_array);
                list.map_or(usize::MAX, |list| list.into_iter().count())
            });
            Ok(lists.to_vec())
        });
        let [plain, shaped] = lists;
        let (plain, shaped) = (plain?, shaped?);
        ensure!(plain == shaped, "killing {attempt}: plain {plain:?}; shaped {shaped:?}");
    }
    let plain = sides.plain.run(&get_more(ids[0], None))?;
    let shaped = sides.shaped.run(&get_more(ids[1], None))?;
    compare::outcomes(&plain, &shaped).map(|_| ())
}
