//! A run is killed while the collection is frozen. The next run restores the validator, its level and its
//! action. A copy of pages gets it before writers are held.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::Moment;

use super::super::fixture::{COLLECTION, COPY};
use super::clients::base_document;
use super::subject::{Subject, changes_state, other_shape, shape};

/// mongod's code for a document that does not satisfy the validator.
const DOCUMENT_VALIDATION_FAILURE: i32 = 121;
/// The options of a collection for the validation of its documents.
const VALIDATION: [&str; 3] = ["validator", "validationLevel", "validationAction"];
const TO_PLAIN: &[&str] = &["--to", "plain"];
const BACK: &[&str] = &["--back"];
const FINISH: &[&str] = &["--finish"];

/// Names a freeze. Before the first one, no command sets a validator of the collection.
fn is_freeze(command: &Document) -> Option<String> {
    let name = changes_state(command).filter(|_| command.contains_key("validator"));
    name.filter(|name| *name == format!("collMod {COLLECTION}"))
}

/// The validation of the collection, as it is stored or as applications see it.
fn validation(connection: &mut Connection, database: &str) -> Result<Document> {
    let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "$db": database };
    let listed = connection.all(&list)?.pop().context("it does not exist")?;
    let options = listed.get_document("options")?.clone();
    let of_validation = options.into_iter();
    Ok(of_validation
        .filter(|(option, _)| VALIDATION.contains(&option.as_str()))
        .collect())
}

/// The code of the error of an insert of a document that does not satisfy the validator.
fn refused(connection: &mut Connection, database: &str) -> Result<Option<i32>> {
    let mut document = base_document(-1);
    document.insert("n", -1);
    let reply = connection.command(&doc! { "insert": COLLECTION, "documents": [document], "$db": database })?;
    let errors = reply.get_array("writeErrors").ok();
    let first = errors.and_then(|errors| errors.first()).and_then(Bson::as_document);
    Ok(first.and_then(|error| error.get_i32("code").ok()))
}

/// Kills a run at its first freeze of a collection with a validator, and executes the next run. Checks the
/// validator, and returns whether it is stored as before.
fn killed(subject: &mut Subject, runs: &[&[&str]]) -> Result<bool> {
    let (next, before) = runs.split_last().context("no run")?;
    let (at_freeze, before) = before.split_last().context("no run")?;
    subject.renew(false)?;
    let mut set = doc! { "collMod": COLLECTION, "validator": { "n": { "$gte": 0 } } };
    set.extend(doc! { "validationLevel": "moderate", "validationAction": "error" });
    subject.run(0, set)?;
    for options in before {
        subject.convert_well(&shape(), options)?;
    }
    let database = subject.database.clone();
    let address = subject.proxies[0].address();
    let stored = validation(&mut subject.direct, &database)?;
    let seen = validation(&mut Connection::open(address)?, &database)?;
    ensure!(seen.len() == VALIDATION.len(), "{seen}");
    let ended = subject.convert_until(&shape(), at_freeze, Some((1, Moment::After)))?;
    ensure!(ended.is_none(), "the run was not killed");
    let frozen = validation(&mut subject.direct, &database)?;
    ensure!(frozen != stored, "the collection is not frozen");
    subject.convert_well(&shape(), next)?;
    let mut application = Connection::open(address)?;
    let after = validation(&mut application, &database)?;
    ensure!(after == seen, "{after} instead of {seen}");
    let code = refused(&mut application, &database)?;
    ensure!(code == Some(DOCUMENT_VALIDATION_FAILURE), "{code:?}");
    Ok(validation(&mut subject.direct, &database)? == stored)
}

#[test]
fn the_validator_of_a_frozen_collection_is_restored() -> Result<()> {
    let mut subject = Subject::counting(mongod::shared_replica_set(), is_freeze)?;
    // The conversion to plain documents, or the way back from them, is ended.
    for runs in [&[TO_PLAIN, BACK] as &[&[&str]], &[TO_PLAIN, BACK, FINISH]] {
        let is_as_before = killed(&mut subject, runs).with_context(|| format!("{runs:?}"))?;
        ensure!(is_as_before, "{runs:?}: it is stored in another form");
    }
    // The way back is completed: the collection contains pages.
    killed(&mut subject, &[TO_PLAIN, BACK, BACK]).map(drop)
}

/// Names a freeze, and the changes of the copy's definition.
fn is_freeze_or_of_copy(command: &Document) -> Option<String> {
    let of_copy = || changes_state(command).filter(|name| name.ends_with(COPY));
    is_freeze(command).or_else(of_copy)
}

/// Checks that the copy of the last run got its last options before the freeze.
fn check_held_commands(subject: &Subject) -> Result<()> {
    let commands = subject.relay.commands();
    let position = |name: &str| {
        let found = commands.iter().rposition(|command| command == name);
        found.with_context(|| format!("{name} is not in {commands:?}"))
    };
    let freeze = position(&format!("collMod {COLLECTION}"))?;
    let renamed = position(&format!("renameCollection {COPY}"))?;
    let set = position(&format!("collMod {COPY}"))?;
    ensure!(set < freeze && renamed == freeze + 1, "{commands:?}");
    Ok(())
}

#[test]
fn writers_are_not_held_for_the_options_of_pages() -> Result<()> {
    let mut subject = Subject::counting(mongod::shared_replica_set(), is_freeze_or_of_copy)?;
    subject.renew(false)?;
    let expiring = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 1_000_000_000 };
    subject.run(0, doc! { "createIndexes": COLLECTION, "indexes": [expiring] })?;
    subject.run(0, doc! { "collMod": COLLECTION, "validator": { "n": { "$gte": 0 } } })?;
    subject.convert_well(&other_shape(), &[])?;
    check_held_commands(&subject)?;
    subject.convert_well(&other_shape(), TO_PLAIN)?;
    subject.convert_well(&other_shape(), BACK)?;
    check_held_commands(&subject)?;
    let mut application = Connection::open(subject.proxies[0].address())?;
    let code = refused(&mut application, &subject.database)?;
    ensure!(code == Some(DOCUMENT_VALIDATION_FAILURE), "{code:?}");
    Ok(())
}
