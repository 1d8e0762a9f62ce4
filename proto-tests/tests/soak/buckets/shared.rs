//! Operations on items that all applications change.

use std::collections::BTreeSet;
use std::sync::PoisonError;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use rand::RngExt as _;
use rand::seq::IndexedRandom as _;

use crate::buckets::application::{Application, expect, whole};
use crate::buckets::fixture::COLLECTION;
use proto_tests::retrying::{Answer, Retries};

/// The first items of an application. No application deletes them.
const KEPT: usize = 3;

/// Which items.
#[derive(Debug, Clone, Copy)]
enum Items {
    /// Those that stay.
    Kept,
    /// Some of which are gone.
    Any,
}

impl Application<'_> {
    /// Inserts items that stay.
    pub(crate) fn begin_shared(&mut self) -> Result<()> {
        let items: Vec<Document> = (0..KEPT).map(|_| self.item("shared")).collect();
        self.insert_all(&items)?;
        let mut kept = self.fixture.kept.lock().unwrap_or_else(PoisonError::into_inner);
        for item in &items {
            kept.push(item.get_i64("_id")?);
        }
        Ok(())
    }

    fn insert_all(&mut self, items: &[Document]) -> Result<()> {
        let command = Self::insert(items, true);
        let reply = self.client.write_with_reply(&command)?;
        expect(&command, &reply, &[("n", i64::try_from(items.len())?)])?;
        for item in items {
            self.ledger.inserted.insert(item.get_i64("_id")?);
        }
        Ok(())
    }

    /// One command; what it does.
    pub(crate) fn change_shared(&mut self) -> Result<&'static str> {
        let is_once = self.client.retries == Retries::None;
        Ok(match self.random.random_range(0..100) {
            0..17 => self.insert_shared()?,
            17..20 => self.increment_batch()?,
            20..40 => self.increment_kept()?,
            40..50 => self.increment_shared()?,
            50..65 => self.move_kept()?,
            65..75 => self.move_shared()?,
            75..87 => self.remove_shared()?,
            87..91 => self.read_kept()?,
            91..95 if is_once => self.increment_many()?,
            95..100 if is_once => self.move_many()?,
            _ => self.increment_any()?,
        })
    }

    fn any(&mut self, items: Items) -> i64 {
        let ids = match items {
            Items::Kept => &self.fixture.kept,
            Items::Any => &self.fixture.shared,
        };
        let ids = ids.lock().unwrap_or_else(PoisonError::into_inner);
        // One that is there, as likely as not.
        let from = match items {
            Items::Kept => 0,
            Items::Any => ids.len().saturating_sub(60),
        };
        ids[from..].choose(&mut self.random).copied().unwrap_or(-1)
    }

    fn insert_shared(&mut self) -> Result<&'static str> {
        let count = self.random.random_range(1..4);
        let items: Vec<Document> = (0..count).map(|_| self.item("shared")).collect();
        self.insert_all(&items)?;
        let mut shared = self.fixture.shared.lock().unwrap_or_else(PoisonError::into_inner);
        for item in &items {
            shared.push(item.get_i64("_id")?);
        }
        Ok("insert of all")
    }

    /// A command that adds to one item, perhaps with other changes; whether it found one.
    fn add_to_one(&mut self, filter: Document, set: Option<Document>) -> Result<Option<bool>> {
        let mut change = doc! { "$inc": { "n": 1_i64 } };
        let must_be_update = self.fixture.is_sharded && set.is_some();
        if let Some(set) = set {
            change.insert("$set", set);
        }
        if must_be_update || self.random.random_bool(0.5) {
            let command = Self::update(filter, change);
            let reply = self.client.write_with_reply(&command)?;
            let n = whole(reply.get("n")).with_context(|| format!("{command}: {reply}"))?;
            ensure!(n <= 1, "{command}: {reply}");
            expect(&command, &reply, &[("nModified", n)])?;
            self.ledger.added += n;
            return Ok(Some(n == 1));
        }
        let command = doc! { "findAndModify": COLLECTION, "query": filter, "update": change };
        Ok(match self.client.write(&command)? {
            Answer::Reply(reply) => {
                let is_found = reply.get_document("value").is_ok();
                self.ledger.added += i64::from(is_found);
                Some(is_found)
            }
            Answer::ReplyLost => {
                self.ledger.added += 1;
                None
            }
        })
    }

    fn increment_kept(&mut self) -> Result<&'static str> {
        let id = self.any(Items::Kept);
        let filter = self.either_filter(id);
        let found = self.add_to_one(filter.clone(), None)?;
        ensure!(
            found != Some(false),
            "no item {filter} was found, and nobody deletes it"
        );
        Ok("increment kept")
    }

    /// Several statements in one command.
    fn increment_batch(&mut self) -> Result<&'static str> {
        let ids: BTreeSet<i64> = (0..4).map(|_| self.any(Items::Kept)).collect();
        let updates: Vec<Document> = ids
            .iter()
            .map(|id| doc! { "q": self.filter("_id", *id), "u": { "$inc": { "n": 1_i64 } } })
            .collect();
        let n = i64::try_from(updates.len())?;
        let command = doc! { "update": COLLECTION, "updates": updates };
        let reply = self.client.write_with_reply(&command)?;
        // Without transaction numbers the reply does not say which statement matched a relocated item.
        let found = whole(reply.get("n")).with_context(|| format!("{command}: {reply}"))?;
        if self.client.retries == Retries::Writes {
            expect(&command, &reply, &[("n", n)])?;
        }
        expect(&command, &reply, &[("nModified", found)])?;
        self.ledger.added += found;
        Ok("increment batch")
    }

    fn read_kept(&mut self) -> Result<&'static str> {
        let id = self.any(Items::Kept);
        let found = self.client.find(COLLECTION, &doc! { "_id": id })?;
        ensure!(found.len() == 1, "{found:?} were found of {id}, and nobody deletes it");
        Ok("read kept")
    }

    fn increment_shared(&mut self) -> Result<&'static str> {
        let id = self.any(Items::Any);
        let filter = self.either_filter(id);
        self.add_to_one(filter, None)?;
        Ok("increment shared")
    }

    fn increment_any(&mut self) -> Result<&'static str> {
        let filter = doc! { "k": self.key(), "class": "shared" };
        self.add_to_one(filter, None)?;
        Ok("increment any")
    }

    fn move_kept(&mut self) -> Result<&'static str> {
        let id = self.any(Items::Kept);
        let (filter, set) = (self.either_filter(id), self.elsewhere());
        let found = self.add_to_one(filter.clone(), Some(set))?;
        ensure!(
            found != Some(false),
            "no item {filter} was found, and nobody deletes it"
        );
        Ok("move kept")
    }

    fn move_shared(&mut self) -> Result<&'static str> {
        let id = self.any(Items::Any);
        let (filter, set) = (self.either_filter(id), self.elsewhere());
        self.add_to_one(filter, Some(set))?;
        Ok("move shared")
    }

    fn elsewhere(&mut self) -> Document {
        if self.random.random_bool(0.7) && !self.fixture.is_sharded {
            doc! { "k": self.key() }
        } else {
            doc! { "at": self.time() }
        }
    }

    fn remove_shared(&mut self) -> Result<&'static str> {
        let id = self.any(Items::Any);
        let filter = self.either_filter(id);
        let command = doc! { "findAndModify": COLLECTION, "query": filter, "remove": true };
        match self.client.write(&command)? {
            Answer::Reply(reply) => {
                if let Ok(item) = reply.get_document("value") {
                    ensure!(item.get_i64("_id").is_ok_and(|is| is == id), "{command}: {reply}");
                    self.ledger.removed.push((id, Some(item.get_i64("n")?)));
                }
            }
            Answer::ReplyLost => self.ledger.removed.push((id, None)),
        }
        Ok("remove shared")
    }

    fn increment_many(&mut self) -> Result<&'static str> {
        let filter = doc! { "k": self.key(), "class": "shared" };
        self.change_many(filter, doc! { "$inc": { "n": 1_i64 } })?;
        Ok("increment many")
    }

    fn move_many(&mut self) -> Result<&'static str> {
        let filter = doc! { "k": self.key(), "class": "shared", "group": self.random.random_range(0..6) };
        let key = self.key();
        self.change_many(filter, doc! { "$inc": { "n": 1_i64 }, "$set": { "k": key } })?;
        Ok("move many of all")
    }

    fn change_many(&mut self, filter: Document, change: Document) -> Result<()> {
        let command = Self::update_many(filter, change);
        let reply = self.client.write_many(&command)?;
        let n = whole(reply.get("n")).with_context(|| format!("{command}: {reply}"))?;
        expect(&command, &reply, &[("nModified", n)])?;
        self.ledger.added += n;
        Ok(())
    }
}
