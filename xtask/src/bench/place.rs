//! The collections of one comparison: a collection for each variant in one database, all with the same trades.

use std::net::SocketAddr;
use std::time::Duration;

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};

use super::client::{Client, Retries, number};
use super::model::{Indexes, Write};
use super::servers::Variant;
use super::trades::Trade;

/// What the collections of a comparison have in common.
#[derive(Debug, Clone)]
pub(super) struct Terms {
    pub(super) database: String,
    /// Between two trades of a customer, about.
    pub(super) spacing: Duration,
    pub(super) indexes: Indexes,
    pub(super) retries: Retries,
}

/// The collection of one variant.
#[derive(Debug)]
pub(super) struct Place {
    pub(super) variant: Variant,
    terms: Terms,
    /// How many trades it should have.
    pub(super) items: usize,
}

impl Place {
    /// Makes the collection.
    pub(super) fn make(variant: Variant, terms: &Terms) -> Result<Self> {
        let place = Self {
            variant,
            terms: terms.clone(),
            items: 0,
        };
        place.create()?;
        Ok(place)
    }

    /// Makes it anew.
    pub(super) fn empty(&mut self) -> Result<()> {
        let mut client = self.client_of(Retries::None)?;
        client.command(doc! { "drop": self.variant.collection })?;
        self.items = 0;
        self.create()
    }

    /// Puts trades into it by the fastest commands. By hand, their customers must have none yet.
    pub(super) fn fill(&mut self, trades: &[Trade]) -> Result<()> {
        self.store(self.variant.model.fill(self.variant.collection, trades), trades.len())
    }

    /// Runs these commands, which store so many trades.
    pub(super) fn store(&mut self, writes: impl IntoIterator<Item = Write>, trades: usize) -> Result<()> {
        let mut client = self.client_of(Retries::None)?;
        for write in writes {
            let request = client.request(&write)?;
            client.exchange_all(&[request])?;
        }
        self.items += trades;
        Ok(())
    }

    /// The command by which an application stores these trades.
    pub(super) fn write(&self, trades: &[Trade]) -> Write {
        self.variant.model.write(self.variant.collection, trades)
    }

    /// A connection to this variant.
    pub(super) fn client(&self) -> Result<Client> {
        self.client_of(self.terms.retries)
    }

    /// A connection to this variant whose writes have no retry numbers.
    pub(super) fn client_without_numbers(&self) -> Result<Client> {
        self.client_of(Retries::None)
    }

    /// A connection to another proxy with the same shape.
    pub(super) fn client_at(&self, address: SocketAddr) -> Result<Client> {
        Client::open(address, &self.terms.database, self.terms.retries)
    }

    fn client_of(&self, retries: Retries) -> Result<Client> {
        Client::open(self.variant.address, &self.terms.database, retries)
    }

    fn create(&self) -> Result<()> {
        let mut client = self.client_of(Retries::None)?;
        let Variant { model, collection, .. } = self.variant;
        for command in model.create(collection, self.terms.spacing, self.terms.indexes) {
            client.command(command)?;
        }
        Ok(())
    }

    /// Fails unless a count through the variant equals the number of stored trades.
    pub(super) fn check(&self) -> Result<()> {
        let Variant { model, collection, .. } = self.variant;
        let reply = self.client_of(Retries::None)?.command(model.count(collection))?;
        let groups = reply.get_document("cursor")?.get_array("firstBatch")?;
        let group = groups.first().and_then(Bson::as_document);
        let found = number(group.context("an empty collection")?, "n")?;
        #[expect(clippy::float_cmp, reason = "whole numbers")]
        let is_right = found == as_f64(self.items);
        ensure!(is_right, "{} has {found} items, not {}", self.variant.name, self.items);
        Ok(())
    }

    /// The collection's sizes, read from mongod directly. Those on disk are as of a checkpoint, so there must
    /// be one first.
    pub(super) fn sizes(&self, mongod: SocketAddr) -> Result<Sizes> {
        Sizes::of(&self.run_at(mongod, doc! { "collStats": self.variant.collection })?)
    }

    /// mongod's reply to a command on the database, without a proxy.
    pub(super) fn run_at(&self, mongod: SocketAddr, command: Document) -> Result<Document> {
        Client::open(mongod, &self.terms.database, Retries::None)?.command(command)
    }
}

/// What a collection takes, in bytes. How much a checkpoint leaves free in files depends on when the one
/// before was, so that does not count.
#[derive(Debug)]
pub(super) struct Sizes {
    /// As it is in memory.
    pub(super) data: f64,
    /// As it is on disk, compressed.
    pub(super) stored: f64,
    /// On disk, by name.
    pub(super) indexes: Vec<(String, f64)>,
}

impl Sizes {
    fn of(stats: &Document) -> Result<Self> {
        let details = stats.get_document("indexDetails")?;
        let sizes = stats.get_document("indexSizes")?;
        let index = |name: &String| {
            let blocks = details.get_document(name)?.get_document("block-manager")?;
            let free = number(blocks, "file bytes available for reuse")?;
            Ok((name.clone(), number(sizes, name)? - free))
        };
        Ok(Self {
            data: number(stats, "size")?,
            stored: number(stats, "storageSize")? - number(stats, "freeStorageSize")?,
            indexes: sizes.keys().map(index).collect::<Result<_>>()?,
        })
    }

    /// All indexes together.
    pub(super) fn all_indexes(&self) -> f64 {
        self.indexes.iter().map(|(_, bytes)| bytes).sum()
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
