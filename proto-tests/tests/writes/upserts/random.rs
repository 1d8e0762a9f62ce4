//! Random filters and updates from a seed.

mod conditions;
mod operands;

use bson::{Bson, DateTime, Document, bson, doc};
use proto_tests::Shape;
use proto_tests::differential::{Coverage, Generator};
use rand::rngs::ChaCha8Rng;
use rand::seq::{IndexedRandom as _, SliceRandom as _};
use rand::{RngExt as _, SeedableRng as _};

/// Fields that lead into each other, and such as an order of numbers is seen in.
const PATHS: [&str; 20] = [
    "a", "b", "c", "d", "e", "a.b", "a.c", "a.b.c", "b.a", "b.0", "b.1", "b.12", "b.2", "c.x", "c.y", "Z", "_x", "10",
    "2", "_id",
];
const OPERATORS: [&str; 14] = [
    "$set",
    "$setOnInsert",
    "$inc",
    "$mul",
    "$min",
    "$max",
    "$currentDate",
    "$unset",
    "$push",
    "$addToSet",
    "$pull",
    "$pullAll",
    "$pop",
    "$bit",
];

/// Where cases come from.
pub(crate) struct RandomCases {
    random: ChaCha8Rng,
    generator: Generator,
}

impl RandomCases {
    pub(crate) fn new(seed: u64) -> Self {
        Self {
            random: ChaCha8Rng::seed_from_u64(seed),
            generator: Generator::new(seed, Shape::new(&["k"]), Coverage::default()),
        }
    }

    fn pick<T: Clone>(&mut self, of: &[T]) -> T {
        of.choose(&mut self.random).expect("not empty").clone()
    }

    fn chance(&mut self, percent: u32) -> bool {
        self.random.random_ratio(percent, 100)
    }

    fn some<'a>(&mut self, of: &[&'a str], most: usize) -> Vec<&'a str> {
        let mut of = of.to_vec();
        of.shuffle(&mut self.random);
        of.truncate(self.random.random_range(0..=most));
        of
    }

    /// A value that any filter may be equal to.
    fn value(&mut self) -> Bson {
        loop {
            let value = self.generator.value();
            let text = value.to_string();
            // Refused, or a pattern, where it stands in a filter.
            if !text.contains("undefined") && !text.contains("Undefined") {
                return value;
            }
        }
    }

    fn number(&mut self) -> Bson {
        let number = self.random.random_range(-5..100);
        self.pick(&[
            bson!(number),
            bson!(number),
            bson!(i32::MAX),
            bson!(i64::from(number)),
            bson!(i64::from(number)),
            bson!(f64::from(number) / 4.0),
        ])
    }

    fn plain(&mut self) -> Bson {
        let number = self.random.random_range(0..1000);
        self.pick(&[
            bson!(number),
            bson!(format!("text {number}")),
            bson!(true),
            Bson::Null,
            bson!({ "x": number, "y": { "z": [number] } }),
            bson!([number, "x"]),
            Bson::DateTime(DateTime::from_millis(i64::from(number) * 1_000_000)),
            bson!(f64::from(number) / 8.0),
            bson!(i64::from(number)),
        ])
    }

    /// What applications write: what is looked for names the document, and the operators fill it.
    pub(crate) fn common(&mut self) -> (Document, Bson) {
        if self.chance(15) {
            let mut replacement = doc! { "k": self.plain(), "n": self.number(), "at": self.plain() };
            replacement.insert("_y", self.plain());
            return (doc! { "_id": self.number(), "k": 1 }, Bson::Document(replacement));
        }
        let mut filter = Document::new();
        for path in self.some(&["_id", "k", "in.ner", "in.other", "deep.er.est", "Name", "z"], 4) {
            let value = self.plain();
            let value = if path == "_id" && value.as_array().is_some() {
                bson!("id")
            } else {
                value
            };
            let condition = if self.chance(20) {
                bson!({ "$eq": value })
            } else {
                value
            };
            filter.insert(path, condition);
        }
        if self.chance(30) {
            filter.insert(
                "count",
                self.pick(&[bson!({ "$lt": 10 }), bson!({ "$exists": false }), bson!(5)]),
            );
        }
        if self.chance(20) {
            filter = doc! { "$and": [filter, { "open": true }] };
        }
        let mut change = Document::new();
        for path in self.some(&["k", "made", "in.fresh", "new.a.b", "new.a.a", "Xx", "_y", "10"], 4) {
            let operator = self.pick(&["$set", "$setOnInsert", "$min", "$max", "$unset"]);
            let operator = if path == "k" { "$set" } else { operator };
            let value = self.plain();
            Self::add(&mut change, operator, path, value);
        }
        for path in self.some(&["count", "n.um", "total", "2", "stats.hits"], 3) {
            let operator = self.pick(&["$inc", "$inc", "$min", "$max", "$mul"]);
            let value = self.number();
            Self::add(&mut change, operator, path, value);
        }
        for path in self.some(&["tags", "list.of", "history"], 2) {
            let operator = self.pick(&["$push", "$addToSet"]);
            let value = match self.random.random_range(0..4) {
                0 => bson!({ "$each": [self.plain(), self.plain()] }),
                1 if operator == "$push" => {
                    let by = bson!({ "at": -1 });
                    bson!({ "$each": [{ "at": 3, "n": 1 }, { "at": 5 }], "$sort": by, "$slice": -2 })
                }
                _ => self.plain(),
            };
            Self::add(&mut change, operator, path, value);
        }
        for path in self.some(&["updated", "at.time"], 2) {
            let value = self.pick(&[bson!(true), bson!({ "$type": "date" }), bson!({ "$type": "timestamp" })]);
            Self::add(&mut change, "$currentDate", path, value);
        }
        if change.is_empty() {
            change.insert("$set", doc! {});
        }
        (filter, Bson::Document(change))
    }

    fn add(change: &mut Document, operator: &str, path: &str, value: Bson) {
        let mut paths = change.get_document(operator).cloned().unwrap_or_default();
        paths.insert(path, value);
        change.insert(operator, paths);
    }

    /// Anything that mongod parses.
    pub(crate) fn any(&mut self) -> (Document, Bson) {
        let filter = self.filter(2);
        let mut change = Document::new();
        let most = if self.chance(70) { 2 } else { 6 };
        for path in self.some(&PATHS, most) {
            let operator = self.pick(&OPERATORS);
            let operator = if path == "_id" && self.chance(70) {
                "$set"
            } else {
                operator
            };
            let value = self.operand(operator);
            Self::add(&mut change, operator, path, value);
        }
        if self.chance(10) {
            let (from, to) = (self.pick(&PATHS), self.pick(&["f", "a", "c.x", "g.h", "Z"]));
            let lead_into_each_other = from.starts_with(to) || to.starts_with(from);
            if !lead_into_each_other {
                Self::add(&mut change, "$rename", from, bson!(to));
            }
        }
        if change.is_empty() {
            change.insert("$setOnInsert", doc! { "f": 1 });
        }
        (filter, Bson::Document(change))
    }

    /// A replacement, and a filter with a condition on the `_id`.
    pub(crate) fn replacement(&mut self) -> (Document, Bson) {
        let ids = [
            bson!(1),
            bson!(1.0),
            bson!(2),
            bson!("x"),
            bson!({ "a": 1 }),
            bson!({ "a": 1.0 }),
            bson!([1]),
            bson!({ "$eq": 1 }),
            bson!({ "$in": ["x"] }),
            bson!({ "$gt": 1 }),
            bson!({ "b": [1] }),
        ];
        let mut filter = self.filter(1);
        for (path, percent) in [("_id", 60), ("_id.a", 5)] {
            if self.chance(percent) {
                filter.insert(path, self.pick(&ids));
            }
        }
        let mut replacement = Document::new();
        for path in self.some(&["a", "b", "_x", "Z", "10", "a.b"], 4) {
            replacement.insert(path, self.generator.value());
        }
        if self.chance(10) {
            replacement.insert("stamp", bson::Timestamp { time: 0, increment: 0 });
        }
        if self.chance(40) {
            // What has operators is none of a stored document's values.
            let id = self.pick(&ids[..7]);
            replacement.insert("_id", id);
        }
        (filter, Bson::Document(replacement))
    }

    /// Stages, on what a filter demands.
    pub(crate) fn pipeline(&mut self) -> (Document, Bson) {
        let none = bson::Timestamp { time: 0, increment: 0 };
        let stages = [
            bson!({ "$set": { "f": { "$ifNull": ["$a", "none"] }, "Z": 5 } }),
            bson!({ "$set": { "_id": 7 } }),
            bson!({ "$set": { "_id": "$a" } }),
            bson!({ "$set": { "c.y": ["$Z", 1] } }),
            bson!({ "$set": { "stamp": none } }),
            bson!({ "$unset": ["_id", "a"] }),
            bson!({ "$project": { "a": 1, "b": 1 } }),
            bson!({ "$replaceWith": { "base": "$$ROOT" } }),
            bson!({ "$replaceWith": { "x": 1, "_id": { "$ifNull": ["$_id", "new"] } } }),
        ];
        let first = self.pick(&stages);
        let stages = if self.chance(50) {
            bson!([first])
        } else {
            bson!([first, self.pick(&stages)])
        };
        (self.filter(1), stages)
    }
}
