//! Sorted and limited reads of a collection with an index. A read that the index can answer must not scan the
//! collection.

mod conditions;

use std::fmt::{Debug, Formatter};

use anyhow::{Context as _, Result, ensure};
use bson::raw::RawBsonRef;
use bson::{Bson, DateTime, Document, bson, doc};

use self::conditions::{append_keys, append_range, append_residual, value_of};
use super::cursor::{self, Batches};
use super::distinct;
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{
    SORTED, SortDirection, SortedIndex, SortedInserts, SortedKeys, SortedRead, SortedSort, SortedTies, SortedValues,
    SortedWrite,
};
use crate::differential::sides::{COLLECTION, show};
use crate::differential::{Generator, Sides};
use crate::invariants;
use crate::shape::ItemIds;

/// How many documents there are.
const DOCUMENTS: i32 = 120;
/// How many keys.
const KEYS: i32 = 9;
/// How many reads are made of them.
const READS: usize = 5;

/// A field without a place in any shape, which most indexes are on.
const RANK: &str = "qty";

struct Sorted {
    index: Document,
    /// Inserted together.
    batches: Vec<Vec<Document>>,
    writes: Vec<Document>,
    reads: Vec<Read>,
    canon: Canon,
}

#[derive(Debug)]
struct Read {
    command: Document,
    filter: Document,
    batches: Batches,
    order: Order,
    /// Whether the index has the order, and the proxy compares all values.
    is_by_index: bool,
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    generator.group(&SORTED, |generator| {
        let form = generator.take::<SortedIndex>();
        let ties = generator.take::<SortedTies>();
        let values = generator.take::<SortedValues>();
        let mut documents: Vec<Document> = (1..=DOCUMENTS)
            .map(|number| document(generator, number, values))
            .collect();
        generator.shuffle(&mut documents);
        let inserts = generator.take::<SortedInserts>();
        if let (SortedInserts::ByTime, Some(time)) = (inserts, generator.shape.time.clone()) {
            documents.sort_by_key(|document| document.get_datetime(&time).ok().copied());
        }
        let size = generator.pick(&[7, 40, 200]);
        let batches = documents.chunks(size).map(<[Document]>::to_vec).collect();
        let writes: Vec<Document> = (0..generator.below(6)).map(|_| write(generator)).collect();
        let index = index(generator, form, ties);
        // Deletes leave reservations of pages that no longer exist.
        let is_in_order = inserts == SortedInserts::ByTime && writes.is_empty();
        let reads = (0..READS)
            .map(|_| read(generator, &index, values, is_in_order))
            .collect();
        Box::new(Sorted {
            index,
            batches,
            writes,
            reads,
            canon: generator.canon(),
        })
    })
}

fn document(generator: &mut Generator, number: i32, values: SortedValues) -> Document {
    let mut document = doc! { "n": number };
    if generator.has_ids() {
        document.insert("_id", number);
    }
    for (position, key) in generator.shape.key.clone().iter().enumerate() {
        document.insert(key, if position == 0 { number % KEYS } else { 1 });
    }
    let time = generator.between(0, 60);
    if let Some(field) = generator.shape.time.clone() {
        document.insert(field, DateTime::from_millis(i64::from(time) * 1000));
    }
    let statuses = [
        Some(bson!("open")),
        Some(bson!("open")),
        Some(bson!("closed")),
        Some(bson!(1)),
        Some(Bson::Null),
        Some(bson!(true)),
        None,
    ];
    if let Some(status) = generator.pick(&statuses) {
        document.insert("status", status);
    }
    let number_of = |rank: i32| {
        if rank % 3 == 0 {
            bson!(f64::from(rank))
        } else {
            bson!(rank)
        }
    };
    let rank = generator.between(0, 30);
    let is_odd = generator.chance(10);
    match values {
        // No two have an element in common.
        SortedValues::Arrays if is_odd => {
            document.insert(RANK, vec![100 + number, 1000 - number]);
        }
        SortedValues::Mixed if is_odd => {
            let odd = [
                Some(Bson::Null),
                None,
                Some(bson!("text")),
                Some(bson!(true)),
                Some(bson!({ "x": 1 })),
                Some(bson!(f64::NAN)),
                Some(Bson::MinKey),
                Some(Bson::MaxKey),
                Some(Bson::Int64(i64::MAX)),
            ];
            if let Some(rank) = generator.pick(&odd) {
                document.insert(RANK, rank);
            }
        }
        SortedValues::Plain | SortedValues::Arrays | SortedValues::Mixed => {
            document.insert(RANK, number_of(rank));
        }
    }
    document
}

fn write(generator: &mut Generator) -> Document {
    let number = generator.between(1, DOCUMENTS);
    let key = generator.shape.key[0].clone();
    let of_key = doc! { key: number % KEYS };
    let delete =
        |filter: Document, limit: i32| doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": limit }] };
    let update = |filter: Document, change: Document| {
        doc! { "update": COLLECTION, "updates": [{ "q": filter, "u": { "$set": change }, "multi": true }] }
    };
    match generator.take::<SortedWrite>() {
        SortedWrite::DeleteOne => delete(doc! { "n": number }, 1),
        // Pages become empty.
        SortedWrite::DeleteKey => delete(of_key, 0),
        SortedWrite::DeleteMany => delete(doc! { "n": { "$gt": number, "$lt": number + 60 } }, 0),
        SortedWrite::SetRank => update(doc! { "n": number }, doc! { RANK: 7 }),
        SortedWrite::SetStatus => update(of_key, doc! { "status": "open" }),
    }
}

/// The index, which the command of its creation names. Without fields: none.
fn index(generator: &mut Generator, form: SortedIndex, ties: SortedTies) -> Document {
    let key = generator.shape.key[0].clone();
    let time = generator.shape.time.clone().unwrap_or_else(|| RANK.to_owned());
    let direction = generator.pick(&[1, -1]);
    if form == SortedIndex::WholeKeyAndTime {
        let keys = generator.shape.key.clone();
        let mut index: Document = keys
            .into_iter()
            .map(|key| (key, generator.pick(&[1, -1]).into()))
            .collect();
        index.insert(time, direction);
        return index;
    }
    let mut index = match form {
        SortedIndex::Rank => doc! { RANK: direction },
        SortedIndex::Time => doc! { time: direction },
        SortedIndex::StatusAndTime => doc! { "status": 1, time: direction },
        SortedIndex::StatusAndRank => doc! { "status": -1, RANK: direction },
        SortedIndex::KeyAndTime => doc! { key: 1, time: direction },
        SortedIndex::KeyAndRank => doc! { key: direction, RANK: 1 },
        SortedIndex::KeyStatusAndTime => doc! { key: 1, "status": 1, time: direction },
        SortedIndex::Id if generator.has_ids() => return doc! { "_id": 1 },
        SortedIndex::Id | SortedIndex::WholeKeyAndTime | SortedIndex::None => doc! {},
    };
    if ties == SortedTies::None && !index.is_empty() {
        index.insert("n", generator.pick(&[1, -1]));
    }
    index
}

fn read(generator: &mut Generator, index: &Document, values: SortedValues, is_in_order: bool) -> Read {
    let keys = generator.take::<SortedKeys>();
    let sort_form = generator.take::<SortedSort>();
    let direction = generator.take::<SortDirection>();
    let mut fields: Vec<(String, i32)> = index
        .iter()
        .map(|(path, order)| (path.clone(), order.as_i32().unwrap_or(1)))
        .collect();
    let is_of_pages = is_of_whole_key_and_time(generator, index);
    if is_of_pages && generator.chance(50) {
        fields.push(("n".to_owned(), 1));
    }
    // The shape's indexes on time bounds have the order.
    let is_by_bounds = fields.is_empty() && is_in_order && has_time_bounds(generator, keys);
    if fields.is_empty() {
        let time = generator.shape.time.clone().filter(|_| keys != SortedKeys::Any);
        fields.push((time.unwrap_or_else(|| RANK.to_owned()), 1));
        if generator.chance(50) {
            fields.push(("n".to_owned(), 1));
        }
    }
    let mut filter = doc! {};
    // No text is the last before another, so a scan against a descending field has no place to begin at.
    let mut has_place = true;
    let is_text = |value: &Bson| matches!(value, Bson::String(_) | Bson::Null);
    // Fields in front of the sort, which the filter sets equal to a value.
    let equal = match sort_form {
        _ if index.is_empty() => 0,
        SortedSort::AllFields => 0,
        SortedSort::BehindOne => 1.min(index.len() - 1),
        SortedSort::BehindAll if is_of_pages => generator.shape.key.len(),
        SortedSort::BehindAll => fields.iter().filter(|(path, _)| is_in_front(generator, path)).count(),
    };
    for (path, order) in fields.iter().take(equal) {
        let value = value_of(generator, path);
        has_place &= *order > 0 || !is_text(&value);
        filter.insert(path.clone(), value);
    }
    let sort = sort_by(&fields[equal..], direction);
    let mut is_by_index = !index.is_empty() || is_by_bounds;
    if let Some(value) = append_range(generator, &mut filter, &sort) {
        // The pages of several keys are read from the newest or the oldest one on.
        is_by_index &= !index.is_empty() || keys == SortedKeys::One;
        is_by_index &= value != Bson::Null;
        has_place &= fields[equal].1 > 0 || !is_text(&value);
    }
    is_by_index &= direction == SortDirection::Forward || has_place || is_by_bounds || is_of_pages;
    // The index has an entry for each page, so its order is that of items only if no page is late.
    is_by_index &= !is_of_pages || is_in_order;
    is_by_index &= !is_of_id(index) || generator.shape.item_ids == ItemIds::Unique;
    if append_keys(generator, keys, &mut filter) {
        // Few items match, perhaps.
        is_by_index &= is_by_bounds;
    }
    let residual = append_residual(generator, &mut filter);
    is_by_index &= residual != Some(true);
    // The proxy reads no further pages for listed values, so a pipeline follows if the first pages have too few items.
    let conditions = sort.keys().next().and_then(|path| filter.get_document(path).ok());
    is_by_index &= !conditions.is_some_and(|conditions| conditions.contains_key("$in"));
    let is_plain = values == SortedValues::Plain || !sort.contains_key(RANK) && !filter.contains_key(RANK);
    let command = command(generator, &filter, &sort);
    // The condition may match nothing, and so many pages are read that they are all of the collection.
    let number = |name: &str| command.get_i32(name).unwrap_or(0);
    is_by_index &= residual.is_none() || 16 * (number("skip") + number("limit")) > DOCUMENTS;
    if command.contains_key("distinct") {
        // Some items have no status, and times have too many values.
        is_by_index = filter.is_empty() && index.keys().next().is_some_and(|path| path == RANK);
    }
    let order = if sort.contains_key("n") || sort.contains_key("_id") {
        Order::Defined
    } else {
        Order::ByFields(sort.keys().cloned().collect())
    };
    Read {
        command,
        filter,
        batches: generator.batches(),
        order,
        is_by_index: is_by_index && is_plain,
    }
}

/// The sort by some fields of an index.
fn sort_by(fields: &[(String, i32)], direction: SortDirection) -> Document {
    let sign = if direction == SortDirection::Backward { -1 } else { 1 };
    fields
        .iter()
        .map(|(path, order)| (path.clone(), (sign * order).into()))
        .collect()
}

/// The command of a read: a `find`, or a pipeline that is one.
fn command(generator: &mut Generator, filter: &Document, sort: &Document) -> Document {
    let limit = generator.pick(&[1, 2, 5, 20, 200]);
    let skip = generator.pick(&[0, 0, 0, 3, 30]);
    let size = generator.pick(&[None, None, Some(2), Some(50)]);
    let mut command = match generator.take::<SortedRead>() {
        SortedRead::Find => doc! { "find": COLLECTION, "filter": filter, "sort": sort, "skip": skip, "limit": limit },
        SortedRead::Aggregate => doc! {
            "aggregate": COLLECTION,
            "pipeline": [{ "$match": filter }, { "$sort": sort }, { "$skip": skip }, { "$limit": limit }],
            "cursor": {},
        },
        SortedRead::Distinct => {
            let path = sort.keys().next().cloned().unwrap_or_default();
            let mut command = doc! { "distinct": COLLECTION, "key": path };
            if !filter.is_empty() {
                command.insert("query", filter);
            }
            command
        }
    };
    if let (Some(size), true) = (size, command.contains_key("find")) {
        command.insert("batchSize", size);
    }
    command
}

/// Whether the shape has an index on the key and the time bounds of pages that has the order of these keys'
/// items. mongod merges the pages of several keys only if the key has one field.
fn has_time_bounds(generator: &Generator, keys: SortedKeys) -> bool {
    let is_read = match keys {
        SortedKeys::Any => false,
        SortedKeys::One => true,
        SortedKeys::List => generator.shape.key.len() == 1,
    };
    generator.shape.time.is_some() && is_read
}

/// Whether an index is that on `_id`, which every collection has.
fn is_of_id(index: &Document) -> bool {
    index.contains_key("_id")
}

/// Whether an index is on all key fields and then the time.
fn is_of_whole_key_and_time(generator: &Generator, index: &Document) -> bool {
    let key = generator.shape.key.iter().chain(&generator.shape.time);
    generator.shape.time.is_some() && index.keys().eq(key)
}

fn is_in_front(generator: &Generator, path: &str) -> bool {
    path == "status" || generator.shape.key[0] == path
}

impl Debug for Sorted {
    fn fmt(&self, f: &mut Formatter<'_>) -> std::fmt::Result {
        let Self { index, reads, .. } = self;
        write!(f, "{} reads with the index {index}", reads.len())
    }
}

impl Operation for Sorted {
    fn commands(&self) -> Vec<Document> {
        self.reads.iter().map(|read| read.command.clone()).collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            for batch in &self.batches {
                sides.succeed(&doc! { "insert": COLLECTION, "documents": batch.clone() })?;
            }
            if !self.index.is_empty() && !is_of_id(&self.index) {
                let index = doc! { "key": &self.index, "name": "sorted" };
                sides.succeed(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
            }
            for write in &self.writes {
                sides.succeed(write)?;
            }
            for read in &self.reads {
                self.compare(sides, read).with_context(|| format!("{read:?}"))?;
            }
            Ok(Outcome::Done)
        })
    }
}

impl Sorted {
    fn compare(&self, sides: &mut Sides, read: &Read) -> Result<()> {
        if read.command.contains_key("distinct") {
            distinct::compare_indexed(sides, &read.command)?;
            return check_access_path(sides, read);
        }
        let replies = sides.both(&read.command)?;
        if !cursor::outcomes(sides, &replies, &read.batches)? {
            return Ok(());
        }
        let Some(answers) = cursor::read(sides, &replies, &read.batches)? else {
            return Ok(());
        };
        let all = doc! { "find": COLLECTION, "filter": &read.filter, "$db": &sides.plain.database };
        let all = invariants::read_all(sides.plain.routes.any(), &all)?;
        compare::documents(self.canon, &read.order, &answers.plain, &answers.shaped, &all)?;
        check_access_path(sides, read)
    }
}

/// Fails if a query that an index answers scans the collection.
fn check_access_path(sides: &mut Sides, read: &Read) -> Result<()> {
    // The index of `_id`s finds one item, or a few, in the pipeline.
    let is_of_ids = |id: &Bson| {
        let operators = id.as_document();
        operators.is_none_or(|operators| ["$eq", "$in"].iter().any(|name| operators.contains_key(name)))
    };
    let is_by_ids = read.filter.get("_id").is_some_and(is_of_ids);
    // Behind a mongos, the proxy refuses `explain`.
    let is_explained = !sides.topology.is_behind_mongos() && !read.command.contains_key("aggregate");
    if !read.is_by_index || is_by_ids || !is_explained {
        return Ok(());
    }
    let reply = sides
        .shaped
        .run(&doc! { "explain": &read.command, "verbosity": "queryPlanner" })?;
    let explained = reply.get_document("mongoshape");
    let strategy = explained.ok().and_then(|explained| explained.get_str("strategy").ok());
    ensure!(
        strategy.is_some_and(|strategy| strategy != "pipeline"),
        "answered by {strategy:?}, though an index has the order: {}",
        show(&reply)
    );
    Ok(())
}

impl Sides {
    /// Runs a command that no side refuses.
    fn succeed(&mut self, command: &Document) -> Result<()> {
        for reply in self.both(command)? {
            let has_errors = matches!(reply.get("writeErrors"), Ok(Some(RawBsonRef::Array(_))));
            ensure!(compare::succeeded(&reply) && !has_errors, "{}", show(&reply));
        }
        Ok(())
    }
}
