//! TTL indexes: expired items go, others stay, and the index commands answer as on a plain collection.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::altering_relay::AlteringRelay;
use proto_tests::measure::{is_full, show};
use proto_tests::raw::Connection;
use proto_tests::shaped::COLLECTION;
use proto_tests::stopping_relay::{Moment, StoppingRelay};
use proto_tests::threads;
use proto_tests::{Level, Mongod, Proxy, ProxyOptions, Shape, client, database_name, invariants, mongod};

const LIMIT: Duration = Duration::from_secs(30);

fn shape(max_items: usize) -> Shape {
    Shape {
        time: Some("at".to_owned()),
        max_items,
        items_change: true,
        ..Shape::new(&["k"])
    }
}

/// `ttlMonitorEnabled` stops the deletion of expired items, as that of documents.
#[test]
fn nothing_expires_while_the_monitor_of_the_server_is_stopped() -> Result<()> {
    let mongod = Mongod::replica_set(1)?;
    let mut expiring = Expiring::start(&mongod, 1)?;
    let set = |is_enabled: bool| doc! { "setParameter": 1, "ttlMonitorEnabled": is_enabled, "$db": "admin" };
    expiring.direct.command_ok(&set(false))?;
    expiring.create("at", 60)?;
    expiring.run(doc! { "insert": COLLECTION, "documents": [{ "_id": 1, "k": 1, "at": DateTime::from_millis(0) }] })?;
    thread::sleep(Duration::from_secs(2));
    ensure!(expiring.run(doc! { "count": COLLECTION })?.get_i32("n")? == 1);
    expiring.direct.command_ok(&set(true))?;
    let begun = Instant::now();
    while expiring.run(doc! { "count": COLLECTION })?.get_i32("n")? > 0 {
        ensure!(begun.elapsed() < LIMIT, "the item does not expire");
        thread::sleep(Duration::from_millis(100));
    }
    Ok(())
}

/// A collection behind proxies that delete expired items every 200 ms.
struct Expiring {
    database: String,
    shape: Shape,
    proxies: Vec<Proxy>,
    application: Connection,
    direct: Connection,
}

impl Expiring {
    fn start(mongod: &Mongod, proxies: usize) -> Result<Self> {
        let database = database_name();
        let shape = shape(if is_full("MONGOSHAPE_EXPIRY") { 100 } else { 5 });
        let config = shape.toml(&format!("{database}.{COLLECTION}"));
        let options = ProxyOptions::new(&mongod.uri()).config(&config).expire_every(200);
        let proxies: Vec<Proxy> = (0..proxies).map(|_| Proxy::start(&options)).collect::<Result<_>>()?;
        Ok(Self {
            application: Connection::open(proxies[0].address())?,
            direct: Connection::open(mongod.addresses()[mongod.primary().unwrap_or(0)])?,
            database,
            shape,
            proxies,
        })
    }

    /// Behind a proxy that deletes no items in the time of a test. The first of its proxies does, and uses this
    /// connection string.
    fn beside(mongod: &Mongod, uri: &str, max_items: usize) -> Result<Self> {
        let database = database_name();
        let shape = shape(max_items);
        let config = shape.toml(&format!("{database}.{COLLECTION}"));
        let proxies = vec![
            Proxy::start(&ProxyOptions::new(uri).config(&config).expire_every(200))?,
            Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&config))?,
        ];
        Ok(Self {
            application: Connection::open(proxies[1].address())?,
            direct: Connection::open(mongod.address())?,
            database,
            shape,
            proxies,
        })
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.application.command_ok(&command)
    }

    fn create(&mut self, field: &str, seconds: i32) -> Result<()> {
        let index = doc! { "key": { field: 1 }, "name": format!("{field}_1"), "expireAfterSeconds": seconds };
        self.run(doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
        Ok(())
    }

    fn insert(&mut self, items: Vec<Document>) -> Result<()> {
        self.run(doc! { "insert": COLLECTION, "documents": items }).map(drop)
    }

    fn count(&mut self) -> Result<i32> {
        Ok(self.run(doc! { "count": COLLECTION })?.get_i32("n")?)
    }

    /// The numbers of the items.
    fn numbers(&mut self) -> Result<Vec<i32>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.database };
        let items = self.application.all(&find)?;
        Ok(items.iter().filter_map(|item| item.get_i32("_id").ok()).collect())
    }

    /// Waits for the items and for the invariants. A deletion empties a page before it removes the page. Between
    /// these statements an invariant does not hold.
    fn wait_for(&mut self, expected: &[i32]) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        loop {
            let numbers = self.numbers()?;
            let result = if numbers == expected {
                invariants::check(&mut self.direct, &self.database, COLLECTION, &self.shape)
            } else {
                Err(anyhow!("{numbers:?} instead of {expected:?}"))
            };
            if result.is_ok() || Instant::now() > deadline {
                return result;
            }
            thread::sleep(Duration::from_millis(50));
        }
    }

    /// The number is counted after the reply.
    fn wait_for_metric(&self, expected: f64) -> Result<()> {
        let deadline = Instant::now() + LIMIT;
        while (self.expired() - expected).abs() > 0.5 {
            ensure!(Instant::now() < deadline, "{} expired", self.expired());
            thread::sleep(Duration::from_millis(20));
        }
        Ok(())
    }

    fn expired(&self) -> f64 {
        let series = format!(
            "mongoshape_items_expired_total{{namespace=\"{}.{COLLECTION}\"}}",
            self.database
        );
        self.proxies.iter().map(|proxy| proxy.metric(&series)).sum()
    }
}

/// So many seconds ago.
fn ago(seconds: i64) -> DateTime {
    DateTime::from_millis(DateTime::now().timestamp_millis() - seconds * 1000)
}

fn item(number: i32, key: i32, at: DateTime) -> Document {
    doc! { "_id": number, "k": key, "at": at, "n": number }
}

#[test]
fn expired_items_go_and_others_on_their_pages_stay() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let mut expiring = Expiring::start(mongod, 2)?;
        // Every page has old and new items, except for those of key 9.
        let mut items: Vec<Document> = (0..100)
            .map(|number| item(number, number % 3, ago(if number % 2 == 0 { 5000 } else { 10 })))
            .collect();
        items.extend((100..120).map(|number| item(number, 9, ago(9000))));
        expiring.insert(items)?;
        expiring.create("at", 3600)?;
        let young: Vec<i32> = (0..100).filter(|number| number % 2 == 1).collect();
        expiring.wait_for(&young)?;
        expiring.wait_for_metric(70.0)?;
        // Items that arrive expired, also behind the bounds of their pages.
        expiring.insert(vec![
            item(200, 1, ago(100_000)),
            item(201, 1, ago(0)),
            item(202, 77, ago(3700)),
        ])?;
        let mut expected = young;
        expected.push(201);
        expiring.wait_for(&expected)?;
    }
    Ok(())
}

#[test]
fn any_field_of_items_expires_by_its_dates() -> Result<()> {
    let mut expiring = Expiring::start(mongod::shared(), 1)?;
    let values = [
        Bson::DateTime(ago(100)),
        Bson::DateTime(ago(-1000)),
        bson!([DateTime::from_millis(5), ago(-1000)]),
        bson!([ago(-1000), "text"]),
        bson!("text"),
        bson!(5),
        Bson::Null,
        bson!({ "at": ago(100) }),
    ];
    let items = (0..).zip(values).map(|(number, value)| {
        let mut item = item(number, 1, ago(-50_000));
        item.insert("until", value);
        item
    });
    expiring.insert(items.collect())?;
    expiring.insert(vec![item(50, 1, ago(-50_000))])?;
    expiring.create("until", 0)?;
    expiring.wait_for(&[1, 3, 4, 5, 6, 7, 50])
}

#[test]
fn a_changed_time_applies_to_items_that_are_there() -> Result<()> {
    let mut expiring = Expiring::start(mongod::shared(), 1)?;
    expiring.insert(
        (0..20)
            .map(|number| item(number, 1, ago(i64::from(number) * 100 + 50)))
            .collect(),
    )?;
    expiring.create("at", 100_000)?;
    thread::sleep(Duration::from_millis(600));
    expiring.wait_for(&(0..20).collect::<Vec<_>>())?;
    let change = doc! { "name": "at_1", "expireAfterSeconds": 1000 };
    let reply = expiring.run(doc! { "collMod": COLLECTION, "index": change })?;
    ensure!(
        reply.get_i64("expireAfterSeconds_old").is_ok_and(|old| old == 100_000),
        "{reply}"
    );
    expiring.wait_for(&(0..10).collect::<Vec<_>>())?;
    expiring.run(doc! { "dropIndexes": COLLECTION, "index": "at_1" })?;
    let change = doc! { "keyPattern": { "at": 1 }, "expireAfterSeconds": 1 };
    let change = doc! { "collMod": COLLECTION, "index": change, "$db": &expiring.database };
    let reply = expiring.application.command(&change)?;
    ensure!(reply.get_i32("code").is_ok_and(|code| code == 27), "{reply}");
    thread::sleep(Duration::from_millis(600));
    expiring.wait_for(&(0..10).collect::<Vec<_>>())
}

/// The proxy with the lease is killed: another one goes on when the lease has ended.
#[test]
fn another_proxy_takes_the_lease_over() -> Result<()> {
    let mut expiring = Expiring::start(mongod::shared(), 2)?;
    expiring.create("at", 3600)?;
    let mut first = expiring.proxies.remove(1);
    first.kill()?;
    expiring.insert(vec![item(1, 1, ago(5000)), item(2, 1, ago(0))])?;
    expiring.wait_for(&[2])
}

/// Names a command that takes a lease.
fn takes_lease(command: &Document) -> Option<String> {
    let collection = command.get_str("findAndModify").ok()?;
    (collection == "leases").then(|| collection.to_owned())
}

/// The index is dropped when some of its items are deleted. In mongod, such a deletion ends with its index.
#[test]
fn a_dropped_index_ends_the_deletion() -> Result<()> {
    // More than one delete takes.
    let count = 25_000;
    let mongod = mongod::shared();
    let relay = StoppingRelay::to(mongod.address(), takes_lease)?;
    let mut expiring = Expiring::beside(mongod, &relay.uri(), 500)?;
    let items: Vec<Document> = (0..count)
        .map(|number| item(number, number % 10, ago(40_000 - i64::from(number))))
        .collect();
    for part in items.chunks(5000) {
        expiring.insert(part.to_vec())?;
    }
    // A lease is taken before each delete.
    relay.arm(Some((2, Moment::After)));
    expiring.create("at", 3600)?;
    let deadline = Instant::now() + LIMIT;
    while !relay.has_stopped() {
        ensure!(Instant::now() < deadline, "no second delete follows");
        thread::sleep(Duration::from_millis(20));
    }
    let left = expiring.count()?;
    expiring.run(doc! { "dropIndexes": COLLECTION, "index": "at_1" })?;
    relay.go_on();
    ensure!(left > 0 && left < count, "{left} items of {count}");
    thread::sleep(Duration::from_secs(1));
    ensure!(expiring.count()? == left, "{} of {left}", expiring.count()?);
    invariants::check(&mut expiring.direct, &expiring.database, COLLECTION, &expiring.shape)
}

/// Moves the end of a lease by an hour.
fn an_hour_later(reply: &mut Document) -> bool {
    let Ok(lease) = reply.get_document_mut("value") else {
        return false;
    };
    let Ok(until) = lease.get_datetime("until").copied() else {
        return false;
    };
    lease.insert("until", DateTime::from_millis(until.timestamp_millis() + 3_600_000));
    true
}

/// The clock of the server is an hour ahead of the proxy's, as far as the proxy knows.
#[test]
fn items_expire_by_the_clock_of_the_server() -> Result<()> {
    let mongod = mongod::shared();
    let relay = AlteringRelay::to(mongod.address(), an_hour_later)?;
    let mut expiring = Expiring::beside(mongod, &relay.uri(), 5)?;
    expiring.insert(vec![item(1, 1, ago(1800)), item(2, 1, ago(-1800))])?;
    expiring.create("at", 3600)?;
    expiring.wait_for(&[2])
}

/// How many items expire, and how many writers go on meanwhile.
struct Measure {
    items: i32,
    writers: i32,
}

impl Measure {
    fn chosen() -> Self {
        if is_full("MONGOSHAPE_EXPIRY") {
            Self {
                items: 1_000_000,
                writers: 4,
            }
        } else {
            Self {
                items: 2000,
                writers: 3,
            }
        }
    }
}

/// Items of 500 keys expire while writers insert young ones, change them and delete some.
///
/// ```sh
/// MONGOSHAPE_EXPIRY=full cargo test -p proto-tests --test collections -- --nocapture items_expire_while_writers_go_on
/// ```
#[test]
fn items_expire_while_writers_go_on() -> Result<()> {
    let measure = Measure::chosen();
    let mut expiring = Expiring::start(mongod::shared_replica_set(), 2)?;
    let old: Vec<i32> = (0..measure.items).collect();
    for numbers in old.chunks(10_000) {
        let items = numbers
            .iter()
            .map(|number| item(*number, number % 500, ago(4000 + i64::from(number % 1000))));
        expiring.insert(items.collect())?;
    }
    let is_done = AtomicBool::new(false);
    let begun = Instant::now();
    let (database, address) = (expiring.database.clone(), expiring.proxies[1].address());
    let young = thread::scope(|scope| -> Result<Vec<i32>> {
        let writers: Vec<_> = (0..measure.writers)
            .map(|number| {
                let (is_done, database) = (&is_done, database.as_str());
                scope.spawn(move || write(Connection::open(address)?, database, number, is_done))
            })
            .collect();
        expiring.create("at", 3600)?;
        let limit = if is_full("MONGOSHAPE_EXPIRY") {
            Duration::from_mins(20)
        } else {
            LIMIT
        };
        let expired = doc! { "count": COLLECTION, "query": { "at": { "$lt": ago(3600) } } };
        let emptied = loop {
            let left = expiring.run(expired.clone())?.get_i32("n")?;
            if left == 0 || begun.elapsed() > limit {
                break left;
            }
            thread::sleep(Duration::from_millis(100));
        };
        is_done.store(true, Ordering::Relaxed);
        let young = threads::join(writers)?.concat();
        ensure!(emptied == 0, "{emptied} items have not expired after {limit:?}");
        Ok(young)
    })?;
    show(&format!(
        "{} items expired in {:.1} s, beside {} young ones",
        measure.items,
        begun.elapsed().as_secs_f64(),
        young.len()
    ));
    let mut young = young;
    young.sort_unstable();
    expiring.wait_for(&young)
}

/// Writes until it is done. Returns the numbers of the items that stay.
fn write(mut connection: Connection, database: &str, writer: i32, is_done: &AtomicBool) -> Result<Vec<i32>> {
    let mut young = Vec::new();
    let mut next = 10_000_000 * (writer + 1);
    let mut run = |mut command: Document| -> Result<Document> {
        command.insert("$db", database);
        let reply = connection.command_ok(&command)?;
        ensure!(!reply.contains_key("writeErrors"), "{command}: {reply}");
        Ok(reply)
    };
    while !is_done.load(Ordering::Relaxed) {
        let items: Vec<Document> = (next..next + 4)
            .map(|number| item(number, number % 500, ago(0)))
            .collect();
        run(doc! { "insert": COLLECTION, "documents": items })?;
        let update = doc! { "q": { "_id": next }, "u": { "$set": { "n": -1 } } };
        run(doc! { "update": COLLECTION, "updates": [update] })?;
        // This one goes by its new date, and the next one by a delete, which leaves its page's bounds.
        let old = doc! { "q": { "_id": next + 1 }, "u": { "$set": { "at": ago(9000) } } };
        run(doc! { "update": COLLECTION, "updates": [old] })?;
        let delete = doc! { "q": { "_id": next + 2 }, "limit": 1 };
        run(doc! { "delete": COLLECTION, "deletes": [delete] })?;
        young.extend([next, next + 3]);
        next += 4;
    }
    Ok(young)
}

/// The user of `upstream.uri` must not read two of three collections. The items of the third one expire.
#[tokio::test(flavor = "multi_thread", worker_threads = 1)]
async fn a_missing_right_is_reported_and_the_items_of_others_expire() -> Result<()> {
    let mongod = mongod::Options::default().auth().standalone()?;
    let roles = bson!([{ "role": "readWrite", "db": "allowed" }, { "role": "readWrite", "db": "mongoshape" }]);
    let admin = client(&mongod.uri()).await?;
    let user = doc! { "createUser": "user", "pwd": "word", "roles": roles };
    admin.database("admin").run_command(user).await?;
    let automatic = shape(5).toml("refused.automatic");
    let tables = [
        automatic.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1),
        shape(5).toml("refused.items"),
        shape(5).toml("allowed.items"),
    ];
    let options = ProxyOptions::new(&mongod.uri_as("user", "word")).config(&tables.concat());
    let proxy = Proxy::start(&options.expire_every(200))?;
    proxy.expect_log(Level::Warn, "expired items are not deleted");
    let through = mongod
        .uri()
        .replace(&mongod.address().to_string(), &proxy.address().to_string());
    let application = client(&through).await?;
    let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 3600 };
    for database in ["refused", "allowed"] {
        let database = application.database(database);
        database
            .collection::<Document>("items")
            .insert_one(item(1, 1, ago(5000)))
            .await?;
        database
            .run_command(doc! { "createIndexes": "items", "indexes": [index.clone()] })
            .await?;
    }
    let deadline = Instant::now() + LIMIT;
    let count = async |database: &str| {
        let items = application.database(database).collection::<Document>("items");
        items.count_documents(doc! {}).await
    };
    while count("allowed").await? > 0 {
        ensure!(Instant::now() < deadline, "nothing has expired");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let line = proxy.wait_for_log("expired items are not deleted")?;
    let part = "refused.automatic cannot be listed: not authorized on refused";
    ensure!(line.text.contains(part), "{}", line.text);
    ensure!(count("refused").await? == 1);
    ensure!(proxy.metric("mongoshape_expiry_failures_total") > 0.0);
    application.shutdown().await;
    admin.shutdown().await;
    Ok(())
}
