//! A compacted collection has every item, in order, on full pages.

use std::collections::BTreeMap;

use anyhow::{Result, ensure};
use bson::raw::RawDocumentBuf;
use bson::{DateTime, Decimal128, Document, Timestamp, doc};
use proto_tests::invariants::{self, read_all};
use proto_tests::raw::Connection;
use proto_tests::{ItemIds, Mongod, Proxy, ProxyOptions, Shape, database_name, mongod};

use super::compact;

pub(super) const COLLECTION: &str = "items";

pub(super) struct Packing {
    pub(super) database: String,
    shape: Shape,
    proxy: Proxy,
    pub(super) application: Connection,
    pub(super) direct: Connection,
}

impl Packing {
    pub(super) fn open(mongod: &Mongod, shape: Shape) -> Result<Self> {
        let database = database_name();
        let toml = shape.toml(&format!("{database}.{COLLECTION}"));
        let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&toml))?;
        Ok(Self {
            application: Connection::open(proxy.address())?,
            direct: Connection::open(mongod.address())?,
            shape: Shape {
                items_change: true,
                ..shape
            },
            database,
            proxy,
        })
    }

    pub(super) fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.database);
        self.application.command_ok(&command)
    }

    pub(super) fn insert(&mut self, items: &[Document]) -> Result<()> {
        let reply = self.run(doc! { "insert": COLLECTION, "documents": items })?;
        ensure!(reply.get_array("writeErrors").is_err(), "{reply}");
        Ok(())
    }

    /// The items of each key in their order, in every bit.
    fn items(&mut self) -> Result<BTreeMap<Vec<u8>, Vec<RawDocumentBuf>>> {
        let sort = doc! { "control.page": 1 };
        let pages = read_all(
            &mut self.direct,
            &doc! { "find": COLLECTION, "sort": sort, "$db": &self.database },
        )?;
        let mut keys: BTreeMap<Vec<u8>, Vec<RawDocumentBuf>> = BTreeMap::new();
        for page in &pages {
            let mut key = RawDocumentBuf::new();
            for field in &self.shape.key {
                if let Some(value) = page.get(field.as_str())? {
                    key.append(bson::raw::CString::try_from(field.as_str())?, value);
                }
            }
            let items = keys.entry(key.into_bytes()).or_default();
            for item in page.get_array(self.shape.items.as_str())? {
                items.extend(item?.as_document().map(ToOwned::to_owned));
            }
        }
        keys.retain(|_, items| !items.is_empty());
        Ok(keys)
    }

    pub(super) fn pages(&mut self) -> Result<Vec<Document>> {
        self.direct.all(&doc! { "find": COLLECTION, "$db": &self.database })
    }

    /// Packs, and compares before and after; the number of pages.
    pub(super) fn pack(&mut self) -> Result<usize> {
        let (before, listed, indexes) = (self.items()?, self.list()?, self.indexes()?);
        let printed = compact(&self.proxy)?;
        ensure!(printed.contains("packed: "), "{printed}");
        let after = self.items()?;
        ensure!(before == after, "{printed}\n{before:?}\n{after:?}");
        ensure!(self.list()? == listed, "{listed:?}");
        ensure!(self.indexes()? == indexes, "{indexes:?}");
        invariants::check(&mut self.direct, &self.database, COLLECTION, &self.shape)?;
        let again = compact(&self.proxy)?;
        ensure!(again.contains("there are no short pages to pack"), "{again}");
        Ok(self.pages()?.len())
    }

    /// The database's collections by name, without UUIDs, which determine the order in which mongod lists them.
    fn list(&mut self) -> Result<Vec<Document>> {
        let mut listed = self.direct.all(&doc! { "listCollections": 1, "$db": &self.database })?;
        listed.sort_by_key(|listed| listed.get_str("name").map(str::to_owned).unwrap_or_default());
        for listed in &mut listed {
            listed.remove("info");
        }
        Ok(listed)
    }

    fn indexes(&mut self) -> Result<Vec<Document>> {
        let list = doc! { "listIndexes": COLLECTION, "$db": &self.database };
        let mut indexes = self.direct.all(&list)?;
        indexes.sort_by_key(|index| index.get_str("name").map(str::to_owned).unwrap_or_default());
        Ok(indexes)
    }

    /// Deletes all items but those whose number can be divided.
    pub(super) fn thin(&mut self, keep: i32) -> Result<()> {
        let filter = doc! { "n": { "$not": { "$mod": [keep, 0] } } };
        self.run(doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] })?;
        Ok(())
    }
}

fn items(keys: i32, each: i32) -> Vec<Document> {
    let item = |n: i32| {
        let at = DateTime::from_millis(1_698_349_623_000 + i64::from(n) * 1000);
        doc! { "_id": n, "k": n % keys, "l": "x", "n": n, "at": at, "quantity": n, "price": f64::from(n) / 4.0 }
    };
    (0..keys * each).map(item).collect()
}

#[test]
fn short_pages_are_packed() -> Result<()> {
    for mongod in [mongod::shared(), mongod::shared_replica_set()] {
        let mut packing = Packing::open(mongod, Shape::new(&["k"]))?;
        packing.insert(&items(7, 40))?;
        packing.thin(3)?;
        let before = packing.pages()?.len();
        let after = packing.pack()?;
        assert!(after < before, "{after} of {before}");
        // What is written goes on behind.
        packing.insert(&[doc! { "_id": "new", "k": 0, "n": 5 }])?;
        invariants::check(&mut packing.direct, &packing.database, COLLECTION, &packing.shape)?;
    }
    Ok(())
}

#[test]
fn compact_handles_every_shape_option() -> Result<()> {
    for item_ids in [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped] {
        for time in [None, Some("at".to_owned())] {
            let shape = Shape {
                time,
                item_ids,
                rename: vec![("quantity".to_owned(), "qty".to_owned())],
                items: "trades".to_owned(),
                count: "tradeCount".to_owned(),
                ..Shape::new(&["k", "l"])
            };
            let mut packing = Packing::open(mongod::shared(), shape)?;
            packing.insert(&items(3, 60))?;
            packing.thin(4)?;
            let after = packing.pack()?;
            assert_eq!(after, 6, "{item_ids:?}");
        }
    }
    Ok(())
}

#[test]
fn compact_handles_late_items_undated_items_and_pages_closed_by_size() -> Result<()> {
    let shape = Shape {
        time: Some("at".to_owned()),
        max_bytes: 1024,
        ..Shape::new(&["k"])
    };
    let mut packing = Packing::open(mongod::shared_replica_set(), shape)?;
    let at = |seconds: i64| DateTime::from_millis(1_698_349_623_000 + seconds * 1000);
    for n in 0..60_i32 {
        let late = at(i64::from(if n % 7 == 0 { 100 - n } else { n }));
        packing.insert(&[doc! { "_id": n, "k": 1, "n": n, "at": late }])?;
        let size = usize::try_from(n % 5)? * 150;
        packing
            .insert(&[doc! { "_id": 1000 + n, "k": "bytes", "n": n, "at": at(n.into()), "text": "x".repeat(size) }])?;
    }
    let decimal: Decimal128 = "1.50".parse()?;
    let odd = [
        doc! { "_id": doc! { "a": 1 }, "k": 2.0, "n": 0, "at": "no date" },
        doc! { "_id": -0.5, "k": 2_i64, "n": 0, "x": decimal, "y": Timestamp { time: 1, increment: 2 } },
        doc! { "_id": bson::Bson::Null, "k": bson::Bson::Null, "n": 0, "": [1, { "": 2 }], "at": at(5) },
        doc! { "_id": "missing", "n": 0, "z": bson::Bson::MinKey, "at": at(1) },
    ];
    for item in &odd {
        packing.insert(std::slice::from_ref(item))?;
    }
    packing.thin(2)?;
    let before = packing.pages()?.len();
    let after = packing.pack()?;
    assert!(after < before, "{after} of {before}");
    Ok(())
}

#[test]
fn nothing_is_done_where_no_page_is_short() -> Result<()> {
    let mut packing = Packing::open(mongod::shared(), Shape::new(&["k"]))?;
    assert!(compact(&packing.proxy)?.contains("does not exist"));
    packing.insert(&items(3, 35))?;
    let uuid = |packing: &mut Packing| -> Result<Vec<Document>> {
        packing
            .direct
            .all(&doc! { "listCollections": 1, "$db": &packing.database })
    };
    let before = uuid(&mut packing)?;
    assert!(compact(&packing.proxy)?.contains("there are no short pages to pack"));
    assert_eq!(uuid(&mut packing)?, before);
    Ok(())
}
