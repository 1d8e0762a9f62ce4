//! `update` of one document by `n`, or of many documents by operators that cannot fail on some of them.

use bson::{Bson, Document, bson, doc};

use super::Operation;
use super::writes::Writes;
use crate::differential::Generator;
use crate::differential::compare::Canon;
use crate::differential::grammar::{Harmless, Multi, UPDATE, UpdateForm, UpsertFilter};

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    Box::new(make_up(generator))
}

pub(super) fn make_up(generator: &mut Generator) -> Writes {
    let count = generator.pick(&[1, 1, 1, 2, 3, 5]);
    let options = generator.options_of_writes("update");
    let has_variable = options.contains_key("let");
    let statements = (0..count).map(|_| generator.group(&UPDATE, |generator| statement(generator, has_variable)));
    let statements = statements.collect();
    let sent = generator.sent();
    Writes {
        name: "update",
        list: "updates",
        statements,
        options,
        sent,
        canon: generator.canon(),
    }
}

/// A statement of a command that has a variable `x`, or none.
fn statement(generator: &mut Generator, has_variable: bool) -> Document {
    // Without a defined order, the documents that are changed before one fails are not defined.
    let keeps_order = generator.keeps_order() && !generator.moves;
    let form = generator.take_where(|form: UpdateForm| match form {
        UpdateForm::FailingMany => keeps_order,
        _ => true,
    });
    let mut statement = match form {
        UpdateForm::Many => many(generator),
        UpdateForm::Upsert => upsert(generator),
        UpdateForm::FailingMany => return failing(generator),
        UpdateForm::Mistake => return wrong(generator),
        UpdateForm::One => {
            let (filter, number) = generator.filter_of_one();
            let change = generator.change(number);
            let filter = generator.on_element(filter, &change);
            let mut statement = doc! { "q": filter, "u": change.update };
            if let Some(filters) = change.array_filters {
                statement.insert("arrayFilters", filters);
            }
            statement
        }
    };
    if form != UpdateForm::Many && generator.take::<Multi>() == Multi::Yes {
        statement.insert("multi", true);
    }
    if let Some(hint) = generator.hint() {
        statement.insert("hint", hint);
    }
    if (form != UpdateForm::Upsert || generator.chance(20))
        && let Some(collation) = generator.collation()
    {
        statement.insert("collation", collation);
    }
    if has_variable
        && generator.chance(20)
        && statement
            .get_document("q")
            .is_ok_and(|filter| !filter.contains_key("$expr"))
    {
        statement.insert("q", with(&statement, "$expr", bson!({ "$gte": ["$n", "$$x"] })));
    }
    statement
}

/// Changes the documents of one key, in their order, until it fails on one.
fn failing(generator: &mut Generator) -> Document {
    let changes = [
        bson!({ "$inc": { "count": 1 } }),
        bson!({ "$push": { "tags": 1 } }),
        bson!({ "$mul": { "qty": 2 }, "$set": { "history": "changed" } }),
        bson!({ "$set": { "nested.x": 1 } }),
        bson!({ "$pop": { "tags": 1 } }),
        bson!({ "$bit": { "qty": { "and": 1 } } }),
        bson!([{ "$set": { "history": { "$add": ["$qty", 1] } } }]),
    ];
    let change = generator.example("update.failingMany", &changes);
    doc! { "q": generator.one_key(), "u": change, "multi": true }
}

fn wrong(generator: &mut Generator) -> Document {
    let mistakes = [
        doc! { "hint": "nope" },
        doc! { "hint": { "qty": 1 } },
        doc! { "hint": { "$natural": "x" } },
        doc! { "hint": 1 },
        doc! { "u": 1 },
        doc! { "u": { "$set": 1 } },
        doc! { "u": { "$set": { "a": 1 }, "b": 1 } },
        doc! { "u": { "a": 1, "$set": { "b": 1 } } },
        doc! { "u": { "$set": { "a": 1, "a.b": 1 } } },
        doc! { "u": [] },
        doc! { "u": [1] },
        doc! { "u": [{ "$nope": 1 }] },
        doc! { "u": [{ "$set": { "a": 1 } }, { "$set": { "a": 1 }, "$unset": "b" }] },
        doc! { "u": [{ "$set": { "a": 1 } }, 1] },
        doc! { "u": { "n": 1 }, "multi": true },
        doc! { "q": 1 },
        doc! { "q": { "$nope": 1 } },
        doc! { "multi": "x" },
        doc! { "upsert": "x" },
        doc! { "arrayFilters": 1 },
        doc! { "arrayFilters": [1] },
        doc! { "arrayFilters": [{ "e": 1 }] },
        doc! { "collation": { "locale": "nope" } },
        doc! { "c": { "x": 1 } },
        doc! { "nope": 1 },
        doc! { "u": { "$set": { "tags.$[e]": 1 } }, "arrayFilters": [{ "e": 1 }, { "e": 2 }] },
    ];
    let mut statement = doc! { "q": { "n": generator.some_serial() }, "u": { "$set": { "qty": 1 } } };
    statement.extend(generator.example("update.mistake", &mistakes));
    statement
}

impl Generator {
    /// The fields of an `update` or a `delete` beside its statements.
    pub(super) fn options_of_writes(&mut self, name: &'static str) -> Document {
        let mut options = doc! {};
        if self.chance(25) {
            options.insert("let", doc! { "x": self.scalar() });
        }
        if let Some(ordered) = self.ordered() {
            options.insert("ordered", ordered);
        }
        if self.take::<Harmless>() == Harmless::Some {
            let harmless = [
                doc! { "comment": "nothing" },
                doc! { "writeConcern": { "w": 1 } },
                doc! { "maxTimeMS": 20_000 },
                doc! { "bypassDocumentValidation": true },
            ];
            // A `delete` validates nothing.
            let known = if name == "delete" { 3 } else { harmless.len() };
            options.extend(self.example("write.harmless", &harmless[..known]));
        }
        options
    }
}

fn with(statement: &Document, name: &str, value: Bson) -> Document {
    let mut filter = statement.get_document("q").cloned().unwrap_or_default();
    filter.insert(name, value);
    filter
}

fn many(generator: &mut Generator) -> Document {
    let change = generator.sure_change();
    let filter = doc! { "$and": [generator.filter_of_some(), change.needs] };
    let mut statement = doc! { "q": filter, "u": change.update, "multi": true };
    if let Some(filters) = change.array_filters {
        statement.insert("arrayFilters", filters);
    }
    statement
}

fn upsert(generator: &mut Generator) -> Document {
    let (filter, number) = upserting_filter(generator);
    let change = generator.change(number);
    let mut statement = doc! { "q": filter, "u": change.update, "upsert": true };
    if let Some(filters) = change.array_filters {
        statement.insert("arrayFilters", filters);
    }
    statement
}

/// A filter that names a document which is there by nothing but its number, or one that is not there by more:
/// what is made has a number of its own.
pub(super) fn upserting_filter(generator: &mut Generator) -> (Document, i32) {
    let form = generator.take::<UpsertFilter>();
    // With a key that the document has not any more, the upsert would make a second one with its number.
    if form == UpsertFilter::Given && !generator.names_keys {
        let number = generator.given_serial();
        return (doc! { "n": number }, number);
    }
    let number = generator.next_serial();
    let mut filter = match form {
        UpsertFilter::OneKey => generator.one_key(),
        UpsertFilter::Field => doc! { generator.pick(&["qty", "count", "nested.x", "tags"]): generator.value() },
        UpsertFilter::Any => generator.any_filter_without_given_id(),
        UpsertFilter::Number | UpsertFilter::Given => doc! {},
    };
    if generator.chance(20) && generator.has_ids() {
        let id = generator.new_or_given_id();
        filter.insert("_id", id);
    } else {
        generator.leave_id_to_server();
    }
    filter.insert("n", number);
    if form != UpsertFilter::OneKey {
        generator.name_some_key(&mut filter);
    }
    generator.remember(number, &filter);
    (filter, number)
}

impl Generator {
    /// How whole documents are compared.
    pub(in crate::differential) fn canon(&self) -> Canon {
        Canon {
            without_id: !self.has_ids(),
            in_order: self.outlier.is_some() && self.upserts_keep_order,
            ..Canon::default()
        }
    }
}
