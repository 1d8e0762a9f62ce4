//! A write that is sent to both sides, perhaps several times or in a transaction.

use anyhow::{Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, doc};

use super::{Outcome, sent_again};
use crate::differential::compare::Canon;
use crate::differential::sides::{field, show};
use crate::differential::{Generator, Side, Sides};

/// What the proxy refuses.
#[derive(Debug)]
pub(super) struct Refusal {
    /// A part of its message.
    pub(super) text: &'static str,
    /// What reports call it.
    pub(super) reason: &'static str,
}

#[derive(Debug)]
pub(super) struct Step {
    pub(super) command: Document,
    /// How often it is sent as a retryable write; 0: it is none.
    pub(super) sent: u32,
    /// Whether it is a transaction of its own.
    pub(super) is_transaction: bool,
}

impl Step {
    /// Sends the command to both sides, and compares the results.
    pub(super) fn run(&self, sides: &mut Sides, canon: Canon, refusals: &[Refusal]) -> Result<Outcome> {
        if self.is_transaction {
            return self.run_in_transaction(sides, canon, refusals);
        }
        sent_again(sides, self.sent, |sides, fields| {
            let command = |side: &Side| {
                if fields.is_empty() {
                    self.command.clone()
                } else {
                    side.in_session(&self.command, fields.clone())
                }
            };
            let shaped = sides.shaped.run(&command(&sides.shaped))?;
            if is_refused(sides, &shaped, refusals) {
                return Ok(Outcome::Refused);
            }
            let mut plain = sides.plain.run(&command(&sides.plain))?;
            if !sides.topology.has_transactions() {
                plain = without_unknown_details(plain, &shaped);
            }
            same(&[plain, shaped], sides, canon, &self.command)
        })
    }

    fn run_in_transaction(&self, sides: &mut Sides, canon: Canon, refusals: &[Refusal]) -> Result<Outcome> {
        let number = sides.next_number();
        let begun = doc! { "txnNumber": number, "startTransaction": true, "autocommit": false };
        let shaped = sides
            .shaped
            .run(&sides.shaped.in_session(&self.command, begun.clone()))?;
        if is_refused(sides, &shaped, refusals) {
            return Ok(Outcome::Refused);
        }
        let plain = sides.plain.run(&sides.plain.in_session(&self.command, begun))?;
        let plain = without_unknown_details(plain, &shaped);
        let outcome = same(&[plain, shaped], sides, canon, &self.command)?;
        let mut replies = Vec::new();
        for side in [&mut sides.plain, &mut sides.shaped] {
            let fields = doc! { "txnNumber": number, "autocommit": false };
            let mut commit = side.in_session(&doc! { "commitTransaction": 1 }, fields);
            commit.insert("$db", "admin");
            replies.push(side.routes.command_raw(&commit)?);
        }
        let codes: Vec<_> = replies.iter().map(|reply| reply.get_i32("code").ok()).collect();
        ensure!(codes[0] == codes[1], "commit: {codes:?}");
        Ok(outcome)
    }
}

/// The document that a write changes: one of the first twelve, or the latest one.
pub(super) struct Target {
    pub(super) number: i32,
    pub(super) filter: Document,
}

impl Target {
    /// `next` is the number of the next new document.
    pub(super) fn generate(generator: &mut Generator, next: i32) -> Self {
        let number = if generator.chance(70) {
            generator.between(1, 12)
        } else {
            next - 10
        };
        let name = if generator.has_ids() && generator.chance(50) {
            "_id"
        } else {
            "n"
        };
        let filter = doc! { name: number };
        Self { number, filter }
    }
}

/// When an index is created.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Creation {
    BeforeDocuments,
    AfterDocuments,
}

impl Creation {
    /// Both commands in order.
    pub(super) fn in_order<'a>(self, create: &'a Document, insert: &'a Document) -> [&'a Document; 2] {
        match self {
            Self::BeforeDocuments => [create, insert],
            Self::AfterDocuments => [insert, create],
        }
    }
}

/// Whether the proxy refuses the command, which is counted.
fn is_refused(sides: &mut Sides, reply: &RawDocument, refusals: &[Refusal]) -> bool {
    let reply = show(reply);
    let refusal = refusals.iter().find(|refusal| reply.contains(refusal.text));
    if let Some(refusal) = refusal {
        sides.refused(refusal.reason);
    }
    refusal.is_some()
}

/// The plain reply without the details of failed validations, if the proxy does not know them: on a
/// standalone, and of an update in a transaction.
fn without_unknown_details(plain: RawDocumentBuf, shaped: &RawDocument) -> RawDocumentBuf {
    if !show(shaped).contains("\"details\": Document({})") {
        return plain;
    }
    let mut reply = Bson::Document(Document::try_from(&*plain).unwrap_or_default());
    remove_details(&mut reply);
    reply
        .as_document()
        .and_then(|reply| RawDocumentBuf::try_from(reply).ok())
        .unwrap_or(plain)
}

fn remove_details(value: &mut Bson) {
    match value {
        Bson::Array(values) => values.iter_mut().for_each(remove_details),
        Bson::Document(document) => {
            let details = document
                .get_mut("details")
                .and_then(|details| details.as_document_mut());
            match details {
                Some(details) => details.clear(),
                None => document.iter_mut().for_each(|(_, value)| remove_details(value)),
            }
        }
        _ => {}
    }
}

/// Compares the results of a command: counts, errors and documents.
pub(super) fn same(replies: &[RawDocumentBuf; 2], sides: &Sides, canon: Canon, command: &Document) -> Result<Outcome> {
    let [plain, shaped] = replies;
    let of_side = |side: &Side, reply: &RawDocument| -> Result<Document> {
        let mut reply = Document::try_from(reply)?;
        if let (Ok(value), true) = (reply.get_document_mut("value"), canon.without_id) {
            value.remove("_id");
        }
        if canon.without_id {
            remove_failing_id(&mut reply);
        }
        let compared = [
            "n",
            "nModified",
            "upserted",
            "writeErrors",
            "ok",
            "code",
            "codeName",
            "errmsg",
            "keyPattern",
        ];
        let others = ["keyValue", "lastErrorObject", "value", "errInfo"];
        let mut result = doc! {};
        let is_build = command.contains_key("createIndexes");
        for name in compared.into_iter().chain(others) {
            // Which of several duplicates mongod reports for an index build is not defined.
            if !is_build || !["errmsg", "keyValue"].contains(&name) {
                result.extend(reply.get(name).map(|value| (name.to_owned(), neutral(side, value))));
            }
        }
        Ok(result)
    };
    let (theirs, ours) = (of_side(&sides.plain, plain)?, of_side(&sides.shaped, shaped)?);
    ensure!(theirs == ours, "{command}\n  plain:  {theirs}\n  shaped: {ours}");
    let has_failed =
        field(shaped, "writeErrors").is_some() || field(shaped, "ok").and_then(RawBsonRef::as_f64) != Some(1.0);
    Ok(if has_failed { Outcome::Failed } else { Outcome::Done })
}

/// The value without the side's database, and without the order of fields at the top of a document.
fn neutral(side: &Side, value: &Bson) -> Bson {
    match value {
        Bson::String(text) => side.neutral(text).into(),
        Bson::Array(values) => values
            .iter()
            .map(|value| neutral(side, value))
            .collect::<Vec<_>>()
            .into(),
        Bson::Document(document) => {
            let mut fields: Vec<(String, Bson)> = document
                .iter()
                .map(|(name, value)| (name.clone(), neutral(side, value)))
                .collect();
            fields.sort_by(|(one, _), (other, _)| one.cmp(other));
            fields.into_iter().collect::<Document>().into()
        }
        value => value.clone(),
    }
}

/// Removes the `_id` of documents that failed validation.
fn remove_failing_id(reply: &mut Document) {
    let remove = |of: &mut Document| {
        if let Ok(info) = of.get_document_mut("errInfo") {
            info.remove("failingDocumentId");
        }
    };
    remove(reply);
    if let Ok(errors) = reply.get_array_mut("writeErrors") {
        errors.iter_mut().filter_map(Bson::as_document_mut).for_each(remove);
    }
}
