//! `insert` of one document or several.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument};
use bson::{Bson, Document, doc};

use super::{Operation, Outcome};
use crate::ItemIds;
use crate::differential::compare;
use crate::differential::grammar::{Harmless, INSERT, InsertCount, InsertForm, Ordered, Sent};
use crate::differential::refusal;
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Generator, Side, Sides};

#[derive(Debug)]
pub(super) struct Insert {
    documents: Vec<Document>,
    /// `None`: omitted, so the default `true`.
    ordered: Option<bool>,
    /// The first that the shape refuses in an ordered command, or all in an unordered one: an invalid key value.
    no_keys: Vec<usize>,
    /// How often it is sent as a retryable write; 0: it is none.
    sent: u32,
    /// The command's other fields.
    options: Document,
    /// Whether the command fails as a whole for one of them.
    fails: bool,
    /// The fields of the key within which `_id`s are unique. Empty: they are unique in the collection, or not at all.
    unique_in: Vec<String>,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    Box::new(make_up(generator))
}

/// One without a document that is no key: the plain side gets all of it.
pub(super) fn with_keys_only(generator: &mut Generator) -> Insert {
    loop {
        let insert = make_up(generator);
        if insert.no_keys.is_empty() {
            return insert;
        }
    }
}

fn make_up(generator: &mut Generator) -> Insert {
    generator.group(&INSERT, ordinary)
}

fn ordinary(generator: &mut Generator) -> Insert {
    let has_outlier = generator.outlier.is_some();
    let count = match generator.take::<InsertCount>() {
        InsertCount::One => 1,
        InsertCount::None => 0,
        _ if has_outlier => generator.between(2, 6),
        InsertCount::Few => generator.between(2, 8),
        InsertCount::Page => generator.between(9, 35),
        InsertCount::Pages => generator.between(40, 70),
    };
    let form = generator.take_where(|form: InsertForm| count > 0 || form == InsertForm::Ordinary);
    let mut documents: Vec<Document> = (0..count).map(|_| generator.document()).collect();
    if form == InsertForm::OneKey {
        to_one_key(generator, &mut documents);
    }
    let mut options = doc! {};
    if form == InsertForm::Mistake {
        options = wrong(generator);
    } else if generator.take::<Harmless>() == Harmless::Some {
        let harmless = [
            doc! { "bypassDocumentValidation": true },
            doc! { "comment": "nothing" },
            doc! { "writeConcern": { "w": 1 } },
            doc! { "maxTimeMS": 20_000 },
        ];
        options = generator.example("insert.harmless", &harmless);
    }
    let keys = &generator.shape.key;
    let has_no_key = |document: &Document| {
        generator.outlier.is_none()
            && !has_forbidden_id(document)
            && keys.iter().any(|key| document.get(key).is_some_and(refusal::is_no_key))
    };
    let no_keys = documents
        .iter()
        .enumerate()
        .filter(|(_, document)| has_no_key(document));
    let no_keys = no_keys.map(|(index, _)| index).collect();
    let ordered = generator.ordered();
    let sent = generator.sent();
    let is_unique_in_key = generator.shape.item_ids == ItemIds::UniqueInKey;
    let mut insert = Insert {
        unique_in: if is_unique_in_key {
            generator.shape.key.clone()
        } else {
            Vec::new()
        },
        ordered,
        documents,
        no_keys,
        sent,
        fails: form == InsertForm::Mistake && !options.contains_key("writeConcern"),
        options,
    };
    if insert.is_refused_whole() || insert.documents.is_empty() {
        // The plain side is sent nothing that could fail for it, or fails for another mistake in a
        // transaction.
        insert.options.remove("writeConcern");
    }
    insert
}

/// One mistake, for which the command fails as a whole.
fn wrong(generator: &mut Generator) -> Document {
    let mistakes = [
        doc! { "nope": 1 },
        doc! { "maxTimeMS": -1 },
        doc! { "maxTimeMS": "x" },
        doc! { "ordered": "x" },
        doc! { "readConcern": { "level": "majority" } },
        doc! { "readConcern": { "level": "nope" } },
        doc! { "writeConcern": 1 },
        doc! { "writeConcern": { "w": "nope", "wtimeout": 10 } },
        doc! { "collation": { "locale": "en" } },
    ];
    generator.example("insert.form.mistake", &mistakes)
}

/// A load of one key, as an import has it.
fn to_one_key(generator: &mut Generator, documents: &mut [Document]) {
    // With another key, the repeated `_id` would be accepted.
    for document in documents
        .iter_mut()
        .filter(|document| generator.repeats_id_in_key(document))
    {
        document.remove("_id");
    }
    for position in 0..generator.shape.key.len() {
        let value = generator.key_value(position);
        for document in &mut *documents {
            let name = &generator.shape.key[position];
            match &value {
                Some(value) => document.insert(name, value.clone()),
                None => document.remove(name),
            };
        }
    }
    for document in documents {
        generator.remember_place(document.get_i32("n").unwrap_or_default(), document);
    }
}

/// Documents that mongod refuses before the key is read.
fn has_forbidden_id(document: &Document) -> bool {
    match document.get("_id") {
        Some(Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined) => true,
        Some(Bson::Document(id)) if id.contains_key("$ref") && id.contains_key("$id") => false,
        Some(Bson::Document(id)) => refusal::has_dollar(id),
        _ => false,
    }
}

impl Insert {
    fn is_ordered(&self) -> bool {
        self.ordered.unwrap_or(true)
    }

    fn command(&self, documents: Vec<&Document>) -> Document {
        let documents: Vec<Bson> = documents.into_iter().map(|document| document.clone().into()).collect();
        let mut command = doc! { "insert": COLLECTION, "documents": documents };
        if let Some(ordered) = self.ordered {
            command.insert("ordered", ordered);
        }
        command.extend(self.options.clone());
        command
    }

    /// The indexes of the documents that the plain side gets: those that it would get to if it refused
    /// `no_keys` too.
    fn acceptable(&self) -> Vec<usize> {
        let end = match self.no_keys.first() {
            Some(first) if self.is_ordered() => *first,
            _ => self.documents.len(),
        };
        (0..end).filter(|index| !self.no_keys.contains(index)).collect()
    }
}

impl Operation for Insert {
    fn commands(&self) -> Vec<Document> {
        vec![self.command(self.documents.iter().collect())]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        if self.repeats_id_in_another_key(sides)? {
            return Ok(Outcome::Done);
        }
        super::sent_again(sides, self.sent, |sides, fields| self.run_with(sides, fields))
    }
}

impl Insert {
    /// Whether a document has the `_id` of one that a change has given another key since this operation was generated.
    /// The plain collection is not sharded, so it would refuse the document.
    fn repeats_id_in_another_key(&self, sides: &mut Sides) -> Result<bool> {
        for document in self.documents.iter().filter(|_| !self.unique_in.is_empty()) {
            let Some(id) = document.get("_id") else {
                continue;
            };
            let find = doc! { "find": COLLECTION, "filter": { "_id": { "$eq": id } } };
            let reply = sides.plain.run(&find)?;
            // A value that cannot be an `_id` may be an invalid condition, too.
            let Ok(cursor) = reply.get_document("cursor") else {
                continue;
            };
            for one in cursor.get_array("firstBatch")? {
                let one = Document::try_from(one?.as_document().context("a document")?)?;
                if self.unique_in.iter().any(|field| one.get(field) != document.get(field)) {
                    return Ok(true);
                }
            }
        }
        Ok(false)
    }

    /// Runs it on both sides with fields of a retryable write or a transaction.
    pub(super) fn run_with(&self, sides: &mut Sides, fields: &Document) -> Result<Outcome> {
        let outcome = self.run_once(sides, fields)?;
        if outcome == Outcome::Refused {
            sides.refused("invalid key value");
        }
        Ok(outcome)
    }

    fn run_once(&self, sides: &mut Sides, fields: &Document) -> Result<Outcome> {
        let with = |side: &Side, command: Document| {
            if fields.is_empty() {
                command
            } else {
                side.in_session(&command, fields.clone())
            }
        };
        let command = with(&sides.shaped, self.command(self.documents.iter().collect()));
        let shaped = sides.shaped.run(&command)?;
        let acceptable = self.acceptable();
        if self.is_refused_whole() && !self.fails {
            ensure!(compare::succeeded(&shaped), "{}", show(&shaped));
            return self.compare(sides, None, &acceptable, &shaped);
        }
        let sent = if self.fails {
            (0..self.documents.len()).collect()
        } else {
            acceptable.clone()
        };
        let documents = sent.iter().map(|index| &self.documents[*index]).collect();
        let command = with(&sides.plain, self.command(documents));
        let plain = sides.plain.run(&command)?;
        if !compare::succeeded(&plain) || !compare::succeeded(&shaped) {
            if !(fields.contains_key("autocommit") && self.fails_for_one_of_several(&plain, &shaped)) {
                compare::outcomes(&plain, &shaped)?;
            }
            return Ok(Outcome::Failed);
        }
        self.compare(sides, Some(&plain), &acceptable, &shaped)
    }
}

impl Insert {
    /// Whether the command is invalid whatever the collection contains.
    pub(super) fn is_invalid(&self) -> bool {
        self.fails || self.documents.is_empty()
    }

    /// Whether the shaped side failed as a whole with the code of the document that the plain side refused. In a
    /// transaction, an error of an index ends it, and the statement for several documents does not name the one.
    fn fails_for_one_of_several(&self, plain: &RawDocument, shaped: &RawDocument) -> bool {
        let refused = errors(plain).first().and_then(|error| field(error, "code"));
        self.documents.len() > 1 && refused.is_some() && refused == field(shaped, "code")
    }

    /// Whether the shape refuses all of it that is done.
    fn is_refused_whole(&self) -> bool {
        self.acceptable().is_empty() && !self.no_keys.is_empty()
    }

    fn compare(
        &self,
        sides: &Sides,
        plain: Option<&RawDocument>,
        sent: &[usize],
        shaped: &RawDocument,
    ) -> Result<Outcome> {
        let theirs = plain.map(errors).unwrap_or_default();
        let ours = errors(shaped);
        let n = plain
            .and_then(|plain| field(plain, "n"))
            .unwrap_or(RawBsonRef::Int32(0));
        ensure!(
            field(shaped, "n") == Some(n),
            "n is not {n:?}.\n  plain:  {}\n  shaped: {}",
            plain.map(show).unwrap_or_default(),
            show(shaped)
        );
        ensure!(
            plain.is_none_or(|plain| has_concern_error(plain) == has_concern_error(shaped)),
            "one has no writeConcernError.\n  plain:  {}\n  shaped: {}",
            plain.map(show).unwrap_or_default(),
            show(shaped)
        );
        // An ordered command that failed earlier does not report the document without a valid key.
        let stopped = self.is_ordered() && !theirs.is_empty();
        let refused: &[usize] = match &self.no_keys[..] {
            _ if stopped => &[],
            [first, ..] if self.is_ordered() => std::slice::from_ref(first),
            all => all,
        };
        let mut expected: Vec<(usize, Option<&RawDocument>)> = refused.iter().map(|index| (*index, None)).collect();
        for error in &theirs {
            expected.push((sent[index(error)], Some(*error)));
        }
        expected.sort_by_key(|(index, _)| *index);
        ensure!(
            expected.len() == ours.len(),
            "{} write errors instead of {}.\n  plain:  {}\n  shaped: {}",
            ours.len(),
            expected.len(),
            plain.map(show).unwrap_or_default(),
            show(shaped)
        );
        for ((index, plain), ours) in expected.iter().zip(&ours) {
            match plain {
                Some(plain) => compare::write_errors(sides, i32::try_from(*index)?, plain, ours)?,
                None => ensure!(
                    is_refusal_of_key(ours, *index),
                    "document {index} is no key, and got {ours:?}"
                ),
            }
        }
        Ok(match (refused.is_empty(), theirs.is_empty()) {
            (false, _) => Outcome::Refused,
            (true, false) => Outcome::Failed,
            (true, true) => Outcome::Done,
        })
    }
}

fn has_concern_error(reply: &RawDocument) -> bool {
    field(reply, "writeConcernError").is_some()
}

fn errors(reply: &RawDocument) -> Vec<&RawDocument> {
    let errors = field(reply, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors.into_iter().flatten().flatten();
    errors.filter_map(RawBsonRef::as_document).collect()
}

fn index(error: &RawDocument) -> usize {
    let index = field(error, "index").and_then(RawBsonRef::as_i32).unwrap_or_default();
    usize::try_from(index).unwrap_or_default()
}

fn is_refusal_of_key(error: &RawDocument, expected: usize) -> bool {
    let message = field(error, "errmsg").and_then(RawBsonRef::as_str).unwrap_or_default();
    index(error) == expected
        && field(error, "code") == Some(RawBsonRef::Int32(2))
        && message.contains("cannot be a key")
}

impl Generator {
    /// Whether statements end with the first that fails; `None`: omitted, so the default `true`.
    pub(super) fn ordered(&mut self) -> Option<bool> {
        match self.take::<Ordered>() {
            Ordered::None => None,
            Ordered::Yes => Some(true),
            Ordered::No => Some(false),
        }
    }

    /// How often a write is sent as a retryable one; 0: it is none.
    pub(super) fn sent(&mut self) -> u32 {
        if !self.has_sessions {
            return 0;
        }
        match self.take::<Sent>() {
            Sent::Plainly => 0,
            Sent::Once => 1,
            Sent::Twice => 2,
            Sent::Thrice => 3,
        }
    }
}
