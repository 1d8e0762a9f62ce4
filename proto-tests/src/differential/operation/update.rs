//! `update` of one document by `n`, or of many documents by operators that cannot fail on some of them.

use bson::{Bson, Document, bson, doc};

use super::Operation;
use super::writes::Writes;
use crate::differential::World;
use crate::differential::compare::Canon;
use crate::differential::grammar::{Harmless, Multi, UPDATE, UpdateForm, UpsertFilter};

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    Box::new(make_up(world))
}

pub(super) fn make_up(world: &mut World) -> Writes {
    let count = world.pick(&[1, 1, 1, 2, 3, 5]);
    let options = world.options_of_writes("update");
    let has_variable = options.contains_key("let");
    let statements = (0..count).map(|_| world.group(&UPDATE, |world| statement(world, has_variable)));
    let statements = statements.collect();
    let sent = world.sent();
    Writes {
        name: "update",
        list: "updates",
        statements,
        options,
        sent,
        canon: world.canon(),
    }
}

/// A statement of a command that has a variable `x`, or none.
fn statement(world: &mut World, has_variable: bool) -> Document {
    // Where no order is known, which ones are changed before one fails is not known.
    let keeps_order = world.keeps_order() && !world.moves;
    let form = world.take_where(|form: UpdateForm| match form {
        UpdateForm::FailingMany => keeps_order,
        _ => true,
    });
    let mut statement = match form {
        UpdateForm::Many => many(world),
        UpdateForm::Upsert => upsert(world),
        UpdateForm::FailingMany => return failing(world),
        UpdateForm::Mistake => return wrong(world),
        UpdateForm::One => {
            let (filter, number) = world.filter_of_one();
            let change = world.change(number);
            let mut statement = doc! { "q": filter, "u": change.update };
            if let Some(filters) = change.array_filters {
                statement.insert("arrayFilters", filters);
            }
            statement
        }
    };
    if form != UpdateForm::Many && world.take::<Multi>() == Multi::Yes {
        statement.insert("multi", true);
    }
    if let Some(hint) = world.hint() {
        statement.insert("hint", hint);
    }
    if (form != UpdateForm::Upsert || world.chance(20))
        && let Some(collation) = world.collation()
    {
        statement.insert("collation", collation);
    }
    if has_variable
        && world.chance(20)
        && statement
            .get_document("q")
            .is_ok_and(|filter| !filter.contains_key("$expr"))
    {
        statement.insert("q", with(&statement, "$expr", bson!({ "$gte": ["$n", "$$x"] })));
    }
    statement
}

/// Changes the documents of one key, in their order, until it fails on one.
fn failing(world: &mut World) -> Document {
    let changes = [
        bson!({ "$inc": { "count": 1 } }),
        bson!({ "$push": { "tags": 1 } }),
        bson!({ "$mul": { "qty": 2 }, "$set": { "history": "changed" } }),
        bson!({ "$set": { "nested.x": 1 } }),
        bson!({ "$pop": { "tags": 1 } }),
        bson!({ "$bit": { "qty": { "and": 1 } } }),
        bson!([{ "$set": { "history": { "$add": ["$qty", 1] } } }]),
    ];
    let change = world.example("update.failingMany", &changes);
    doc! { "q": world.one_key(), "u": change, "multi": true }
}

fn wrong(world: &mut World) -> Document {
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
    let mut statement = doc! { "q": { "n": world.some_serial() }, "u": { "$set": { "qty": 1 } } };
    statement.extend(world.example("update.mistake", &mistakes));
    statement
}

impl World {
    /// What is said beside the statements of an `update` or a `delete`.
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

fn many(world: &mut World) -> Document {
    let change = world.sure_change();
    let filter = doc! { "$and": [world.filter_of_some(), change.needs] };
    let mut statement = doc! { "q": filter, "u": change.update, "multi": true };
    if let Some(filters) = change.array_filters {
        statement.insert("arrayFilters", filters);
    }
    statement
}

fn upsert(world: &mut World) -> Document {
    let (filter, number) = upserting_filter(world);
    let change = world.change(number);
    let mut statement = doc! { "q": filter, "u": change.update, "upsert": true };
    if let Some(filters) = change.array_filters {
        statement.insert("arrayFilters", filters);
    }
    statement
}

/// A filter that names a document which is there by nothing but its number, or one that is not there by more:
/// what is made has a number of its own.
pub(super) fn upserting_filter(world: &mut World) -> (Document, i32) {
    let form = world.take::<UpsertFilter>();
    if form == UpsertFilter::Given {
        let number = world.given_serial();
        return (doc! { "n": number }, number);
    }
    let number = world.next_serial();
    let mut filter = match form {
        UpsertFilter::OneKey => world.one_key(),
        UpsertFilter::Field => doc! { world.pick(&["qty", "count", "nested.x", "tags"]): world.value() },
        UpsertFilter::Any => world.any_filter(1),
        UpsertFilter::Number | UpsertFilter::Given => doc! {},
    };
    if world.chance(20) && world.has_ids() {
        let id = world.new_or_given_id();
        filter.insert("_id", id);
    }
    filter.insert("n", number);
    world.remember(number, &filter);
    (filter, number)
}

impl World {
    /// How whole documents are compared.
    pub(in crate::differential) fn canon(&self) -> Canon {
        Canon {
            without_id: !self.has_ids(),
            in_order: self.outlier.is_some(),
            ..Canon::default()
        }
    }
}
