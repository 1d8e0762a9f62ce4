//! Cursors on a shaped collection behave like those on a plain one.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::shaped::{COLLECTION, Shaped};

const ITEMS: i32 = 230;

/// The same items in both collections, one key in three pages of ten and one with the rest.
fn filled() -> Result<Shaped> {
    let shaped = Shaped::start("")?;
    let items: Vec<_> = (0..ITEMS)
        .map(|number| doc! { "_id": number, "k": i32::from(number < 30) })
        .collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    shaped
        .direct()?
        .command_ok(&doc! { "insert": "plain", "documents": items, "$db": &shaped.database })?;
    Ok(shaped)
}

/// The cursor of a reply: its id and its batch.
fn cursor(reply: &Document) -> Result<(i64, Vec<Bson>)> {
    let cursor = reply.get_document("cursor")?;
    let batch = cursor
        .get_array("firstBatch")
        .or_else(|_| cursor.get_array("nextBatch"))?;
    Ok((cursor.get_i64("id")?, batch.clone()))
}

fn more(shaped: &Shaped, collection: &str, id: i64, size: Option<i32>) -> Document {
    let mut command = doc! { "getMore": id, "collection": collection, "$db": &shaped.database };
    command.extend(size.map(|size| ("batchSize".to_owned(), size.into())));
    command
}

/// All batches of a find, and all their items; an empty last one only ends the cursor.
fn batches(connection: &mut Connection, shaped: &Shaped, find: &Document, size: Option<i32>) -> Result<Vec<Vec<Bson>>> {
    let collection = find.get_str("find")?;
    let (mut id, batch) = cursor(&connection.command_ok(find)?)?;
    let mut batches = vec![batch];
    while id != 0 {
        let (next, batch) = cursor(&connection.command_ok(&more(shaped, collection, id, size))?)?;
        ensure!(next == 0 || next == id, "another cursor");
        id = next;
        batches.push(batch);
    }
    while batches.len() > 1 && batches.last().is_some_and(Vec::is_empty) {
        batches.pop();
    }
    Ok(batches)
}

#[test]
fn batch_sizes_equal_a_plain_collection() -> Result<()> {
    let shaped = filled()?;
    let (mut direct, mut application) = (shaped.direct()?, shaped.application()?);
    for filter in [doc! {}, doc! { "k": 1 }, doc! { "k": 0, "_id": { "$gt": 100 } }] {
        for size in [None, Some(0), Some(1), Some(7), Some(30), Some(1000)] {
            for limit in [0, 1, 7, 25, 150] {
                for single in [false, true] {
                    let find = |collection: &str| {
                        let mut find = doc! {
                            "find": collection, "filter": filter.clone(), "sort": { "_id": 1 }, "limit": limit,
                            "singleBatch": single, "$db": &shaped.database,
                        };
                        find.extend(size.map(|size| ("batchSize".to_owned(), size.into())));
                        find
                    };
                    // `getMore` takes 0 for no size.
                    let plain = batches(&mut direct, &shaped, &find("plain"), size)?;
                    let found = batches(&mut application, &shaped, &find(COLLECTION), size)?;
                    assert_eq!(found, plain, "{}", find(COLLECTION));
                }
            }
        }
    }
    Ok(())
}

#[test]
fn aggregations_have_batches_too() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    for (size, expected) in [(0, vec![0, ITEMS]), (100, vec![100, 130])] {
        let sort = doc! { "$sort": { "_id": 1 } };
        let opened = application.command_ok(&doc! {
            "aggregate": COLLECTION, "pipeline": [sort], "cursor": { "batchSize": size }, "$db": &shaped.database,
        })?;
        let (id, first) = cursor(&opened)?;
        let (end, rest) = cursor(&application.command_ok(&more(&shaped, COLLECTION, id, None))?)?;
        assert_eq!(
            [first.len(), rest.len()]
                .map(|length| i32::try_from(length).unwrap())
                .to_vec(),
            expected
        );
        assert_eq!(end, 0);
    }
    Ok(())
}

/// Opens a cursor with most of its items still to come.
fn open(connection: &mut Connection, shaped: &Shaped) -> Result<i64> {
    let find = doc! { "find": COLLECTION, "batchSize": 2, "$db": &shaped.database };
    let (id, batch) = cursor(&connection.command_ok(&find)?)?;
    ensure!(id != 0 && batch.len() == 2, "{batch:?}");
    Ok(id)
}

#[test]
fn cursor_continues_on_another_connection() -> Result<()> {
    let shaped = filled()?;
    let id = open(&mut shaped.application()?, &shaped)?;
    let mut seen = 2;
    // Each batch on a connection of its own.
    loop {
        let (next, batch) = cursor(
            &shaped
                .application()?
                .command_ok(&more(&shaped, COLLECTION, id, Some(50)))?,
        )?;
        assert!(
            batch
                .iter()
                .all(|item| item.as_document().is_some_and(|item| item.contains_key("k")))
        );
        seen += batch.len();
        if next == 0 {
            break;
        }
    }
    assert_eq!(seen, usize::try_from(ITEMS)?);
    Ok(())
}

fn code(connection: &mut Connection, command: &Document) -> Result<i32> {
    Ok(connection.command(command)?.get_i32("code")?)
}

#[test]
fn a_killed_cursor_is_not_found_any_more() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let id = open(&mut application, &shaped)?;
    let kill = doc! { "killCursors": COLLECTION, "cursors": [id, 5_i64], "$db": &shaped.database };
    let killed = shaped.application()?.command_ok(&kill)?;
    assert_eq!(killed.get_array("cursorsKilled")?, &[Bson::Int64(id)]);
    assert_eq!(killed.get_array("cursorsNotFound")?, &[Bson::Int64(5)]);
    assert_eq!(code(&mut application, &more(&shaped, COLLECTION, id, None))?, 43);
    let again = application.command_ok(&kill)?;
    assert_eq!(again.get_array("cursorsNotFound")?.len(), 2, "{again}");
    Ok(())
}

/// mongod uses the number alone.
#[test]
fn a_cursor_is_killed_under_any_name() -> Result<()> {
    let shaped = filled()?;
    for filter in [doc! { "k": 1 }, doc! {}] {
        let mut outcomes = Vec::new();
        for (mut connection, collection) in [(shaped.direct()?, "plain"), (shaped.application()?, COLLECTION)] {
            let find = doc! { "find": collection, "filter": &filter, "batchSize": 2, "$db": &shaped.database };
            let (id, _) = cursor(&connection.command_ok(&find)?)?;
            let kill = doc! { "killCursors": "nothing", "cursors": [5_i64, id], "$db": &shaped.database };
            let counts = |reply: &Document| {
                let names = ["cursorsKilled", "cursorsNotFound", "cursorsAlive", "cursorsUnknown"];
                names.map(|name| reply.get_array(name).map(Vec::len).ok())
            };
            let killed = counts(&connection.command_ok(&kill)?);
            let code = code(&mut connection, &more(&shaped, collection, id, None))?;
            let again = counts(&connection.command_ok(&kill)?);
            let malformed = doc! { "killCursors": "nothing", "cursors": "x", "$db": &shaped.database };
            let malformed = connection.command(&malformed)?.get_i32("code")?;
            outcomes.push((killed, code, again, malformed));
        }
        assert_eq!(outcomes[0], outcomes[1], "{filter}");
    }
    Ok(())
}

#[test]
fn a_cursor_belongs_to_its_collection() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    let id = open(&mut application, &shaped)?;
    // mongod itself refuses what is relayed: the cursor is not of that namespace.
    assert_eq!(code(&mut application, &more(&shaped, "plain", id, None))?, 13);
    let plain = doc! { "find": "plain", "batchSize": 2, "$db": &shaped.database };
    let (plain, _) = cursor(&application.command_ok(&plain)?)?;
    assert_eq!(code(&mut application, &more(&shaped, COLLECTION, plain, None))?, 43);
    // Neither was harmed.
    application.command_ok(&more(&shaped, COLLECTION, id, None))?;
    application.command_ok(&more(&shaped, "plain", plain, None))?;
    Ok(())
}

#[test]
fn a_finished_find_leaves_no_cursor_on_mongod() -> Result<()> {
    let shaped = filled()?;
    let mut application = shaped.application()?;
    for options in [
        doc! { "limit": 5 },
        doc! { "batchSize": 5, "singleBatch": true },
        doc! { "limit": 150, "batchSize": 150 },
    ] {
        let mut find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &shaped.database };
        find.extend(options);
        assert_eq!(cursor(&application.command_ok(&find)?)?.0, 0, "{find}");
    }
    let idle = idle_cursors(&shaped)?;
    assert!(idle.is_empty(), "{idle:?}");
    Ok(())
}

/// The open cursors that mongod has on the collection.
fn idle_cursors(shaped: &Shaped) -> Result<Vec<Document>> {
    let idle = [
        doc! { "$currentOp": { "idleCursors": true, "allUsers": true } },
        doc! { "$match": { "type": "idleCursor", "ns": format!("{}.{COLLECTION}", shaped.database) } },
    ];
    let idle: Vec<Bson> = idle.into_iter().map(Bson::from).collect();
    shaped
        .direct()?
        .all(&doc! { "aggregate": 1, "pipeline": idle, "cursor": {}, "$db": "admin" })
}

#[test]
fn a_killed_cursor_leaves_no_cursor_of_a_later_query() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"\nmax_items = 4")?;
    let mut application = shaped.application()?;
    let at = |number: i64| DateTime::from_millis(number * 1000);
    let items: Vec<_> = (0..40_i64)
        .map(|number| doc! { "_id": number, "k": 1, "at": at(number) })
        .collect();
    application.command_ok(&shaped.insert(&items))?;
    let filter = doc! { "k": 1, "at": { "$gte": at(5) } };
    // The first query reads the pages of the first batch. A later one has a cursor of its own.
    for size in [1, 3, 7, 12] {
        let find = doc! { "find": COLLECTION, "filter": &filter, "batchSize": 3, "$db": &shaped.database };
        let (id, _) = cursor(&application.command_ok(&find)?)?;
        let (id, _) = cursor(&application.command_ok(&more(&shaped, COLLECTION, id, Some(size)))?)?;
        let kill = doc! { "killCursors": COLLECTION, "cursors": [id], "$db": &shaped.database };
        let killed = application.command_ok(&kill)?;
        assert_eq!(killed.get_array("cursorsKilled")?, &[Bson::Int64(id)], "{size}");
        assert_eq!(killed.get_array("cursorsNotFound")?, &[] as &[Bson], "{size}");
        assert_eq!(code(&mut application, &more(&shaped, COLLECTION, id, None))?, 43);
        let idle = idle_cursors(&shaped)?;
        assert!(idle.is_empty(), "{size}: {idle:?}");
    }
    Ok(())
}

/// A misused cursor returns the same errors on both collections. Items of a cursor on one key wait in the
/// proxy. Items of a cursor on all keys wait in mongod.
#[test]
fn misused_cursor_has_the_errors_of_a_plain_collection() -> Result<()> {
    let shaped = Shaped::start("")?;
    let items: Vec<_> = (0..80).map(|number| doc! { "_id": number, "k": number / 8 }).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    shaped
        .direct()?
        .command_ok(&doc! { "insert": "plain", "documents": items, "$db": &shaped.database })?;
    let (mine, other) = (lsid("mine"), lsid("other"));
    let misuses = [
        (doc! {}, doc! { "lsid": &mine }),
        (doc! { "lsid": &mine }, doc! {}),
        (doc! { "lsid": &mine }, doc! { "lsid": &other }),
        (doc! { "lsid": &mine }, doc! { "lsid": &mine }),
        (doc! {}, doc! { "maxTimeMS": 1000 }),
        (doc! { "maxTimeMS": 100_000 }, doc! {}),
        (doc! {}, doc! { "batchSize": -1 }),
        (doc! {}, doc! { "batchSize": "x" }),
        (doc! {}, doc! { "nope": 1 }),
        (doc! {}, doc! { "batchSize": 0 }),
        (doc! { "noCursorTimeout": true }, doc! { "comment": "nothing" }),
    ];
    for filter in [doc! { "k": 3 }, doc! { "k": { "$gte": 0 } }, doc! {}] {
        for (opening, misuse) in &misuses {
            let answer = |connection: &mut Connection,
                          collection: &str|
             -> Result<(Option<Bson>, Option<Bson>, usize)> {
                let mut find = doc! { "find": collection, "filter": &filter, "batchSize": 2, "$db": &shaped.database };
                find.extend(opening.clone());
                let (id, _) = cursor(&connection.command_ok(&find)?)?;
                let mut next = more(&shaped, collection, id, Some(3));
                next.extend(misuse.clone());
                let reply = connection.command(&next)?;
                // Unharmed by what was refused.
                let mut rest = more(&shaped, collection, id, None);
                rest.extend(opening.get("lsid").map(|lsid| ("lsid".to_owned(), lsid.clone())));
                let rest = connection.command(&rest)?;
                let left = cursor(&rest).map_or(0, |(_, batch)| batch.len());
                Ok((reply.get("code").cloned(), rest.get("code").cloned(), left))
            };
            let plain = answer(&mut shaped.direct()?, "plain")?;
            let found = answer(&mut shaped.application()?, COLLECTION)?;
            assert_eq!(found, plain, "{filter} {opening} {misuse}");
        }
    }
    Ok(())
}

#[test]
fn killing_a_session_ends_its_cursors() -> Result<()> {
    let shaped = Shaped::start("time = \"at\"\nmax_items = 4")?;
    let at = |second: i64| DateTime::from_millis(second * 1000);
    let items: Vec<_> = (0..300_i64)
        .map(|number| doc! { "_id": number, "k": 1, "at": at(number) })
        .collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    shaped
        .direct()?
        .command_ok(&doc! { "insert": "plain", "documents": items, "$db": &shaped.database })?;
    // mongod has a cursor for the second one only.
    for filter in [
        doc! { "k": 1, "at": { "$gte": at(0), "$lt": at(300) } },
        doc! { "k": 1 },
    ] {
        for (mut connection, collection) in [(shaped.direct()?, "plain"), (shaped.application()?, COLLECTION)] {
            let session = lsid(&format!("{} {collection}", shaped.database));
            let mut find = doc! { "find": collection, "filter": &filter, "batchSize": 5, "$db": &shaped.database };
            find.insert("lsid", &session);
            let (id, _) = cursor(&connection.command_ok(&find)?)?;
            let mut next = more(&shaped, collection, id, Some(5));
            next.insert("lsid", &session);
            connection.command_ok(&next)?;
            connection.command_ok(&doc! { "killSessions": [&session], "$db": "admin" })?;
            assert_eq!(code(&mut connection, &next)?, 43, "{find}");
        }
    }
    Ok(())
}

#[test]
fn get_more_does_not_repeat_the_fields_of_find() -> Result<()> {
    let shaped = Shaped::start("")?;
    // A key each, so that a batch takes more pages than would be needed if they were full.
    let items: Vec<_> = (0..80).map(|number| doc! { "_id": number, "k": number }).collect();
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&items))?;
    let find = doc! {
        "find": COLLECTION, "batchSize": 30, "maxTimeMS": 100_000, "readConcern": { "level": "local" },
        "$readPreference": { "mode": "primary" }, "comment": "nothing", "$db": &shaped.database,
    };
    assert_eq!(cursor(&application.command_ok(&find)?)?.1.len(), 30);
    Ok(())
}
