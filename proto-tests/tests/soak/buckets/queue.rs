//! Operations on items that are inserted and deleted by whole keys.

use anyhow::{Context as _, Result};
use bson::{Document, doc};
use rand::RngExt as _;

use crate::buckets::application::{Application, expect, whole};
use crate::buckets::fixture::{COLLECTION, KEYS};
use proto_tests::retrying::{Answer, Retries};

impl Application<'_> {
    /// One command; what it does.
    pub(crate) fn change_queue(&mut self) -> Result<&'static str> {
        // Two keys that have nothing but such items.
        let key = KEYS + self.random.random_range(0..2);
        Ok(match self.random.random_range(0..10) {
            0..5 => self.enqueue(key)?,
            7 if self.client.retries == Retries::None => self.sweep(doc! { "k": key })?,
            8 if self.client.retries == Retries::None => {
                let group = self.random.random_range(0..6);
                self.sweep(doc! { "class": "queue", "group": { "$lt": group } })?
            }
            _ => self.dequeue(key)?,
        })
    }

    fn enqueue(&mut self, key: i32) -> Result<&'static str> {
        let count = self.random.random_range(1..25);
        let mut items: Vec<Document> = (0..count).map(|_| self.item("queue")).collect();
        for item in &mut items {
            item.insert("k", key);
        }
        let command = Self::insert(&items, self.random.random_bool(0.5));
        let reply = self.client.write_with_reply(&command)?;
        expect(&command, &reply, &[("n", count)])?;
        for item in &items {
            self.ledger.queued.insert(item.get_i64("_id")?);
        }
        Ok("enqueue")
    }

    /// Takes any.
    fn dequeue(&mut self, key: i32) -> Result<&'static str> {
        let mut command = doc! { "findAndModify": COLLECTION, "query": { "k": key }, "remove": true };
        if self.random.random_bool(0.3) {
            command.insert("sort", doc! { "at": 1 });
        }
        match self.client.write(&command)? {
            Answer::Reply(reply) => {
                if let Ok(item) = reply.get_document("value") {
                    self.ledger.taken.push(item.get_i64("_id")?);
                }
            }
            Answer::ReplyLost => self.ledger.swept += 1,
        }
        Ok("dequeue")
    }

    fn sweep(&mut self, filter: Document) -> Result<&'static str> {
        let command = Self::delete(filter, 0);
        let reply = self.client.write_many(&command)?;
        self.ledger.swept += whole(reply.get("n")).with_context(|| format!("{command}: {reply}"))?;
        Ok("sweep")
    }
}
