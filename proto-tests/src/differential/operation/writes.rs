//! Common parts of `update` and `delete`. The shape may refuse some of their statements.
//!
//! The command is sent to the shaped side first. The plain side gets the statements that were not refused.
//! Equal contents afterwards show that a refused statement changed nothing.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};

use super::Outcome;
use crate::differential::compare::{self, Canon};
use crate::differential::refusal;
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Side, Sides, contents};

/// mongod's errors for a stage that has not one field, and for a stage with an unknown name.
const MALFORMED: [i32; 2] = [40323, 40324];

/// An `update` or a `delete`.
#[derive(Debug, Clone)]
pub(super) struct Writes {
    pub(super) name: &'static str,
    /// What the command calls them.
    pub(super) list: &'static str,
    pub(super) statements: Vec<Document>,
    /// The command's other fields.
    pub(super) options: Document,
    /// How often it is sent as a retryable write; 0: it is none.
    pub(super) sent: u32,
    pub(super) canon: Canon,
}

impl super::Operation for Writes {
    fn commands(&self) -> Vec<Document> {
        let statements: Vec<Bson> = self.statements.iter().cloned().map(Bson::from).collect();
        let mut command = doc! { self.name: COLLECTION, self.list: statements };
        command.extend(self.options.clone());
        vec![command]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        super::sent_again(sides, self.sent, |sides, fields| self.run_with(sides, fields))
    }
}

impl Writes {
    fn is_ordered(&self) -> bool {
        self.options.get_bool("ordered").unwrap_or(true)
    }

    fn command(&self, side: &Side, (statements, fields): (&[usize], &Document)) -> Document {
        let chosen: Vec<Bson> = statements
            .iter()
            .map(|index| self.statements[*index].clone().into())
            .collect();
        let mut command = doc! { self.name: COLLECTION, self.list: chosen };
        command.extend(self.options.clone());
        if fields.is_empty() {
            return command;
        }
        // Those that are left keep their numbers.
        if !fields.contains_key("autocommit") && statements.len() < self.statements.len() {
            let ids = statements
                .iter()
                .map(|index| i32::try_from(*index).unwrap_or_default().into());
            let ids: Vec<Bson> = ids.collect();
            command.insert("stmtIds", ids);
        }
        side.in_session(&command, fields.clone())
    }

    /// Runs it on both sides with fields of a retryable write or a transaction.
    pub(super) fn run_with(&self, sides: &mut Sides, fields: &Document) -> Result<Outcome> {
        let all: Vec<usize> = (0..self.statements.len()).collect();
        let shaped = sides.shaped.run(&self.command(&sides.shaped, (&all, fields)))?;
        let as_a_whole = |statement| refusal::of_write(&sides.write_request(statement), &shaped);
        if let Some(kind) = self.statements.iter().find_map(as_a_whole) {
            sides.refused(kind);
            contents::unchanged(sides, self.canon).with_context(|| format!("refused: {}", show(&shaped)))?;
            return Ok(Outcome::Refused);
        }
        let (refused, ours) = self.refused(sides, &shaped);
        // A transaction ends with its first error.
        let end = if self.is_ordered() || fields.contains_key("autocommit") {
            refused.first().copied()
        } else {
            None
        };
        let sent: Vec<usize> = all
            .into_iter()
            .filter(|index| !refused.contains(index) && end.is_none_or(|end| *index < end))
            .collect();
        let plain = if sent.is_empty() && !refused.is_empty() {
            None
        } else {
            Some(sides.plain.run(&self.command(&sides.plain, (&sent, fields)))?)
        };
        if let Some(plain) = &plain
            && !(compare::succeeded(plain) && compare::succeeded(&shaped))
        {
            // A malformed pipeline fails the command behind its statements, unless one of them is refused.
            if !refused.is_empty() && compare::succeeded(&shaped) && MALFORMED.contains(&code(plain)) {
                contents::unchanged(sides, self.canon).with_context(|| format!("refused: {}", show(&shaped)))?;
                return Ok(Outcome::Refused);
            }
            compare::outcomes(plain, &shaped)?;
            return Ok(Outcome::Failed);
        }
        let plain_result = PlainResult {
            reply: plain.as_deref(),
            sent: &sent,
        };
        let shaped_result = ShapedResult {
            reply: &shaped,
            errors: &ours,
        };
        compare_results(sides, &plain_result, &shaped_result, &self.statements).with_context(|| {
            format!(
                "plain: {}\n  shaped: {}",
                plain.as_deref().map_or_else(String::new, show),
                show(&shaped)
            )
        })?;
        if !refused.is_empty() {
            contents::unchanged(sides, self.canon).with_context(|| format!("refused in part: {}", show(&shaped)))?;
            return Ok(Outcome::Refused);
        }
        Ok(if ours.is_empty() {
            Outcome::Done
        } else {
            Outcome::Failed
        })
    }

    /// The statements that are refused, which are counted, and the errors of the others.
    fn refused<'r>(&self, sides: &mut Sides, shaped: &'r RawDocument) -> (Vec<usize>, Vec<&'r RawDocument>) {
        let mut refused = Vec::new();
        let mut others = Vec::new();
        for error in errors(shaped) {
            let statement = self.statements.get(index(error));
            match statement.and_then(|statement| refusal::of_write(&sides.write_request(statement), error)) {
                Some(kind) => {
                    sides.refused(kind);
                    refused.push(index(error));
                }
                None => others.push(error),
            }
        }
        (refused, others)
    }
}

fn code(reply: &RawDocument) -> i32 {
    reply.get_i32("code").unwrap_or_default()
}

/// The result of the statements that the plain side got.
struct PlainResult<'a> {
    /// `None` if the shape refused all statements.
    reply: Option<&'a RawDocument>,
    /// The positions of these statements in the command.
    sent: &'a [usize],
}

/// The result of all statements on the shaped side.
struct ShapedResult<'a> {
    reply: &'a RawDocument,
    /// The write errors that are not refusals.
    errors: &'a [&'a RawDocument],
}

/// Compares counts, write errors and upserts.
fn compare_results(
    sides: &Sides,
    plain: &PlainResult<'_>,
    shaped: &ShapedResult<'_>,
    statements: &[Document],
) -> Result<()> {
    let PlainResult { reply: plain, sent } = *plain;
    let ShapedResult {
        reply: shaped,
        errors: ours,
    } = *shaped;
    for name in ["n", "nModified"] {
        let theirs = plain.and_then(|plain| field(plain, name));
        // Nothing of which all is refused.
        let theirs =
            theirs.or_else(|| (plain.is_none() && field(shaped, name).is_some()).then_some(RawBsonRef::Int32(0)));
        ensure!(field(shaped, name) == theirs, "{name} is not {theirs:?}");
    }
    let theirs = plain.map(|plain| errors(plain)).unwrap_or_default();
    ensure!(
        theirs.len() == ours.len(),
        "{} write errors instead of {}",
        ours.len(),
        theirs.len()
    );
    for (theirs, ours) in theirs.iter().zip(ours) {
        let position = sent[index(theirs)];
        let statement = &statements[position];
        let is_upsert = statement.get_bool("upsert").unwrap_or_default();
        let is_either = compare::may_have_two_mistakes(statement.get("q"), statement.get("u"), is_upsert);
        if index(ours) == position && is_either {
            continue;
        }
        compare::write_errors(sides, i32::try_from(position)?, theirs, ours)?;
    }
    let upserted = |reply: &RawDocument, indexes: Option<&[usize]>| -> Vec<(usize, Vec<u8>)> {
        elements(reply, "upserted")
            .into_iter()
            .map(|made| {
                let place = index(made);
                let id: RawDocumentBuf = made.iter().flatten().filter(|(name, _)| *name == "_id").collect();
                (
                    indexes.map_or(place, |indexes| indexes[place]),
                    Canon::default().of(&id),
                )
            })
            .collect()
    };
    let theirs = plain.map(|plain| upserted(plain, Some(sent))).unwrap_or_default();
    ensure!(theirs == upserted(shaped, None), "upserted differs");
    Ok(())
}

fn errors(reply: &RawDocument) -> Vec<&RawDocument> {
    elements(reply, "writeErrors")
}

fn elements<'a>(reply: &'a RawDocument, name: &str) -> Vec<&'a RawDocument> {
    let elements = field(reply, name).and_then(RawBsonRef::as_array);
    let elements = elements.into_iter().flatten().flatten();
    elements.filter_map(RawBsonRef::as_document).collect()
}

fn index(error: &RawDocument) -> usize {
    let index = field(error, "index").and_then(RawBsonRef::as_i32).unwrap_or_default();
    usize::try_from(index).unwrap_or_default()
}
