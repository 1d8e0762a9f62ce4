//! A command on one key's documents in a range of their times.

use anyhow::{Result, ensure};
use bson::{Bson, DateTime, Document, bson, doc};

use super::{documents, in_order, insert};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{RangeCommand, RangeEnds, RangeInserts, RangeLimit, RangeSort};
use crate::differential::operation::{Operation, Outcome, transaction};
use crate::differential::sides::{COLLECTION, show};
use crate::differential::{Generator, Sides};
use crate::invariants;

/// A command on one key's documents in a range of their times.
#[derive(Debug)]
pub(super) struct Range {
    pub(super) documents: Vec<Document>,
    pub(super) filter: Document,
    pub(super) command: Document,
    pub(super) order: Order,
    /// Whether not all are answered, so that which ones are is free where their order is.
    pub(super) is_limited: bool,
    pub(super) canon: Canon,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    // A long key has many pages outside the range.
    let count = generator.pick(&[30, 90]);
    let mut documents = documents(generator, count, &[]);
    if generator.take::<RangeInserts>() == RangeInserts::Late {
        let (late, place) = (generator.between(0, count - 1), generator.between(0, count - 1));
        let document = documents.remove(usize::try_from(late).unwrap_or_default());
        documents.insert(usize::try_from(place).unwrap_or_default(), document);
    }
    let filter = range_filter(generator, count);
    let sort = range_sort(generator);
    let limit = match generator.take::<RangeLimit>() {
        RangeLimit::None => None,
        RangeLimit::One => Some(1),
        RangeLimit::Some => Some(5),
    };
    let time = generator.shape.time.clone().unwrap_or_else(|| "n".to_owned());
    let form = generator.take::<RangeCommand>();
    let mut command = match form {
        RangeCommand::Find | RangeCommand::FindByOther => doc! { "find": COLLECTION, "filter": &filter },
        RangeCommand::Aggregate => doc! { "aggregate": COLLECTION, "pipeline": [{ "$match": &filter }], "cursor": {} },
        RangeCommand::Group => doc! {
            "aggregate": COLLECTION,
            "pipeline": [{ "$match": &filter }, { "$group": { "_id": { "$mod": ["$n", 3] }, "sum": { "$sum": "$qty" } } }],
            "cursor": {},
        },
        RangeCommand::Count => doc! { "count": COLLECTION, "query": &filter },
        RangeCommand::Distinct => doc! { "distinct": COLLECTION, "key": "qty", "query": &filter },
        RangeCommand::Update => doc! {
            "update": COLLECTION,
            "updates": [{ "q": &filter, "u": { "$set": { "status": "in range" } }, "multi": true }],
        },
        RangeCommand::Delete => doc! { "delete": COLLECTION, "deletes": [{ "q": &filter, "limit": 0 }] },
    };
    match form {
        RangeCommand::Find | RangeCommand::Aggregate => append_order(&mut command, &sort, limit),
        RangeCommand::FindByOther => append_order(&mut command, &doc! { "qty": -1 }, None),
        _ => {}
    }
    // The times are all different, and the order of one key's documents is that of their insertion.
    let is_plain_read = matches!(form, RangeCommand::Find | RangeCommand::Aggregate);
    let is_total = form == RangeCommand::FindByOther || is_plain_read && sort.contains_key(&time);
    Box::new(Range {
        documents,
        filter,
        command,
        order: if is_total || is_plain_read && limit.is_none() && sort.is_empty() {
            Order::Defined
        } else {
            Order::Free
        },
        is_limited: is_plain_read && limit.is_some(),
        canon: generator.canon(),
    })
}

/// The filter of one key and a range of times, of `count` documents.
fn range_filter(generator: &mut Generator, count: i32) -> Document {
    let has_time = generator.shape.time.is_some();
    let time = generator.shape.time.clone().unwrap_or_else(|| "n".to_owned());
    let first = generator.between(2, count / 3);
    let last = generator.between(count / 3 + 2, count - 5);
    let at = |number: i32| -> Bson {
        if has_time {
            Bson::DateTime(DateTime::from_millis(i64::from(number) * 1000))
        } else {
            number.into()
        }
    };
    let condition = match generator.take::<RangeEnds>() {
        RangeEnds::Both => bson!({ "$gte": at(first), "$lt": at(last) }),
        RangeEnds::First => bson!({ "$gt": at(last) }),
        RangeEnds::Last => bson!({ "$lte": at(first) }),
        RangeEnds::Equal => at(first),
    };
    let mut filter: Document = generator.shape.key.iter().map(|key| (key.clone(), bson!(1))).collect();
    filter.insert(time, condition);
    filter
}

fn range_sort(generator: &mut Generator) -> Document {
    let time = generator.shape.time.clone().unwrap_or_else(|| "n".to_owned());
    let key = generator.shape.key[0].clone();
    let last_key = generator.shape.key.last().cloned().unwrap_or_default();
    match generator.take::<RangeSort>() {
        RangeSort::None => doc! {},
        RangeSort::Key => doc! { &key: 1 },
        RangeSort::KeyBackwards => doc! { &key: -1 },
        RangeSort::KeyTwice => doc! { &last_key: -1, &key: 1 },
        RangeSort::Time => doc! { &time: 1 },
        RangeSort::TimeBackwards => doc! { &time: -1 },
        RangeSort::KeyAndTime => doc! { &key: 1, &time: -1 },
        RangeSort::TimeAndKey => doc! { &time: -1, &key: 1 },
    }
}

fn append_order(command: &mut Document, sort: &Document, limit: Option<i32>) {
    if let Ok(pipeline) = command.get_array_mut("pipeline") {
        if !sort.is_empty() {
            pipeline.push(bson!({ "$sort": sort.clone() }));
        }
        pipeline.extend(limit.map(|limit| bson!({ "$limit": limit })));
        return;
    }
    if !sort.is_empty() {
        command.insert("sort", sort.clone());
    }
    if let Some(limit) = limit {
        command.insert("limit", limit);
    }
}

impl Operation for Range {
    fn commands(&self) -> Vec<Document> {
        vec![self.command.clone()]
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            insert(sides, &self.documents)?;
            let replies = sides.both(&self.command)?;
            if !self.command.contains_key("find") && !self.command.contains_key("aggregate") {
                let [plain, shaped] = replies.map(|reply| result(&reply));
                ensure!(plain? == shaped?, "{}", self.command);
                in_order(sides, self.canon)?;
                return Ok(Outcome::Done);
            }
            let [plain, shaped] = replies.map(|reply| transaction::batch(&reply));
            let (plain, shaped) = (plain?, shaped?);
            // A sort by the key alone leaves an order that is free: of all, and of those that are chosen from
            // all.
            let is_limited = self.is_limited && self.order == Order::Free;
            let all = if is_limited { self.all(sides)? } else { Vec::new() };
            let order = if is_limited { &Order::FreeChoice } else { &self.order };
            compare::documents(self.canon, order, &plain, &shaped, &all)?;
            Ok(Outcome::Done)
        })
    }
}

impl Range {
    /// What the plain side has to choose from.
    fn all(&self, sides: &mut Sides) -> Result<Vec<bson::RawDocumentBuf>> {
        let find = doc! { "find": COLLECTION, "filter": &self.filter, "$db": &sides.plain.database };
        invariants::read_all(sides.plain.routes.any(), &find)
    }
}

/// The result of a `count`, a `distinct` or a write.
fn result(reply: &bson::RawDocument) -> Result<Document> {
    ensure!(compare::succeeded(reply), "{}", show(reply));
    let reply = Document::try_from(reply)?;
    let mut result = doc! {};
    for field in ["n", "nModified"] {
        result.extend(reply.get(field).map(|value| (field.to_owned(), value.clone())));
    }
    if let Ok(values) = reply.get_array("values") {
        // Their order is free.
        let mut values = values.clone();
        values.sort_by_key(Bson::to_string);
        result.insert("values", values);
    }
    Ok(result)
}
