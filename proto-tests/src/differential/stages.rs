//! Made-up sorts, projections and pipelines.

use bson::{Bson, Document, bson, doc};

use super::World;
use super::filter::names_id;

/// A pipeline and what is known of its answer.
#[derive(Debug)]
pub(super) struct Pipeline {
    pub(super) stages: Vec<Bson>,
    /// Whether the order of the answer is defined.
    pub(super) ordered: bool,
    /// Whether it is at first because all is of one key, in the order of its insertion.
    pub(super) begins_with_one_key: bool,
    /// Whether the answer is put together out of items in natural order.
    pub(super) loose: bool,
}

impl Pipeline {
    fn push(&mut self, stage: Document) {
        self.stages.push(stage.into());
    }
}

impl World {
    /// A sort that leaves no two documents in either order.
    ///
    /// Not on a position in an array: mongod 6.0.5 sorts a plain collection wrongly by `a.1` when a projection keeps `a.1`,
    /// since it projects first and then finds no position 1. On a shaped one it sorts first.
    pub(super) fn total_sort(&mut self) -> Document {
        let mut sort = Document::new();
        if self.chance(70) {
            let field = self.field();
            let by_position = field.split('.').any(|part| part.parse::<u32>().is_ok());
            if !field.is_empty() && !by_position && field.split('.').next() != Some("n") && field != "_id" {
                sort.insert(field, self.pick(&[1, -1]));
            }
        }
        let by_id = self.has_ids() && self.chance(60) && self.has_ids_in_order();
        let tie = if by_id { "_id" } else { "n" };
        sort.insert(tie, self.pick(&[1, -1]));
        sort
    }

    /// A projection of any form, for a `find` with that filter.
    pub(super) fn projection(&mut self, filter: &Document) -> Document {
        if self.chance(25) {
            return self.find_only_projection(filter);
        }
        let (one, other) = (self.field(), self.field());
        match self.below(19) {
            0..=4 => doc! { one: 1, other: true },
            5 | 6 => doc! { one: 1, "_id": 0 },
            7..=9 => doc! { one: 0, other: false },
            10 => doc! { "_id": self.pick(&[0, 1]) },
            11 => doc! { one: 1, "twice": { "$ifNull": ["$qty", "none"] }, "kept": "$quantity" },
            12 => doc! { "kind": { "$type": "$k" }, "n": 1 },
            13 => doc! { "nested": { "x": 1, "y": { "z": 1 } } },
            14 => doc! { "nested.x": 0, "tags": 0 },
            15 => doc! { "qty": "$count", "count": "$qty" },
            16 => doc! {},
            17 => {
                let broken = [
                    doc! { "qty": 1, "count": 0 },
                    doc! { "nested": 1, "nested.x": 1 },
                    doc! { "": 1 },
                    doc! { "a..b": 1 },
                    doc! { "x": { "$nope": 1 } },
                    doc! { "$x": 1 },
                ];
                self.pick(&broken)
            }
            _ => doc! { "quantity": 1, "control": 1, "history": 1, "count": 1 },
        }
    }

    /// A projection with a form that only `find` has, beside others.
    fn find_only_projection(&mut self, filter: &Document) -> Document {
        let mut projection = Document::new();
        if self.chance(40) {
            projection.insert(
                self.field(),
                self.pick(&[bson!(0), bson!(1), bson!("$tags"), bson!(true)]),
            );
        }
        for _ in 0..=self.below(2) {
            let (field, form) = self.find_only_form(filter);
            projection.insert(field, form);
        }
        if self.chance(20) {
            projection.insert("_id", self.pick(&[0, 1]));
        }
        projection
    }

    fn find_only_form(&mut self, filter: &Document) -> (String, Bson) {
        let paths = [
            "tags",
            "tags.x",
            "tags.y",
            "nested.x",
            "nested.x.y",
            "nested",
            "qty",
            "history",
            "k",
            "_id",
        ];
        let field = self.pick(&paths).to_owned();
        match self.below(10) {
            0..=3 => {
                let arguments = [
                    bson!(1),
                    bson!(-1),
                    bson!(0),
                    bson!(1.7),
                    bson!([1, 1]),
                    bson!([-2, 1]),
                    bson!([1, 0]),
                    // The expression: of what is an array in every document, as it fails on others, and which are met is free.
                    bson!([["$tags"], 1]),
                    bson!("x"),
                ];
                let argument = if self.outlier.is_some() && self.chance(40) {
                    let (position, sign) = (self.position(), self.pick(&[1, -1]));
                    self.pick(&[bson!(sign * position), bson!([sign * position, 3])])
                } else {
                    self.pick(&arguments)
                };
                (field, bson!({ "$slice": argument }))
            }
            4 | 5 => {
                let conditions = [
                    bson!({ "x": { "$gt": 1 } }),
                    bson!({ "$lte": 2 }),
                    bson!({ "y": null }),
                    bson!({}),
                ];
                (field, bson!({ "$elemMatch": self.pick(&conditions) }))
            }
            6..=8 => {
                // Most of what a filter does not name mongod refuses.
                let named = filter
                    .keys()
                    .find(|name| !name.starts_with('$') && !self.shape.key.contains(name));
                let root = named.and_then(|name| name.split('.').next()).unwrap_or("tags");
                (format!("{root}.$"), bson!(1))
            }
            _ => {
                let kinds = [
                    "textScore",
                    "searchScore",
                    "sortKey",
                    "recordId",
                    "indexKey",
                    "randVal",
                    "nope",
                ];
                (field, bson!({ "$meta": self.pick(&kinds) }))
            }
        }
    }

    /// A pipeline of a few stages.
    pub(super) fn pipeline(&mut self) -> Pipeline {
        let mut made = Pipeline {
            stages: Vec::new(),
            ordered: false,
            begins_with_one_key: false,
            loose: false,
        };
        if self.chance(70) {
            let filter = self.filter();
            made.begins_with_one_key = self.is_one_key(&filter) && !names_id(&filter);
            made.ordered = made.begins_with_one_key;
            made.push(doc! { "$match": filter });
        }
        if !self.has_ids() {
            made.push(doc! { "$unset": "_id" });
        }
        for _ in 0..self.below(4) {
            self.append_stage(&mut made);
        }
        if self.chance(50) {
            self.append_summary(&mut made);
        }
        made
    }

    /// A stage that gives a document for a document, or none.
    fn append_stage(&mut self, made: &mut Pipeline) {
        match self.below(10) {
            0..=2 => {
                let sort = self.total_sort();
                made.push(doc! { "$sort": sort });
                made.ordered = true;
            }
            3 | 4 => {
                if !made.ordered {
                    made.push(doc! { "$sort": { "n": 1 } });
                    made.ordered = true;
                }
                let stage = self.pick(&[doc! { "$limit": 7 }, doc! { "$skip": 3 }, doc! { "$limit": 40 }]);
                made.push(stage);
            }
            5 => {
                let mut filter = self.any_filter(1);
                // Behind other stages mongod itself finds no field with an empty name, or does, as it may move the stage.
                while names_empty_field(&filter) {
                    filter = self.any_filter(1);
                }
                made.ordered &= !names_id(&filter);
                made.push(doc! { "$match": filter });
            }
            6 => made.push(doc! { "$addFields": { "kind": { "$type": "$qty" }, "both": ["$n", "$count"] } }),
            7 => made.push(doc! { "$set": { "qty": { "$ifNull": ["$quantity", "none"] } } }),
            8 => made.push(doc! { "$unset": self.pick(&["tags", "nested.x", "history"]) }),
            _ => made.push(doc! { "$project": { "n": 1, "qty": 1, "k": 1, "nested.x": 1, "tags": 1 } }),
        }
    }

    /// A last stage, or last ones, that put documents together or take them apart.
    fn append_summary(&mut self, made: &mut Pipeline) {
        let field = self.pick(&["qty", "quantity", "count", "k", "nested.x", "nested", "control"]);
        let path = format!("${field}");
        let was_ordered = made.ordered;
        (made.loose, made.ordered) = (true, false);
        match self.below(10) {
            0 | 1 => made.push(doc! { "$group": {
                "_id": path, "sum": { "$sum": "$n" }, "min": { "$min": "$qty" }, "max": { "$max": "$n" }, "all": { "$sum": 1 }
            } }),
            2 => made.push(doc! { "$group": { "_id": bson!(null), "last": { "$max": "$n" }, "kinds": { "$sum": 1 } } }),
            3 => made.push(doc! { "$sortByCount": path }),
            4 => made.push(doc! { "$count": "all" }),
            5 => made.push(doc! { "$bucket": {
                "groupBy": path, "boundaries": [0, 2, 4], "default": "other", "output": { "n": { "$sum": "$n" } }
            } }),
            6 => {
                let numbers = bson!([{ "$sort": { "n": 1 } }, { "$limit": 5 }, { "$project": { "_id": 0, "n": 1 } }]);
                let kinds = bson!([{ "$group": { "_id": { "$type": path } } }, { "$sort": { "_id": 1 } }]);
                made.push(doc! { "$facet": { "numbers": numbers, "kinds": kinds, "all": [{ "$count": "all" }] } });
            }
            7 => {
                made.push(doc! { "$unwind": { "path": "$tags", "preserveNullAndEmptyArrays": self.chance(50) } });
                (made.loose, made.ordered) = (false, was_ordered);
            }
            8 => {
                made.push(doc! { "$replaceRoot": { "newRoot": { "n": "$n", "was": "$nested", "key": "$k" } } });
                (made.loose, made.ordered) = (false, was_ordered);
            }
            _ => {
                made.push(doc! { "$sort": { "n": 1 } });
                made.push(doc! { "$group": { "_id": { "$type": path }, "first": { "$first": "$n" }, "n": { "$push": "$n" } } });
            }
        }
    }
}

fn names_empty_field(filter: &Document) -> bool {
    let in_value = |value: &Bson| match value {
        Bson::Array(branches) => branches.iter().filter_map(Bson::as_document).any(names_empty_field),
        _ => false,
    };
    filter.iter().any(|(name, value)| name.is_empty() || in_value(value))
}
