//! A run is killed while the collection is frozen. The next run restores the validator, its level and its
//! action.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;
use proto_tests::stopping_relay::Moment;

use super::super::fixture::COLLECTION;
use super::clients::base_document;
use super::subject::{Subject, changes_state, shape};

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
