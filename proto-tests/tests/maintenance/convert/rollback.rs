//! A failover in the middle of a copy: the primary ends with writes that no other member has, and rolls them back
//! when it starts again.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::process::{Child, Command};
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, bail, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::proxy::find_binary;
use proto_tests::raw::Connection;
use proto_tests::retrying::{Answer, Client, Retries};
use proto_tests::{Mongod, Proxy, ProxyOptions, Shape, crash, database_name, invariants};

use super::fixture::{COLLECTION, RECORD};

/// Documents before the conversion, and their changes that are rolled back.
const DOCUMENTS: i32 = 3000;
const ROLLED_BACK: i32 = 200;
/// Documents that are copied in a second. So the failover happens in the middle of the copy.
const RATE: &str = "800";
/// The longest time for an event of a test, and runs until a conversion is done.
const MAX_WAIT: Duration = Duration::from_mins(1);
const MAX_RUNS: u32 = 5;
const PAUSE: Duration = Duration::from_millis(20);

/// Numbers of changes, by `_id`.
type Numbers = BTreeMap<i32, i32>;

fn document(id: i32) -> Document {
    let at = DateTime::from_millis(1_700_000_000_000 + i64::from(id) * 1000);
    doc! { "_id": id, "k": id % 7, "n": 0, "at": at }
}

fn shape() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        items_change: true,
        ..Shape::new(&["k"])
    }
}

/// A replica set of three members, and two proxies.
struct Rollback {
    set: Mongod,
    proxies: [Proxy; 2],
    database: String,
}

impl Rollback {
    fn start() -> Result<Self> {
        let set = Mongod::replica_set(3)?;
        let database = database_name();
        let table = shape().toml(&format!("{database}.{COLLECTION}"));
        let table = table.replacen("[[bucket]]\n", "[[bucket]]\nmode = \"auto\"\n", 1);
        let options = ProxyOptions::new(&set.uri()).config(&table);
        let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
        proxies.iter().for_each(crash::expect_cuts);
        let documents: Vec<Document> = (0..DOCUMENTS).map(document).collect();
        let primary = set.primary()?;
        let mut direct = Connection::open(set.addresses()[primary])?;
        direct.command_ok(&doc! { "insert": COLLECTION, "documents": documents, "$db": &database })?;
        Ok(Self { set, proxies, database })
    }

    fn addresses(&self) -> [SocketAddr; 2] {
        self.proxies.each_ref().map(Proxy::address)
    }

    fn primary(&self) -> Result<Connection> {
        let primary = self.set.primary()?;
        Connection::open(self.set.addresses()[primary])
    }

    /// Waits until a part of the documents is copied.
    fn wait_for_copy(&self, run: &mut Child) -> Result<()> {
        let mut direct = self.primary()?;
        let deadline = Instant::now() + MAX_WAIT;
        let find = doc! { "find": RECORD, "$db": &self.database };
        loop {
            let record = direct.all(&find)?;
            let progress = record.first().and_then(|record| record.get_document("progress").ok());
            if progress.is_some_and(|progress| progress.get_i64("done").is_ok_and(|done| done > 0)) {
                return Ok(());
            }
            ensure!(run.try_wait()?.is_none(), "the run has ended");
            ensure!(Instant::now() < deadline, "nothing is copied: {record:?}");
            thread::sleep(PAUSE);
        }
    }

    /// Writes documents that only the primary gets, and makes another member the primary. The former one then
    /// rolls back.
    fn roll_back(&mut self) -> Result<()> {
        let primary = self.set.primary()?;
        let members = self.set.addresses().len();
        let others: Vec<usize> = (0..members).filter(|member| *member != primary).collect();
        // The primary remains one for three seconds.
        for member in &others {
            self.set.kill(*member)?;
        }
        let mut proxied = Connection::open(self.proxies[0].address())?;
        let ids: Vec<i32> = (0..ROLLED_BACK).collect();
        let inserted: Vec<Document> = ids.iter().map(|id| document(-1 - id)).collect();
        let (changed, deleted) = (DOCUMENTS - ROLLED_BACK, DOCUMENTS - 2 * ROLLED_BACK);
        let commands = [
            doc! { "insert": COLLECTION, "documents": inserted },
            doc! { "update": COLLECTION, "updates": [{ "q": { "_id": { "$gte": changed, "$lt": DOCUMENTS } }, "u": { "$inc": { "n": 1000 } }, "multi": true }] },
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": { "$gte": deleted, "$lt": changed } }, "limit": 0 }] },
        ];
        for mut command in commands {
            command.insert("writeConcern", doc! { "w": 1, "j": true });
            command.insert("$db", &self.database);
            let reply = proxied.command_ok(&command)?;
            ensure!(reply.get_i32("n")? == ROLLED_BACK, "{command}: {reply}");
        }
        self.set.kill(primary)?;
        for member in others {
            self.set.restart(member)?;
        }
        ensure!(self.set.primary()? != primary, "it is dead");
        self.set.restart(primary)?;
        let deadline = Instant::now() + MAX_WAIT;
        while !self.set.log(primary).contains("Rollback summary") {
            ensure!(Instant::now() < deadline, "nothing was rolled back");
            thread::sleep(PAUSE);
        }
        Ok(())
    }

    fn command(&self, options: &[&str]) -> Result<Command> {
        let mut command = Command::new(find_binary()?);
        command
            .arg("convert")
            .arg("--config")
            .arg(self.proxies[0].config_file());
        command.args(["--namespace", &format!("{}.{COLLECTION}", self.database)]);
        command.args(options);
        Ok(command)
    }

    /// Converts while the primary changes, and runs again until the conversion is done.
    fn convert(&mut self, options: &[&str]) -> Result<()> {
        let slowly = [options, &["--max-rate", RATE, "--max-lag", "1000"]].concat();
        let output = tempfile::NamedTempFile::new()?;
        let mut first = self.command(&slowly)?;
        let mut run = first.stdout(output.reopen()?).stderr(output.reopen()?).spawn()?;
        let failed_over = self.wait_for_copy(&mut run).and_then(|()| self.roll_back());
        if failed_over.is_err() {
            let _ = run.kill();
        }
        let mut is_done = run.wait()?.success();
        failed_over?;
        let mut printed = std::fs::read_to_string(output.path())?;
        for _ in 0..MAX_RUNS {
            if is_done {
                return Ok(());
            }
            let next = self.command(options)?.output()?;
            is_done = next.status.success();
            printed = String::from_utf8_lossy(&next.stdout).into_owned() + &String::from_utf8_lossy(&next.stderr);
        }
        if is_done { Ok(()) } else { bail!("{printed}") }
    }

    /// Converts beside a client. What the majority has acknowledged must be there afterwards, and nothing else.
    fn check(&mut self, options: &[&str], first: i32) -> Result<()> {
        let stopping = AtomicBool::new(false);
        let (database, addresses) = (self.database.clone(), self.addresses());
        let written = thread::scope(|scope| -> Result<Numbers> {
            let (database, stopping) = (&database, &stopping);
            let writer = scope.spawn(move || write_until(stopping, (database, &addresses), first));
            let converted = self.convert(options);
            stopping.store(true, Ordering::Relaxed);
            let written = writer.join().expect("the client panicked");
            converted.and(written)
        })?;
        let mut client = Client::new(0, &addresses, (&database, Retries::Writes));
        let mut stored = Numbers::new();
        for item in client.all(&doc! { "find": COLLECTION })? {
            let id = item.get_i32("_id")?;
            if id < DOCUMENTS || id >= first {
                let earlier = stored.insert(id, item.get_i32("n")?);
                ensure!(earlier.is_none(), "{id} is stored twice");
            }
        }
        let mut expected: Numbers = (0..DOCUMENTS).map(|id| (id, 0)).collect();
        expected.extend(written);
        let differing: Vec<_> = expected
            .iter()
            .filter(|(id, n)| stored.get(id) != Some(n))
            .take(5)
            .collect();
        ensure!(
            stored == expected,
            "{} stored, {} expected, such as {differing:?}",
            stored.len(),
            expected.len()
        );
        Ok(())
    }
}

/// Inserts and changes documents. Each write waits for the majority, and is sent again until there is a reply.
fn write_until(stopping: &AtomicBool, (database, addresses): (&str, &[SocketAddr]), first: i32) -> Result<Numbers> {
    let number = usize::try_from(first)?;
    let mut client = Client::new(number, addresses, (database, Retries::Writes));
    let mut written = Numbers::new();
    for id in first.. {
        if stopping.load(Ordering::Relaxed) {
            break;
        }
        let change = doc! { "q": { "_id": id }, "u": { "$inc": { "n": 1 } } };
        let commands = [
            doc! { "insert": COLLECTION, "documents": [document(id)] },
            doc! { "update": COLLECTION, "updates": [change] },
        ];
        for mut command in commands {
            command.insert("writeConcern", doc! { "w": "majority" });
            match client.write(&command)? {
                Answer::Reply(reply) => ensure!(reply.get_i32("n")? == 1, "{command}: {reply}"),
                Answer::ReplyLost => bail!("{command}: its reply is lost"),
            }
        }
        written.insert(id, 1);
        thread::sleep(PAUSE);
    }
    Ok(written)
}

#[test]
fn writes_that_are_rolled_back_in_the_middle_of_a_copy_are_not_converted() -> Result<()> {
    let mut rollback = Rollback::start()?;
    rollback.check(&[], 10_000).context("to pages")?;
    invariants::check(&mut rollback.primary()?, &rollback.database, COLLECTION, &shape())?;
    rollback.check(&["--to", "plain"], 20_000).context("to plain documents")
}
