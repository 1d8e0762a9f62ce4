//! `distinct` of an indexed field, value by value.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, bson, doc};
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, database_name, mongod};

use crate::proxies::small_pages;

const COLLECTION: &str = "items";

struct Fixture {
    application: Connection,
    database: String,
    /// Stopped when the fixture is dropped.
    _proxy: Proxy,
}

impl Fixture {
    /// Items with these statuses and an index on the status in this direction.
    fn start(statuses: &[Bson], direction: i32) -> Result<Self> {
        let database = database_name();
        let config = small_pages().toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared().uri()).config(&config))?;
        let mut fixture = Self {
            application: Connection::open(proxy.address())?,
            database,
            _proxy: proxy,
        };
        let items: Vec<Document> = statuses
            .iter()
            .zip(0..)
            .map(|(status, number)| doc! { "k": number % 7, "status": status })
            .collect();
        fixture.run(doc! { "insert": COLLECTION, "documents": items })?;
        let index = doc! { "key": { "status": direction }, "name": "status" };
        fixture.run(doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
        Ok(fixture)
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        let reply = self.application.command_ok(&command)?;
        ensure!(!reply.contains_key("writeErrors"), "{reply}");
        Ok(reply)
    }

    fn check(&mut self, expected: &[Bson], expected_strategy: &str) -> Result<()> {
        let distinct = doc! { "distinct": COLLECTION, "key": "status" };
        let explained = self.run(doc! { "explain": &distinct, "verbosity": "queryPlanner" })?;
        let strategy = explained.get_document("mongoshape")?.get_str("strategy")?;
        ensure!(strategy == expected_strategy, "{strategy} answered {expected:?}");
        let reply = self.run(distinct)?;
        let values = reply.get_array("values").context("no values")?;
        ensure!(values == expected, "{values:?} instead of {expected:?}");
        Ok(())
    }
}

fn numbers(count: i32) -> Vec<Bson> {
    (0..count).map(Bson::from).collect()
}

#[test]
fn an_index_answers_a_distinct_of_few_values() -> Result<()> {
    for direction in [1, -1] {
        let statuses: Vec<Bson> = (0..200).map(|number| number % 32).map(Bson::from).collect();
        let mut fixture = Fixture::start(&statuses, direction)?;
        fixture.check(&numbers(32), "index")?;
        // Emptied pages have entries, too.
        let delete = doc! { "q": { "k": { "$in": [1, 2, 3] } }, "limit": 0 };
        fixture.run(doc! { "delete": COLLECTION, "deletes": [delete] })?;
        fixture.check(&numbers(32), "index")?;
        let delete = doc! { "q": {}, "limit": 0 };
        fixture.run(doc! { "delete": COLLECTION, "deletes": [delete] })?;
        fixture.check(&[], "index")?;
    }
    Ok(())
}

#[test]
fn a_pipeline_answers_where_the_index_does_not_show_the_values() -> Result<()> {
    for direction in [1, -1] {
        Fixture::start(&numbers(33), direction)?.check(&numbers(33), "pipeline")?;
        let odd = [bson!(1), Bson::Null, bson!("a")];
        Fixture::start(&odd, direction)?.check(&[Bson::Null, bson!(1), bson!("a")], "pipeline")?;
        let arrays = [bson!(1), bson!(["b", "a"])];
        Fixture::start(&arrays, direction)?.check(&[bson!(1), bson!("a"), bson!("b")], "pipeline")?;
    }
    Ok(())
}

/// The number of `find`s on the fixture's collection that mongod has answered since its profiler was enabled.
fn finds(direct: &mut Connection, database: &str) -> Result<i32> {
    let query = doc! { "op": "query", "ns": format!("{database}.{COLLECTION}") };
    let count = doc! { "count": "system.profile", "query": query, "$db": database };
    Ok(direct.command_ok(&count)?.get_i32("n")?)
}

#[test]
fn the_values_of_a_field_with_many_are_not_read_one_by_one_again() -> Result<()> {
    let mut fixture = Fixture::start(&numbers(100), 1)?;
    let database = fixture.database.clone();
    let mut direct = Connection::open(mongod::shared().address())?;
    direct.command_ok(&doc! { "profile": 2, "$db": &database })?;
    let mut read = Vec::new();
    for _ in 0..3 {
        let reply = fixture.run(doc! { "distinct": COLLECTION, "key": "status" })?;
        ensure!(reply.get_array("values")? == &numbers(100), "{reply}");
        read.push(finds(&mut direct, &database)?);
    }
    direct.command_ok(&doc! { "profile": 0, "$db": &database })?;
    let [first, second, third] = read[..] else {
        anyhow::bail!("{read:?}");
    };
    ensure!(first > 16 && second == first && third == first, "{read:?}");
    Ok(())
}
