//! Cursors of ranges of time. Between two batches mongod may have no cursor for them. Then the next batch needs
//! another query: on the same collection, with the read concern and the read preference of the first one. The
//! cursor of a sorted and limited query needs none, and ends with its collection, too.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, doc};
use proto_tests::raw::Connection;
use proto_tests::sides::{COLLECTION, Sides};

use crate::proxies::small_pages;

/// More than the first queries read.
const ITEMS: i32 = 300;
const BATCH: i32 = 20;

fn at(second: i32) -> DateTime {
    DateTime::from_millis(1_700_000_000_000 + i64::from(second) * 1000)
}

fn fill(sides: &mut Sides) -> Result<()> {
    let items: Vec<Document> = (0..ITEMS)
        .map(|id| doc! { "_id": id, "k": 1, "at": at(id), "n": id })
        .collect();
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    Ok(())
}

/// A range, and whether it is read from its end.
#[derive(Clone)]
struct TimeRange {
    bounds: Document,
    is_descending: bool,
}

impl TimeRange {
    fn all() -> Vec<Self> {
        let closed = doc! { "$gte": at(0), "$lt": at(ITEMS) };
        let range = |bounds: &Document, is_descending| Self {
            bounds: bounds.clone(),
            is_descending,
        };
        vec![
            range(&closed, false),
            range(&closed, true),
            range(&doc! { "$gte": at(0) }, false),
            range(&doc! { "$lt": at(ITEMS) }, true),
        ]
    }

    fn find(&self) -> Document {
        let sort = doc! { "at": if self.is_descending { -1 } else { 1 } };
        doc! { "find": COLLECTION, "filter": { "k": 1, "at": &self.bounds }, "sort": sort, "batchSize": BATCH }
    }

    /// The `_id`s of the items.
    fn ids(&self) -> Vec<i32> {
        let ids = 0..ITEMS;
        if self.is_descending {
            ids.rev().collect()
        } else {
            ids.collect()
        }
    }
}

/// An open cursor, and the `_id`s of the items that it has returned.
struct Reader {
    cursor: i64,
    ids: Vec<i32>,
    /// The database, and options of each command.
    options: Document,
}

impl Reader {
    fn open(connection: &mut Connection, mut find: Document, options: &Document) -> Result<Self> {
        find.extend(options.clone());
        let mut reader = Self {
            cursor: 0,
            ids: Vec::new(),
            options: options.clone(),
        };
        reader.take(&connection.command_ok(&find)?)?;
        ensure!(reader.cursor != 0, "{find} is complete");
        Ok(reader)
    }

    fn take(&mut self, reply: &Document) -> Result<()> {
        let cursor = reply.get_document("cursor")?;
        let batch = cursor
            .get_array("firstBatch")
            .or_else(|_| cursor.get_array("nextBatch"))?;
        let items = batch.iter().filter_map(Bson::as_document);
        self.ids.extend(items.filter_map(|item| item.get_i32("_id").ok()));
        self.cursor = cursor.get_i64("id")?;
        Ok(())
    }

    fn more(&self, size: i32) -> Document {
        let mut more = doc! { "getMore": self.cursor, "collection": COLLECTION, "batchSize": size };
        more.extend(self.options.clone());
        more
    }

    /// Reads until the cursor has ended. Returns the code of the error that has ended it, if one has.
    fn finish(&mut self, connection: &mut Connection) -> Result<Option<i32>> {
        while self.cursor != 0 {
            let reply = connection.command(&self.more(BATCH))?;
            if let Ok(code) = reply.get_i32("code") {
                return Ok(Some(code));
            }
            self.take(&reply)?;
        }
        Ok(None)
    }
}

/// What another client does between two batches.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Change {
    Nothing,
    Drop,
    DropAndInsert,
    Rename,
}

impl Change {
    fn execute(self, sides: &mut Sides) -> Result<()> {
        for database in [sides.plain_database(), sides.shaped_database()] {
            let full = |collection: &str| format!("{database}.{collection}");
            let command = match self {
                Self::Nothing => return Ok(()),
                Self::Drop | Self::DropAndInsert => doc! { "drop": COLLECTION, "$db": &database },
                Self::Rename => doc! { "renameCollection": full(COLLECTION), "to": full("other"), "$db": "admin" },
            };
            // Not through the proxy.
            sides.plain.command_ok(&command)?;
        }
        if self == Self::DropAndInsert {
            fill(sides)?;
        }
        Ok(())
    }
}

#[test]
fn a_cursor_of_a_range_ends_with_its_collection() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    let strict = doc! { "apiVersion": "1", "apiStrict": true };
    for change in [Change::Nothing, Change::Drop, Change::DropAndInsert, Change::Rename] {
        sides.run(&doc! { "drop": COLLECTION })?;
        fill(&mut sides)?;
        let mut opened = Vec::new();
        for range in TimeRange::all() {
            for api in [doc! {}, strict.clone()] {
                let options = |database: String| {
                    let mut options = doc! { "$db": database };
                    options.extend(api.clone());
                    options
                };
                let (plain, shaped) = (options(sides.plain_database()), options(sides.shaped_database()));
                let plain = Reader::open(&mut sides.plain, range.find(), &plain)?;
                let shaped = Reader::open(&mut sides.shaped, range.find(), &shaped)?;
                opened.push((range.clone(), plain, shaped));
            }
        }
        change.execute(&mut sides)?;
        for (range, mut plain, mut shaped) in opened {
            let codes = [plain.finish(&mut sides.plain)?, shaped.finish(&mut sides.shaped)?];
            let expected = (change != Change::Nothing).then_some(175);
            let what = format!("{change:?}, {}", shaped.options);
            ensure!(codes == [expected; 2], "{what}: {codes:?}, {:?}", shaped.ids);
            ensure!(range.ids().starts_with(&shaped.ids), "{what}: {:?}", shaped.ids);
            ensure!(
                expected.is_some() || range.ids() == shaped.ids,
                "{what}: {:?}",
                shaped.ids
            );
        }
    }
    Ok(())
}

#[test]
fn a_cursor_of_a_sorted_and_limited_query_ends_with_its_collection() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    let index = doc! { "key": { "n": 1 }, "name": "n_1" };
    let find = doc! { "find": COLLECTION, "sort": { "n": 1 }, "limit": 2 * BATCH + 1, "batchSize": BATCH };
    for change in [Change::Nothing, Change::Drop, Change::DropAndInsert, Change::Rename] {
        sides.run(&doc! { "drop": COLLECTION })?;
        sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [&index] })?;
        fill(&mut sides)?;
        let [plain, shaped] =
            [sides.plain_database(), sides.shaped_database()].map(|database| doc! { "$db": database });
        let mut plain = Reader::open(&mut sides.plain, find.clone(), &plain)?;
        let mut shaped = Reader::open(&mut sides.shaped, find.clone(), &shaped)?;
        change.execute(&mut sides)?;
        let codes = [plain.finish(&mut sides.plain)?, shaped.finish(&mut sides.shaped)?];
        let expected = (change != Change::Nothing).then_some(175);
        ensure!(codes == [expected; 2], "{change:?}: {codes:?}, {:?}", shaped.ids);
        ensure!(plain.ids == shaped.ids, "{change:?}: {:?}", shaped.ids);
    }
    Ok(())
}

#[test]
fn a_later_query_of_a_cursor_has_the_options_of_the_first() -> Result<()> {
    let mut sides = Sides::open(small_pages())?;
    fill(&mut sides)?;
    let database = sides.shaped_database();
    let profile = |level: i32| doc! { "profile": level, "$db": &database };
    for range in TimeRange::all() {
        let mut find = range.find();
        find.insert("readConcern", doc! { "level": "majority" });
        find.insert("$readPreference", doc! { "mode": "secondaryPreferred" });
        let mut reader = Reader::open(&mut sides.shaped, find, &doc! { "$db": &database })?;
        sides.plain.command_ok(&profile(2))?;
        let more = reader.more(ITEMS);
        reader.take(&sides.shaped.command_ok(&more)?)?;
        sides.plain.command_ok(&profile(0))?;
        ensure!(reader.ids == range.ids(), "{:?}", reader.ids);
    }
    let filter = doc! { "op": "query", "ns": format!("{database}.{COLLECTION}") };
    let queries = sides.plain.find(&database, "system.profile", filter)?;
    ensure!(queries.len() >= TimeRange::all().len(), "{queries:?}");
    for query in queries {
        let command = query.get_document("command")?;
        ensure!(command.contains_key("collectionUUID"), "{command}");
        let concern = command.get_document("readConcern")?;
        ensure!(concern.get_str("level")? == "majority", "{command}");
        let preference = command.get_document("$readPreference")?;
        ensure!(preference.get_str("mode")? == "secondaryPreferred", "{command}");
    }
    Ok(())
}
