//! Shaped collections read from a secondary, by proxies with an empty collection catalog.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Mongod, Proxy, ProxyOptions, database_name};

const ITEMS: i32 = 3000;
/// More than a batch.
const BOOKS: i32 = 150;

/// A set of three, a listener for each of them, and collections of both patterns.
struct Fixture {
    set: Mongod,
    database: String,
    options: ProxyOptions,
}

impl Fixture {
    fn new() -> Result<Self> {
        let set = Mongod::replica_set(3)?;
        let database = database_name();
        let shapes = format!(
            "[[bucket]]\nnamespace = \"{database}.items\"\nkey = \"k\"\n\
             [[bucket]]\nnamespace = \"{database}.events\"\nkey = \"k\"\ntime = \"at\"\n\
             [[outlier]]\nnamespace = \"{database}.books\"\narray = \"buyers\"\nthreshold = 5\n"
        );
        let options = ProxyOptions::new(&set.uri()).members(&set.addresses()).config(&shapes);
        Ok(Self { set, database, options })
    }

    fn proxy(&self) -> Result<Proxy> {
        Proxy::start(&self.options)
    }

    fn to_primary(&self, proxy: &Proxy) -> Result<Connection> {
        Connection::open(proxy.member_addresses()[self.set.primary()?])
    }

    fn to_secondary(&self, proxy: &Proxy) -> Result<Connection> {
        Connection::open(proxy.member_addresses()[(self.set.primary()? + 1) % 3])
    }
}

fn documents(count: i32, of: impl Fn(i32) -> Document) -> Vec<Document> {
    (0..count).map(of).collect()
}

fn at(second: i32) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + i64::from(second) * 1000)
}

fn reads() -> [Document; 19] {
    let low = doc! { "_id": { "$lt": 7 } };
    let by_id = doc! { "_id": 1 };
    [
        doc! { "find": "items", "filter": { "k": 1 }, "sort": &by_id },
        doc! { "find": "items", "sort": &by_id, "batchSize": 50 },
        doc! { "find": "items", "filter": { "_id": 3 }, "hint": { "k": 1 } },
        doc! { "find": "events", "filter": { "k": 1, "at": { "$gte": at(9) } }, "sort": { "at": 1 } },
        doc! { "find": "events", "filter": { "k": 1, "at": { "$gte": at(9), "$lt": at(2500) } }, "sort": { "at": -1 } },
        doc! { "count": "items" },
        doc! { "distinct": "items", "key": "k" },
        doc! { "aggregate": "items", "pipeline": [{ "$match": &low }, { "$sort": &by_id }], "cursor": {} },
        doc! { "explain": { "find": "items", "filter": { "k": 1 } } },
        doc! { "listIndexes": "items" },
        doc! { "listCollections": 1, "nameOnly": true, "filter": { "type": "collection" } },
        doc! { "collStats": "items" },
        doc! { "dbStats": 1 },
        doc! { "find": "books", "sort": &by_id },
        doc! { "find": "books", "filter": { "buyers.10": "user" }, "sort": &by_id },
        doc! { "count": "books", "query": { "buyers.10": "user" } },
        doc! { "distinct": "books", "key": "buyers" },
        doc! { "aggregate": "books", "pipeline": [{ "$unwind": "$buyers" }, { "$count": "n" }], "cursor": {} },
        doc! { "aggregate": "none", "pipeline": [{ "$unionWith": "books" }, { "$unionWith": "items" }, { "$match": &low }], "cursor": {} },
    ]
}

/// What a command answers, without what differs from member to member.
fn answer(connection: &mut Connection, command: &Document) -> Result<Bson> {
    let is_cursor = ["find", "aggregate", "listIndexes", "listCollections"]
        .iter()
        .any(|name| command.contains_key(name));
    if is_cursor {
        let mut documents = connection.all(command)?;
        documents.sort_by_key(ToString::to_string);
        return Ok(documents.into());
    }
    let reply = connection.command_ok(command)?;
    let names = ["n", "values", "nindexes", "collections", "queryPlanner"];
    let value = names.iter().find_map(|name| reply.get(name));
    match value.with_context(|| format!("{command}: {reply}"))? {
        Bson::Document(plan) => Ok(plan.get("namespace").cloned().into()),
        value => Ok(value.clone()),
    }
}

#[test]
fn shaped_collections_are_read_from_a_secondary() -> Result<()> {
    let fixture = Fixture::new()?;
    let proxy = fixture.proxy()?;
    let mut application = fixture.to_primary(&proxy)?;
    let items = documents(ITEMS, |id| doc! { "_id": id, "k": id % 2 });
    let events = documents(ITEMS, |id| doc! { "_id": id, "k": id % 2, "at": at(id) });
    let books = documents(BOOKS, |id| doc! { "_id": id, "buyers": vec!["user"; 20] });
    let everywhere = doc! { "w": 3 };
    let writes = [
        doc! { "insert": "items", "documents": items },
        doc! { "insert": "events", "documents": events },
        doc! { "insert": "books", "documents": books },
        doc! { "createIndexes": "items", "indexes": [{ "key": { "k": 1 }, "name": "k" }] },
    ];
    for mut write in writes {
        write.extend(doc! { "writeConcern": &everywhere, "$db": &fixture.database });
        application.command_ok(&write)?;
    }
    for mut read in reads() {
        read.insert("$db", &fixture.database);
        let expected = answer(&mut application, &read)?;
        read.insert("$readPreference", doc! { "mode": "secondary" });
        let fresh = fixture.proxy()?;
        let found = answer(&mut fixture.to_secondary(&fresh)?, &read).with_context(|| read.to_string())?;
        ensure!(found == expected, "{read}: {found} instead of {expected}");
    }
    Ok(())
}

#[test]
fn a_secondary_refuses_what_it_refuses_of_a_plain_collection() -> Result<()> {
    let fixture = Fixture::new()?;
    let proxy = fixture.proxy()?;
    let mut application = fixture.to_primary(&proxy)?;
    for collection in ["items", "books", "plain"] {
        let document = doc! { "_id": 1, "k": 1, "buyers": vec!["user"; 20] };
        let insert = doc! { "insert": collection, "documents": [document], "writeConcern": { "w": 3 }, "$db": &fixture.database };
        application.command_ok(&insert)?;
    }
    let mut secondary = fixture.to_secondary(&proxy)?;
    let on = |collection: &str| {
        let long = doc! { "_id": 2, "k": 1, "buyers": vec!["user"; 20] };
        let change = doc! { "$push": { "buyers": "other" } };
        [
            doc! { "insert": collection, "documents": [long] },
            doc! { "update": collection, "updates": [{ "q": { "_id": 1 }, "u": &change }] },
            doc! { "update": collection, "updates": [{ "q": { "k": 1 }, "u": &change, "multi": true }] },
            doc! { "delete": collection, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
            doc! { "delete": collection, "deletes": [{ "q": { "k": 9 }, "limit": 0 }] },
            doc! { "delete": collection, "deletes": [{ "q": { "n": 9 }, "limit": 0 }] },
            doc! { "delete": collection, "deletes": [{ "q": { "n": 9 }, "limit": 1 }] },
            doc! { "findAndModify": collection, "query": { "_id": 1 }, "update": &change },
            doc! { "findAndModify": collection, "query": { "n": 9 }, "update": &change },
            doc! { "findAndModify": collection, "query": { "n": 9 }, "remove": true },
            doc! { "drop": collection },
            doc! { "find": collection },
            doc! { "count": collection },
            doc! { "aggregate": collection, "pipeline": [{ "$count": "n" }], "cursor": {} },
        ]
    };
    for preference in [None, Some(doc! { "mode": "primaryPreferred" })] {
        for (number, plain) in on("plain").into_iter().enumerate() {
            for collection in ["items", "books"] {
                let mut answers = Vec::new();
                for mut command in [plain.clone(), on(collection)[number].clone()] {
                    command.insert("$db", &fixture.database);
                    command.extend(
                        preference
                            .clone()
                            .map(|mode| ("$readPreference".to_owned(), mode.into())),
                    );
                    let reply = secondary.command(&command)?;
                    answers.push((reply.get_i32("code").ok(), reply.get("writeErrors").cloned()));
                }
                ensure!(
                    answers[0] == answers[1],
                    "{plain} and on {collection}, {preference:?}: {answers:?}"
                );
            }
        }
    }
    Ok(())
}
