//! The compared collections: the same trades and the same operations in each.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::ItemIds;

use super::Options;
use super::operation::Operation;
use crate::bench::client::Reply;
use crate::bench::concurrent;
use crate::bench::measured::Measured;
use crate::bench::model::{Indexes, Model};
use crate::bench::place::{self, Place, Terms};
use crate::bench::servers::{Servers, Variant};
use crate::bench::table::Row;
use crate::bench::trades::{self, Trade, Trades};

/// What a command is refused with that a shaped collection does not support.
const NOT_SUPPORTED: i32 = 115;

#[derive(Debug)]
pub(super) struct Comparison {
    /// The plain one first.
    places: Vec<Place>,
    /// Of the rounds since rows were taken, one a place.
    measured: Vec<Measured>,
    trades: Trades,
    /// The number of customers that trades are spread among.
    keys: u32,
    /// What every collection has in it.
    stored: Vec<Trade>,
    terms: Terms,
}

/// What each round of a row sends.
#[derive(Debug, Clone, Copy)]
pub(super) struct Load {
    pub(super) operation: Operation,
    pub(super) connections: usize,
    /// Statements of a command.
    pub(super) batch: usize,
    /// Trades to change or delete, at least.
    pub(super) items: usize,
}

impl Load {
    /// Trades that a round takes.
    pub(super) fn taken(self) -> usize {
        concurrent::commands(self.items.div_ceil(self.batch), self.connections) * self.batch
    }
}

impl Comparison {
    /// Makes and fills the collections.
    pub(super) fn prepare(servers: &Servers, options: &Options) -> Result<Self> {
        let terms = Terms {
            database: "updates".to_owned(),
            spacing: trades::STEP * options.keys,
            indexes: Indexes::ForReading,
            retries: options.retries(),
        };
        let mut trades = Trades::new();
        let stored = trades.among(options.keys, options.filling());
        let mut variants = servers.variants_with_haproxy();
        variants.retain(|variant| matches!(variant.model, Model::Plain | Model::Shaped(ItemIds::Unique)));
        let mut places = Vec::new();
        for variant in variants {
            let mut place = Place::make(variant, &terms)?;
            place.fill(&stored).with_context(|| place.variant.name)?;
            places.push(place);
        }
        place::checkpoint(servers.direct())?;
        Ok(Self {
            measured: places.iter().map(|_| Measured::default()).collect(),
            places,
            trades,
            keys: options.keys,
            stored,
            terms,
        })
    }

    pub(super) fn variants(&self) -> Vec<Variant> {
        self.places.iter().map(|place| place.variant.clone()).collect()
    }

    /// The refusal of a variant, if any, for the operation on a missing trade.
    pub(super) fn refused(&mut self, operation: Operation) -> Result<Option<String>> {
        let nobodys = self.trades.of(1, 1);
        for place in &self.places {
            let mut client = place.client()?;
            let request = client.number(&operation.prepared(place.variant.collection, &nobodys)?);
            let mut reply = Reply::default();
            client.exchange(&request, &mut reply)?;
            let reply = reply.document()?;
            if reply.get_i32("code").is_ok_and(|code| code == NOT_SUPPORTED) {
                return Ok(Some(reply.get_str("errmsg").unwrap_or_default().to_owned()));
            }
        }
        Ok(None)
    }

    /// Sends the load to each place, with the same trades; another place begins in each round.
    pub(super) fn round(&mut self, servers: &Servers, load: Load, round: usize) -> Result<()> {
        let count = load.taken();
        let picked = self.trades.pick(&mut self.stored, count).to_vec();
        for turn in 0..self.places.len() {
            let at = (round + turn) % self.places.len();
            let (place, measured) = (&self.places[at], &mut self.measured[at]);
            let commands = picked
                .chunks(load.batch)
                .map(|trades| load.operation.prepared(place.variant.collection, trades));
            let commands = commands.collect::<Result<Vec<_>>>()?;
            let before = servers.cpu_times(&place.variant)?;
            let addresses = [place.variant.address];
            let figures = concurrent::measure(place, commands, (load.connections, &addresses))
                .with_context(|| place.variant.name)?;
            measured.add(figures, before, servers.cpu_times(&place.variant)?, count);
        }
        if load.operation == Operation::DeleteOne {
            self.replace(count)?;
            place::checkpoint(servers.direct())?;
        }
        Ok(())
    }

    /// Stores as many new trades as were deleted, which are the first.
    fn replace(&mut self, count: usize) -> Result<()> {
        let new = self.trades.among(self.keys, count);
        self.stored.drain(..count);
        for place in &mut self.places {
            place.items -= count;
            place.fill(&new).with_context(|| place.variant.name)?;
        }
        self.stored.extend(new);
        Ok(())
    }

    /// What was measured since the last time.
    pub(super) fn take_rows(&mut self) -> Vec<Row> {
        let measured = self.measured.iter_mut().map(std::mem::take);
        let rows = self.places.iter().zip(measured);
        rows.map(|(place, measured)| measured.row(&place.variant)).collect()
    }

    /// Fails unless all collections have as many trades as they should, and the same.
    pub(super) fn check(&self) -> Result<()> {
        self.places.iter().try_for_each(Place::check)?;
        let sums = self.places.iter().map(sums).collect::<Result<Vec<_>>>()?;
        for (place, sum) in self.places.iter().zip(&sums) {
            ensure!(
                Some(sum) == sums.first(),
                "{} has {sum:?}, and not {:?}",
                place.variant.name,
                sums.first()
            );
        }
        Ok(())
    }

    /// Makes room.
    pub(super) fn end(self, servers: &Servers) -> Result<()> {
        place::drop_database(servers.direct(), &self.terms)
    }
}

/// How many trades there are of each ticker and what quantity of each, read through the variant: what updates
/// change.
fn sums(place: &Place) -> Result<Vec<Bson>> {
    let group = doc! { "_id": "$ticker", "n": { "$sum": 1 }, "quantity": { "$sum": "$quantity" } };
    let pipeline: Vec<Document> = vec![doc! { "$group": group }, doc! { "$sort": { "_id": 1 } }];
    let command = doc! { "aggregate": place.variant.collection, "pipeline": pipeline, "cursor": {} };
    let reply = place.client()?.command(command)?;
    Ok(reply.get_document("cursor")?.get_array("firstBatch")?.clone())
}
