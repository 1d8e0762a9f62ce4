//! A naive collection and a shaped one of one replica set, with the same items.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sessions::lsid;
use proto_tests::{ItemIds, Proxy, ProxyOptions, Shape, database_name, invariants, mongod, replies};

pub(crate) const COLLECTION: &str = "items";
/// What a reply says of what was done.
const SAID: [&str; 10] = [
    "n",
    "nModified",
    "value",
    "lastErrorObject",
    "writeErrors",
    "ok",
    "errmsg",
    "code",
    "codeName",
    "upserted",
];

/// A naive collection and a shaped one, with the same items.
pub(crate) struct Sides {
    pub(crate) shape: Shape,
    pub(crate) database: String,
    pub(crate) naive: Connection,
    pub(crate) shaped: Connection,
    pub(crate) proxy: Proxy,
}

pub(crate) fn at(seconds: i64) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + seconds * 1000)
}

fn items() -> Vec<Document> {
    let item = |id: i32| {
        let mut item = doc! { "_id": id, "k": id % 3, "at": at(i64::from(id)), "n": id, "name": format!("name {id}") };
        item.insert(
            "tags",
            vec![Bson::Int32(id), Bson::Int32(id + 1), Bson::String("x".into())],
        );
        item.insert("lines", vec![doc! { "a": id, "b": 1 }, doc! { "a": 7, "b": 2 }]);
        item.insert("inner", doc! { "deep": { "er": id }, "other": Bson::Null });
        item.insert("quantity", f64::from(id) / 2.0);
        item.insert("u", id);
        item
    };
    (0..40).map(item).collect()
}

impl Sides {
    pub(crate) fn open() -> Result<Self> {
        Self::of(ItemIds::Unique)
    }

    pub(crate) fn of(item_ids: ItemIds) -> Result<Self> {
        let shape = Shape {
            item_ids,
            time: Some("at".to_owned()),
            max_items: 4,
            items_change: true,
            rename: vec![("quantity".to_owned(), "qty".to_owned())],
            ..Shape::new(&["k"])
        };
        let set = mongod::shared_replica_set();
        let database = database_name();
        let proxy =
            Proxy::start(&ProxyOptions::new(&set.uri()).config(&shape.toml(&format!("{database}_s.{COLLECTION}"))))?;
        let mut sides = Self {
            shape,
            naive: Connection::open(set.address())?,
            shaped: Connection::open(proxy.address())?,
            database,
            proxy,
        };
        sides.alike(&doc! { "insert": COLLECTION, "documents": items() })?;
        Ok(sides)
    }

    pub(crate) fn run(&mut self, command: &Document) -> Result<[Document; 2]> {
        let run = |connection: &mut Connection, database: String| -> Result<Document> {
            let mut command = command.clone();
            if command.contains_key("lsid") {
                // One server remembers what both have done.
                command.insert("lsid", lsid(&database));
            }
            command.insert("$db", &database);
            let reply = connection.command(&command)?;
            Ok(replies::said(&reply, &SAID, &database))
        };
        let mut replies = [
            run(&mut self.naive, format!("{}_n", self.database))?,
            run(&mut self.shaped, format!("{}_s", self.database))?,
        ];
        if self.shape.item_ids == ItemIds::Dropped {
            replies.iter_mut().for_each(without_ids);
        }
        Ok(replies)
    }

    /// A command that both sides answer alike, words included.
    pub(crate) fn alike(&mut self, command: &Document) -> Result<Document> {
        let [naive, shaped] = self.run(command)?;
        ensure!(naive == shaped, "{command}\n  naive:  {naive}\n  shaped: {shaped}");
        Ok(naive)
    }

    /// A command that is refused and changes nothing, whatever a naive collection says to it.
    pub(crate) fn refused(&mut self, command: &Document) -> Result<()> {
        let before = self.items(true)?;
        let mut command = command.clone();
        command.insert("$db", format!("{}_s", self.database));
        let reply = self.shaped.command(&command)?;
        ensure!(
            reply.get_i32("code").ok() == Some(115),
            "{command} is not refused: {reply}"
        );
        ensure!(self.items(true)? == before, "{command} has changed something");
        Ok(())
    }

    pub(crate) fn items(&mut self, shaped: bool) -> Result<Vec<Document>> {
        let find = |database: String| doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": database };
        if shaped {
            self.shaped.all(&find(format!("{}_s", self.database)))
        } else {
            self.naive.all(&find(format!("{}_n", self.database)))
        }
    }

    /// Both sides hold the same, and the layout is right.
    pub(crate) fn check(&mut self) -> Result<()> {
        let (mut naive, mut shaped) = (self.items(false)?, self.items(true)?);
        if self.shape.item_ids == ItemIds::Dropped {
            for item in &mut naive {
                item.remove("_id");
            }
            for items in [&mut naive, &mut shaped] {
                // In an order that does not depend on that of fields.
                items.sort_by_cached_key(|item| {
                    let mut fields: Vec<String> = item.iter().map(|field| format!("{field:?}")).collect();
                    fields.sort();
                    fields
                });
            }
        }
        for (naive, shaped) in naive.iter().zip(&shaped) {
            ensure!(naive == shaped, "\n  naive:  {naive:?}\n  shaped: {shaped:?}");
        }
        ensure!(naive.len() == shaped.len());
        let database = format!("{}_s", self.database);
        invariants::check(&mut self.naive, &database, COLLECTION, &self.shape)
    }
}

pub(crate) fn update(filter: Document, change: Document) -> Document {
    doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change }] }
}

/// A reply without what names items where they have no names.
fn without_ids(reply: &mut Document) {
    reply.remove("errmsg");
    if let Ok(value) = reply.get_document_mut("value") {
        value.remove("_id");
    }
    for error in reply.get_array_mut("writeErrors").into_iter().flatten() {
        if let Some(error) = error.as_document_mut() {
            error.remove("errmsg");
        }
    }
}

/// All settings of what becomes of the items' `_id`s.
pub(crate) const ALL_IDS: [ItemIds; 3] = [ItemIds::Unique, ItemIds::Stored, ItemIds::Dropped];
