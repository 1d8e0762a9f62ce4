//! Operations on items that only one application changes: every reply is known in advance.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use rand::RngExt as _;
use rand::seq::IteratorRandom as _;

use crate::buckets::application::{Application, expect};
use crate::buckets::fixture::COLLECTION;
use crate::buckets::ledger::same;
use proto_tests::retrying::{Answer, Retries};

impl Application<'_> {
    /// One command; what it does.
    pub(crate) fn change_own(&mut self) -> Result<&'static str> {
        let few = self.ledger.own.len() < 20;
        let many = self.ledger.own.len() > 150;
        Ok(match self.random.random_range(0..100) {
            number if few || number < 15 => self.insert_own()?,
            15..35 => self.change_one(false)?,
            35..50 => self.change_one(true)?,
            50..58 => self.find_and_modify_own()?,
            58..70 => self.delete_own()?,
            70..78 => self.find_and_delete_own()?,
            78..84 => self.update_many_own()?,
            84..90 if many => self.delete_many_own()?,
            // A killed proxy leaves its transaction open. mongod aborts it after a minute.
            84..88 if self.client.retries == Retries::None => self.move_many_own()?,
            88..94 => self.upsert_own()?,
            _ => self.read_own()?,
        })
    }

    fn any_own(&mut self) -> Result<Document> {
        let any = self.ledger.own.values().choose(&mut self.random);
        any.cloned().context("no item")
    }

    fn keep(&mut self, item: Document) -> Result<()> {
        self.ledger.own.insert(item.get_i64("_id")?, item);
        Ok(())
    }

    fn insert_own(&mut self) -> Result<&'static str> {
        let count = if self.random.random_bool(0.5) {
            1
        } else {
            self.random.random_range(2..14)
        };
        let items: Vec<Document> = (0..count).map(|_| self.item("own")).collect();
        let command = Self::insert(&items, self.random.random_bool(0.5));
        let reply = self.client.write_with_reply(&command)?;
        expect(&command, &reply, &[("n", count)])?;
        items.into_iter().try_for_each(|item| self.keep(item))?;
        Ok("insert")
    }

    /// A change, and what becomes of the item by it.
    fn change_of(&mut self, item: &Document, goes_elsewhere: bool) -> Result<(Bson, Document)> {
        let by = self.random.random_range(1..5_i64);
        let mut changed = item.clone();
        changed.insert("n", item.get_i64("n")? + by);
        let mut operators = doc! { "$inc": { "n": by } };
        if goes_elsewhere {
            let mut set = Document::new();
            if self.random.random_bool(0.7) && !self.fixture.is_sharded {
                set.insert("k", self.key());
            }
            if self.random.random_bool(0.5) {
                set.insert("at", self.time());
            }
            changed.extend(set.clone());
            if !set.is_empty() {
                operators.insert("$set", set.clone());
            }
            if self.random.random_bool(0.2) {
                set.insert("n", doc! { "$add": ["$n", by] });
                return Ok((vec![doc! { "$set": set }].into(), changed));
            }
        }
        Ok((operators.into(), changed))
    }

    fn change_one(&mut self, goes_elsewhere: bool) -> Result<&'static str> {
        let item = self.any_own()?;
        let (change, changed) = self.change_of(&item, goes_elsewhere)?;
        let filter = self.either_filter(item.get_i64("_id")?);
        let command = Self::update(filter, change);
        let reply = self.client.write_with_reply(&command)?;
        expect(&command, &reply, &[("n", 1), ("nModified", 1)])?;
        self.keep(changed)?;
        Ok(if goes_elsewhere { "move" } else { "update" })
    }

    fn find_and_modify_own(&mut self) -> Result<&'static str> {
        let item = self.any_own()?;
        let goes_elsewhere = self.random.random_bool(0.4) && !self.fixture.is_sharded;
        let (change, changed) = self.change_of(&item, goes_elsewhere)?;
        let filter = self.either_filter(item.get_i64("_id")?);
        let new = self.random.random_bool(0.5);
        let command = doc! { "findAndModify": COLLECTION, "query": filter, "update": change, "new": new };
        if let Answer::Reply(reply) = self.client.write(&command)? {
            let expected = if new { &changed } else { &item };
            let value = reply
                .get_document("value")
                .with_context(|| format!("{command}: {reply}"))?;
            ensure!(same(value, expected), "{command}\n  expected {expected}, got {reply}");
        }
        self.keep(changed)?;
        Ok("findAndModify")
    }

    fn delete_own(&mut self) -> Result<&'static str> {
        let id = self.any_own()?.get_i64("_id")?;
        let filter = self.either_filter(id);
        let command = Self::delete(filter, 1);
        let reply = self.client.write_with_reply(&command)?;
        expect(&command, &reply, &[("n", 1)])?;
        self.ledger.own.remove(&id);
        Ok("delete")
    }

    fn find_and_delete_own(&mut self) -> Result<&'static str> {
        let item = self.any_own()?;
        let id = item.get_i64("_id")?;
        let filter = self.either_filter(id);
        let command = doc! { "findAndModify": COLLECTION, "query": filter, "remove": true };
        if let Answer::Reply(reply) = self.client.write(&command)? {
            let value = reply
                .get_document("value")
                .with_context(|| format!("{command}: {reply}"))?;
            ensure!(same(value, &item), "{command}\n  expected {item}, got {reply}");
        }
        self.ledger.own.remove(&id);
        Ok("findAndModify remove")
    }

    /// Changes all of a key, or of a group.
    fn update_many_own(&mut self) -> Result<&'static str> {
        let (name, value) = self.some();
        // What may be sent again must not add up.
        let is_once = self.client.retries == Retries::None;
        let change = if is_once {
            doc! { "$inc": { "n": 1_i64 } }
        } else {
            doc! { "$set": { "n": 7_i64 } }
        };
        let command = Self::update_many(self.of_own(name, value), change);
        let reply = self.client.write_many(&command)?;
        let mut n = 0;
        for item in self.ledger.own.values_mut() {
            if item.get_i32(name).is_ok_and(|is| is == value) {
                let before = item.get_i64("n")?;
                item.insert("n", if is_once { before + 1 } else { 7 });
                n += 1;
            }
        }
        expect(&command, &reply, &[("n", n)])?;
        if is_once {
            expect(&command, &reply, &[("nModified", n)])?;
        }
        Ok("update many")
    }

    fn move_many_own(&mut self) -> Result<&'static str> {
        let value = self.random.random_range(0..6);
        let key = self.key();
        let command = Self::update_many(self.of_own("group", value), doc! { "$set": { "k": key } });
        let reply = self.client.write_many(&command)?;
        let mut n = 0;
        for item in self.ledger.own.values_mut() {
            if item.get_i32("group").is_ok_and(|is| is == value) {
                item.insert("k", key);
                n += 1;
            }
        }
        expect(&command, &reply, &[("n", n)])?;
        Ok("move many")
    }

    fn delete_many_own(&mut self) -> Result<&'static str> {
        let (name, value) = self.some();
        let command = Self::delete(self.of_own(name, value), 0);
        let reply = self.client.write_many(&command)?;
        let before = self.ledger.own.len();
        self.ledger
            .own
            .retain(|_, item| !item.get_i32(name).is_ok_and(|is| is == value));
        if self.client.retries == Retries::None {
            let n = i64::try_from(before - self.ledger.own.len())?;
            expect(&command, &reply, &[("n", n)])?;
        }
        Ok("delete many")
    }

    fn some(&mut self) -> (&'static str, i32) {
        if self.random.random_bool(0.5) {
            ("k", self.key())
        } else {
            ("group", self.random.random_range(0..6))
        }
    }

    fn of_own(&self, name: &str, value: i32) -> Document {
        doc! { name: value, "class": "own", "owner": self.number }
    }

    fn upsert_own(&mut self) -> Result<&'static str> {
        let (item, is_there) = if self.random.random_bool(0.3) {
            (self.any_own()?, true)
        } else {
            (self.item("own"), false)
        };
        let filter = self.either_filter(item.get_i64("_id")?);
        let mut changed = item.clone();
        changed.insert("n", item.get_i64("n")? + 3);
        let mut on_insert = item.clone();
        for field in ["n"].into_iter().chain(filter.keys().map(String::as_str)) {
            on_insert.remove(field);
        }
        let change = doc! { "$inc": { "n": 3_i64 }, "$setOnInsert": on_insert };
        let command = doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": change, "upsert": true }] };
        let reply = self.client.write_with_reply(&command)?;
        expect(&command, &reply, &[("n", 1), ("nModified", i64::from(is_there))])?;
        ensure!(reply.contains_key("upserted") != is_there, "{command}: {reply}");
        self.keep(changed)?;
        Ok("upsert")
    }

    fn read_own(&mut self) -> Result<&'static str> {
        let item = self.any_own()?;
        let filter = self.either_filter(item.get_i64("_id")?);
        let found = self.client.find(COLLECTION, &filter)?;
        ensure!(
            found.len() == 1 && same(&found[0], &item),
            "{filter} found {found:?}, and there is {item}"
        );
        let key = self.key();
        let mut found = self.client.find(COLLECTION, &self.of_own("k", key))?;
        found.sort_by_key(|item| item.get_i64("_id").unwrap_or_default());
        let expected: Vec<&Document> = self
            .ledger
            .own
            .values()
            .filter(|item| item.get_i32("k").is_ok_and(|is| is == key))
            .collect();
        ensure!(
            found.len() == expected.len() && found.iter().zip(&expected).all(|(one, other)| same(one, other)),
            "of key {key} there are\n  {expected:?}\nand found were\n  {found:?}"
        );
        Ok("read")
    }
}
