//! `find`, with `getMore` to the end or `killCursors` before it.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, bson, doc};

use super::cursor::{self, Batches};
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::filter::names_id;
use crate::differential::sides::COLLECTION;
use crate::differential::{Sides, World};

#[derive(Debug)]
struct Find {
    command: Document,
    batches: Batches,
    order: Order,
    canon: Canon,
}

pub(super) fn generate(world: &mut World) -> Box<dyn Operation> {
    let mut command = doc! { "find": COLLECTION };
    let filter = world.filter();
    if !filter.is_empty() || world.chance(50) {
        command.insert("filter", filter.clone());
    }
    let order = append_sort(world, &mut command, &filter);
    if !matches!(order, Order::ByField(_)) && world.chance(35) {
        let projection = world.projection(&filter);
        command.insert("projection", projection);
    }
    append_sizes(world, &mut command);
    append_rare(world, &mut command);
    let order = settle_order(order, &command);
    let mut batches = world.batches();
    batches.may_end_later = !command.contains_key("singleBatch");
    Box::new(Find {
        command,
        batches,
        order,
        canon: world.canon(),
    })
}

fn append_sort(world: &mut World, command: &mut Document, filter: &Document) -> Order {
    match world.below(10) {
        0..=2 => {
            command.insert("sort", world.total_sort());
            Order::Defined
        }
        3..=5 if world.shape.time.is_some() => {
            let time = world.shape.time.clone().unwrap_or_default();
            command.insert("sort", doc! { &time: world.pick(&[1, -1]) });
            Order::ByField(time)
        }
        6 if world.chance(10) => {
            command.insert("sort", doc! { "$natural": world.pick(&[1, -1]) });
            Order::Free
        }
        _ if world.is_one_key(filter) && !names_id(filter) => Order::Defined,
        _ => Order::Free,
    }
}

/// The order that is left when everything else of the command is known.
fn settle_order(order: Order, command: &Document) -> Order {
    let has = |name: &str| command.contains_key(name);
    let by_sort = has("sort");
    match order {
        // Under another collation several keys may be meant, by a hint the naive side has another natural order.
        Order::Defined if !by_sort && (has("collation") || has("hint") || has("let")) => Order::FreeChoice,
        Order::Defined if !by_sort && !has("filter") => Order::FreeChoice,
        Order::Free => Order::FreeChoice,
        Order::ByField(_) if !by_sort => Order::FreeChoice,
        other => other,
    }
}

fn append_sizes(world: &mut World, command: &mut Document) {
    if world.chance(30) {
        command.insert("skip", world.pick(&[0, 1, 3, 9, 10, 25, 1000]));
    }
    if world.chance(50) {
        let limits = [
            bson!(0),
            bson!(1),
            bson!(2),
            bson!(10),
            bson!(15),
            Bson::Int64(40),
            bson!(2.0),
            bson!(2.7),
        ];
        command.insert("limit", world.pick(&limits));
    }
    if world.chance(40) {
        command.insert("batchSize", world.pick(&[0, 1, 2, 5, 10, 100]));
    }
    if world.chance(10) {
        command.insert("singleBatch", true);
    }
}

/// One mistake: of two in one command, which is told depends on what is looked at first.
fn wrong(world: &mut World) -> Document {
    let mistakes = [
        doc! { "skip": -1 },
        doc! { "limit": -10 },
        doc! { "batchSize": -1 },
        doc! { "skip": "x" },
        doc! { "limit": "x" },
        doc! { "limit": Bson::Null },
        doc! { "batchSize": 2.5 },
        doc! { "singleBatch": "x" },
        doc! { "hint": "nope" },
        doc! { "hint": { "qty": 1 } },
        doc! { "hint": { "_id": -1 } },
        doc! { "hint": 1 },
        doc! { "filter": 1 },
        doc! { "sort": 1 },
        doc! { "sort": { "qty": 0 } },
        doc! { "sort": { "qty": "x" } },
        doc! { "projection": [1] },
        doc! { "collation": { "locale": "nope" } },
        doc! { "nope": 1 },
        doc! { "readConcern": { "level": "nope" } },
        doc! { "let": { "x": 1 }, "filter": { "$expr": { "$eq": ["$n", "$$y"] } } },
    ];
    let mut command = doc! { "find": COLLECTION };
    command.extend(world.pick(&mistakes));
    command
}

fn append_rare(world: &mut World, command: &mut Document) {
    match world.below(60) {
        0..=2 => {
            command.insert("collation", doc! { "locale": "en", "strength": 2 });
        }
        3..=5 => {
            let hints = [
                bson!("_id_"),
                bson!({ "_id": 1 }),
                bson!({ "$natural": 1 }),
                bson!({ "$natural": -1 }),
                bson!({}),
            ];
            // mongod 6.0.5 sorts no clustered collection by `_id` that is read in its natural order.
            let known = if world.shape.is_clustered { 2 } else { hints.len() };
            command.insert("hint", world.pick(&hints[..known]));
        }
        6 => {
            let refused = [
                doc! { "returnKey": true },
                doc! { "showRecordId": true },
                doc! { "min": { "_id": 1 }, "hint": { "_id": 1 } },
                doc! { "max": { "_id": 1 }, "hint": { "_id": 1 } },
            ];
            command.extend(world.pick(&refused));
        }
        7 | 8 => *command = wrong(world),
        9 => {
            command.insert("let", doc! { "x": world.scalar() });
            command.insert("filter", doc! { "$expr": { "$eq": ["$qty", "$$x"] } });
        }
        10 | 11 => {
            let harmless = [
                doc! { "allowDiskUse": true },
                doc! { "noCursorTimeout": true },
                doc! { "maxTimeMS": 20_000 },
                doc! { "comment": "nothing" },
                doc! { "allowPartialResults": true },
                doc! { "returnKey": false },
                doc! { "readConcern": { "level": "local" } },
            ];
            command.extend(world.pick(&harmless));
        }
        _ => {}
    }
}

impl World {
    /// How the batches behind the first are asked for.
    pub(super) fn batches(&mut self) -> Batches {
        let sizes = (0..=self.below(3)).map(|_| self.pick(&[None, Some(1), Some(2), Some(7), Some(50), Some(0)]));
        Batches {
            sizes: sizes.collect(),
            until_killed: if self.chance(15) { 1 } else { usize::MAX },
            may_end_later: true,
        }
    }
}

impl Operation for Find {
    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        let replies = sides.both(&self.command)?;
        if sides.is_refused(&self.command, &replies[1]) {
            return Ok(Outcome::Refused);
        }
        if !compare::outcomes(&replies[0], &replies[1])? {
            return Ok(Outcome::Failed);
        }
        let answers = cursor::read(sides, &replies, &self.batches)?;
        let chosen = matches!(self.order, Order::FreeChoice | Order::ByField(_));
        let all = if chosen { self.everything(sides)? } else { Vec::new() };
        compare::documents(self.canon, &self.order, &answers.naive, &answers.shaped, &all)?;
        Ok(Outcome::Done)
    }
}

impl Find {
    /// What the naive side has to choose from.
    fn everything(&self, sides: &mut Sides) -> Result<Vec<bson::RawDocumentBuf>> {
        let mut command = self.command.clone();
        for name in ["skip", "limit", "batchSize", "singleBatch"] {
            command.remove(name);
        }
        command.insert("$db", sides.naive.database.as_str());
        crate::invariants::read_all(&mut sides.naive.connection, &command).context("everything that matches")
    }
}
