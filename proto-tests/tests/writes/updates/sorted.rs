//! `update` of the first of several documents in an order (`sort`, MongoDB 8.0). The server is one of 6.0 behind a
//! stand-in that reports version 8.0, so the plain collection is changed by `findAndModify`.

use anyhow::{Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::measure::is_full;
use proto_tests::newer_server::NewerServer;
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};
use rand::rngs::ChaCha8Rng;
use rand::{RngExt as _, SeedableRng as _};

const PLAIN: &str = "plain";
/// Collections with a shape: of pages and of outliers.
const SHAPED: [&str; 2] = ["pages", "outliers"];
const DOCUMENTS: i32 = 40;
/// mongod's codes for a statement that cannot be parsed, and for an unknown field.
const FAILED_TO_PARSE: i32 = 9;
const UNKNOWN_FIELD: i32 = 40415;

struct Fixture {
    application: Connection,
    direct: Connection,
    database: String,
    /// Stopped when the fixture is dropped.
    _proxy: Proxy,
}

impl Fixture {
    fn start() -> Result<Self> {
        let mongod = mongod::shared_replica_set();
        let server = NewerServer::before(mongod.address())?;
        let mut fixture = Self::before(&server.uri(), Connection::open(mongod.address())?)?;
        for collection in SHAPED.iter().chain([&PLAIN]) {
            let documents: Vec<Document> = (0..DOCUMENTS).map(document).collect();
            let insert = doc! { "insert": *collection, "documents": documents, "$db": &fixture.database };
            fixture.application.command_ok(&insert)?;
        }
        Ok(fixture)
    }

    fn before(uri: &str, direct: Connection) -> Result<Self> {
        let database = database_name();
        let shape = Shape {
            max_items: 3,
            ..Shape::new(&["k"])
        };
        let outlier = format!("[[outlier]]\nnamespace = \"{database}.outliers\"\narray = \"list\"\nthreshold = 3\n");
        let proxy = Proxy::start(
            &ProxyOptions::new(uri)
                .config(&shape.toml(&format!("{database}.pages")))
                .config(&outlier),
        )?;
        Ok(Self {
            application: Connection::open(proxy.address())?,
            direct,
            database,
            _proxy: proxy,
        })
    }

    fn update(&mut self, collection: &str, statement: &Document) -> Result<Document> {
        let update = doc! { "update": collection, "updates": [statement], "$db": &self.database };
        self.application.command(&update)
    }

    /// Executes the statement on the plain collection. The reply has the fields of an `update`.
    fn expected(&mut self, statement: &Document) -> Result<Document> {
        let mut modify = doc! { "findAndModify": PLAIN, "$db": &self.database };
        for (from, to) in [("q", "query"), ("u", "update"), ("sort", "sort"), ("upsert", "upsert")] {
            modify.extend(statement.get(from).map(|value| (to.to_owned(), value.clone())));
        }
        let reply = self.direct.command_ok(&modify)?;
        let last = reply.get_document("lastErrorObject")?;
        let mut expected = doc! { "n": last.get_i32("n")? };
        if let Some(id) = last.get("upserted") {
            expected.insert("upserted", bson!([{ "index": 0, "_id": id.clone() }]));
        }
        Ok(expected)
    }

    fn documents(&mut self, collection: &str) -> Result<Vec<Document>> {
        let find = doc! { "find": collection, "sort": { "_id": 1 }, "$db": &self.database };
        self.application.all(&find)
    }
}

fn document(number: i32) -> Document {
    doc! { "_id": number, "k": number % 4, "n": number * 7 % 11, "list": (0..number % 7).collect::<Vec<i32>>() }
}

fn random_statement(random: &mut ChaCha8Rng, number: usize) -> Result<Document> {
    let id = i32::try_from(number)? + DOCUMENTS;
    let direction = if random.random_range(0..2) == 0 { 1 } else { -1 };
    let key = random.random_range(0..5);
    let filter = match random.random_range(0..4) {
        0 => doc! {},
        1 => doc! { "k": key },
        2 => doc! { "n": { "$gte": random.random_range(0..12) } },
        _ => doc! { "list": random.random_range(0..7) },
    };
    let order = match random.random_range(0..4) {
        0 => doc! { "n": direction, "_id": 1 },
        1 => doc! { "list": direction, "_id": -1 },
        2 => doc! { "k": direction, "n": -direction, "_id": 1 },
        _ => doc! { "_id": direction },
    };
    // Each change is one of the array, which the proxy executes: the server behind the stand-in knows no `sort`.
    let change: Bson = match random.random_range(0..4) {
        0 => bson!({ "$inc": { "n": 3 }, "$push": { "list": 6 } }),
        1 => bson!({ "$set": { "k": key }, "$pull": { "list": key } }),
        2 => bson!({ "$push": { "list": { "$each": [5, 6], "$slice": -5 } } }),
        _ => bson!([{ "$set": { "n": { "$add": ["$n", 1] }, "list": { "$concatArrays": ["$list", [8]] } } }]),
    };
    let mut statement = doc! { "q": filter, "u": change, "sort": order };
    if random.random_range(0..5) == 0 {
        statement.insert("q", doc! { "k": 9, "n": 100, "_id": id });
        statement.insert("u", doc! { "$set": { "list": [1, 2] } });
        statement.insert("upsert", true);
    }
    Ok(statement)
}

#[test]
fn the_first_document_is_changed() -> Result<()> {
    let mut fixture = Fixture::start()?;
    let mut random = ChaCha8Rng::seed_from_u64(8);
    let updates = if is_full("MONGOSHAPE_TABLES") { 120 } else { 40 };
    for number in 0..updates {
        let statement = random_statement(&mut random, number)?;
        let expected = fixture.expected(&statement)?;
        let documents = fixture.documents(PLAIN)?;
        for collection in SHAPED {
            let reply = fixture.update(collection, &statement)?;
            for field in ["n", "upserted"] {
                ensure!(
                    reply.get(field) == expected.get(field),
                    "{collection} {statement}: {reply}"
                );
            }
            let found = fixture.documents(collection)?;
            ensure!(
                found == documents,
                "{collection} {statement}: {found:?}, expected {documents:?}"
            );
        }
    }
    Ok(())
}

/// The first attempt has changed the order.
#[test]
fn a_retry_finds_the_result_of_the_first_attempt() -> Result<()> {
    let mut fixture = Fixture::start()?;
    for collection in SHAPED {
        let statement =
            doc! { "q": {}, "u": { "$set": { "n": -1 }, "$push": { "list": 9 } }, "sort": { "n": -1, "_id": 1 } };
        let update = doc! {
            "update": collection, "updates": [statement], "$db": &fixture.database,
            "lsid": lsid(collection), "txnNumber": 1_i64,
        };
        for _ in 0..2 {
            let reply = fixture.application.command_ok(&update)?;
            ensure!(reply.get_i32("n")? == 1 && reply.get_i32("nModified")? == 1, "{reply}");
        }
        let changed = fixture.documents(collection)?;
        let changed = changed
            .iter()
            .filter(|document| document.get_i32("n").ok() == Some(-1))
            .count();
        ensure!(changed == 1, "{collection}: {changed} documents were changed");
    }
    Ok(())
}

#[test]
fn many_documents_have_no_order() -> Result<()> {
    let mut fixture = Fixture::start()?;
    for collection in SHAPED {
        let before = fixture.documents(collection)?;
        let statement = doc! { "q": {}, "u": { "$push": { "list": 9 } }, "sort": { "list": 1 }, "multi": true };
        let reply = fixture.update(collection, &statement)?;
        let errors = reply.get_array("writeErrors")?;
        let code = errors
            .first()
            .and_then(|error| error.as_document()?.get_i32("code").ok());
        ensure!(code == Some(FAILED_TO_PARSE), "{collection}: {reply}");
        ensure!(fixture.documents(collection)? == before, "{collection} was changed");
    }
    Ok(())
}

#[test]
fn an_invalid_order_fails_its_statement_alone() -> Result<()> {
    let mut fixture = Fixture::start()?;
    for order in [doc! { "n": "x" }, doc! { "n": 0 }, doc! { "": 1 }] {
        let before = fixture.documents(PLAIN)?;
        let modify = doc! {
            "findAndModify": PLAIN, "query": { "_id": 2, "n": { "$gte": 0 } }, "update": { "$inc": { "n": 1 } },
            "sort": &order, "$db": &fixture.database,
        };
        let expected = fixture.direct.command(&modify)?.get_i32("code")?;
        ensure!(fixture.documents(PLAIN)? == before);
        let set = |id: i32| doc! { "q": { "_id": id }, "u": { "$set": { "list": [id] } } };
        let wrong = doc! { "q": { "_id": 2, "n": { "$gte": 0 } }, "u": { "$set": { "list": [] } }, "sort": &order };
        let update = doc! {
            "update": SHAPED[0], "updates": [set(1), wrong, set(3)], "ordered": false, "$db": &fixture.database,
        };
        let reply = fixture.application.command_ok(&update)?;
        let errors = reply.get_array("writeErrors")?.iter().filter_map(Bson::as_document);
        let errors: Vec<[Option<i32>; 2]> = errors
            .map(|error| ["index", "code"].map(|name| error.get_i32(name).ok()))
            .collect();
        ensure!(errors == [[Some(1), Some(expected)]], "{order}: {reply}");
        ensure!(reply.get_i32("n")? == 2, "{order}: {reply}");
    }
    Ok(())
}

#[test]
fn bulk_write_passes_the_order_on() -> Result<()> {
    let mut fixture = Fixture::start()?;
    for collection in SHAPED {
        let operation = doc! {
            "update": 0, "filter": { "k": 1 }, "updateMods": { "$push": { "list": 9 } }, "sort": { "_id": -1 }, "multi": false,
        };
        let namespace = doc! { "ns": format!("{}.{collection}", fixture.database) };
        let bulk = doc! { "bulkWrite": 1, "ops": [operation], "nsInfo": [namespace], "$db": "admin" };
        let reply = fixture.application.command_ok(&bulk)?;
        ensure!(reply.get_i32("nModified")? == 1, "{reply}");
        let documents = fixture.documents(collection)?;
        let changed = documents.iter().rfind(|document| document.get_i32("k").ok() == Some(1));
        let pushed = changed.and_then(|changed| changed.get_array("list").ok()?.last());
        ensure!(pushed == Some(&Bson::from(9)), "{collection}: {changed:?}");
    }
    Ok(())
}

#[test]
fn earlier_servers_do_not_know_the_order() -> Result<()> {
    let mongod = mongod::shared_replica_set();
    let mut fixture = Fixture::before(&mongod.uri(), Connection::open(mongod.address())?)?;
    for collection in SHAPED.iter().chain([&PLAIN]) {
        for order in [doc! {}, doc! { "n": 1 }, doc! { "list": 1 }] {
            let statement = doc! { "q": { "n": 1 }, "u": { "$push": { "list": 1 } }, "sort": order };
            let reply = fixture.update(collection, &statement)?;
            ensure!(
                reply.get_i32("code")? == UNKNOWN_FIELD,
                "{collection} {statement}: {reply}"
            );
        }
    }
    Ok(())
}
