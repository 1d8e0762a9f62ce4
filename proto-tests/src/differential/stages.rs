//! Random sorts, projections and pipelines.

use bson::{Bson, Document, bson, doc};

use super::Generator;
use super::expressions;
use super::filter::names_id;
use super::grammar::{FirstStage, PlainProjection, Projection, ProjectionForm, Stage, Summary};

/// A pipeline and the properties of its result.
#[derive(Debug, Default)]
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

impl Generator {
    /// A sort that leaves no two documents in either order.
    ///
    /// Not on a position in an array: mongod 6.0.5 sorts a plain collection wrongly by `a.1` when a
    /// projection keeps `a.1`, since it projects first and then finds no position 1. On a shaped one it sorts
    /// first.
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

    /// A projection of any form, or none, for a `find` with that filter.
    pub(super) fn projection(&mut self, filter: &Document) -> Option<Document> {
        match self.take::<Projection>() {
            Projection::None => None,
            Projection::Plain => Some(self.plain_projection()),
            Projection::FindOnly => Some(self.find_only_projection(filter)),
        }
    }

    fn plain_projection(&mut self) -> Document {
        let (one, other) = (self.field(), self.field());
        match self.take::<PlainProjection>() {
            PlainProjection::Two => doc! { one: 1, other: true },
            PlainProjection::WithoutId => doc! { one: 1, "_id": 0 },
            PlainProjection::Without => doc! { one: 0, other: false },
            PlainProjection::Id => doc! { "_id": self.pick(&[0, 1]) },
            PlainProjection::Computed => {
                let (name, expression) = self.expression();
                doc! { one: 1, "twice": { "$ifNull": ["$qty", "none"] }, "kept": "$quantity", name: expression }
            }
            PlainProjection::NestedDocument => doc! { "nested": { "x": 1, "y": { "z": 1 } } },
            PlainProjection::NestedOut => doc! { "nested.x": 0, "tags": 0 },
            PlainProjection::Swapped => doc! { "qty": "$count", "count": "$qty" },
            PlainProjection::Nothing => doc! {},
            PlainProjection::Broken => {
                let broken = [
                    doc! { "qty": 1, "count": 0 },
                    doc! { "nested": 1, "nested.x": 1 },
                    doc! { "": 1 },
                    doc! { "a..b": 1 },
                    doc! { "x": { "$nope": 1 } },
                    doc! { "$x": 1 },
                    doc! { "tags.$.x": 1 },
                ];
                self.example("projection.plain.broken", &broken)
            }
            PlainProjection::LikeABucket => doc! { "quantity": 1, "control": 1, "history": 1, "count": 1 },
            PlainProjection::Literal => {
                doc! { "n": 1, "word": "text", "null": Bson::Null, "list": ["$n", "$$ROOT.qty"] }
            }
        }
    }

    /// An expression that fails on no document, and a name for its value.
    pub(super) fn expression(&mut self) -> (String, Bson) {
        let (name, value) = self.example("stage.expression", &expressions::all());
        (name.trim_start_matches('$').to_owned(), value)
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
        match self.take::<ProjectionForm>() {
            ProjectionForm::Slice => {
                let arguments = [
                    bson!(1),
                    bson!(-1),
                    bson!(0),
                    bson!(1.7),
                    bson!([1, 1]),
                    bson!([-2, 1]),
                    bson!([1, 0]),
                    // An expression on a field that is an array in every document. On another type it
                    // fails, and the order of documents would decide when.
                    bson!([["$tags"], 1]),
                    bson!("x"),
                ];
                let argument = if self.outlier.is_some() && self.chance(40) {
                    let (position, sign) = (self.position(), self.pick(&[1, -1]));
                    self.pick(&[bson!(sign * position), bson!([sign * position, 3])])
                } else {
                    self.example("projection.form.slice", &arguments)
                };
                (field, bson!({ "$slice": argument }))
            }
            ProjectionForm::ElementMatch => {
                let conditions = [
                    bson!({ "x": { "$gt": 1 } }),
                    bson!({ "$lte": 2 }),
                    bson!({ "y": null }),
                    bson!({}),
                ];
                (
                    field,
                    bson!({ "$elemMatch": self.example("projection.form.elementMatch", &conditions) }),
                )
            }
            ProjectionForm::Positional => {
                // mongod refuses most fields that the filter does not name.
                let named = filter
                    .keys()
                    .find(|name| !name.starts_with('$') && !self.shape.key.contains(name));
                let root = named.and_then(|name| name.split('.').next()).unwrap_or("tags");
                (format!("{root}.$"), bson!(1))
            }
            ProjectionForm::Meta => {
                let kinds = [
                    "textScore",
                    "searchScore",
                    "sortKey",
                    "recordId",
                    "indexKey",
                    "randVal",
                    "nope",
                ];
                (field, bson!({ "$meta": self.example("projection.form.meta", &kinds) }))
            }
        }
    }

    /// A pipeline of a few stages.
    pub(super) fn pipeline(&mut self) -> Pipeline {
        let mut made = Pipeline::default();
        if self.take::<FirstStage>() == FirstStage::Match {
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
        self.append_summary(&mut made);
        made
    }

    /// A stage that gives a document for a document, or none.
    fn append_stage(&mut self, made: &mut Pipeline) {
        let stage = self.take::<Stage>();
        match stage {
            Stage::Sort => {
                let sort = self.total_sort();
                made.push(doc! { "$sort": sort });
                made.ordered = true;
            }
            Stage::Limit | Stage::Skip => {
                if !made.ordered {
                    made.push(doc! { "$sort": { "n": 1 } });
                    made.ordered = true;
                }
                made.push(if stage == Stage::Skip {
                    doc! { "$skip": 3 }
                } else {
                    doc! { "$limit": self.pick(&[7, 40]) }
                });
            }
            Stage::Match => {
                let mut filter = self.any_filter(1);
                // Behind other stages mongod itself finds no field with an empty name, or does, as it may
                // move the stage; a path with a `$` in it fails with 16410 on a plain collection, or does not.
                while names_unprojectable_field(&filter) {
                    filter = self.any_filter(1);
                }
                made.ordered &= !names_id(&filter);
                made.push(doc! { "$match": filter });
            }
            Stage::AddFields => {
                made.push(doc! { "$addFields": { "kind": { "$type": "$qty" }, "both": ["$n", "$count"] } });
            }
            Stage::Set => made.push(doc! { "$set": { "qty": { "$ifNull": ["$quantity", "none"] } } }),
            Stage::Unset => made.push(doc! { "$unset": self.pick(&["tags", "nested.x", "history"]) }),
            Stage::Project => made.push(doc! { "$project": { "n": 1, "qty": 1, "k": 1, "nested.x": 1, "tags": 1 } }),
            Stage::Expression => {
                let fields: Document = (0..4).map(|_| self.expression()).collect();
                made.push(doc! { "$addFields": fields });
            }
            Stage::Redact => {
                let keep = doc! { "$cond": [{ "$eq": [{ "$type": "$x" }, "string"] }, "$$PRUNE", "$$DESCEND"] };
                made.push(doc! { "$redact": keep });
            }
            Stage::ReplaceWith => {
                made.push(doc! { "$replaceWith": { "$mergeObjects": [{ "n": 0 }, "$$ROOT", { "was": "$k" }] } });
            }
        }
    }

    /// A last stage, or last ones, that put documents together or take them apart.
    fn append_summary(&mut self, made: &mut Pipeline) {
        let field = self.pick(&["qty", "quantity", "count", "k", "nested.x", "nested", "control"]);
        let path = format!("${field}");
        let was_ordered = made.ordered;
        let summary = self.take::<Summary>();
        if summary == Summary::None {
            return;
        }
        (made.loose, made.ordered) = (true, false);
        match summary {
            Summary::Unwind | Summary::UnwindNested | Summary::ReplaceRoot => {
                (made.loose, made.ordered) = (false, was_ordered);
                made.push(self.taken_apart(summary));
            }
            Summary::GroupPush => {
                made.push(doc! { "$sort": { "n": 1 } });
                made.push(doc! { "$group": { "_id": { "$type": path }, "first": { "$first": "$n" }, "n": { "$push": "$n" } } });
            }
            Summary::Facet => {
                let numbers = bson!([{ "$sort": { "n": 1 } }, { "$limit": 5 }, { "$project": { "_id": 0, "n": 1 } }]);
                let kinds = bson!([{ "$group": { "_id": { "$type": path } } }, { "$sort": { "_id": 1 } }]);
                made.push(doc! { "$facet": { "numbers": numbers, "kinds": kinds, "all": [{ "$count": "all" }] } });
            }
            Summary::GroupByExpression => {
                // Timestamps of mongod differ from each other; one of mongod and one of the proxy may be equal.
                let field = Some(self.field()).filter(|field| field != "stamp");
                let stage = self.grouped_by_expression(field.as_deref().unwrap_or("qty"));
                made.push(stage);
            }
            Summary::Group | Summary::GroupAll | Summary::Accumulators | Summary::SortByCount | Summary::Count => {
                let stage = self.grouped(summary, path);
                made.push(stage);
            }
            _ => made.stages.extend(windowed(summary, &path)),
        }
    }

    /// A stage that gives several documents, or other ones, for each.
    fn taken_apart(&mut self, summary: Summary) -> Document {
        match summary {
            Summary::Unwind => doc! { "$unwind": { "path": "$tags", "preserveNullAndEmptyArrays": self.chance(50) } },
            Summary::UnwindNested => doc! { "$unwind": { "path": "$nested.x", "includeArrayIndex": "place" } },
            _ => doc! { "$replaceRoot": { "newRoot": { "n": "$n", "was": "$nested", "key": "$k" } } },
        }
    }

    /// A group by any field, in any expression.
    fn grouped_by_expression(&mut self, field: &str) -> Document {
        let by = expressions::named(&self.example("summary.group.by", &expressions::groups()), field);
        let set = self.example("summary.group.gathered", &expressions::gathered());
        let set = expressions::named(&set, field);
        let path = format!("${field}");
        doc! { "$group": { "_id": by, "set": set, "most": { "$max": path }, "sum": { "$sum": "$n" } } }
    }

    fn grouped(&mut self, summary: Summary, path: String) -> Document {
        match summary {
            Summary::Group => doc! { "$group": {
                "_id": path, "sum": { "$sum": "$n" }, "min": { "$min": "$qty" }, "max": { "$max": "$n" }, "all": { "$sum": 1 }
            } },
            Summary::GroupAll => {
                doc! { "$group": { "_id": bson!(null), "last": { "$max": "$n" }, "kinds": { "$sum": 1 } } }
            }
            Summary::Accumulators => {
                let value = self.example("summary.accumulators", &expressions::accumulators());
                doc! { "$group": { "_id": { "$type": path }, "value": value } }
            }
            Summary::SortByCount => doc! { "$sortByCount": path },
            _ => doc! { "$count": "all" },
        }
    }
}

/// Stages that look at neighbours, or make groups of ranges.
fn windowed(summary: Summary, path: &str) -> Vec<Bson> {
    match summary {
        Summary::Bucket => vec![bson!({ "$bucket": {
            "groupBy": path, "boundaries": [0, 2, 4], "default": "other", "output": { "n": { "$sum": "$n" } }
        } })],
        Summary::BucketAuto => vec![bson!({ "$bucketAuto": { "groupBy": "$n", "buckets": 3 } })],
        Summary::SetWindowFields => vec![bson!({ "$setWindowFields": {
            "partitionBy": { "$type": path },
            "sortBy": { "n": 1 },
            "output": {
                "sum": { "$sum": "$n", "window": { "documents": ["unbounded", "current"] } },
                "place": { "$documentNumber": {} }, "rank": { "$rank": {} }, "dense": { "$denseRank": {} },
                "before": { "$shift": { "output": "$n", "by": -1, "default": 0 } },
                "mean": { "$expMovingAvg": { "input": "$n", "N": 2 } },
                "filled": { "$locf": "$n" }, "line": { "$linearFill": "$n" },
            }
        } })],
        Summary::Densify => vec![
            bson!({ "$project": { "_id": 0, "n": 1 } }),
            bson!({ "$densify": { "field": "n", "range": { "step": 1, "bounds": "full" } } }),
        ],
        Summary::Fill => vec![
            bson!({ "$project": { "_id": 0, "n": 1, "k": 1 } }),
            bson!({ "$fill": { "sortBy": { "n": 1 }, "output": { "k": { "method": "locf" }, "m": { "value": 1 } } } }),
        ],
        // All of them: which ones would be sampled is chance.
        _ => vec![
            bson!({ "$sample": { "size": 100_000 } }),
            bson!({ "$sort": { "n": 1 } }),
        ],
    }
}

fn names_unprojectable_field(filter: &Document) -> bool {
    let in_value = |value: &Bson| match value {
        Bson::Array(branches) => {
            let mut branches = branches.iter().filter_map(Bson::as_document);
            branches.any(names_unprojectable_field)
        }
        _ => false,
    };
    filter
        .iter()
        .any(|(name, value)| name.is_empty() || name.contains(".$") || in_value(value))
}
