//! SIGHUP: a reload applies all changes or none, and does not interrupt clients.

use std::collections::BTreeSet;
use std::fs;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::{self, Connection};
use proto_tests::shaped::{COLLECTION, Shaped};
use proto_tests::{Certificates, Identity, Level, Mongod, Proxy, ProxyOptions, database_name, frame, mongod};
use rustix::process::Signal;

const LIMIT: Duration = Duration::from_secs(20);
const RELOADED: &str = "\"message\":\"reloaded\"";
const NOT_RELOADED: &str = "not reloaded, the configuration is unchanged";
const LATER: &str = "the option has changed; the new value takes effect at the next start";

fn lines(proxy: &Proxy, part: &str) -> usize {
    proxy.log().iter().filter(|line| line.text.contains(part)).count()
}

/// Sends SIGHUP and waits for one more line with `outcome`.
fn hang_up(proxy: &mut Proxy, outcome: &str) -> Result<()> {
    let before = lines(proxy, outcome);
    proxy.signal(Signal::HUP)?;
    let deadline = Instant::now() + LIMIT;
    while lines(proxy, outcome) == before {
        ensure!(Instant::now() < deadline, "no new line {outcome:?}: {:?}", proxy.log());
        thread::sleep(Duration::from_millis(5));
    }
    Ok(())
}

/// Changes the configuration file.
fn edit(proxy: &Proxy, change: impl FnOnce(&str) -> String) -> Result<()> {
    let file = proxy.config_file();
    let before = fs::read_to_string(&file)?;
    let after = change(&before);
    ensure!(before != after, "nothing to change in {before}");
    Ok(fs::write(file, after)?)
}

fn bucket(database: &str, collection: &str) -> String {
    format!("\n[[bucket]]\nnamespace = \"{database}.{collection}\"\nkey = \"k\"\n")
}

/// How many documents mongod itself holds in a collection.
fn stored(server: &Mongod, database: &str, collection: &str) -> Result<Vec<Document>> {
    Connection::open(server.address())?.find(database, collection, doc! {})
}

fn insert(database: &str, collection: &str, ids: std::ops::Range<i32>) -> Document {
    let documents: Vec<_> = ids.map(|id| doc! { "_id": id, "k": 1 }).collect();
    doc! { "insert": collection, "documents": documents, "$db": database }
}

#[test]
fn a_running_connection_sees_a_new_bucket_and_a_removed_one() -> Result<()> {
    let mut shaped = Shaped::start("")?;
    let database = shaped.database.clone();
    let mut application = shaped.application()?;
    let server = mongod::shared();
    application.command_ok(&insert(&database, "plain", 0..3))?;
    ensure!(stored(server, &database, "plain")?.len() == 3, "`plain` is shaped");

    edit(&shaped.proxy, |file| file.to_owned() + &bucket(&database, "later"))?;
    hang_up(&mut shaped.proxy, RELOADED)?;
    application.command_ok(&insert(&database, "later", 0..3))?;
    ensure!(stored(server, &database, "later")?.len() == 1, "`later` is not shaped");
    ensure!(
        application.find(&database, "later", doc! { "k": 1 })?.len() == 3,
        "`later` is not read as shaped"
    );
    // Its series are there from the first event on.
    let series = format!("mongoshape_bucket_items_inserted_total{{namespace=\"{database}.later\"}}");
    ensure!(
        (shaped.proxy.metric(&series) - 3.0).abs() < 0.5,
        "{}",
        shaped.proxy.metric(&series)
    );

    edit(&shaped.proxy, |file| file.replace(&bucket(&database, "later"), ""))?;
    hang_up(&mut shaped.proxy, RELOADED)?;
    ensure!(
        application.find(&database, "later", doc! {})?.len() == 1,
        "`later` is still shaped"
    );
    // The other one is what it was.
    application.command_ok(&shaped.insert(&[doc! { "_id": 1, "k": 1 }, doc! { "_id": 2, "k": 1 }]))?;
    ensure!(shaped.stored()?.len() == 1, "`{COLLECTION}` is not shaped");
    Ok(())
}

#[test]
fn reloaded_limits_apply_to_new_connections() -> Result<()> {
    let mut proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).listen("max_connections = 2"))?;
    proxy.expect_log(Level::Warn, "the limit listen.max_connections is reached");
    let ping = doc! { "ping": 1, "$db": "admin" };
    let open = || -> Result<Connection> {
        let mut connection = Connection::open(proxy.address())?;
        connection.command_ok(&ping)?;
        Ok(connection)
    };
    let mut within = vec![open()?, open()?];
    ensure!(open().is_err(), "a third one of two");
    edit(&proxy, |file| {
        file.replace("max_connections = 2", "max_connections = 3")
    })?;
    hang_up(&mut proxy, RELOADED)?;
    let open = || -> Result<Connection> {
        let mut connection = Connection::open(proxy.address())?;
        connection.command_ok(&ping)?;
        Ok(connection)
    };
    within.push(open()?);
    ensure!(open().is_err(), "a fourth one of three");
    // Fewer than are open: none is closed, and none is accepted until enough have closed.
    edit(&proxy, |file| {
        file.replace("max_connections = 3", "max_connections = 1")
    })?;
    hang_up(&mut proxy, RELOADED)?;
    for connection in &mut within {
        connection.command_ok(&ping)?;
    }
    ensure!(
        Connection::open(proxy.address())?.command(&ping).is_err(),
        "a second one of one"
    );
    drop(within);
    let deadline = Instant::now() + LIMIT;
    while Connection::open(proxy.address())?.command(&ping).is_err() {
        ensure!(Instant::now() < deadline, "no place became free");
    }
    Ok(())
}

#[test]
fn certificate_is_replaced_while_connections_are_open() -> Result<()> {
    let (old, new) = (Certificates::new()?, Certificates::new()?);
    let mut proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).tls(&old))?;
    proxy.expect_log(Level::Warn, "the TLS handshake failed");
    let ping = doc! { "ping": 1, "$db": "admin" };
    let address = proxy.address();
    let open = |certificates: &Certificates| -> Result<Connection> {
        let mut connection = Connection::open_tls(address, &certificates.client_config(Identity::Nobody)?)?;
        connection.command_ok(&ping)?;
        Ok(connection)
    };
    let mut before = open(&old)?;
    ensure!(open(&new).is_err(), "the new one is there already");
    for (from, to) in [(new.server(), old.server()), (new.server_key(), old.server_key())] {
        fs::copy(from, to)?;
    }
    hang_up(&mut proxy, RELOADED)?;
    open(&new)?;
    ensure!(open(&old).is_err(), "the old one is still there");
    before.command_ok(&ping)?;
    // A key that is not the certificate's changes nothing.
    proxy.expect_log(Level::Error, NOT_RELOADED);
    fs::copy(Certificates::new()?.server_key(), old.server_key())?;
    hang_up(&mut proxy, NOT_RELOADED)?;
    open(&new)?;
    before.command_ok(&ping)?;
    let line = proxy.wait_for_log(NOT_RELOADED)?;
    ensure!(
        line.text.contains("does not belong to the certificate"),
        "{}",
        line.text
    );
    Ok(())
}

#[test]
fn a_broken_file_changes_nothing() -> Result<()> {
    let mut shaped = Shaped::start("")?;
    shaped.proxy.expect_log(Level::Error, NOT_RELOADED);
    let (database, file) = (shaped.database.clone(), shaped.proxy.config_file());
    let mut application = shaped.application()?;
    let good = fs::read_to_string(&file)?;
    // What is right in them would be noticed: the bucket is gone, another one is there.
    let other = good.replace(COLLECTION, "other");
    let broken = [
        other.clone() + "[[bucket",
        other.clone() + "[[bucket]]\nnamespace = \"a.b\"\n",
        other.replace("key = \"k\"", "key = \"k\"\nkye = \"k\""),
        other.replace("[listen]", "[listen]\nmax_connections = 0"),
        String::new(),
    ];
    for (number, broken) in (0..).zip(&broken) {
        fs::write(&file, broken)?;
        hang_up(&mut shaped.proxy, NOT_RELOADED)?;
        application.command_ok(&insert(&database, COLLECTION, 2 * number..2 * number + 2))?;
        ensure!(shaped.stored()?.len() == 1, "not shaped after {broken}");
    }
    fs::remove_file(&file)?;
    hang_up(&mut shaped.proxy, NOT_RELOADED)?;
    ensure!(lines(&shaped.proxy, RELOADED) == 0, "{:?}", shaped.proxy.log());
    fs::write(&file, other)?;
    hang_up(&mut shaped.proxy, RELOADED)?;
    ensure!(
        application.find(&database, COLLECTION, doc! {})?.len() == 1,
        "still shaped"
    );
    Ok(())
}

#[test]
fn reload_names_options_that_need_a_restart() -> Result<()> {
    let mut proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()))?;
    proxy.expect_log(Level::Warn, LATER);
    let good = fs::read_to_string(proxy.config_file())?;
    let address = proxy.address().to_string();
    let admin = proxy.admin_address().to_string();
    let cases = [
        ("listen.address", good.replace(&address, "127.0.0.1:1")),
        (
            "present_as",
            good.replace("[listen]", "[listen]\npresent_as = \"replica-set\""),
        ),
        ("listen.workers", good.replace("[listen]", "[listen]\nworkers = 3")),
        (
            "listen.drain_timeout_ms",
            good.replace("[listen]", "[listen]\ndrain_timeout_ms = 1"),
        ),
        ("upstream.uri", good.replace("mongodb://", "mongodb://127.0.0.2:1,")),
        ("admin.address", good.replace(&admin, "127.0.0.1:1")),
        ("log.filter", good.replace("\"info\"", "\"debug\"")),
    ];
    for (number, (option, file)) in (1..).zip(cases) {
        ensure!(file != good, "{option}: the file is the same");
        fs::write(proxy.config_file(), file)?;
        hang_up(&mut proxy, RELOADED)?;
        let lines: Vec<_> = proxy
            .log()
            .into_iter()
            .filter(|line| line.text.contains(LATER))
            .collect();
        ensure!(
            lines.len() == number && lines[number - 1].text.contains(option),
            "{option}: {lines:?}"
        );
        Connection::open(proxy.address())?.command_ok(&doc! { "ping": 1, "$db": "admin" })?;
    }
    fs::write(proxy.config_file(), good)?;
    hang_up(&mut proxy, RELOADED)?;
    ensure!(lines(&proxy, LATER) == 7, "{:?}", proxy.log());
    Ok(())
}

/// Makes the next command of this name wait in mongod.
fn hold(server: &mut Connection, command: &str, namespace: &str) -> Result<()> {
    let data = doc! { "failCommands": [command], "blockConnection": true, "blockTimeMS": 1500, "namespace": namespace };
    let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data, "$db": "admin" };
    server.command_ok(&fail)?;
    Ok(())
}

/// How often a command has waited.
fn wait_until_held(server: &mut Connection) -> Result<()> {
    let wait = doc! { "waitForFailPoint": "failCommand", "timesEntered": 1, "maxTimeMS": 10_000, "$db": "admin" };
    let reply = server.command(&wait)?;
    ensure!(reply.get_f64("ok")? > 0.0, "{reply}");
    Ok(())
}

#[test]
fn a_command_ends_under_the_settings_that_it_began_with() -> Result<()> {
    let server = Options::default().parameter("enableTestCommands=1").standalone()?;
    let database = database_name();
    let shape = bucket(&database, COLLECTION);
    let mut proxy = Proxy::start(&ProxyOptions::new(&server.uri()).config(&shape))?;
    let (mut application, mut direct) = (Connection::open(proxy.address())?, Connection::open(server.address())?);
    application.command_ok(&insert(&database, COLLECTION, 0..2))?;
    let namespace = format!("{database}.{COLLECTION}");

    // The shape is removed during an aggregate: it returns items. The next one returns buckets.
    let stage = doc! { "$set": { "seen": true } };
    let aggregate = doc! { "aggregate": COLLECTION, "pipeline": [stage], "cursor": {}, "$db": &database };
    hold(&mut direct, "aggregate", &namespace)?;
    application.send(&frame::command(1, 0, &aggregate)?)?;
    wait_until_held(&mut direct)?;
    edit(&proxy, |file| file.replace(&shape, ""))?;
    hang_up(&mut proxy, RELOADED)?;
    let batch =
        |reply: &Document| -> Result<usize> { Ok(reply.get_document("cursor")?.get_array("firstBatch")?.len()) };
    let reply = raw::document(&application.receive()?)?;
    ensure!(batch(&reply)? == 2, "{reply}");
    let reply = application.command_ok(&aggregate)?;
    ensure!(batch(&reply)? == 1, "{reply}");

    // The shape is removed after an insert has read the pages: it still writes to the page.
    edit(&proxy, |file| file.to_owned() + &shape)?;
    hang_up(&mut proxy, RELOADED)?;
    hold(&mut direct, "update", &namespace)?;
    application.send(&frame::command(2, 0, &insert(&database, COLLECTION, 2..4))?)?;
    wait_until_held(&mut direct)?;
    edit(&proxy, |file| file.replace(&shape, ""))?;
    hang_up(&mut proxy, RELOADED)?;
    let reply = raw::document(&application.receive()?)?;
    ensure!(reply.get_i32("n")? == 2, "{reply}");
    let buckets = stored(&server, &database, COLLECTION)?;
    ensure!(
        buckets.len() == 1 && buckets[0].get_array("history")?.len() == 4,
        "{buckets:?}"
    );
    Ok(())
}

/// A writer: inserts until stopped, and returns the acknowledged ids.
fn write(proxy: &Proxy, database: &str, writer: i32, done: &AtomicBool) -> Result<Vec<i32>> {
    let mut connection = Connection::open(proxy.address())?;
    let mut ids = Vec::new();
    for number in 0.. {
        if done.load(Ordering::Relaxed) {
            break;
        }
        let id = writer * 100_000 + number;
        // Two in the same bucket, two in a collection that is none.
        let collection = if writer % 2 == 0 { COLLECTION } else { "plain" };
        let insert = doc! { "insert": collection, "documents": [{ "_id": id, "k": writer / 4 }], "$db": database };
        let reply = connection.command_ok(&insert)?;
        ensure!(reply.get_i32("n")? == 1, "{reply}");
        let found = connection.find(database, collection, doc! { "_id": id })?;
        ensure!(found == [doc! { "_id": id, "k": writer / 4 }], "{id}: {found:?}");
        ids.push(id);
    }
    Ok(ids)
}

#[test]
fn reloads_under_load_lose_nothing() -> Result<()> {
    const WRITERS: i32 = 8;
    const RELOADS: usize = 40;
    let mut shaped = Shaped::with(
        "",
        &ProxyOptions::new(&mongod::shared().uri()).listen("max_connections = 100"),
    )?;
    let database = shaped.database.clone();
    let other = bucket(&database, "other");
    let done = AtomicBool::new(false);
    let file = shaped.proxy.config_file();
    let process = rustix::process::Pid::from_raw(i32::try_from(shaped.proxy.id())?).context("no process")?;
    let proxy = &shaped.proxy;
    let acknowledged = thread::scope(|scope| -> Result<Vec<i32>> {
        let writers: Vec<_> = (0..WRITERS)
            .map(|writer| {
                let (done, database) = (&done, &database);
                scope.spawn(move || write(proxy, database, writer, done))
            })
            .collect();
        let reload = || -> Result<()> {
            let good = fs::read_to_string(&file)?;
            for number in 1..=RELOADS {
                let limits = good.replace("max_connections = 100", &format!("max_connections = {}", 100 + number));
                fs::write(&file, if number % 2 == 0 { limits } else { limits + &other })?;
                rustix::process::kill_process(process, Signal::HUP)?;
                let deadline = Instant::now() + LIMIT;
                while lines(proxy, RELOADED) < number {
                    ensure!(Instant::now() < deadline, "reload {number} is missing");
                    thread::sleep(Duration::from_millis(2));
                }
            }
            Ok(())
        };
        let reloaded = reload();
        done.store(true, Ordering::Relaxed);
        let mut ids = Vec::new();
        for writer in writers {
            ids.extend(writer.join().expect("a writer panicked")?);
        }
        reloaded.map(|()| ids)
    })?;
    ensure!(acknowledged.len() > 8, "only {} writes", acknowledged.len());
    let mut application = shaped.application()?;
    let mut found = application.find(&database, COLLECTION, doc! {})?;
    found.extend(application.find(&database, "plain", doc! {})?);
    let ids = found
        .iter()
        .map(|document| document.get_i32("_id"))
        .collect::<Result<BTreeSet<_>, _>>()?;
    ensure!(ids.len() == found.len(), "something is there twice");
    ensure!(
        ids == acknowledged.into_iter().collect(),
        "something is lost, or there unasked"
    );
    ensure!(
        shaped.stored()?.iter().all(|bucket| bucket.contains_key("history")),
        "an item beside the buckets"
    );
    shaped.proxy.stop()
}

#[test]
fn reload_rejects_a_shape_that_differs_from_stored_pages() -> Result<()> {
    let mut shaped = Shaped::start("")?;
    let items: Vec<_> = (0..30).map(|id| doc! { "_id": id, "k": 1 }).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    let find = doc! { "find": COLLECTION, "filter": { "k": 1 }, "skip": 20, "limit": 3, "$db": &shaped.database };
    let mut application = shaped.application()?;
    application.command_ok(&find)?;
    edit(&shaped.proxy, |config| format!("{config}\nmax_items = 50\n"))?;
    shaped
        .proxy
        .expect_log(Level::Error, "max_items is 10 in the shape marker");
    hang_up(&mut shaped.proxy, NOT_RELOADED)?;
    application.command_ok(&find)?;
    ensure!(shaped.proxy.admin_get("/readyz")?.status == 200, "not ready");
    edit(&shaped.proxy, |config| config.replace("max_items = 50", ""))?;
    hang_up(&mut shaped.proxy, RELOADED)?;
    application.command_ok(&find)?;
    Ok(())
}

#[test]
fn reload_rejects_a_shape_on_plain_documents() -> Result<()> {
    let mut shaped = Shaped::start("")?;
    let plain = doc! { "insert": "plain", "documents": [{ "_id": "p", "k": 1 }], "$db": &shaped.database };
    shaped.application()?.command_ok(&plain)?;
    edit(&shaped.proxy, |file| {
        file.to_owned() + &bucket(&shaped.database, "plain")
    })?;
    shaped
        .proxy
        .expect_log(Level::Error, "documents that are not buckets, the first with _id");
    hang_up(&mut shaped.proxy, NOT_RELOADED)?;
    let find = doc! { "find": "plain", "$db": &shaped.database };
    ensure!(shaped.application()?.all(&find)?.len() == 1, "it is read as pages");
    Ok(())
}

#[test]
fn reload_names_a_misspelt_namespace() -> Result<()> {
    let mut shaped = Shaped::start("")?;
    let plain = doc! { "insert": "user_messages", "documents": [{ "_id": "p", "k": 1 }], "$db": &shaped.database };
    shaped.application()?.command_ok(&plain)?;
    let warning = "does not exist, but 'user_messages' does: correct `namespace`";
    shaped.proxy.expect_log(Level::Warn, warning);
    edit(&shaped.proxy, |file| {
        file.to_owned() + &bucket(&shaped.database, "userMessages")
    })?;
    hang_up(&mut shaped.proxy, RELOADED)?;
    shaped.proxy.wait_for_log(warning)?;
    let list = doc! { "listCollections": 1, "nameOnly": true, "$db": &shaped.database };
    ensure!(shaped.direct()?.all(&list)?.len() == 1, "a collection was created");
    Ok(())
}

#[test]
fn proxy_becomes_ready_once_stored_data_fit_the_shape() -> Result<()> {
    let shaped = Shaped::start("")?;
    let items: Vec<_> = (0..30).map(|id| doc! { "_id": id, "k": 1 }).collect();
    shaped.application()?.command_ok(&shaped.insert(&items))?;
    let config = format!("{}max_items = 50\n", bucket(&shaped.database, COLLECTION));
    let other = Proxy::start_with_misfits(&ProxyOptions::new(&mongod::shared().uri()).config(&config))?;
    let message = "a collection does not have its shape";
    let deadline = Instant::now() + LIMIT;
    while lines(&other, message) == 0 {
        ensure!(Instant::now() < deadline, "no error: {:?}", other.log());
        thread::sleep(Duration::from_millis(5));
    }
    let ready = other.admin_get("/readyz")?;
    ensure!(ready.status == 503, "{ready:?}");
    ensure!(!ready.body.contains(&shaped.database), "{ready:?}");
    let drop = doc! { "drop": COLLECTION, "$db": &shaped.database };
    shaped.direct()?.command_ok(&drop)?;
    while other.admin_get("/readyz")?.status != 200 {
        ensure!(Instant::now() < deadline, "not ready: {:?}", other.log());
        thread::sleep(Duration::from_millis(50));
    }
    Ok(())
}
