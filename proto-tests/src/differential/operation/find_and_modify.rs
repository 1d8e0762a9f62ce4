//! `findAndModify` of one document by `n`, or of the first document by a sort without ties.

use anyhow::{Context as _, Result, ensure};
use bson::raw::RawDocument;
use bson::{Document, doc};

use super::update::upserting_filter;
use super::{Operation, Outcome};
use crate::differential::changes::Change;
use crate::differential::compare::{self, Canon};
use crate::differential::grammar::{FIND_AND_MODIFY, Fields, FindAndModifyForm, Harmless, New};
use crate::differential::refusal;
use crate::differential::sides::{COLLECTION, field, show};
use crate::differential::{Generator, Sides, contents};

#[derive(Debug)]
pub(super) struct FindAndModify {
    command: Document,
    /// How often it is sent as a retryable write; 0: it is none.
    sent: u32,
    canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    Box::new(make_up(generator))
}

pub(super) fn make_up(generator: &mut Generator) -> FindAndModify {
    let command = generator.group(&FIND_AND_MODIFY, ordinary);
    finished(generator, command)
}

fn ordinary(generator: &mut Generator) -> Document {
    let mut command = doc! { "findAndModify": COLLECTION };
    match generator.take::<FindAndModifyForm>() {
        FindAndModifyForm::RemoveOne => {
            command.insert("query", generator.filter_of_one().0);
            command.insert("remove", true);
        }
        FindAndModifyForm::RemoveFirst => {
            let mut filter = generator.filter_of_some();
            generator.name_some_key(&mut filter);
            command.extend(doc! { "query": filter, "sort": by_number(generator), "remove": true });
        }
        FindAndModifyForm::ChangeFirst => {
            let change = generator.sure_change();
            let mut filter = doc! { "$and": [generator.filter_of_some(), change.needs] };
            generator.name_some_key(&mut filter);
            command.extend(doc! { "query": filter, "sort": by_number(generator), "update": change.update });
            if let Some(filters) = change.array_filters {
                command.insert("arrayFilters", filters);
            }
        }
        FindAndModifyForm::Upsert => {
            let (filter, number) = upserting_filter(generator);
            let change = generator.change(number);
            append_change(&mut command, filter, change);
            command.insert("upsert", true);
        }
        FindAndModifyForm::Change => {
            let (filter, number) = generator.filter_of_one();
            let change = generator.change(number);
            let filter = generator.on_element(filter, &change);
            append_change(&mut command, filter, change);
        }
        FindAndModifyForm::Mistake => return wrong(generator),
    }
    let changes = command.contains_key("update");
    match generator.take_where(|new: New| changes || new != New::Yes) {
        New::None => None,
        New::Yes => command.insert("new", true),
        New::No => command.insert("new", false),
    };
    append_rare(generator, &mut command);
    command
}

fn append_change(command: &mut Document, filter: Document, change: Change) {
    command.extend(doc! { "query": filter, "update": change.update });
    if let Some(filters) = change.array_filters {
        command.insert("arrayFilters", filters);
    }
}

fn append_rare(generator: &mut Generator, command: &mut Document) {
    if generator.take::<Fields>() == Fields::Some {
        let fields = [
            doc! { "n": 1, "qty": 1 },
            doc! { "_id": 0 },
            doc! { "tags": 0 },
            doc! { "nested.x": 1, "_id": 0 },
            doc! { "tags": { "$slice": 1 } },
            doc! { "tags": { "$elemMatch": { "$gte": 1 } }, "n": 1 },
            doc! { "nested": { "x": 1 }, "tags": { "$slice": [-2, 1] } },
            doc! { "nested.x": 0, "qty": 0 },
            doc! { "twice": { "$add": ["$n", "$n"] }, "quantity": 1 },
            doc! { "one": { "$arrayElemAt": ["$tags", 0] }, "n": "$$ROOT.n" },
            // It fails for some documents.
            doc! { "sum": { "$add": ["$qty", 1] } },
            // Invalid.
            doc! { "n": 1, "qty": 0 },
            doc! { "_id": 1 },
        ];
        command.insert("fields", generator.example("fields.some", &fields));
    }
    if let Some(hint) = generator.hint() {
        command.insert("hint", hint);
    }
    // Under another collation an upsert's filter may name several.
    if command.contains_key("sort")
        && let Some(collation) = generator.collation()
    {
        command.insert("collation", collation);
    }
    let mut filter = command.get_document("query").cloned().unwrap_or_default();
    generator.append_let(command, &mut filter);
    command.insert("query", filter);
    if generator.take::<Harmless>() == Harmless::Some {
        let harmless = [
            doc! { "comment": "nothing" },
            doc! { "writeConcern": { "w": 1 } },
            doc! { "maxTimeMS": 20_000 },
            doc! { "bypassDocumentValidation": true },
        ];
        command.extend(generator.example("findAndModify.harmless", &harmless));
    }
}

/// One mistake: with two, the reported one depends on the order of checks.
fn wrong(generator: &mut Generator) -> Document {
    let change = doc! { "$set": { "qty": 1 } };
    let mistakes = [
        doc! { "remove": true, "hint": "nope" },
        doc! { "remove": true, "new": true },
        doc! { "remove": true, "update": &change },
        doc! { "remove": true, "upsert": true },
        doc! { "remove": true, "hint": { "$natural": "x" } },
        doc! {},
        doc! { "update": 1 },
        doc! { "update": { "$nope": 1 } },
        doc! { "update": &change, "sort": 1 },
        doc! { "update": &change, "sort": { "n": "x" } },
        doc! { "update": &change, "query": { "_id": 1, "n": 1 }, "sort": { "n": "x" } },
        doc! { "remove": true, "query": { "_id": 1, "n": 1 }, "sort": { "n": "x" } },
        doc! { "update": &change, "query": 1 },
        doc! { "update": &change, "fields": 1 },
        doc! { "update": &change, "upsert": "x" },
        doc! { "update": &change, "arrayFilters": [{ "e": 1 }] },
        doc! { "update": &change, "collation": { "locale": "nope" } },
        doc! { "update": &change, "maxTimeMS": -1 },
        doc! { "update": &change, "hint": 1 },
        doc! { "update": &change, "readConcern": { "level": "majority" } },
        doc! { "remove": true, "readConcern": { "other": 1 } },
        doc! { "update": &change, "nope": 1 },
    ];
    let mut command = doc! { "findAndModify": COLLECTION, "query": { "n": generator.some_serial() } };
    command.extend(generator.example("findAndModify.mistake", &mistakes));
    command
}

fn finished(generator: &mut Generator, mut command: Document) -> FindAndModify {
    let mut sent = generator.sent();
    if depends_on_chance(&command) {
        // A resent command fails: the item of the first attempt is not known.
        sent = sent.min(1);
    }
    if sent > 1 {
        // mongod 6.0.5 returns whole documents to a resent command.
        command.remove("fields");
    }
    FindAndModify {
        command,
        sent,
        canon: generator.canon(),
    }
}

fn depends_on_chance(command: &Document) -> bool {
    let query = command.get("query").map(ToString::to_string).unwrap_or_default();
    ["$sampleRate", "$rand"].iter().any(|operator| query.contains(operator))
}

fn by_number(generator: &mut Generator) -> Document {
    doc! { "n": generator.pick(&[1, -1]) }
}

impl Operation for FindAndModify {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        super::sent_again(sides, self.sent, |sides, fields| self.run_with(sides, fields))
    }
}

impl FindAndModify {
    /// Runs it on both sides with fields of a retryable write or a transaction.
    pub(super) fn run_with(&self, sides: &mut Sides, fields: &Document) -> Result<Outcome> {
        let [for_plain, for_shaped] = [&sides.plain, &sides.shaped].map(|side| {
            if fields.is_empty() {
                self.command.clone()
            } else {
                side.in_session(&self.command, fields.clone())
            }
        });
        let shaped = sides.shaped.run(&for_shaped)?;
        if let Some(kind) = refusal::of_write(&sides.write_request(&self.command), &shaped) {
            sides.refused(kind);
            contents::unchanged(sides, self.canon).with_context(|| format!("refused: {}", show(&shaped)))?;
            return Ok(Outcome::Refused);
        }
        let plain = sides.plain.run(&for_plain)?;
        let has_failed = [&plain, &shaped].map(|reply| !compare::succeeded(reply));
        let is_upsert = self.command.get_bool("upsert").unwrap_or_default();
        let (filter, change) = (self.command.get("query"), self.command.get("update"));
        if has_failed == [true, true] && compare::may_have_two_mistakes(filter, change, is_upsert) {
            return Ok(Outcome::Failed);
        }
        if has_failed != [false, false] {
            compare::outcomes(&plain, &shaped)?;
            return Ok(Outcome::Failed);
        }
        let comparable = |reply: &RawDocument| {
            let document = |name: &str, canon: Canon| {
                let value = field(reply, name);
                value.map(|value| value.as_document().map(|document| canon.of(document)))
            };
            (
                document("lastErrorObject", Canon::default()),
                document("value", self.canon),
            )
        };
        ensure!(
            comparable(&plain) == comparable(&shaped),
            "the replies differ.\n  plain:  {}\n  shaped: {}",
            show(&plain),
            show(&shaped)
        );
        Ok(Outcome::Done)
    }
}
