//! Resent updates of items that are found by a filter: executed once, with the same reply.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Proxy, ProxyOptions, mongod};

use crate::updates::sides::{self, ALL_IDS, COLLECTION, at, update};

fn commands() -> Vec<Document> {
    let of_one = |fields: Document| {
        let mut command = doc! { "findAndModify": COLLECTION, "query": { "n": { "$gte": 3 } }, "sort": { "n": 1 } };
        command.extend(fields);
        command
    };
    vec![
        // What is found by it afterwards is another item.
        update(doc! { "k": 0, "n": { "$lt": 1000 } }, doc! { "$inc": { "n": 1000 } }),
        doc! {
            "update": COLLECTION, "updates": [
                { "q": { "name": "name 7" }, "u": { "$set": { "name": "other" } } },
                { "q": { "u": 8 }, "u": { "k": 2, "at": at(8), "u": 8, "n": 8 } },
                { "q": { "u": 9, "n": { "$lt": 100 } }, "u": [{ "$set": { "n": { "$add": ["$n", 100] } } }] },
                { "q": { "u": 900 }, "u": { "$set": { "n": 1 } } },
            ],
        },
        of_one(doc! { "update": { "$inc": { "n": 2000 } } }),
        of_one(doc! { "update": { "$inc": { "n": 2000 } }, "new": true }),
        of_one(doc! { "update": [{ "$set": { "n": { "$add": ["$n", 3000] }, "x": "$quantity" } }] }),
        of_one(
            doc! { "update": [{ "$set": { "n": { "$add": ["$n", 3000] } } }], "new": true, "fields": { "n": 1, "k": 1 } },
        ),
        of_one(
            doc! { "update": { "$set": { "n": -1 } }, "query": { "k": 2, "n": { "$gt": 10 } }, "fields": { "n": 1 } },
        ),
        of_one(doc! { "update": { "$set": { "n": -1 } }, "query": { "k": 2, "n": { "$gt": 10 } }, "new": true }),
    ]
}

/// Commands with a projection. mongod applies none to the document that it returns for a retried command.
fn projected(ids: ItemIds) -> Vec<Document> {
    let change = || doc! { "update": { "$inc": { "n": 1 } } };
    let moved = || doc! { "update": { "$set": { "k": 7 } } };
    let mut commands = vec![
        (doc! { "u": 20 }, change()),
        (doc! { "u": 21 }, moved()),
        (doc! { "u": 22, "k": 1 }, doc! { "remove": true }),
        (
            doc! { "u": 50, "k": 1 },
            doc! { "update": { "$inc": { "n": 1 }, "$setOnInsert": { "_id": 50 } }, "upsert": true },
        ),
    ];
    if ids == ItemIds::Unique {
        commands.extend([
            (doc! { "_id": 23 }, change()),
            (doc! { "_id": 24 }, moved()),
            (doc! { "_id": 25 }, doc! { "remove": true }),
            (
                doc! { "_id": 51, "k": 1 },
                doc! { "update": { "$inc": { "n": 1 } }, "upsert": true },
            ),
        ]);
    }
    let fields = [
        doc! { "n": 1 },
        doc! { "tags": { "$slice": 1 }, "lines.a": 1, "_id": 0 },
    ];
    let with_fields = commands.iter().flat_map(|(query, rest)| {
        let variants = fields.iter().flat_map(|fields| [(fields, true), (fields, false)]);
        let variants = variants.filter(|(_, new)| !*new || rest.get("remove").is_none());
        variants.map(move |(fields, new)| {
            let mut command = doc! { "findAndModify": COLLECTION, "query": query, "fields": fields };
            command.extend(rest.clone());
            if new {
                command.insert("new", true);
            }
            command
        })
    });
    with_fields.collect()
}

#[test]
fn resent_find_and_modify_returns_the_whole_document() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        for (number, mut command) in (1_i64..).zip(projected(ids)) {
            command.extend(doc! { "lsid": {}, "txnNumber": number });
            for sent in 1..=2 {
                let [plain, shaped] = sides.run(&command)?;
                ensure!(
                    plain == shaped,
                    "{ids:?} {sent} {command}\n  plain:  {plain}\n  shaped: {shaped}"
                );
            }
            sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn resent_update_is_executed_once() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let toml = sides.shape.toml(&format!("{}_s.{COLLECTION}", sides.database));
        let second = Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()).config(&toml))?;
        let mut other = Connection::open(second.address())?;
        let session = lsid(&format!("{}_s", sides.database));
        for (number, command) in commands().into_iter().enumerate() {
            let mut command = command;
            let number = i64::try_from(number)? + 1;
            command.extend(doc! { "lsid": session.clone(), "txnNumber": number });
            sides.alike(&command)?;
            sides.check()?;
            let mut again = command.clone();
            again.insert("$db", format!("{}_s", sides.database));
            // Others have changed the bucket, and what the filter finds.
            let noise = doc! { "update": COLLECTION, "updates": [
                { "q": { "u": { "$gte": 0 } }, "u": { "$set": { "noise": number } }, "multi": true },
            ] };
            sides.alike(&noise)?;
            let first = sides.run(&command)?;
            let second = other.command_ok(&again)?;
            for field in ["n", "nModified", "lastErrorObject", "value"] {
                let [plain, shaped] = first.each_ref().map(|reply| reply.get(field));
                ensure!(
                    plain == shaped,
                    "{ids:?} {command}\n  plain:  {plain:?}\n  shaped: {shaped:?}"
                );
                ensure!(
                    shaped == second.get(field),
                    "{ids:?} {command}\n  {shaped:?}\n  {second}"
                );
            }
            sides.check()?;
        }
    }
    Ok(())
}

#[test]
fn aborted_transaction_undoes_updates_of_found_items() -> Result<()> {
    for ids in ALL_IDS {
        let mut sides = sides::of(ids)?;
        let before = sides.items(true)?;
        let session = lsid(&format!("transaction{ids:?}"));
        let within = |command: &Document, number: i64, begins: bool| {
            let mut command = command.clone();
            command.extend(doc! { "lsid": &session, "txnNumber": number, "autocommit": false });
            if begins {
                command.insert("startTransaction", true);
            }
            command
        };
        let many =
            doc! { "update": COLLECTION, "updates": [{ "q": { "k": 1 }, "u": { "$inc": { "n": 5 } }, "multi": true }] };
        let stages =
            doc! { "update": COLLECTION, "updates": [{ "q": { "u": 3 }, "u": [{ "$set": { "n": "$u", "z": 1 } }] }] };
        let find =
            doc! { "findAndModify": COLLECTION, "query": { "n": 4 }, "update": { "$inc": { "n": 5 } }, "new": true };
        let database = format!("{}_s", sides.database);
        for (position, command) in [&many, &stages, &find].into_iter().enumerate() {
            let mut command = within(command, 1, position == 0);
            command.insert("$db", &database);
            let reply = sides.shaped.command_ok(&command)?;
            ensure!(reply.get("writeErrors").is_none(), "{reply}");
        }
        ensure!(sides.items(true)? == before);
        let mut abort = within(&doc! { "abortTransaction": 1 }, 1, false);
        abort.insert("$db", "admin");
        sides.shaped.command_ok(&abort)?;
        ensure!(sides.items(true)? == before);
        let mut command = within(&stages, 2, true);
        command.insert("$db", &database);
        sides.shaped.command_ok(&command)?;
        // Any error aborts the transaction.
        let fails = update(doc! { "u": 4 }, doc! { "u": 4, "k": 1, "at": at(4), "$x": 1 });
        let mut command = within(&fails, 2, false);
        command.insert("$db", &database);
        let reply = sides.shaped.command(&command)?;
        ensure!(reply.get("writeErrors").is_some(), "{reply}");
        let mut commit = within(&doc! { "commitTransaction": 1 }, 2, false);
        commit.insert("$db", "admin");
        let reply = sides.shaped.command(&commit)?;
        ensure!(reply.get_i32("code")? == 251, "{reply}");
        ensure!(sides.items(true)? == before);
    }
    Ok(())
}
