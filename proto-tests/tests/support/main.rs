//! `docs/support.md` says what becomes of every command and option on a bucket collection. Here each of its rows is tried, beside
//! a naive collection, and the options that the code reads are held against it.

mod answer;
mod document;
mod probes;
mod source;

use std::collections::BTreeSet;

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::shaped::Shaped;
use proto_tests::sides::{COLLECTION, Sides};
use proto_tests::{ItemIds, ProxyOptions, Shape, mongod};

use answer::Answer;
use document::{Class, NOT_SUPPORTED, Support};
use probes::{Compared, Probe};

/// What `create` answers to options that a bucket collection cannot have.
const INVALID_OPTIONS: i32 = 72;

/// What mongod takes for commands of other names.
const OTHER_NAMES: [&str; 7] = [
    "findandmodify",
    "deleteIndexes",
    "collstats",
    "dbstats",
    "datasize",
    "ismaster",
    "mapreduce",
];

/// Two collections that hold the same items.
fn filled(item_ids: ItemIds) -> Result<Sides> {
    let mut shape = Shape::new(&["k"]);
    shape.time = Some("at".to_owned());
    shape.item_ids = item_ids;
    shape.items_change = true;
    let mut sides = Sides::open(shape)?;
    let items: Vec<Document> = (0..25)
        .map(|n| doc! { "_id": n, "k": n % 2, "at": DateTime::from_millis(1000 * i64::from(n)), "q": n, "a": [n, n + 1] })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let index = doc! { "key": { "q": 1 }, "name": "q_1" };
    sides.run(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    sides.run(&doc! { "insert": "plain", "documents": [{ "_id": 1, "k": 1 }] })?;
    Ok(sides)
}

/// What is wrong with a row, given the two answers.
fn judge(probe: &Probe, class: Class, [naive, shaped]: &[Answer; 2]) -> Option<String> {
    let refused = |code| shaped.code() == Some(code) && naive != shaped;
    let expected = match (class, probe.compared) {
        (Class::Refused(code), _) => refused(code),
        (Class::Note, Compared::Refused) => refused(NOT_SUPPORTED) || refused(INVALID_OPTIONS),
        (Class::Exact | Class::Note, Compared::Whole | Compared::WholeIfUnique) => naive == shaped,
        (Class::Exact | Class::Note, Compared::Success) => naive.code() == shaped.code(),
        (Class::Exact, Compared::Refused) | (Class::Passed, _) => false,
    };
    (!expected).then(|| {
        format!(
            "{} {}: not {class:?}\n  {}\n  naive:  {naive}\n  shaped: {shaped}",
            probe.command, probe.option, probe.sent
        )
    })
}

fn try_all(item_ids: ItemIds) -> Result<()> {
    let support = Support::read()?;
    let mut sides = filled(item_ids)?;
    let mut wrong = Vec::new();
    for probe in probes::all() {
        if probe.compared == Compared::WholeIfUnique && item_ids != ItemIds::Unique {
            continue;
        }
        let Some(class) = support.class(probe.command, probe.option) else {
            wrong.push(format!("{} {}: in no table", probe.command, probe.option));
            continue;
        };
        let answers = answer::of_both(&mut sides, &probe.sent)?;
        wrong.extend(judge(&probe, class, &answers));
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    sides.check()
}

#[test]
fn every_row_is_as_it_says() -> Result<()> {
    try_all(ItemIds::Unique)
}

#[test]
fn every_row_is_as_it_says_where_ids_are_not_unique() -> Result<()> {
    try_all(ItemIds::Stored)
}

#[test]
fn every_row_is_tried() -> Result<()> {
    let support = Support::read()?;
    let tried: BTreeSet<_> = probes::all()
        .iter()
        .map(|probe| (probe.command.to_owned(), probe.option.to_owned()))
        .collect();
    let rows = support.rows();
    let untried: Vec<_> = rows.difference(&tried).collect();
    ensure!(untried.is_empty(), "rows that no probe tries: {untried:?}");
    Ok(())
}

#[test]
fn every_option_that_the_code_reads_has_a_row() -> Result<()> {
    let support = Support::read()?;
    for (command, file) in source::OPTIONS {
        let read = source::options(file, command)?;
        ensure!(!read.is_empty(), "{file}: nothing was found to be read by {command}");
        let without: Vec<_> = read.iter().filter(|option| !support.names(command, option)).collect();
        ensure!(without.is_empty(), "{command} reads what has no row: {without:?}");
    }
    Ok(())
}

#[test]
fn every_command_of_mongod_is_as_it_says() -> Result<()> {
    let support = Support::read()?;
    let set = mongod::shared_replica_set();
    let shaped = Shaped::with("time = \"at\"", &ProxyOptions::new(&set.uri()))?;
    let mut application = shaped.application()?;
    let listed = application.command_ok(&doc! { "listCommands": 1, "$db": &shaped.database })?;
    let mut wrong = Vec::new();
    let names = listed.get_document("commands")?.keys().map(String::as_str);
    for name in names.chain(OTHER_NAMES) {
        application.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
        let reply = application.command(&minimal(name, &shaped.database))?;
        // Not only what is asked of it.
        let is_refused = reply
            .get_str("errmsg")
            .is_ok_and(|text| text.contains(&format!("the command {name} is not")));
        if support.has_command(name) == is_refused {
            wrong.push(format!("{name}: {reply}"));
        }
    }
    ensure!(wrong.is_empty(), "not as in the document:\n{}", wrong.join("\n"));
    Ok(())
}

/// The command with the shaped collection as what it is on.
fn minimal(name: &str, database: &str) -> Document {
    match name {
        "getMore" => doc! { name: 1_i64, "collection": COLLECTION, "$db": database },
        "explain" => doc! { name: { "find": COLLECTION }, "$db": database },
        "renameCollection" => {
            let name_there = format!("{database}.{COLLECTION}");
            doc! { name: &name_there, "to": name_there, "$db": "admin" }
        }
        "dataSize" | "datasize" => doc! { name: format!("{database}.{COLLECTION}"), "$db": database },
        _ => doc! { name: COLLECTION, "$db": database },
    }
}

#[test]
fn no_command_reaches_buckets_by_their_uuid() -> Result<()> {
    let set = mongod::shared_replica_set();
    let shaped = Shaped::with("time = \"at\"", &ProxyOptions::new(&set.uri()))?;
    let mut application = shaped.application()?;
    application.command_ok(&shaped.insert(&[doc! { "k": 1 }]))?;
    let listed = application.all(&doc! { "listCollections": 1, "$db": &shaped.database })?;
    let info = listed.first().context("no collection")?.get_document("info")?;
    let uuid = info.get("uuid").context("no uuid")?;
    let listed = application.command_ok(&doc! { "listCommands": 1, "$db": &shaped.database })?;
    let mut wrong = Vec::new();
    let names = listed.get_document("commands")?.keys();
    // Whoever says hello is told, whatever that is.
    for name in names.filter(|name| !matches!(name.as_str(), "hello" | "isMaster")) {
        let commands = [
            doc! { name: uuid, "$db": &shaped.database },
            doc! { "explain": { name: uuid }, "$db": &shaped.database },
        ];
        for command in commands {
            let reply = application.command(&command)?;
            if reply.get_i32("code").ok() != Some(NOT_SUPPORTED) {
                wrong.push(format!("{command}: {reply}"));
            }
        }
    }
    ensure!(wrong.is_empty(), "{}", wrong.join("\n"));
    Ok(())
}
