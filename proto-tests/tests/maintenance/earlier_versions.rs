//! Collections that an earlier version of mongoshape has created.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, Shape, database_name, mongod};

const COLLECTION: &str = "items";
const ITEM_ID: &str = "mongoshape_item_id";
const ITEMS: i32 = 60;

/// A collection whose index on the items' `_id` does not begin with `control.v`.
struct Earlier {
    database: String,
    proxy: Proxy,
    application: Connection,
    direct: Connection,
}

impl Earlier {
    fn create() -> Result<Self> {
        let mongod = mongod::shared();
        let database = database_name();
        let toml = Shape::new(&["k"]).toml(&format!("{database}.{COLLECTION}"));
        let mut proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
        let mut direct = Connection::open(mongod.address())?;
        let items: Vec<Document> = (0..ITEMS).map(|n| doc! { "_id": n, "k": n % 3, "n": n }).collect();
        Connection::open(proxy.address())?
            .command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": &database })?;
        direct.command_ok(&doc! { "dropIndexes": COLLECTION, "index": ITEM_ID, "$db": &database })?;
        let index = doc! { "key": { "history._id": 1 }, "name": ITEM_ID, "unique": true, "sparse": true };
        direct.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [index], "$db": &database })?;
        proxy.stop()?;
        proxy.restart()?;
        Ok(Self {
            application: Connection::open(proxy.address())?,
            direct,
            database,
            proxy,
        })
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.application.command_ok(&command)
    }

    /// The `n`s that a `find` returns.
    fn numbers(&mut self, mut find: Document) -> Result<Vec<i32>> {
        find.insert("$db", &self.database);
        let items = self.application.all(&find)?;
        Ok(items.iter().filter_map(|item| item.get_i32("n").ok()).collect())
    }

    fn item_id_index(&mut self) -> Result<Document> {
        let indexes = self
            .direct
            .all(&doc! { "listIndexes": COLLECTION, "$db": &self.database })?;
        let found = indexes
            .into_iter()
            .find(|index| index.get_str("name").is_ok_and(|name| name == ITEM_ID));
        Ok(found.unwrap_or_default())
    }

    /// Reads and writes by `_id`, with a new item behind the last one.
    fn use_ids(&mut self, new: i32) -> Result<()> {
        let by_id = |id: i32| doc! { "find": COLLECTION, "filter": { "_id": id } };
        assert_eq!(self.numbers(by_id(7))?, [7]);
        let listed = doc! { "find": COLLECTION, "filter": { "_id": { "$in": [3, 4, 900] } }, "sort": { "_id": 1 } };
        assert_eq!(self.numbers(listed)?, [3, 4]);
        let next = doc! { "find": COLLECTION, "filter": { "_id": { "$gt": 7 } }, "sort": { "_id": 1 }, "limit": 2 };
        assert_eq!(self.numbers(next)?, [8, 9]);
        let previous =
            doc! { "find": COLLECTION, "filter": { "_id": { "$lt": 7 } }, "sort": { "_id": -1 }, "limit": 2 };
        assert_eq!(self.numbers(previous)?, [6, 5]);

        let item = doc! { "_id": new, "k": 1, "n": new };
        let insert = doc! { "insert": COLLECTION, "documents": [item] };
        assert_eq!(self.run(insert.clone())?.get_i32("n")?, 1);
        let repeated = self.run(insert)?;
        let error = repeated.get_array("writeErrors")?.first().and_then(Bson::as_document);
        ensure!(
            error.is_some_and(|error| error.get_i32("code").is_ok_and(|code| code == 11000)),
            "{repeated}"
        );
        let change = doc! { "$inc": { "n": 1000 } };
        let updated = self.run(doc! { "update": COLLECTION, "updates": [{ "q": { "_id": new }, "u": change }] })?;
        assert_eq!(updated.get_i32("nModified")?, 1);
        assert_eq!(self.numbers(by_id(new))?, [new + 1000]);
        let removed = self.run(doc! { "findAndModify": COLLECTION, "query": { "_id": new }, "remove": true })?;
        assert_eq!(removed.get_document("value")?.get_i32("_id")?, new);
        let deleted =
            self.run(doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": new - ITEMS }, "limit": 1 }] })?;
        assert_eq!(deleted.get_i32("n")?, 1);
        Ok(())
    }
}

#[test]
fn index_on_item_ids_of_an_earlier_version_is_used_and_replaced_by_compact() -> Result<()> {
    let mut earlier = Earlier::create()?;
    earlier.use_ids(ITEMS)?;
    let output = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let checked = output(earlier.proxy.run("check")?);
    assert!(
        checked.contains("index mongoshape_item_id was created by an earlier version"),
        "{checked}"
    );
    let set_up = output(earlier.proxy.run("setup")?);
    assert!(set_up.contains("all 4 indexes exist"), "{set_up}");
    assert!(earlier.item_id_index()?.get_bool("sparse")?);

    // Short pages, so that there is something to pack.
    let delete = doc! { "q": { "_id": { "$gt": 10, "$lt": 50 } }, "limit": 0 };
    earlier.run(doc! { "delete": COLLECTION, "deletes": [delete] })?;
    let compacted = earlier.proxy.run("compact")?;
    assert!(compacted.status.success(), "{}", output(compacted));
    let index = earlier.item_id_index()?;
    assert_eq!(index.get_document("key")?, &doc! { "control.v": 1, "history._id": 1 });
    let checked = output(earlier.proxy.run("check")?);
    assert!(!checked.contains("earlier version"), "{checked}");
    earlier.use_ids(ITEMS + 10)
}

#[test]
fn index_on_key_and_time_of_an_earlier_version_is_used_and_replaced_by_compact() -> Result<()> {
    const NAME: &str = "by_key_and_time";
    let mongod = mongod::shared();
    let database = database_name();
    let shape = Shape {
        time: Some("at".to_owned()),
        ..Shape::new(&["k"])
    };
    let toml = shape.toml(&format!("{database}.{COLLECTION}"));
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
    let (mut application, mut direct) = (Connection::open(proxy.address())?, Connection::open(mongod.address())?);
    let at = |n: i32| DateTime::from_millis(i64::from(n));
    let items: Vec<Document> = (0..ITEMS)
        .map(|n| doc! { "_id": n, "k": n % 3, "at": at(n), "n": n })
        .collect();
    application.command_ok(&doc! { "insert": COLLECTION, "documents": items, "$db": &database })?;
    let earlier = doc! { "key": { "k": 1, "history.at": -1 }, "name": NAME };
    direct.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [earlier], "$db": &database })?;

    let list = doc! { "listIndexes": COLLECTION, "$db": &database };
    let key = |indexes: &[Document]| {
        let index = indexes
            .iter()
            .find(|index| index.get_str("name").is_ok_and(|name| name == NAME));
        index.and_then(|index| index.get_document("key").ok()).cloned()
    };
    let as_created = doc! { "k": 1, "at": -1 };
    assert_eq!(key(&application.all(&list)?), Some(as_created.clone()));
    let again = doc! { "key": &as_created, "name": NAME };
    let reply = application.command_ok(&doc! { "createIndexes": COLLECTION, "indexes": [again], "$db": &database })?;
    assert_eq!(reply.get_str("note")?, "all indexes already exist");
    let find = doc! { "find": COLLECTION, "sort": { "k": 1, "at": -1 }, "limit": 2, "$db": &database };
    let explained = application.command_ok(&doc! { "explain": &find, "$db": &database })?;
    assert_eq!(explained.get_document("mongoshape")?.get_str("strategy")?, "index");
    let numbers = |items: &[Document]| -> Vec<i32> { items.iter().flat_map(|item| item.get_i32("n")).collect() };
    assert_eq!(numbers(&application.all(&find)?), [57, 54]);

    let output = |output: std::process::Output| String::from_utf8_lossy(&output.stdout).into_owned();
    let finding = "index by_key_and_time has the form of an earlier version";
    let checked = output(proxy.run("check")?);
    assert!(checked.contains(finding), "{checked}");
    let delete = doc! { "q": { "_id": { "$gt": 10, "$lt": 50 } }, "limit": 0 };
    application.command_ok(&doc! { "delete": COLLECTION, "deletes": [delete], "$db": &database })?;
    let compacted = proxy.run("compact")?;
    assert!(compacted.status.success(), "{}", output(compacted));
    let stored = doc! { "k": 1, "control.page": -1, "control.v": 1 };
    assert_eq!(key(&direct.all(&list)?), Some(stored));
    assert_eq!(key(&application.all(&list)?), Some(as_created));
    assert_eq!(numbers(&application.all(&find)?), [57, 54]);
    let checked = output(proxy.run("check")?);
    assert!(!checked.contains("earlier version"), "{checked}");
    Ok(())
}
