//! The documents list the support of every command and option on a shaped collection, one document for each
//! pattern. Each row is tried beside a plain collection, and the options that the code reads are compared
//! with the rows.

mod answer;
mod bucket;
mod document;
mod observed;
mod outlier;
mod probe;
mod source;
mod tried;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use mongoshape::command::registry::names_user_or_role;
use proto_tests::sides::{COLLECTION, Pattern, Sides};
use proto_tests::{ItemIds, Outlier, Shape};

use document::{NOT_SUPPORTED, Support};
use tried::Tried;

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

#[test]
fn every_option_read_by_the_code_is_documented() -> Result<()> {
    for document in [Shape::DOCUMENT, Outlier::DOCUMENT] {
        let support = Support::read(document)?;
        for (command, file) in source::OPTIONS {
            let read = source::options(file, command)?;
            ensure!(!read.is_empty(), "{file}: nothing was found to be read by {command}");
            let without: Vec<_> = read.iter().filter(|option| !support.names(command, option)).collect();
            ensure!(
                without.is_empty(),
                "{document}: {command} reads what has no row: {without:?}"
            );
        }
    }
    Ok(())
}

#[test]
fn bucket_commands_behave_as_documented() -> Result<()> {
    every_command_behaves_as_documented(bucket::open(ItemIds::Unique)?)
}

#[test]
fn outlier_commands_behave_as_documented() -> Result<()> {
    every_command_behaves_as_documented(outlier::open()?)
}

fn every_command_behaves_as_documented<P: Tried>(mut sides: Sides<P>) -> Result<()> {
    let support = Support::read(P::DOCUMENT)?;
    let database = sides.shaped_database();
    let application = &mut sides.shaped;
    let listed = application.command_ok(&doc! { "listCommands": 1, "$db": &database })?;
    let mut wrong = Vec::new();
    let names = listed.get_document("commands")?.keys().map(String::as_str);
    // `bulkWrite` names collections elsewhere. The tests of drivers send it.
    for name in names.filter(|name| *name != "bulkWrite").chain(OTHER_NAMES) {
        application.command_ok(&doc! { "insert": COLLECTION, "documents": [{ "k": 1 }], "$db": &database })?;
        let reply = application.command(&minimal(name, &database))?;
        // The whole command is refused, not only an option.
        let is_refused = reply
            .get_str("errmsg")
            .is_ok_and(|text| text.contains(&format!("the command {name} is not")));
        let is_relayed = names_user_or_role(name);
        if (support.has_command(name) || is_relayed) == is_refused {
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
        "dbStats" | "dbstats" => doc! { name: 1, "$db": database },
        "dataSize" | "datasize" => doc! { name: format!("{database}.{COLLECTION}"), "$db": database },
        _ => doc! { name: COLLECTION, "$db": database },
    }
}

#[test]
fn no_command_reaches_buckets_by_their_uuid() -> Result<()> {
    no_command_reaches_stored_documents_by_uuid(bucket::open(ItemIds::Unique)?)
}

#[test]
fn no_command_reaches_base_documents_by_their_uuid() -> Result<()> {
    no_command_reaches_stored_documents_by_uuid(outlier::open()?)
}

fn no_command_reaches_stored_documents_by_uuid<P: Pattern>(mut sides: Sides<P>) -> Result<()> {
    let database = sides.shaped_database();
    let application = &mut sides.shaped;
    application.command_ok(&doc! { "insert": COLLECTION, "documents": [{ "k": 1 }], "$db": &database })?;
    let listed = application.all(&doc! { "listCollections": 1, "$db": &database })?;
    let info = listed.first().context("no collection")?.get_document("info")?;
    let uuid = info.get("uuid").context("no uuid")?;
    let listed = application.command_ok(&doc! { "listCommands": 1, "$db": &database })?;
    let mut wrong = Vec::new();
    let names = listed.get_document("commands")?.keys();
    // `hello` and `isMaster` ignore their value.
    for name in names.filter(|name| !matches!(name.as_str(), "hello" | "isMaster")) {
        let commands = [
            doc! { name: uuid, "$db": &database },
            doc! { "explain": { name: uuid }, "$db": &database },
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
