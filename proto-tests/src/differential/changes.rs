//! Made-up changes of documents.
//!
//! Nothing ever changes `n`: it names a document for as long as there is one.

mod outlier;

use bson::{Bson, DateTime, Document, Timestamp, bson, doc};

use super::World;

/// What is changed, beside key, time and `_id`.
const PATHS: &[&str] = &[
    "qty",
    "qty",
    "quantity",
    "count",
    "count",
    "history",
    "control",
    "tags",
    "tags",
    "nested",
    "nested.x",
    "nested.y.z",
    "nested.new.deep",
    "tags.0",
    "tags.x",
    "tags.3",
    "tags.$[]",
    "tags.$[].x",
    "tags.$[e]",
    "tags.$[e].x",
    "history.1.x",
    "qty.$[]",
    "absent",
    "stamp",
    "k.a",
    "tags.$",
    "",
];
/// Fields at the top, which any document may get, whatever it holds there.
const WHOLE: &[&str] = &["qty", "quantity", "count", "history", "control", "tags", "absent"];

/// A change.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) update: Bson,
    pub(super) array_filters: Option<Vec<Bson>>,
    /// What a document must meet for the change to succeed, so that no order decides which are changed before one fails.
    pub(super) needs: Document,
}

impl Change {
    fn of(update: impl Into<Bson>) -> Self {
        Self {
            update: update.into(),
            array_filters: None,
            needs: Document::new(),
        }
    }
}

impl World {
    /// A filter that one document meets, at most.
    pub(super) fn filter_of_one(&mut self) -> (Document, i32) {
        let number = self.some_serial();
        let mut filter = match self.below(10) {
            0..=4 => doc! {},
            5 | 6 => self.place_of(number),
            7 => self.one_key(),
            _ => self.any_filter(1),
        };
        filter.insert("n", number);
        (filter, number)
    }

    /// A filter of a few documents, more or less.
    pub(super) fn filter_of_some(&mut self) -> Document {
        if self.chance(10) {
            return self.one_key();
        }
        let mut filter = self.any_filter(1);
        let from = self.some_serial();
        let width = self.between(1, 40);
        filter.insert("n", doc! { "$gte": from, "$lt": from + width });
        filter
    }

    /// A change of any kind for a document of that number, which may fail.
    pub(super) fn change(&mut self, number: i32) -> Change {
        match self.below(12) {
            0..=3 => self.operators(),
            4..=7 => self.sure_change(),
            8 | 9 => self.replacement(number),
            _ => self.stages(),
        }
    }

    fn operators(&mut self) -> Change {
        let mut operators = Document::new();
        for _ in 0..=self.below(3) {
            let (name, path, operand) = self.operator();
            match operators.get_document_mut(name) {
                Ok(paths) => paths.insert(path, operand).map(drop),
                Err(_) => operators.insert(name, doc! { path: operand }).map(drop),
            };
        }
        let mut change = Change::of(operators);
        if change.update.to_string().contains("$[e]") && self.chance(95) {
            let filter = match self.below(4) {
                0 => doc! { "e": self.scalar() },
                1 => doc! { "e": { "$gte": self.scalar() } },
                2 => doc! { "e.x": { "$exists": true } },
                _ => doc! { "$or": [{ "e": { "$type": "number" } }, { "e.x": self.scalar() }] },
            };
            change.array_filters = Some(vec![filter.into()]);
        } else if self.chance(2) {
            change.array_filters = Some(vec![bson!({ "unused": 1 })]);
        }
        change
    }

    fn changed_path(&mut self) -> String {
        if let Some(array) = self.outlier.as_ref().map(|outlier| outlier.array.clone())
            && self.chance(40)
        {
            return match self.below(12) {
                0 => format!("{array}.{}", self.position()),
                1 => format!("{array}.{}.x", self.position()),
                2 => format!("{array}.$[]"),
                3 => format!("{array}.$[e]"),
                4 => format!("{array}.$[e].x"),
                5 => format!("{array}.$"),
                6 => format!("{array}.$.x"),
                _ => array,
            };
        }
        match self.below(40) {
            0 | 1 => {
                let keys = self.shape.key.clone();
                self.pick(&keys)
            }
            2 | 3 if self.shape.time.is_some() => self.shape.time.clone().unwrap_or_default(),
            4 => "_id".to_owned(),
            _ => self.pick(PATHS).to_owned(),
        }
    }

    /// What a path may be set to: of key and time mostly what they may be.
    fn new_value(&mut self, path: &str) -> Bson {
        if self.outlier.as_ref().is_some_and(|outlier| outlier.array == path) && self.chance(60) {
            return self.long_array();
        }
        if self.chance(90) {
            if let Some(position) = self.shape.key.iter().position(|key| key == path) {
                return self.key_value(position).unwrap_or(Bson::Null);
            }
            if self.shape.time.as_deref() == Some(path) {
                return Bson::DateTime(DateTime::from_millis(self.some_time()));
            }
        }
        self.value()
    }

    fn operator(&mut self) -> (&'static str, String, Bson) {
        let path = self.changed_path();
        let number = self.between(-2, 3);
        let (name, operand) = match self.below(40) {
            0..=9 => ("$set", self.new_value(&path)),
            10..=13 => ("$unset", bson!("")),
            14 | 15 => (
                "$inc",
                self.pick(&[bson!(number), bson!(1.5), Bson::Int64(2), bson!("x")]),
            ),
            16 | 17 => ("$mul", self.pick(&[bson!(number), bson!(0.5), Bson::Null])),
            18 | 19 => (self.pick(&["$min", "$max"]), self.new_value(&path)),
            20..=22 => ("$rename", bson!(self.changed_path())),
            23..=26 => ("$push", self.pushed()),
            27..=29 => (
                "$addToSet",
                self.pick(&[bson!(number), bson!({ "$each": [number, 1, number] })]),
            ),
            30..=32 => ("$pull", self.pulled()),
            33 => ("$pullAll", bson!([number, self.scalar()])),
            34 | 35 => ("$pop", self.pick(&[bson!(1), bson!(-1), bson!(7)])),
            36 => ("$bit", bson!({ self.pick(&["and", "or", "xor", "not"]): number })),
            37 => return ("$currentDate", "stamp".to_owned(), bson!({ "$type": "timestamp" })),
            38 => ("$setOnInsert", self.new_value(&path)),
            _ => ("$nope", bson!(1)),
        };
        (name, path, operand)
    }

    fn pushed(&mut self) -> Bson {
        match self.below(5) {
            0..=2 if self.outlier.is_some() => self.pushed_about(),
            0 => bson!({ "$each": [self.scalar(), self.value()], "$position": self.between(-2, 2) }),
            1 => bson!({ "$each": [self.scalar()], "$slice": self.between(-4, 4) }),
            2 => bson!({ "$each": [self.between(0, 5), 3], "$sort": self.pick(&[1, -1]) }),
            3 => bson!({ "$each": [{ "x": self.between(0, 5) }], "$sort": { "x": 1 }, "$slice": -3 }),
            _ => self.scalar(),
        }
    }

    fn pulled(&mut self) -> Bson {
        match self.below(4) {
            0 => bson!({ "$gt": self.scalar() }),
            1 => bson!({ "x": self.scalar() }),
            2 => bson!({ "$in": [self.scalar(), self.scalar()] }),
            _ => self.scalar(),
        }
    }

    /// A whole document: mostly one with the key and time of that which it replaces.
    fn replacement(&mut self, number: i32) -> Change {
        let mut document = self.document();
        if self.chance(70) {
            for name in self.shape.key.iter().chain(&self.shape.time) {
                document.remove(name);
            }
            document.extend(self.place_of(number));
        }
        if self.chance(90) {
            document.remove("_id");
        }
        document.insert("n", number);
        Change::of(document)
    }

    fn stages(&mut self) -> Change {
        let mut stages = vec![self.stage()];
        while self.chance(30) {
            stages.push(self.stage());
        }
        Change::of(stages)
    }

    fn stage(&mut self) -> Bson {
        let field = self.pick(WHOLE);
        let key = self.changed_path();
        if self.outlier.is_some() && self.chance(40) {
            return self.stage_of_array();
        }
        match self.below(16) {
            0..=2 => bson!({ "$set": { field: { "$literal": self.value() } } }),
            3 => bson!({ "$set": { field: { "$add": ["$n", 1] }, "nested.x": "$qty" } }),
            4 => bson!({ "$addFields": { field: { "$concatArrays": ["$tags", [1]] } } }),
            5 => bson!({ "$unset": [field, "nested.y"] }),
            6 => bson!({ "$project": { field: 0, "nested.x": 0 } }),
            7 => bson!({ "$replaceWith": { "$mergeObjects": ["$$ROOT", { field: "$count" }] } }),
            8 => bson!({ "$replaceRoot": { "newRoot": { "$mergeObjects": [{ field: 1 }, "$$ROOT"] } } }),
            9 => bson!({ "$set": { field: "$quantity", "quantity": "$qty" } }),
            10 => bson!({ "$set": { field: { "$ifNull": ["$control", "$$REMOVE"] } } }),
            11 => bson!({ "$set": { field: { "$divide": ["$n", self.between(0, 1)] } } }),
            12 => bson!({ "$set": { field: { "$type": "$k" } } }),
            13 if !key.is_empty() && !key.contains('$') => {
                bson!({ "$set": { &key: { "$literal": self.new_value(&key) } } })
            }
            14 => bson!({ "$set": { field: Bson::Timestamp(Timestamp { time: 0, increment: 0 }) } }),
            15 => bson!({ "$match": { "n": 1 } }),
            _ => bson!({ "$set": { field: "$$x" } }),
        }
    }

    /// A change that fails on no document which meets its needs.
    pub(super) fn sure_change(&mut self) -> Change {
        let field = self.pick(WHOLE);
        let number = self.between(0, 5);
        let is_array = doc! { "tags": { "$type": "array" } };
        let is_number = doc! { "count": { "$type": "number", "$not": { "$type": "array" } } };
        let is_document = doc! { "nested": { "$type": "object", "$not": { "$type": "array" } } };
        if self.outlier.is_some() && self.chance(30) {
            return self.sure_change_of_array(is_array);
        }
        let (update, needs) = match self.below(24) {
            0..=3 => (bson!({ "$set": { field: self.value() } }), doc! {}),
            4 | 5 => (bson!({ "$unset": { field: 1 } }), doc! {}),
            6 => (
                bson!({ self.pick(&["$min", "$max"]): { field: self.scalar() } }),
                doc! {},
            ),
            7 | 8 => {
                let to = self.pick(WHOLE);
                let to = if to == field { "other" } else { to };
                (bson!({ "$rename": { field: to } }), doc! {})
            }
            9 | 10 => (
                bson!({ "$inc": { "count": self.pick(&[bson!(1), bson!(0), bson!(0.5)]) } }),
                is_number,
            ),
            11 => (
                bson!({ "$mul": { "count": self.pick(&[bson!(1), bson!(-1), bson!(0.5)]) } }),
                is_number,
            ),
            12 => (bson!({ "$push": { "tags": number } }), is_array),
            13 => (bson!({ "$addToSet": { "tags": { "$each": [number, 1] } } }), is_array),
            14 => (bson!({ "$pull": { "tags": { "$gte": number } } }), is_array),
            15 => (bson!({ "$pop": { "tags": 1 } }), is_array),
            16 => (bson!({ "$set": { "tags.$[]": number } }), is_array),
            17 => (bson!({ "$set": { "nested.x": self.value() } }), is_document),
            18 => (bson!([{ "$set": { field: { "$literal": self.value() } } }]), doc! {}),
            19 => (bson!([{ "$set": { field: "$n" } }, { "$unset": "control" }]), doc! {}),
            20 => (
                bson!([{ "$replaceWith": { "$mergeObjects": ["$$ROOT", { field: "$qty" }] } }]),
                doc! {},
            ),
            21 | 22 => {
                let keys: Vec<String> = self.shape.key.iter().chain(&self.shape.time).cloned().collect();
                let path = self.pick(&keys);
                (
                    bson!({ "$set": { &path: self.new_value(&path), field: number } }),
                    doc! {},
                )
            }
            _ => {
                return Change {
                    array_filters: Some(vec![bson!({ "e": { "$gt": number } })]),
                    needs: is_array,
                    ..Change::of(bson!({ "$set": { "tags.$[e]": self.scalar() } }))
                };
            }
        };
        Change {
            needs,
            ..Change::of(update)
        }
    }
}
