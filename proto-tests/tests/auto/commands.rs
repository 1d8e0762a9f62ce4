//! Commands during a conversion, at the start of a collection, and of the operator.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::mongod;
use proto_tests::sessions::Transaction;
use proto_tests::stopping_relay::{Moment, StoppingRelay};

use super::fixture::{COLLECTION, COPY, CutOver, Fixture, KEPT, item};

pub(super) fn code(reply: &Document) -> Option<i32> {
    let errors = reply.get_array("writeErrors").ok();
    let first = errors.and_then(|errors| errors.first()?.as_document());
    first.unwrap_or(reply).get_i32("code").ok()
}

#[test]
fn the_first_write_stores_pages() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let reply = fixture.run(0, doc! { "count": COLLECTION })?;
    ensure!(reply.get_i32("n")? == 0, "{reply}");
    fixture.run(0, doc! { "insert": COLLECTION, "documents": [item(1, 1, 1)] })?;
    ensure!(fixture.has_pages()?, "no pages");
    ensure!(fixture.items()?.len() == 1, "{:?}", fixture.items()?);
    fixture.run(1, doc! { "drop": COLLECTION })?;
    ensure!(
        code(&fixture.run(0, doc! { "create": COLLECTION, "capped": true, "size": 1 })?).is_some(),
        "capped"
    );
    let created = fixture.run(0, doc! { "create": COLLECTION })?;
    ensure!(created.get_f64("ok")? > 0.0 && fixture.has_pages()?, "{created}");
    Ok(())
}

/// A command that comes between the two renamings waits. The exchange replaces pages, or plain documents.
/// Returns the reply.
pub(super) fn waits_for(command: &Document, has_pages: bool) -> Result<Document> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    if has_pages {
        fixture.run(0, doc! { "insert": COLLECTION, "documents": [item(1, 1, 1)] })?;
    } else {
        fixture.store_plain(&[item(1, 1, 1)])?;
    }
    fixture.run(0, doc! { "find": COLLECTION })?;
    let gap = Duration::from_millis(700);
    thread::scope(|scope| {
        let exchange = scope.spawn(|| fixture.convert(gap, CutOver::Done));
        let deadline = Instant::now() + Duration::from_secs(20);
        while fixture.past(doc! { "count": KEPT })?.get_i32("n")? == 0 {
            ensure!(Instant::now() < deadline, "no cut-over");
            thread::sleep(Duration::from_millis(5));
        }
        let reply = fixture.run(0, command.clone())?;
        exchange
            .join()
            .map_err(|_| anyhow::anyhow!("the exchange panicked"))??;
        ensure!(fixture.has_pages()? != has_pages, "not exchanged");
        Ok(reply)
    })
}

#[test]
fn a_read_between_the_renamings_waits() -> Result<()> {
    for command in [
        doc! { "count": COLLECTION },
        doc! { "distinct": COLLECTION, "key": "_id" },
        doc! { "find": COLLECTION },
    ] {
        let reply = waits_for(&command, false)?;
        let found = reply.get_i32("n").ok().or_else(|| {
            let values = reply
                .get_array("values")
                .or_else(|_| reply.get_document("cursor")?.get_array("firstBatch"));
            values.ok().and_then(|values| i32::try_from(values.len()).ok())
        });
        ensure!(found == Some(1), "{command}: {reply}");
    }
    Ok(())
}

#[test]
fn a_write_between_the_renamings_waits() -> Result<()> {
    let update = doc! { "q": { "_id": 1 }, "u": { "$inc": { "n": 1 } } };
    for command in [
        doc! { "insert": COLLECTION, "documents": [item(2, 1, 2)] },
        doc! { "update": COLLECTION, "updates": [update] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
    ] {
        let reply = waits_for(&command, false)?;
        ensure!(reply.get_i32("n")? == 1 && code(&reply).is_none(), "{command}: {reply}");
    }
    Ok(())
}

#[test]
fn what_a_freeze_interrupts_is_reported() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1), item(2, 1, 2)])?;
    fixture.run(0, doc! { "find": COLLECTION })?;
    fixture.freeze(false)?;
    let many = doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true };
    let reply = fixture.run(0, doc! { "update": COLLECTION, "updates": [many] })?;
    ensure!(code(&reply) == Some(112), "{reply}");
    let mut transaction = Transaction::new("frozen", &fixture.database);
    let mut application = fixture.application(0)?;
    let insert = doc! { "insert": COLLECTION, "documents": [item(3, 1, 3)] };
    let reply = transaction.run(&mut application, &insert)?;
    let labels = reply.get_array("errorLabels")?;
    ensure!(code(&reply) == Some(112) && labels.len() == 1, "{reply}");
    // A write that comes while the collection is frozen is executed after the thaw.
    thread::scope(|scope| {
        let written = scope.spawn(|| fixture.run(1, insert.clone()));
        thread::sleep(Duration::from_millis(300));
        fixture.thaw()?;
        let reply = written.join().map_err(|_| anyhow::anyhow!("the writer panicked"))??;
        ensure!(reply.get_i32("n")? == 1 && code(&reply).is_none(), "{reply}");
        Ok(())
    })
}

/// Names an update, or the list of the collection and its copy.
fn is_update_or_list(command: &Document) -> Option<String> {
    if command.get_str("update").is_ok_and(|name| name == COLLECTION) {
        return Some("update".to_owned());
    }
    let filter = command.get_document("filter").ok()?.get_document("name").ok()?;
    let names = filter.get_array("$in").ok()?;
    let lists = |name: &str| names.contains(&Bson::from(name));
    (command.contains_key("listCollections") && lists(COLLECTION) && lists(COPY)).then(|| "list".to_owned())
}

/// The freeze is over before the proxy looks. Documents may have been changed before it.
#[test]
fn an_update_of_many_documents_is_not_executed_again() -> Result<()> {
    let mongod = mongod::shared_replica_set();
    let relay = StoppingRelay::to(mongod.address(), is_update_or_list)?;
    let fixture = Fixture::behind(mongod, &relay.uri())?;
    fixture.store_plain(&[item(1, 1, 1), item(2, 1, 2)])?;
    // The layout is known.
    fixture.run(0, doc! { "find": COLLECTION })?;
    fixture.freeze(false)?;
    let many = doc! { "q": {}, "u": { "$inc": { "n": 1 } }, "multi": true };
    let update = doc! { "update": COLLECTION, "updates": [many] };
    relay.arm(Some((2, Moment::Before)));
    let reply = thread::scope(|scope| {
        let updating = scope.spawn(|| fixture.run(0, update.clone()));
        let waited = relay.wait_for_stop(|| updating.is_finished());
        let thawed = waited.and_then(|()| fixture.thaw());
        relay.go_on();
        let reply = updating.join().expect("the client panicked")?;
        thawed.map(|()| reply)
    })?;
    ensure!(code(&reply) == Some(112), "{reply}");
    let updates = relay.commands().iter().filter(|command| *command == "update").count();
    ensure!(updates == 1, "executed {updates} times");
    Ok(())
}

#[test]
fn errors_of_the_applications_own_validator_are_passed_on() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let validator = doc! { "n": { "$type": "number" } };
    fixture.past(doc! { "create": COLLECTION, "validator": validator })?;
    let command = doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "n": "x" }] };
    let reply = fixture.run(0, command.clone())?;
    ensure!(code(&reply) == Some(121), "{reply}");
    Ok(())
}

#[test]
fn definitions_are_not_changed_during_a_conversion() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    fixture.past(doc! { "create": COPY })?;
    let merge = doc! { "aggregate": "other", "pipeline": [{ "$merge": COLLECTION }], "cursor": {} };
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    for command in [
        doc! { "createIndexes": COLLECTION, "indexes": [index] },
        doc! { "drop": COLLECTION },
        doc! { "convertToCapped": COLLECTION, "size": 4096 },
        merge,
    ] {
        let reply = fixture.run(0, command.clone())?;
        ensure!(code(&reply) == Some(20), "{command}: {reply}");
    }
    fixture.past(doc! { "drop": COPY })?;
    let reply = fixture.run(0, doc! { "drop": COLLECTION })?;
    ensure!(reply.get_f64("ok")? > 0.0, "{reply}");
    Ok(())
}

/// The layout is that of the collection that is named, not of one in the command's own database.
#[test]
fn a_command_on_another_database_finds_the_layout() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    let other = format!("{}_n", fixture.database);
    let mut application = fixture.application(0)?;
    application.command_ok(&doc! { "insert": "source", "documents": [item(2, 1, 2)], "$db": &other })?;
    let into = doc! { "into": { "db": &fixture.database, "coll": COLLECTION } };
    let merge = doc! { "aggregate": "source", "pipeline": [{ "$merge": into }], "cursor": {}, "$db": &other };
    application.command_ok(&merge)?;
    ensure!(!fixture.has_pages()?, "pages beside plain documents");
    let reply = fixture.past(doc! { "count": COLLECTION })?;
    ensure!(reply.get_i32("n")? == 2, "{reply}");
    // A merge is refused during a conversion.
    fixture.past(doc! { "create": COPY })?;
    let reply = application.command(&merge)?;
    ensure!(code(&reply) == Some(20), "{reply}");
    Ok(())
}

#[test]
fn plain_documents_are_noted_by_check_and_setup() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    for verb in ["check", "setup"] {
        let output = fixture.proxies[0].run(verb)?;
        let printed = String::from_utf8_lossy(&output.stdout);
        ensure!(output.status.success(), "{verb}: {printed}");
        ensure!(printed.contains("mongoshape convert"), "{verb}: {printed}");
    }
    ensure!(!fixture.has_pages()?, "setup has changed the collection");
    Ok(())
}
