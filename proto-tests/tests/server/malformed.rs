//! Messages with a malformed body: they get mongod's error and have no effect.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::frame;
use proto_tests::raw;
use proto_tests::shaped::{COLLECTION, Shaped};

/// Sends a frame, expects an error with this code, and a connection that lives on.
fn check_refused(shaped: &Shaped, name: &str, bytes: &[u8], code: i32) -> Result<()> {
    let before = shaped.stored()?;
    let mut connection = shaped.application()?;
    connection.send(bytes)?;
    let reply = raw::document(&connection.receive().context(name.to_owned())?)?;
    ensure!(reply.get_i32("code").ok() == Some(code), "{name}: {reply}");
    connection
        .command_ok(&doc! { "ping": 1, "$db": "admin" })
        .context(name.to_owned())?;
    ensure!(shaped.stored()? == before, "{name}: something was stored");
    Ok(())
}

#[test]
fn malformed_messages_are_answered_as_mongod_does() -> Result<()> {
    let shaped = Shaped::start("")?;
    let insert = shaped.insert(&[doc! { "k": 1 }]);
    let body = frame::body_section(&insert)?;
    let two_bodies = frame::message(1, 0, &[body.clone(), body.clone()]);
    check_refused(&shaped, "two bodies", &two_bodies, 40430)?;
    let no_body = frame::message(1, 0, &[frame::sequence_section("documents", &[doc! { "k": 1 }])?]);
    check_refused(&shaped, "no body", &no_body, 40587)?;
    let twice = frame::message(1, 0, &[body, frame::sequence_section("documents", &[doc! { "k": 1 }])?]);
    check_refused(&shaped, "documents twice", &twice, 40433)?;
    let no_database = frame::command(1, 0, &doc! { "insert": COLLECTION, "documents": [{ "k": 1 }] })?;
    check_refused(&shaped, "no $db", &no_database, 40571)?;
    let empty = frame::command(1, 0, &Document::new())?;
    check_refused(&shaped, "an empty body", &empty, 40571)
}

/// The frame of an insert of one document whose byte at the end of `marker`, a value in it, is changed.
fn lying(shaped: &Shaped, marker: &str, sequence: bool) -> Result<Vec<u8>> {
    let item = doc! { "k": 1, "sub": { "text": marker } };
    let mut frame = if sequence {
        let body = doc! { "insert": COLLECTION, "$db": &shaped.database };
        frame::message(
            1,
            0,
            &[
                frame::body_section(&body)?,
                frame::sequence_section("documents", &[item])?,
            ],
        )
    } else {
        frame::command(1, 0, &shaped.insert(&[item]))?
    };
    let at = frame
        .windows(marker.len())
        .position(|window| window == marker.as_bytes())
        .context("no marker")?;
    // The low byte of the string's length.
    frame[at - 4] = 200;
    Ok(frame)
}

#[test]
fn wrong_document_lengths_and_deep_nesting_store_nothing() -> Result<()> {
    let shaped = Shaped::start("")?;
    shaped.application()?.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
    for sequence in [false, true] {
        check_refused(&shaped, "a string's length", &lying(&shaped, "marker", sequence)?, 22)?;
    }
    let deep = |depth: usize, name: &str| {
        let mut bytes = Vec::new();
        for level in (1..depth).rev() {
            bytes.extend(i32::try_from(5 + level * (name.len() + 7)).unwrap().to_le_bytes());
            bytes.push(3);
            bytes.extend(name.as_bytes());
            bytes.push(0);
        }
        bytes.extend(5_i32.to_le_bytes());
        bytes.extend(vec![0; depth]);
        bytes
    };
    // Built as bytes: the test's own stack is not deep enough for a document of documents.
    for depth in [250, 5_000, 100_000] {
        let nested = deep(depth, "a");
        let element = |kind: u8, name: &str, value: &[u8]| [&[kind][..], name.as_bytes(), &[0], value].concat();
        let document = |fields: &[u8]| {
            let length = i32::try_from(fields.len() + 5).unwrap().to_le_bytes();
            [&length[..], fields, &[0]].concat()
        };
        let head = |command: &str| {
            let head = doc! { command: COLLECTION, "$db": &shaped.database }.to_vec().unwrap();
            head[4..head.len() - 1].to_vec()
        };
        let item = document(&element(3, "k", &nested));
        let insert = document(
            &[
                head("insert"),
                element(4, "documents", &document(&element(3, "0", &item))),
            ]
            .concat(),
        );
        let find = document(&[head("find"), element(3, "filter", &nested)].concat());
        for body in [insert, find] {
            check_refused(
                &shaped,
                "deep nesting",
                &frame::message(1, 0, &[[vec![0], body].concat()]),
                15,
            )?;
        }
    }
    Ok(())
}
