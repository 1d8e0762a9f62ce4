//! Names that begin with `$`: each operator at each position. Each kind of command takes a part of the
//! updates.

use anyhow::Result;
use bson::{Bson, Document, bson, doc};
use proto_tests::ItemIds;
use proto_tests::measure::rows;

use super::{Case, Table, existing};
use crate::updates::sides::{COLLECTION, at};

/// Paths, of which most lead to a field that may not be there.
const PATHS: [&str; 21] = [
    "$f",
    "$old",
    "$ref",
    "$id",
    "$db",
    "a.$f",
    "a.$ref",
    "a.$id",
    "a.$db",
    "a.$ref.x",
    "$f.x",
    "$ref.x",
    "$old.x",
    "tree.$in",
    "tree.$f",
    "list.0.$f",
    "list.0.$ref",
    "new.$f",
    "new.$id",
    "new",
    "quantity.$f",
];

fn single(name: &str, value: impl Into<Bson>) -> Document {
    let mut document = Document::new();
    document.insert(name, value.into());
    document
}

/// Values that hold such names.
fn values() -> Vec<Bson> {
    vec![
        bson!({ "$f": 1 }),
        bson!({ "x": 1, "$f": 1 }),
        bson!({ "x": { "$f": 1 } }),
        bson!([{ "$f": 1 }]),
        bson!([[{ "x": { "$f": 1 } }]]),
        bson!({ "$ref": "c", "$id": 1 }),
        bson!({ "$ref": "c", "$id": 1, "$db": "d" }),
        bson!({ "$ref": "c", "$id": 1, "$f": 2 }),
        bson!({ "$ref": "c" }),
        bson!({ "$id": 1 }),
        bson!({ "$id": 1, "$ref": "c" }),
        bson!({ "$ref": 1, "$id": 1 }),
        bson!({ "$db": "d" }),
        bson!({ "a.b": 1 }),
        bson!({ "": 1 }),
    ]
}

/// Every operator on such paths, and the operators that take values with such values.
fn operators() -> Vec<Document> {
    let mut updates = Vec::new();
    let at_path = |operator: &str, path: &str, value: Bson| single(operator, single(path, value));
    for path in PATHS {
        for (operator, value) in [
            ("$set", bson!(1)),
            ("$setOnInsert", bson!(1)),
            ("$unset", bson!(1)),
            ("$inc", bson!(1)),
            ("$mul", bson!(2)),
            ("$min", bson!(-1)),
            ("$max", bson!(9)),
            ("$bit", bson!({ "or": 4 })),
            ("$currentDate", bson!({ "$type": "nope" })),
            ("$push", bson!(1)),
            ("$addToSet", bson!(1)),
            ("$pull", bson!(1)),
            ("$pullAll", bson!([1])),
            ("$pop", bson!(1)),
        ] {
            updates.push(at_path(operator, path, value));
        }
        // A `$rename` through an array is always refused.
        if !path.starts_with("list") && !path.starts_with("quantity") && path != "$old.x" {
            updates.push(at_path("$rename", path, bson!("renamed")));
            updates.push(at_path("$rename", "old", bson!(path)));
        }
        updates.push(doc! { "$set": { path: 1, "n": 9 } });
        updates.push(doc! { "$set": { path: 1, "k": 1 } });
        updates.push(doc! { "$set": { path: 1, "quantity": 1 } });
    }
    // The names beside one that goes.
    for path in ["quantity", "tree", "old", "$old"] {
        updates.push(at_path("$unset", path, bson!(1)));
        updates.push(at_path("$rename", path, bson!("renamed")));
    }
    updates.push(doc! { "$set": { "$old": 2, "$f": 1 } });
    updates.push(doc! { "$set": { "$old": 1, "$f": 1 } });
    updates.push(doc! { "$set": { "$ref": "c", "$id": 1 } });
    updates.push(doc! { "$set": { "$ref": "c" } });
    updates.push(doc! { "$set": { "$db": "d" } });
    updates.push(doc! { "$inc": { "$old": 0 } });
    updates.push(doc! { "$unset": { "$old": 1 }, "$set": { "n": 5 } });
    for value in values() {
        for operator in ["$set", "$setOnInsert", "$min", "$max"] {
            for path in ["v", "a.v", "list.0.v", "list.1"] {
                updates.push(at_path(operator, path, value.clone()));
            }
        }
        for operator in ["$push", "$addToSet"] {
            updates.push(at_path(operator, "list", value.clone()));
            updates.push(at_path(operator, "list", bson!({ "$each": [value.clone()] })));
            updates.push(at_path(operator, "fresh", value.clone()));
        }
    }
    updates
}

fn replacements() -> Vec<Document> {
    let whole = |fields: Document| {
        let mut whole = doc! { "k": 1, "at": at(1) };
        whole.extend(fields);
        whole
    };
    let mut replacements: Vec<Document> = values().into_iter().map(|value| whole(doc! { "v": value })).collect();
    for name in ["$f", "$ref", "$id", "$db", "", "x.y"] {
        replacements.push(whole(single(name, 1)));
        replacements.push(whole(doc! { "v": { "w": single(name, 1) } }));
    }
    replacements.push(whole(doc! { "$ref": "c", "$id": 1 }));
    replacements
}

fn pipelines() -> Vec<Vec<Document>> {
    let mut pipelines = Vec::new();
    let literal = |value: Bson| doc! { "$literal": value };
    for name in ["$f", "$old", "$ref", "$id", "$db", "x.y"] {
        let set = |input: Bson, value: Bson| {
            doc! { "$setField": { "field": literal(bson!(name)), "input": input, "value": value } }
        };
        pipelines.push(vec![doc! { "$replaceWith": set(bson!("$$ROOT"), bson!(7)) }]);
        pipelines.push(vec![doc! { "$replaceWith": set(bson!("$$ROOT"), bson!("$$REMOVE")) }]);
        pipelines.push(vec![doc! { "$set": { "a": set(bson!("$a"), bson!(7)) } }]);
        let nested = single(name, 1);
        pipelines.push(vec![doc! { "$set": { "v": literal(bson!([nested])) } }]);
        pipelines.push(vec![
            doc! { "$replaceWith": set(bson!("$$ROOT"), bson!(7)) },
            doc! { "$set": { "k": 2 } },
        ]);
        pipelines.push(vec![
            doc! { "$replaceWith": set(bson!("$$ROOT"), bson!(7)) },
            doc! { "$set": { "at": at(3) } },
        ]);
    }
    for value in values() {
        pipelines.push(vec![doc! { "$set": { "v": literal(value.clone()) } }]);
        pipelines.push(vec![doc! { "$set": { "k": 2, "v": literal(value) } }]);
    }
    pipelines
}

/// The updates as `u`.
fn updates() -> Vec<Bson> {
    let operators = operators().into_iter().map(Bson::from);
    let replacements = replacements().into_iter().map(Bson::from);
    let pipelines = pipelines().into_iter().map(Bson::from);
    operators.chain(replacements).chain(pipelines).collect()
}

/// Kinds of commands that update.
const KINDS: usize = 12;
/// An ordinary run divides the updates into so many parts. Each kind of command takes one part.
const PARTS: usize = 18;

/// A command of a kind, about the documents of a case.
fn command(kind: usize, case: i32, update: &Bson) -> Option<Document> {
    let of = |q: Document, options: Document| {
        let mut statement = doc! { "q": q, "u": update };
        statement.extend(options);
        doc! { "update": COLLECTION, "updates": [statement] }
    };
    let find_and_modify = |query: Document, options: Document| {
        let mut command = doc! { "findAndModify": COLLECTION, "query": query, "update": update };
        command.extend(options);
        command
    };
    let [first, second, none] = [1, 2, 7].map(|digit| case * 10 + digit);
    let is_replacement = update
        .as_document()
        .is_some_and(|update| update.keys().next().is_some_and(|name| !name.starts_with('$')));
    Some(match kind {
        0 => of(doc! { "_id": first }, doc! {}),
        1 => of(doc! { "n": first }, doc! {}),
        2 => of(doc! { "_id": none }, doc! {}),
        3 => of(doc! { "_id": none, "k": case }, doc! { "upsert": true }),
        4 => of(doc! { "n": 77, "_id": none }, doc! { "upsert": true }),
        5 => find_and_modify(doc! { "_id": first }, doc! {}),
        6 => find_and_modify(doc! { "n": first }, doc! { "new": true }),
        7 => find_and_modify(doc! { "_id": none }, doc! { "upsert": true, "new": true }),
        8 => of(doc! { "_id": first }, doc! { "upsert": true }),
        9 => {
            let statements = [first, second].map(|id| doc! { "q": { "_id": id }, "u": update });
            doc! { "update": COLLECTION, "updates": statements.to_vec(), "ordered": false }
        }
        _ if is_replacement => return None,
        10 => of(doc! { "_id": first }, doc! { "multi": true }),
        _ => of(doc! { "k": case }, doc! { "multi": true }),
    })
}

#[test]
fn writes_take_names_that_begin_with_dollar_where_a_plain_collection_does() -> Result<()> {
    let mut table = Table::open(ItemIds::Unique)?;
    let updates = updates();
    for kind in 0..KINDS {
        let taken = rows(&updates, PARTS, kind).filter(|update| command(kind, 0, update).is_some());
        let taken: Vec<&Bson> = taken.collect();
        for updates in taken.chunks(250) {
            let case = |(case, update): (i32, &&Bson)| {
                let command = command(kind, case, update)?;
                Some(Case {
                    existing: existing(case),
                    command,
                })
            };
            let cases: Vec<Case> = (0..).zip(updates).filter_map(case).collect();
            table.cases(&cases)?;
        }
    }
    table.end(0)
}

#[test]
fn inserts_take_names_that_begin_with_dollar_where_a_plain_collection_does() -> Result<()> {
    for ids in [ItemIds::Unique, ItemIds::Stored] {
        let mut table = Table::open(ids)?;
        let documents = values().into_iter().flat_map(|value| {
            // An array is no key.
            let of_key = (!matches!(value, Bson::Array(_))).then(|| doc! { "_id": 1, "k": value.clone() });
            let others = [
                doc! { "_id": 1, "k": 1, "v": value.clone() },
                doc! { "_id": 1, "at": value.clone() },
                doc! { "_id": 1, "k": 1, "v": [value] },
            ];
            others.into_iter().chain(of_key)
        });
        let names = ["$f", "$ref", "$id", "$db", "", "x.y", "k.x", "$k", "$at"];
        let of_name = names.into_iter().map(|name| {
            let mut document = doc! { "_id": 1, "k": 1 };
            document.insert(name, 1);
            document
        });
        for document in documents.chain(of_name) {
            let command = doc! { "insert": COLLECTION, "documents": [document] };
            table.cases(&[Case {
                existing: Vec::new(),
                command,
            }])?;
        }
        table.end(0)?;
    }
    Ok(())
}
