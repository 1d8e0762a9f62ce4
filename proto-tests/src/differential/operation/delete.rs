//! `delete` of one document by `n`, or of all matching documents.

use bson::{Bson, Document, doc};

use super::Operation;
use super::writes::Writes;
use crate::differential::Generator;
use crate::differential::grammar::{DELETE, DeleteForm, DeleteLimit, DeleteStatements};

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    Box::new(make_up(generator))
}

pub(super) fn make_up(generator: &mut Generator) -> Writes {
    let has_ids = generator.has_ids();
    let kind = generator.take_where(|kind: DeleteStatements| has_ids || kind == DeleteStatements::Any);
    let options = generator.options_of_writes("delete");
    let has_variable = options.contains_key("let");
    let statements: Vec<Document> = match kind {
        DeleteStatements::Any => {
            let count = generator.pick(&[1, 1, 2, 3]);
            let any = (0..count).map(|_| generator.group(&DELETE, |generator| statement(generator, has_variable)));
            any.collect()
        }
        // Some name the same document, or one that is deleted already.
        DeleteStatements::ById => {
            let count = generator.pick(&[2, 4, 8]);
            (0..count).map(|_| doc! { "q": by_id(generator), "limit": 1 }).collect()
        }
    };
    let sent = generator.sent();
    Writes {
        name: "delete",
        list: "deletes",
        statements,
        options,
        sent,
        canon: generator.canon(),
    }
}

fn statement(generator: &mut Generator, has_variable: bool) -> Document {
    let has_ids = generator.has_ids();
    let form = generator.take_where(|form: DeleteForm| has_ids || form != DeleteForm::ById);
    let filter = match form {
        DeleteForm::Some => generator.filter_of_some(),
        DeleteForm::OneKey => generator.one_key(),
        DeleteForm::ById => by_id(generator),
        DeleteForm::One => generator.filter_of_one().0,
        DeleteForm::Mistake => return wrong(generator),
    };
    // Which of several is deleted is not defined.
    let is_one = matches!(form, DeleteForm::ById | DeleteForm::One);
    let limit = generator.take_where(|limit: DeleteLimit| is_one || limit != DeleteLimit::One);
    let number = match limit {
        DeleteLimit::One => Bson::Int32(1),
        DeleteLimit::All => Bson::Int32(0),
        DeleteLimit::NoNumber => generator.example("delete.limit.noNumber", &["x".into(), Bson::Null, true.into()]),
    };
    let mut statement = doc! { "q": filter, "limit": number };
    // Under another collation a filter may name several.
    if limit != DeleteLimit::One
        && let Some(collation) = generator.collation()
    {
        statement.insert("collation", collation);
    }
    if let Some(hint) = generator.hint() {
        statement.insert("hint", hint);
    }
    if has_variable
        && generator.chance(30)
        && statement
            .get_document("q")
            .is_ok_and(|filter| !filter.contains_key("$expr"))
        && let Ok(filter) = statement.get_document_mut("q")
    {
        filter.insert("$expr", doc! { "$gte": ["$n", "$$x"] });
    }
    statement
}

fn by_id(generator: &mut Generator) -> Document {
    if !generator.names_keys {
        return doc! { "_id": { "$eq": generator.some_id().unwrap_or(Bson::Null) } };
    }
    let (id, number) = generator.some_numbered_id().unwrap_or_default();
    let mut filter = doc! { "_id": { "$eq": id } };
    generator.name_key(&mut filter, number);
    filter
}

fn wrong(generator: &mut Generator) -> Document {
    let mistakes = [
        doc! { "hint": "nope" },
        doc! { "hint": { "qty": 1 } },
        doc! { "hint": { "$natural": "x" } },
        doc! { "limit": 2 },
        doc! { "limit": -1 },
        doc! { "limit": 0.5 },
        doc! { "limit": f64::NAN },
        doc! { "hint": 1 },
        doc! { "q": 1 },
        doc! { "q": { "$nope": 1 } },
        doc! { "collation": { "locale": "nope" } },
        doc! { "nope": 1 },
    ];
    let mut statement = doc! { "q": { "n": generator.some_serial() }, "limit": 1 };
    statement.extend(generator.example("delete.mistake", &mistakes));
    statement
}
