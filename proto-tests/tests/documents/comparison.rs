//! The features of a plain, a time-series and a bucket collection, as in `docs/comparison.md`. The test
//! generates the table of that document. `COMPARISON=write` writes it.

mod tried;

use std::fmt::Write as _;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

use tried::{Expected, Tried, all};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/comparison.md");
/// Between these lines, the document is made of what is tried here.
const BEGIN: &str = "<!-- made by proto-tests/tests/documents/comparison -->";
const END: &str = "<!-- end -->";
const COLLECTION: &str = "trades";
/// The version of MongoDB, without the patch release, whose time-series collections the document describes. Later
/// ones have more features.
const OF_DOCUMENT: (u32, u32) = (6, 0);

/// The cell of a table: what became of the last command.
fn cell(reply: &Document, expected: Expected) -> String {
    let of_write = reply
        .get_array("writeErrors")
        .ok()
        .and_then(|errors| errors.first()?.as_document().cloned());
    let error = of_write.or_else(|| (!reply.get("ok").is_some_and(is_one)).then(|| reply.clone()));
    let code = error.as_ref().map(|error| error.get_i32("code").unwrap_or_default());
    let done = match expected {
        Expected::Success => code.is_none(),
        Expected::Duplicate => code == Some(11000),
        Expected::Effect => {
            let batch = reply
                .get_document("cursor")
                .and_then(|cursor| cursor.get_array("firstBatch"));
            code.is_none()
                && (reply.get_i32("n").is_ok_and(|number| number > 0)
                    || reply.get_document("value").is_ok()
                    || batch.is_ok_and(|batch| !batch.is_empty()))
        }
    };
    match code {
        _ if done => "yes".to_owned(),
        Some(code) => format!("no ({code})"),
        None => "no".to_owned(),
    }
}

/// mongod returns it as a double, or as an int.
fn is_one(value: &Bson) -> bool {
    value.as_f64() == Some(1.0) || value.as_i32() == Some(1)
}

/// Runs the commands in a database of its own, in which `create` makes the collection.
fn outcome(connection: &mut Connection, create: &Document, tried: &Tried) -> Result<String> {
    let database = database_name();
    let on_it = |command: &Document| {
        let mut command = command.clone();
        if command.is_empty() {
            command = doc! {
                "renameCollection": format!("{database}.{COLLECTION}"), "to": format!("{database}.deals"), "$db": "admin",
            };
        } else {
            command.insert("$db", &database);
            command.insert("lsid", lsid(&database));
        }
        command
    };
    connection.command_ok(&on_it(create))?;
    let (last, before) = tried.commands.split_last().context("no command")?;
    for command in before {
        let reply = connection.command_ok(&on_it(command))?;
        ensure!(!reply.contains_key("writeErrors"), "{}: {reply}", tried.what);
    }
    let reply = connection.command(&on_it(last))?;
    if last.contains_key("startTransaction") {
        let mut end = on_it(&doc! { "abortTransaction": 1, "txnNumber": 1_i64, "autocommit": false });
        end.insert("$db", "admin");
        connection.command(&end)?;
    }
    Ok(cell(&reply, tried.expected))
}

fn table() -> Result<String> {
    let mongod = mongod::shared_replica_set();
    // Of every database: each row has three of its own.
    let shape = "[[bucket]]\nnamespace = \"*.trades\"\nkey = \"customerId\"\ntime = \"date\"\n\
                 [[bucket]]\nnamespace = \"*.deals\"\nkey = \"customerId\"\ntime = \"date\"\n";
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(shape))?;
    let plain = doc! { "create": COLLECTION };
    let series = doc! { "create": COLLECTION, "timeseries": { "timeField": "date", "metaField": "customerId" } };
    let mut text = String::from("| | plain | time-series | bucket, through mongoshape |\n|---|---|---|---|\n");
    for tried in all() {
        let mut cells = Vec::new();
        for (address, create) in [
            (mongod.address(), &plain),
            (mongod.address(), &series),
            (proxy.address(), &plain),
        ] {
            let mut connection = Connection::open(address)?;
            cells.push(outcome(&mut connection, create, &tried).with_context(|| tried.what)?);
        }
        writeln!(text, "| {} | {} |", tried.what, cells.join(" | "))?;
    }
    Ok(text)
}

/// The table without the column of the time-series collection.
fn without_time_series(table: &str) -> String {
    let rows = table.lines().map(|row| {
        let cells: Vec<&str> = row.split('|').collect();
        let kept = cells.iter().enumerate().filter(|(position, _)| *position != 3);
        kept.map(|(_, cell)| *cell).collect::<Vec<_>>().join("|")
    });
    rows.collect::<Vec<_>>().join("\n")
}

#[test]
fn comparison_document_equals_the_behaviour() -> Result<()> {
    let table = table()?;
    let document = std::fs::read_to_string(FILE)?;
    let (before, rest) = document.split_once(BEGIN).context("no line that begins the table")?;
    let (current, after) = rest.split_once(END).context("no line that ends the table")?;
    if std::env::var("COMPARISON").is_ok_and(|wish| wish == "write") {
        std::fs::write(FILE, format!("{before}{BEGIN}\n\n{table}\n{END}{after}"))?;
        return Ok(());
    }
    let of_version = |table: &str| -> Result<String> {
        let version = mongod::find_program()?.version;
        let is_of_document = (version.major, version.minor) == OF_DOCUMENT;
        Ok(if is_of_document {
            table.trim().to_owned()
        } else {
            without_time_series(table.trim())
        })
    };
    let again = "docs/comparison.md: COMPARISON=write cargo test -p proto-tests --test documents comparison";
    assert_eq!(of_version(current)?, of_version(&table)?, "{again}");
    Ok(())
}
