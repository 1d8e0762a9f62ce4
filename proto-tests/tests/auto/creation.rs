//! A `create` of plain documents that exist, while a conversion renames them: it creates no other collection.

use std::thread;

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use proto_tests::stopping_relay::{Moment, StoppingRelay};

use super::commands::code;
use super::fixture::{COLLECTION, Fixture, item};

fn names(command: &Document, name: &str) -> bool {
    command.get_str(name).is_ok_and(|collection| collection == COLLECTION)
}

/// Names the `create`.
fn is_create(command: &Document) -> Option<String> {
    names(command, "create").then(|| "create".to_owned())
}

/// Names the first command after the list: the read that holds the collection, or the `create` itself.
fn is_first(command: &Document) -> Option<String> {
    let holds = names(command, "find") && command.contains_key("startTransaction");
    holds.then(|| "find".to_owned()).or_else(|| is_create(command))
}

/// Sends a `create` through a proxy that is stopped at the first counted command. `before`: done before the
/// proxy goes on. `after`: done then.
fn check(
    counted: fn(&Document) -> Option<String>,
    before: fn(&Fixture) -> Result<()>,
    after: fn(&Fixture) -> Result<()>,
) -> Result<()> {
    let mongod = mongod::shared_replica_set();
    let relay = StoppingRelay::to(mongod.address(), counted)?;
    let fixture = Fixture::behind(mongod, &relay.uri())?;
    fixture.store_plain(&[item(1, 1, 1)])?;
    let create = doc! { "create": COLLECTION, "capped": true, "size": 4096 };
    relay.arm(Some((1, Moment::Before)));
    let reply = thread::scope(|scope| {
        let creating = scope.spawn(|| fixture.run(0, create.clone()));
        let begun = relay
            .wait_for_stop(|| creating.is_finished())
            .and_then(|()| before(&fixture));
        relay.go_on();
        let done = begun.and_then(|()| after(&fixture));
        let reply = creating.join().expect("the client panicked")?;
        done.map(|()| reply)
    })?;
    let mut plain = create;
    plain.insert("$db", &fixture.database);
    let plain = fixture.direct()?.command(&plain)?;
    ensure!(
        code(&reply).is_some() && code(&reply) == code(&plain),
        "{reply}\n{plain}"
    );
    let items = fixture.items()?;
    ensure!(items.len() == 1, "{items:?}");
    Ok(())
}

#[test]
fn no_renaming_passes_a_create() -> Result<()> {
    let before = |fixture: &Fixture| -> Result<()> {
        let renamed = fixture.try_to_begin_gap()?;
        ensure!(code(&renamed).is_some(), "renamed before the create: {renamed}");
        Ok(())
    };
    check(is_create, before, |_| Ok(()))
}

#[test]
fn a_create_between_the_renamings_waits() -> Result<()> {
    let after = |fixture: &Fixture| -> Result<()> {
        fixture.give_up()?;
        fixture.end_gap()
    };
    check(is_first, Fixture::begin_gap, after)
}
