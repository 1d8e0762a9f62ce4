//! Malformed writes, and writes on a missing collection: each runs on both sides on separate collections. The
//! test compares codes, counts, the stored documents and whether the collection exists.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::sides::{COLLECTION, Pattern, Sides};
use proto_tests::{Outlier, Shape};

/// An item of both sides.
fn seed() -> Document {
    doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1, "n": 1 }, { "_id": 2, "k": 1, "n": 1 }] }
}

fn update(statements: Vec<Document>) -> Document {
    doc! { "update": COLLECTION, "updates": statements }
}

fn delete(statements: Vec<Document>) -> Document {
    doc! { "delete": COLLECTION, "deletes": statements }
}

fn with(command: &Document, name: &str, value: impl Into<Bson>) -> Document {
    let mut command = command.clone();
    command.insert(name, value);
    command
}

/// A statement that is executed, before a malformed one.
fn increment() -> Document {
    doc! { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } }
}

/// What a reply reports, without texts.
fn outcome(reply: &Document) -> String {
    let code = |error: &Bson| error.as_document().and_then(|error| error.get_i32("code").ok());
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let codes: Vec<_> = errors.map(code).collect();
    let concern = reply.get("writeConcernError").and_then(code);
    let counts = ["ok", "code", "n", "nModified"].map(|name| reply.get(name).cloned());
    format!("{counts:?} {codes:?} {concern:?}")
}

fn compare<P: Pattern>(sides: &mut Sides<P>, before: &[Document], command: &Document) -> Result<()> {
    let databases = [sides.plain_database(), sides.shaped_database()];
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "nameOnly": true };
    let mut seen = Vec::new();
    for (is_shaped, database) in [false, true].into_iter().zip(databases) {
        let connection = if is_shaped { &mut sides.shaped } else { &mut sides.plain };
        connection.command_ok(&doc! { "dropDatabase": 1, "$db": &database })?;
        for command in before {
            connection.command_ok(&with(command, "$db", &database))?;
        }
        let reply = connection.command(&with(command, "$db", &database))?;
        let listed = connection.command_ok(&with(&list, "$db", &database))?;
        let is_there = !listed.get_document("cursor")?.get_array("firstBatch")?.is_empty();
        seen.push((outcome(&reply), is_there, sides.items(is_shaped)?));
    }
    ensure!(
        seen[0] == seen[1],
        "{command}\n  plain:  {:?}\n  shaped: {:?}",
        seen[0],
        seen[1]
    );
    Ok(())
}

/// Runs cases on both patterns.
fn check(before: &[Document], commands: &[Document]) -> Result<()> {
    let mut buckets = Sides::open(Shape::new(&["k"]))?;
    let mut outliers = Sides::open(Outlier::new("tags", (5, 7)))?;
    for command in commands {
        compare(&mut buckets, before, command).context("buckets")?;
        compare(&mut outliers, before, command).context("outliers")?;
    }
    Ok(())
}

#[test]
fn a_limit_of_a_delete_is_exactly_0_or_1_or_no_number() -> Result<()> {
    let decimal: bson::Decimal128 = "0.4".parse()?;
    let limits: [Bson; 9] = [
        0.5.into(),
        f64::NAN.into(),
        1.5.into(),
        2.into(),
        decimal.into(),
        "x".into(),
        Bson::Null,
        true.into(),
        Bson::Document(doc! {}),
    ];
    let commands = limits.map(|limit| delete(vec![doc! { "q": {}, "limit": limit }]));
    check(&[seed()], &commands)
}

#[test]
fn types_in_later_statements_are_checked_before_any_is_executed() -> Result<()> {
    let malformed = [
        doc! { "q": {}, "u": 5 },
        doc! { "q": {}, "u": [1] },
        doc! { "q": {}, "u": { "$set": { "a": 1 } }, "arrayFilters": [1] },
        doc! { "q": {}, "u": { "$set": { "a": 1 } }, "arrayFilters": [Bson::Null] },
        doc! { "q": {}, "u": { "$set": { "a": 1 } }, "hint": 5 },
    ];
    let mut commands: Vec<Document> = malformed.map(|later| update(vec![increment(), later])).into();
    commands.push(delete(vec![
        doc! { "q": { "_id": 1 }, "limit": 1 },
        doc! { "q": {}, "limit": 1, "hint": 5 },
    ]));
    check(&[seed()], &commands)
}

#[test]
fn a_malformed_pipeline_fails_the_command_after_all_statements() -> Result<()> {
    let pipelines = [
        bson!([{ "$nope": 1 }]),
        bson!([{}]),
        bson!([{ "$set": { "a": 1 }, "$unset": "b" }]),
        bson!([{ "$facet": { "x": [{ "$nope": 1 }] } }]),
    ];
    let last = doc! { "q": { "_id": 2 }, "u": { "$inc": { "n": 1 } } };
    let mut commands = Vec::new();
    for pipeline in pipelines {
        let malformed = doc! { "q": { "_id": 1 }, "u": pipeline };
        let command = update(vec![increment(), malformed.clone(), last.clone()]);
        commands.push(with(&command, "ordered", false));
        commands.push(command);
        // Not executed, because the first fails.
        let wrong = doc! { "q": { "$nope": 1 }, "u": { "$set": { "a": 1 } } };
        commands.push(update(vec![wrong, malformed]));
    }
    check(&[seed()], &commands)
}

#[test]
fn a_refused_statement_is_seen_beside_a_malformed_pipeline() -> Result<()> {
    // A standalone has no transaction in which an item could get another key.
    let mut sides = Sides::on_a_standalone(Shape::new(&["k"]))?;
    sides.run(&seed())?;
    let another_key = doc! { "q": { "_id": 2 }, "u": { "$set": { "k": 2 } } };
    let statements = vec![
        increment(),
        doc! { "q": { "_id": 1 }, "u": [{ "$nope": 1 }] },
        another_key,
    ];
    let command = with(&update(statements), "ordered", false);
    let database = sides.shaped_database();
    let reply = sides.shaped.command(&with(&command, "$db", database))?;
    let errors = reply.get_array("writeErrors")?.iter().filter_map(Bson::as_document);
    let errors: Vec<[Option<i32>; 2]> = errors
        .map(|error| ["index", "code"].map(|name| error.get_i32(name).ok()))
        .collect();
    assert_eq!(errors, [[Some(1), Some(9)], [Some(2), Some(115)]], "{reply}");
    assert_eq!(reply.get_i32("nModified")?, 1, "{reply}");
    Ok(())
}

#[test]
fn the_read_concern_of_a_write_is_local() -> Result<()> {
    let writes = [
        doc! { "insert": COLLECTION, "documents": [{ "_id": 3, "k": 1 }] },
        update(vec![increment()]),
        delete(vec![doc! { "q": {}, "limit": 1 }]),
        doc! { "findAndModify": COLLECTION, "query": {}, "remove": true },
    ];
    let concerns: [Bson; 6] = [
        Bson::Document(doc! { "level": "majority" }),
        Bson::Document(doc! { "level": "nope" }),
        Bson::Document(doc! { "level": 5 }),
        Bson::Document(doc! { "other": 1 }),
        Bson::Document(doc! { "level": "local" }),
        5.into(),
    ];
    let mut commands = vec![doc! { "count": COLLECTION, "readConcern": { "level": "snapshot" } }];
    for concern in concerns {
        commands.extend(writes.iter().map(|write| with(write, "readConcern", concern.clone())));
    }
    check(&[seed()], &commands)
}

#[test]
fn an_upsert_creates_its_collection_first() -> Result<()> {
    let upserts = [
        doc! { "q": { "k": 1 }, "u": { "$set": { "a": 1 } }, "hint": "nope", "upsert": true },
        doc! { "q": { "k": 1 }, "u": { "$nope": 1 }, "upsert": true },
        doc! { "q": { "k": 1 }, "u": { "$set": { "a": 1, "a.b": 1 } }, "upsert": true },
        doc! { "q": { "k": 1, "a": 1 }, "u": { "$push": { "a": 1 } }, "upsert": true },
        doc! { "q": { "k": 1 }, "u": { "$nope": 1 } },
    ];
    let mut commands: Vec<Document> = upserts.map(|statement| update(vec![statement])).into();
    let change = doc! { "findAndModify": COLLECTION, "query": { "k": 1, "a": 1 }, "upsert": true };
    commands.push(with(&change, "update", doc! { "$push": { "a": 1 } }));
    commands.push(with(&change, "update", doc! { "$nope": 1 }));
    commands.push(with(
        &with(&change, "update", doc! { "$set": { "b": 1 } }),
        "hint",
        "nope",
    ));
    check(&[], &commands)
}

#[test]
fn a_write_concern_is_waited_for_without_a_match_and_creates_nothing() -> Result<()> {
    let writes = [
        update(vec![doc! { "q": { "k": 5 }, "u": { "$set": { "a": 1 } } }]),
        delete(vec![doc! { "q": { "k": 5 }, "limit": 1 }]),
        doc! { "findAndModify": COLLECTION, "query": { "k": 5 }, "remove": true },
    ];
    let unmet = writes.map(|write| with(&write, "writeConcern", doc! { "w": 3, "wtimeout": 1 }));
    check(&[seed()], &unmet)?;
    let insert = doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1 }] };
    let malformed: [Bson; 5] = [
        1.into(),
        Bson::Null,
        Bson::Document(doc! { "other": 1 }),
        Bson::Document(doc! { "w": 51 }),
        Bson::Document(doc! { "j": "x" }),
    ];
    check(&[], &malformed.map(|concern| with(&insert, "writeConcern", concern)))
}

#[test]
fn a_tailable_cursor_is_refused_where_there_is_a_collection() -> Result<()> {
    let find = doc! { "find": COLLECTION };
    let commands = [
        with(&find, "tailable", true),
        with(&find, "awaitData", true),
        with(&with(&find, "tailable", true), "awaitData", true),
        with(&with(&find, "tailable", true), "sort", doc! { "n": 1 }),
    ];
    check(&[], &commands)?;
    check(&[seed()], &commands)
}
