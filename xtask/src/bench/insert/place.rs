//! The collections of one comparison: in a database of its own one for each way, all with the same trades in them.

use std::net::SocketAddr;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};

use super::client::{Client, Retries, number};
use super::model::{Indexes, Write};
use super::servers::Way;
use super::trades::Trade;

/// What the collections of a comparison have in common.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) database: String,
    /// Among how many customers trades are spread.
    pub(super) customers: u32,
    pub(super) indexes: Indexes,
    pub(super) retries: Retries,
}

/// One way's collection.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) way: Way,
    terms: Terms,
    /// How many trades it should have.
    pub(super) items: usize,
}

impl Place {
    /// Makes the collection.
    pub(super) fn make(way: Way, terms: &Terms) -> Result<Self> {
        let place = Self {
            way,
            terms: terms.clone(),
            items: 0,
        };
        place.create()?;
        Ok(place)
    }

    /// Makes it anew.
    pub(super) fn empty(&mut self) -> Result<()> {
        let mut client = self.client_of(Retries::None)?;
        client.command(doc! { "drop": self.way.collection })?;
        self.items = 0;
        self.create()
    }

    /// Puts trades into it by the quickest way. Their customers must have none yet.
    pub(super) fn fill(&mut self, trades: &[Trade]) -> Result<()> {
        let mut client = self.client_of(Retries::None)?;
        for write in self.way.model.fill(self.way.collection, trades) {
            let request = client.request(&write)?;
            client.exchange_all(&[request])?;
        }
        self.items += trades.len();
        Ok(())
    }

    /// The command by which an application stores these trades.
    pub(super) fn write(&self, trades: &[Trade]) -> Write {
        self.way.model.write(self.way.collection, trades)
    }

    /// A connection on this way.
    pub(super) fn client(&self) -> Result<Client> {
        self.client_of(self.terms.retries)
    }

    /// A connection to another proxy that is as good as the way's own.
    pub(super) fn client_at(&self, address: SocketAddr) -> Result<Client> {
        Client::open(address, &self.terms.database, self.terms.retries)
    }

    fn client_of(&self, retries: Retries) -> Result<Client> {
        Client::open(self.way.address, &self.terms.database, retries)
    }

    fn create(&self) -> Result<()> {
        let mut client = self.client_of(Retries::None)?;
        let Way { model, collection, .. } = self.way;
        for command in model.create(collection, self.terms.customers, self.terms.indexes) {
            client.command(command)?;
        }
        Ok(())
    }

    /// Fails unless the way finds as many trades in it as were stored.
    pub(super) fn check(&self) -> Result<()> {
        let Way { model, collection, .. } = self.way;
        let reply = self.client_of(Retries::None)?.command(model.count(collection))?;
        let groups = reply.get_document("cursor")?.get_array("firstBatch")?;
        let group = groups.first().and_then(Bson::as_document);
        let found = number(group.context("an empty collection")?, "n")?;
        #[expect(clippy::float_cmp, reason = "whole numbers")]
        let is_right = found == as_f64(self.items);
        ensure!(is_right, "{} has {found} items, not {}", self.way.name, self.items);
        Ok(())
    }

    /// What mongod says of its size, through no proxy.
    pub(super) fn stats(&self, mongod: SocketAddr) -> Result<Document> {
        self.ask(mongod, doc! { "collStats": self.way.collection })
    }

    /// What mongod answers to a command on the database, through no proxy.
    pub(super) fn ask(&self, mongod: SocketAddr, command: Document) -> Result<Document> {
        Client::open(mongod, &self.terms.database, Retries::None)?.command(command)
    }
}

/// Writes all that there is to disk.
pub(super) fn checkpoint(mongod: SocketAddr) -> Result<()> {
    Client::open(mongod, "admin", Retries::None)?.command(doc! { "fsync": 1 })?;
    Ok(())
}

/// Ends a comparison: makes room for the next.
pub(super) fn drop_database(mongod: SocketAddr, terms: &Terms) -> Result<()> {
    Client::open(mongod, &terms.database, Retries::None)?.command(doc! { "dropDatabase": 1 })?;
    Ok(())
}

/// A number of items as a divisor.
#[expect(clippy::cast_precision_loss, reason = "items of minutes are far below 2^52")]
pub(super) fn as_f64(items: usize) -> f64 {
    items as f64
}
