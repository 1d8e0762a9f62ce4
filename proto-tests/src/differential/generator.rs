//! The source of random operations: the generator and its state.
//!
//! It does not read replies. So a seed gives the same operations on any server.

use std::collections::BTreeMap;

use bson::{Bson, Document, bson};
use rand::rngs::ChaCha8Rng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};

use super::coverage::Coverage;
use super::grammar::{Choice, Group};
use super::values;
use crate::shape::{ItemIds, Outlier, Shape};

/// How many different values a key field takes in one run: few, so that pages fill.
const KEY_VALUES: usize = 6;

/// Which times a generator's documents have. Pages are read in other ways, the more their times are in disorder.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Punctuality {
    /// Dates that ascend.
    Ascending,
    /// Dates, some of which are older than those before them.
    Late,
    /// Now and then no date at all.
    Anything,
}

/// The state of one run's generator.
#[derive(Debug)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "each is a trait of the run, whatever the others are"
)]
pub struct Generator {
    rng: ChaCha8Rng,
    /// The shape of the collection under test.
    pub shape: Shape,
    /// The same, where it is one of the outlier pattern: its array is longer in many documents, and more is
    /// done with it.
    pub outlier: Option<Outlier>,
    /// For each key field, the values that it takes; `None` is a missing field.
    keys: Vec<Vec<Option<Bson>>>,
    /// Numbers documents: the field `n`, which no two have in common.
    serial: i32,
    /// The time of the last document, in milliseconds.
    clock: i64,
    /// Which times documents have.
    pub(super) punctuality: Punctuality,
    /// The `_id`s given so far.
    ids: Vec<Bson>,
    /// Where documents were put, by their number: key fields and time, as far as they are known.
    places: BTreeMap<i32, Document>,
    /// Whether transactions change and delete.
    pub(super) changes: bool,
    /// Whether documents may move to another key, so that a key's are in no order that is known.
    pub moves: bool,
    /// Whether what was there was packed, so that a key's documents lie in the order of their times.
    pub(super) is_packed: bool,
    /// Whether there may be indexes, so that the plain side answers in any order.
    pub(super) has_indexes: bool,
    /// Whether most writes of one document name its key, as on a sharded collection.
    pub(super) names_keys: bool,
    /// Whether an upsert stores the fields of its filter in their order. mongod 7.0 stores them in any order.
    pub(super) upserts_keep_order: bool,
    /// Whether a `find` that excludes a field excludes all fields of that name. From 7.0 on, mongod excludes the first
    /// one or all, depending on its query engine.
    pub(super) excludes_repeated_fields: bool,
    /// Whether there are sessions, and with them retryable writes and transactions.
    pub has_sessions: bool,
    /// Which productions were taken.
    pub coverage: Coverage,
    /// Documents whose `_id`s servers give.
    given_by_servers: u32,
    /// The numbers of the documents that were given an `_id`.
    pub(super) numbers: Vec<(Bson, i32)>,
}

impl Generator {
    /// A generator from a seed.
    #[must_use]
    pub fn new(seed: u64, shape: Shape, coverage: Coverage) -> Self {
        let mut rng = ChaCha8Rng::seed_from_u64(seed);
        let kinds = [Punctuality::Ascending, Punctuality::Late, Punctuality::Anything];
        let punctuality = kinds[rng.random_range(0..kinds.len())];
        let mut generator = Self {
            rng,
            shape,
            outlier: None,
            keys: Vec::new(),
            punctuality,
            serial: 0,
            clock: 1_698_335_223_434,
            ids: Vec::new(),
            places: BTreeMap::new(),
            changes: false,
            moves: false,
            is_packed: false,
            has_indexes: false,
            names_keys: false,
            upserts_keep_order: true,
            excludes_repeated_fields: true,
            has_sessions: false,
            coverage,
            given_by_servers: 0,
            numbers: Vec::new(),
        };
        generator.choose_keys();
        generator
    }

    /// Chooses the values of each key field, first those that were not yet in any generator.
    fn choose_keys(&mut self) {
        let count = if self.shape.key.len() == 1 {
            KEY_VALUES
        } else {
            KEY_VALUES / 2
        };
        for _ in 0..self.shape.key.len() {
            let mut pool = values::keys();
            let mut chosen = Vec::new();
            for _ in 0..count {
                let value = self.example("document.key.value", &pool);
                pool.retain(|other| format!("{other:?}") != format!("{value:?}"));
                chosen.push(value);
            }
            self.keys.push(chosen);
        }
    }

    /// An alternative of a site.
    pub(super) fn take<C: Choice>(&mut self) -> C {
        self.take_where(|_: C| true)
    }

    /// An alternative of a site, of those that are possible here.
    ///
    /// # Panics
    /// When none is.
    pub(super) fn take_where<C: Choice>(&mut self, is_possible: impl Fn(C) -> bool) -> C {
        let weights = self.coverage.weights(C::SITE);
        let possible: Vec<usize> = (0..C::ALL.len()).filter(|index| is_possible(C::ALL[*index])).collect();
        let index = *self.pick_weighted(&possible, |index| weights[*index]);
        self.coverage.take((C::SITE.name, C::SITE.alternatives[index].0));
        C::ALL[index]
    }

    /// One of the examples of a list, of those that were taken least.
    ///
    /// # Panics
    /// When there is none.
    pub(super) fn example<T: Clone + std::fmt::Debug>(&mut self, list: &'static str, among: &[T]) -> T {
        let texts: Vec<String> = among.iter().map(|one| format!("{one:?}")).collect();
        let least = self.coverage.least(list, &texts);
        let index = self.pick(&least);
        self.coverage.take_example(list, &texts[index]);
        among[index].clone()
    }

    /// Generates a value whose choices are counted in pairs.
    pub(super) fn group<T>(&mut self, group: &'static Group, generate: impl FnOnce(&mut Self) -> T) -> T {
        self.coverage.begin(group);
        let made = generate(self);
        self.coverage.end();
        made
    }

    /// True in so many of a hundred cases.
    pub fn chance(&mut self, percent: u32) -> bool {
        self.rng.random_ratio(percent, 100)
    }

    /// A number below `end`.
    pub fn below(&mut self, end: u32) -> u32 {
        self.rng.random_range(0..end)
    }

    /// A number from `start` to `end`, both included.
    pub fn between(&mut self, start: i32, end: i32) -> i32 {
        self.rng.random_range(start..=end)
    }

    /// Puts things in any order.
    pub(super) fn shuffle<T>(&mut self, things: &mut [T]) {
        things.shuffle(&mut self.rng);
    }

    /// One of several.
    ///
    /// # Panics
    /// When there is none.
    pub fn pick<T: Clone>(&mut self, among: &[T]) -> T {
        among.choose(&mut self.rng).expect("something to choose from").clone()
    }

    /// One of several, by weight.
    ///
    /// # Panics
    /// When there is none of any weight.
    pub fn pick_weighted<'a, T>(&mut self, among: &'a [T], weight: impl Fn(&T) -> u32) -> &'a T {
        let chosen = among.choose_weighted(&mut self.rng, weight);
        chosen.expect("weights that are not all zero")
    }

    /// Whether items keep their `_id`, so that operations may name it.
    #[must_use]
    pub fn has_ids(&self) -> bool {
        self.shape.item_ids != ItemIds::Dropped
    }

    /// Whether both sides have their items in one order of `_id`, those included that servers give. Within a second,
    /// those of two proxies are in no order. An upsert's that may be sent again follows from the command, but for
    /// its seconds. Before outliers the proxy gives some.
    pub(super) fn has_ids_in_order(&self) -> bool {
        let is_in_order = !self.has_sessions || (!self.changes && self.given_by_servers < 2);
        is_in_order && self.outlier.is_none()
    }

    /// Counts a document whose `_id` the server gives.
    pub(super) fn leave_id_to_server(&mut self) {
        self.given_by_servers += 1;
    }

    /// A value of a key field; `None` stands for a missing one.
    pub fn key_value(&mut self, field: usize) -> Option<Bson> {
        // The first values are frequent, so that some keys have many pages.
        let pool = self.keys[field].clone();
        let first = self.chance(50);
        let value = if first { pool[0].clone() } else { self.pick(&pool) };
        // A mongos targets no page by a pattern.
        let is_targeted = !matches!(value, Some(Bson::RegularExpression(_)));
        value.filter(|_| is_targeted || !self.names_keys)
    }

    /// All keys that documents may have: every combination.
    #[must_use]
    pub fn all_keys(&self) -> Vec<Vec<Option<Bson>>> {
        self.keys.iter().fold(vec![Vec::new()], |combinations, pool| {
            let extend = |before: &Vec<Option<Bson>>| -> Vec<Vec<Option<Bson>>> {
                let with = |value: &Option<Bson>| before.iter().cloned().chain([value.clone()]).collect();
                pool.iter().map(with).collect()
            };
            combinations.iter().flat_map(extend).collect()
        })
    }

    /// The next document's number.
    pub fn next_serial(&mut self) -> i32 {
        self.serial += 1;
        self.serial
    }

    /// A position in the array of an outlier, or a length of it: mostly about the threshold, or about a
    /// page's end.
    pub(super) fn position(&mut self) -> i32 {
        let Some(outlier) = &self.outlier else {
            return self.between(0, 3);
        };
        let [threshold, page] =
            [outlier.threshold, outlier.max_items].map(|number| i32::try_from(number).unwrap_or(50));
        let about = self.pick(&[0, 1, threshold, threshold, threshold, threshold + page]);
        (about + self.between(-2, 2)).max(0)
    }

    /// A number that a document has, more or less.
    pub fn some_serial(&mut self) -> i32 {
        self.between(1, self.serial + 2)
    }

    /// A number that a document has or had. A later one would be given to two documents if an upsert made
    /// one of them.
    pub fn given_serial(&mut self) -> i32 {
        let number = self.some_serial();
        if number > self.serial {
            return self.next_serial();
        }
        number
    }

    /// Remembers the key fields and the time of a document.
    pub(super) fn remember_place(&mut self, number: i32, document: &Document) {
        let fields = self.shape.key.iter().chain(&self.shape.time);
        let fields = fields.filter_map(|name| Some((name.clone(), document.get(name)?.clone())));
        self.places.insert(number, fields.collect());
    }

    /// Remembers where a document is put.
    pub(super) fn remember(&mut self, number: i32, document: &Document) {
        self.remember_place(number, document);
        if let Some(id) = document.get("_id") {
            self.numbers.push((id.clone(), number));
        }
    }

    /// Key fields and time that a document was given, if it was.
    pub(super) fn place_of(&self, number: i32) -> Document {
        self.places.get(&number).cloned().unwrap_or_default()
    }

    /// Any filter for an upsert. It names no `_id` of another document if `_id`s are unique within a key: the plain
    /// collection would refuse a second one in another key.
    pub(super) fn any_filter_without_given_id(&mut self) -> Document {
        let mut filter = self.any_filter(1);
        if self.shape.item_ids == ItemIds::UniqueInKey {
            filter.remove("_id");
            remove_from_and(&mut filter, "_id");
        }
        filter
    }

    /// Adds the key of a document to the filter of a write, if writes need it and it is known. `number`: that of the
    /// document.
    pub(super) fn name_key(&mut self, filter: &mut Document, number: i32) {
        let is_found_by_id = self.shape.item_ids == ItemIds::UniqueInKey && filter.contains_key("_id");
        let omitted = if is_found_by_id { 40 } else { 3 };
        if !self.names_keys || !self.places.contains_key(&number) || self.chance(omitted) {
            return;
        }
        let place = self.place_of(number);
        for field in self.shape.key.clone() {
            remove_from_and(filter, &field);
            if !filter.contains_key(&field) {
                let value = place.get(&field).cloned().unwrap_or(Bson::Null);
                // An upsert may have given it by such a condition.
                let is_condition = value.as_document().is_some_and(|value| value.contains_key("$eq"));
                let condition = if is_condition { value } else { bson!({ "$eq": value }) };
                filter.insert(field, condition);
            }
        }
    }

    /// Adds a key to the filter of a write of the first matching document, if writes need it.
    pub(super) fn name_some_key(&mut self, filter: &mut Document) {
        if self.names_keys {
            self.shape.key.iter().for_each(|field| remove_from_and(filter, field));
            filter.extend(self.one_key());
        }
    }

    /// Whether documents of one key come in the order of their insertion.
    pub(super) fn keeps_order(&self) -> bool {
        !self.moves && !self.is_packed && !self.has_indexes && self.outlier.is_none()
    }

    /// The next document's time: a little later than the last one's, or the same.
    pub fn next_time(&mut self) -> i64 {
        let step = self.pick(&[0, 1, 700, 5000]);
        self.clock += step;
        self.clock
    }

    /// A time that has been.
    pub fn some_time(&mut self) -> i64 {
        self.clock - i64::from(self.below(300_000))
    }

    /// An `_id` that was given before.
    pub fn some_id(&mut self) -> Option<Bson> {
        let chosen = self.ids.choose(&mut self.rng);
        chosen.cloned()
    }

    /// An `_id` that a document was inserted with, and the document's number.
    pub(super) fn some_numbered_id(&mut self) -> Option<(Bson, i32)> {
        self.numbers.choose(&mut self.rng).cloned()
    }

    /// The `_id` that the document of a number was inserted with, if a server did not give it.
    pub(super) fn id_of(&self, number: i32) -> Option<Bson> {
        let (id, _) = self.numbers.iter().find(|(_, of_document)| *of_document == number)?;
        Some(id.clone())
    }

    /// Whether an `_id` is one that may be repeated.
    pub(super) fn has_given(&self, id: &Bson) -> bool {
        self.ids.contains(id)
    }

    /// Remembers an `_id`.
    pub fn gave_id(&mut self, id: &Bson) {
        self.ids.push(id.clone());
    }
}

/// Removes the parts of an `$and` that have a condition on the field. A mongos finds no shard key in a query that
/// names a field of it twice.
fn remove_from_and(filter: &mut Document, field: &str) {
    let Some(Bson::Array(parts)) = filter.get_mut("$and") else {
        return;
    };
    parts.retain_mut(|part| {
        let Some(part) = part.as_document_mut() else {
            return true;
        };
        remove_from_and(part, field);
        !part.contains_key(field) && !part.is_empty()
    });
    if parts.is_empty() {
        filter.remove("$and");
    }
}
