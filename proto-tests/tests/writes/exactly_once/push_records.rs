//! Pages record the items of a retryable insert that pushes several of them in one statement. A retry reads the
//! records, whatever has happened to the page meanwhile.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::breaking_relay::Moment;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Shape, database_name, invariants, mongod};

use super::two_proxies::TwoProxies;

const COLLECTION: &str = "items";
const INCOMPLETE_TRANSACTION_HISTORY: i32 = 217;
/// The records that a page keeps.
const MAX_RECORDS: i32 = 100;

struct Fixture {
    shape: Shape,
    database: String,
    proxies: TwoProxies,
    /// A client of the second proxy.
    other: Connection,
    direct: Connection,
}

impl Fixture {
    fn new(item_ids: ItemIds, max_items: usize) -> Result<Self> {
        let shape = Shape {
            item_ids,
            max_items,
            items_change: true,
            ..Shape::new(&["k"])
        };
        let database = database_name();
        let proxies = TwoProxies::start(&shape.toml(&format!("{database}.{COLLECTION}")))?;
        Ok(Self {
            other: Connection::open(proxies.second.address())?,
            direct: Connection::open(mongod::shared_replica_set().address())?,
            shape,
            database,
            proxies,
        })
    }

    fn of_other(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.other.command_ok(&command)
    }

    /// Has another client insert items of the key.
    fn fill(&mut self, numbers: std::ops::Range<i32>) -> Result<Document> {
        self.of_other(doc! { "insert": COLLECTION, "documents": items(numbers) })
    }

    /// A retryable insert.
    fn numbered(&self, numbers: std::ops::Range<i32>) -> Document {
        doc! {
            "insert": COLLECTION, "documents": items(numbers), "lsid": lsid(&self.database), "txnNumber": 1_i64,
            "$db": &self.database,
        }
    }

    /// Sends the command through the first proxy, and loses the reply to its first statement.
    fn lose_reply(&self, command: &Document) -> Result<()> {
        let mut client = Connection::open(self.proxies.first.address())?;
        client.command_ok(&doc! { "find": COLLECTION, "$db": &self.database })?;
        self.proxies.relay.arm(Moment::After, 1);
        let reply = client.command(command);
        ensure!(self.proxies.relay.disarm() && reply.is_err(), "{reply:?}");
        Ok(())
    }

    /// Sends the command again, through the other proxy: all of its items were stored before.
    fn check_retry(&mut self, command: &Document) -> Result<()> {
        let ids: Vec<Bson> = (0..command.get_array("documents")?.len())
            .map(|id| i32::try_from(id).map(Bson::Int32))
            .collect::<Result<_, _>>()?;
        let before = self.numbers()?;
        for _ in 0..2 {
            let reply = self.other.command_ok(command)?;
            ensure!(
                usize::try_from(reply.get_i32("n")?)? == ids.len()
                    && reply.get_array("retriedStmtIds")? == &ids
                    && !reply.contains_key("writeErrors"),
                "{reply}"
            );
        }
        ensure!(self.numbers()? == before, "executed again");
        self.check()
    }

    /// Sends the command again, through the other proxy: the result of the first attempt is unknown.
    fn check_refused_retry(&mut self, command: &Document) -> Result<()> {
        let before = self.numbers()?;
        let reply = self.other.command(command)?;
        ensure!(
            reply
                .get_i32("code")
                .is_ok_and(|code| code == INCOMPLETE_TRANSACTION_HISTORY)
                && !reply.contains_key("errorLabels"),
            "{reply}"
        );
        ensure!(self.numbers()? == before, "executed again");
        self.check()
    }

    fn numbers(&mut self) -> Result<Vec<i32>> {
        let items = self.other.find(&self.database, COLLECTION, doc! {})?;
        items.iter().map(|item| Ok(item.get_i32("n")?)).collect()
    }

    /// The push records of all pages, in the order of the pages.
    fn records(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "control.page": 1 }, "$db": &self.database };
        let mut records = Vec::new();
        for page in self.direct.all(&find)? {
            let of_page = page.get_document("control")?.get_array("pushes");
            let of_page = of_page.into_iter().flatten().filter_map(Bson::as_document);
            records.extend(of_page.cloned());
        }
        Ok(records)
    }

    fn check(&mut self) -> Result<()> {
        invariants::check(&mut self.direct, &self.database, COLLECTION, &self.shape)
    }
}

fn items(numbers: std::ops::Range<i32>) -> Vec<Document> {
    numbers.map(|n| doc! { "_id": n, "k": 1, "n": n }).collect()
}

/// The ids of a record.
fn ids(record: &Document) -> Result<Vec<i32>> {
    let (ids, _) = record.get_binary_generic("stmtIds")?.as_chunks();
    Ok(ids.iter().copied().map(i32::from_le_bytes).collect())
}

#[test]
fn pushes_of_several_items_are_recorded() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped] {
        let mut fixture = Fixture::new(item_ids, 8)?;
        fixture.fill(0..2)?;
        // A push of three items, and one that needs no record.
        let mut command = fixture.numbered(2..5);
        fixture.other.command_ok(&command)?;
        command = fixture.numbered(5..6);
        command.insert("txnNumber", 2_i64);
        fixture.other.command_ok(&command)?;
        // Two items fill the page, and one begins the next.
        command = fixture.numbered(6..9);
        command.insert("txnNumber", 3_i64);
        fixture.other.command_ok(&command)?;
        let records = fixture.records()?;
        let found: Vec<(i64, Vec<i32>)> = records
            .iter()
            .map(|record| Ok((record.get_i64("txnNumber")?, ids(record)?)))
            .collect::<Result<_>>()?;
        ensure!(
            found == [(1, vec![0, 1, 2]), (3, vec![0, 1])],
            "{item_ids:?}: {records:?}"
        );
        ensure!(fixture.numbers()? == (0..9).collect::<Vec<_>>(), "{item_ids:?}");
        fixture.check()?;
    }
    Ok(())
}

#[test]
fn a_retry_finds_the_records_of_a_page_that_was_packed() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored] {
        let mut fixture = Fixture::new(item_ids, 8)?;
        fixture.fill(0..11)?;
        fixture.of_other(doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": { "$lt": 6 } }, "limit": 0 }] })?;
        let command = fixture.numbered(20..24);
        fixture.lose_reply(&command)?;
        let compacted = fixture.proxies.second.run("compact")?;
        ensure!(compacted.status.success(), "{compacted:?}");
        let pages = fixture.direct.find(&fixture.database, COLLECTION, doc! {})?;
        ensure!(pages.len() == 2, "not packed: {pages:?}");
        fixture.check_retry(&command).with_context(|| format!("{item_ids:?}"))?;
    }
    Ok(())
}

/// The items may have been deleted since, and other clients may have filled the page.
#[test]
fn a_retry_does_not_need_the_items() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped] {
        let mut fixture = Fixture::new(item_ids, 8)?;
        fixture.fill(0..2)?;
        let command = fixture.numbered(20..24);
        fixture.lose_reply(&command)?;
        fixture.fill(30..50)?;
        fixture.of_other(doc! { "delete": COLLECTION, "deletes": [{ "q": { "n": { "$gte": 20 } }, "limit": 0 }] })?;
        fixture.fill(50..60)?;
        fixture.check_retry(&command).with_context(|| format!("{item_ids:?}"))?;
    }
    Ok(())
}

#[test]
fn a_retry_fails_after_the_page_is_removed() -> Result<()> {
    for (item_ids, is_dropped) in [
        (ItemIds::Unique, false),
        (ItemIds::Stored, false),
        (ItemIds::Unique, true),
    ] {
        let mut fixture = Fixture::new(item_ids, 8)?;
        fixture.fill(0..2)?;
        let command = fixture.numbered(20..24);
        fixture.lose_reply(&command)?;
        fixture.of_other(if is_dropped {
            doc! { "drop": COLLECTION }
        } else {
            doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 1 }, "limit": 0 }] }
        })?;
        fixture.fill(60..63)?;
        fixture
            .check_refused_retry(&command)
            .with_context(|| format!("{item_ids:?}, dropped: {is_dropped}"))?;
    }
    Ok(())
}

#[test]
fn a_page_keeps_its_newest_records() -> Result<()> {
    let mut fixture = Fixture::new(ItemIds::Stored, 1000)?;
    fixture.fill(0..2)?;
    let command = fixture.numbered(20..24);
    fixture.lose_reply(&command)?;
    for number in 1..MAX_RECORDS {
        let mut push = fixture.numbered(100..102);
        push.insert("lsid", lsid(&format!("{} {number}", fixture.database)));
        fixture.other.command_ok(&push)?;
    }
    fixture.check_retry(&command)?;
    let mut push = fixture.numbered(100..102);
    push.insert("lsid", lsid(&format!("{} last", fixture.database)));
    fixture.other.command_ok(&push)?;
    ensure!(fixture.records()?.len() == usize::try_from(MAX_RECORDS)?);
    fixture.check_refused_retry(&command)
}
