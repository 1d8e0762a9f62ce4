//! Projections that name a field twice, which drivers do not send.

use anyhow::{Result, ensure};
use bson::raw::RawDocumentBuf;
use bson::{doc, rawdoc};
use proto_tests::frame;
use proto_tests::raw::{self, Connection};
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// mongod's code for a path that contains another one, or is named twice.
const PATH_COLLISION: i32 = 31250;

/// The error code of the reply.
fn code(connection: &mut Connection, command: &RawDocumentBuf) -> Result<Option<i32>> {
    let section = [vec![0], command.as_bytes().to_vec()].concat();
    connection.send(&frame::message(1, 0, &[section]))?;
    let mut reply = Vec::new();
    connection.read_frame(&mut reply)?;
    Ok(raw::document(&reply)?.get_i32("code").ok())
}

#[test]
fn a_projection_of_a_repeated_field_is_an_error() -> Result<()> {
    let mut sides = Sides::on_a_standalone(small_pages())?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1, "a": 1 }] })?;
    let (plain, shaped) = (sides.plain_database(), sides.shaped_database());
    for projection in [
        rawdoc! { "a": 1, "a": 1 },
        rawdoc! { "a": 1, "b": 1, "a": true },
        rawdoc! { "a": 0, "a": 0 },
        rawdoc! { "a": 1, "a": 1, "b": { "$slice": 1 } },
    ] {
        let find = |database: &str| {
            rawdoc! { "find": COLLECTION, "filter": { "k": 1 }, "projection": projection.clone(), "$db": database }
        };
        let expected = code(&mut sides.plain, &find(&plain))?;
        ensure!(expected == Some(PATH_COLLISION), "{projection:?}: {expected:?}");
        let found = code(&mut sides.shaped, &find(&shaped))?;
        ensure!(found == expected, "{projection:?}: {found:?} instead of {expected:?}");
    }
    Ok(())
}
