//! Random commands on a plain collection with an automatic shape: replies and contents are those of mongod.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, Timestamp, doc};
use proto_tests::differential::operation::{READS, WRITES};
use proto_tests::differential::{Coverage, Generator, Side, Sides};
use proto_tests::{Proxy, ProxyOptions, mongod};

use super::fixture::{automatic, shape};

const SEED: u64 = 41;
const OPERATIONS: u32 = 300;
const COLLECTION: &str = "things";
/// Commands whose replies do not depend on the time.
const COMPARED: [&str; 8] = [
    "find",
    "aggregate",
    "count",
    "distinct",
    "insert",
    "update",
    "delete",
    "findAndModify",
];
/// Stages and operators whose results mongod returns in an order, or with values, that are not determined.
const RANDOM: [&str; 8] = [
    "$setWindowFields",
    "$group",
    "$sortByCount",
    "$bucket",
    "$addToSet",
    "$sample",
    "$rand",
    "$indexStats",
];
/// Fields of a reply that two equal commands do not have in common.
pub(super) const OF_TIME: [&str; 4] = ["$clusterTime", "operationTime", "opTime", "electionId"];
/// The first seconds of values that mongod generates.
const NOW: u32 = 1_750_000_000;

/// The value without what mongod generates: ids, times, cursor ids, and the name of the database.
fn neutral(value: Bson, side: &Side) -> Bson {
    match value {
        Bson::Document(document) => Bson::Document(of_document(document, side)),
        Bson::Array(values) => Bson::Array(values.into_iter().map(|value| neutral(value, side)).collect()),
        Bson::String(text) => Bson::String(side.neutral(&text)),
        Bson::ObjectId(id) if (NOW..0xa000_0000).contains(&seconds(&id.bytes())) => Bson::Null,
        Bson::Timestamp(Timestamp { time, .. }) if time >= NOW => Bson::Null,
        Bson::DateTime(at) if at > DateTime::from_millis(i64::from(NOW) * 1000) => Bson::Null,
        other => other,
    }
}

fn seconds(id: &[u8; 12]) -> u32 {
    u32::from_be_bytes([id[0], id[1], id[2], id[3]])
}

fn of_document(document: Document, side: &Side) -> Document {
    let fields = document
        .into_iter()
        .filter(|(name, _)| !OF_TIME.contains(&name.as_str()));
    let fields = fields.map(|(name, value)| match (name.as_str(), value) {
        ("id", Bson::Int64(_)) => (name, Bson::Null),
        (_, value) => (name, neutral(value, side)),
    });
    fields.collect()
}

fn reply_of(side: &mut Side, command: &Document) -> Result<Document> {
    let reply = Document::try_from(side.run(command)?)?;
    Ok(of_document(reply, side))
}

#[test]
fn plain_documents_are_those_of_mongod() -> Result<()> {
    let mongod = mongod::shared_replica_set();
    let options = ProxyOptions::new(&mongod.uri()).config(&automatic(&shape(), &format!("*.{COLLECTION}")));
    let proxies = [Proxy::start(&options)?, Proxy::start(&options)?];
    let mut sides = Sides::open(mongod, &proxies, &shape(), SEED)?;
    for side in [&mut sides.plain, &mut sides.stored] {
        side.run(&doc! { "create": COLLECTION })?;
    }
    let mut generator = Generator::new(SEED, shape(), Coverage::default());
    let families: Vec<_> = READS.iter().chain(WRITES).collect();
    let mut compared = 0;
    for number in 0..OPERATIONS {
        let family = generator.pick_weighted(&families, |family| family.weight);
        for command in (family.generate)(&mut generator).commands() {
            let name = command.keys().next().context("an empty command")?;
            let is_on_plain = command.get_str(name).is_ok_and(|collection| collection == COLLECTION);
            let text = command.to_string();
            let is_random = RANDOM.iter().any(|stage| text.contains(stage));
            if !COMPARED.contains(&name.as_str()) || !is_on_plain || is_random {
                continue;
            }
            let plain = reply_of(&mut sides.plain, &command)?;
            let shaped = reply_of(&mut sides.shaped, &command)?;
            // As text, because a NaN is not equal to itself.
            let [plain, shaped] = [plain, shaped].map(|reply| format!("{reply:?}"));
            ensure!(
                plain == shaped,
                "operation {number}: {command}\nmongod: {plain}\nproxy:  {shaped}"
            );
            compared += 1;
        }
    }
    ensure!(compared > OPERATIONS / 2, "only {compared} commands were compared");
    let find = doc! { "find": COLLECTION, "batchSize": 10_000 };
    let contents = [&mut sides.plain, &mut sides.stored].map(|side| reply_of(side, &find));
    let [plain, stored] = contents;
    ensure!(
        format!("{:?}", plain?) == format!("{:?}", stored?),
        "the contents differ"
    );
    Ok(())
}
