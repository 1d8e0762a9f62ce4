//! Random updates of documents.
//!
//! No update changes `n`: it identifies a document for its whole life.

mod outlier;

use bson::{Bson, DateTime, Document, Timestamp, bson, doc};

use super::Generator;
use super::grammar::{
    ChangeForm, DollarChange, PathPlace, ReplacementId, SureChange, Target, UPDATE_OPERATOR, UpdateOperator,
    UpdateStage,
};

/// Top-level fields that any document may have, with any value.
const WHOLE: &[&str] = &["qty", "quantity", "count", "history", "control", "tags", "absent"];

/// An integer as one of another type, and any other value unchanged.
fn with_another_type(value: Bson) -> Bson {
    match value {
        Bson::Int32(number) => Bson::Int64(number.into()),
        Bson::Int64(number) => i32::try_from(number).map_or(Bson::Int64(number), Bson::from),
        other => other,
    }
}

/// A change.
#[derive(Debug, Clone)]
pub(super) struct Change {
    pub(super) update: Bson,
    pub(super) array_filters: Option<Vec<Bson>>,
    /// The conditions on a document for the update to succeed. Without them the order of documents would
    /// decide which are changed before one fails.
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

impl Generator {
    /// A filter that matches at most one document.
    pub(super) fn filter_of_one(&mut self) -> (Document, i32) {
        let number = self.some_serial();
        let has_ids = self.has_ids();
        let mut filter = match self.take_where(|target: Target| has_ids || target != Target::ById) {
            Target::Number => doc! {},
            Target::Place => self.place_of(number),
            Target::OneKey => self.one_key(),
            Target::ById => {
                let (id, number) = self.some_numbered_id().unwrap_or((Bson::Null, number));
                // An upsert may have been made with a condition on `_id`, which several documents meet.
                let is_condition = id
                    .as_document()
                    .is_some_and(|id| id.keys().any(|name| name.starts_with('$')));
                let id = if is_condition { bson!({ "$eq": id }) } else { id };
                let mut filter = doc! { "_id": id };
                self.name_key(&mut filter, number);
                return (filter, number);
            }
            Target::Any => self.any_filter(1),
        };
        filter.insert("n", number);
        self.name_key(&mut filter, number);
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

    /// The filter, mostly with a condition that can determine the element of a positional operator of the
    /// change.
    pub(super) fn on_element(&mut self, mut filter: Document, change: &Change) -> Document {
        let is_positional = self.outlier.is_none() && change.update.to_string().contains("tags.$\"");
        if is_positional && self.chance(80) {
            let field = self.pick(&["tags", "tags", "tags", "tags.x", "history"]);
            let condition = self.condition(field, 1);
            filter.insert(field, condition);
        }
        filter
    }

    /// A change of any kind for a document of that number, which may fail.
    pub(super) fn change(&mut self, number: i32) -> Change {
        match self.take::<ChangeForm>() {
            ChangeForm::Operators => self.operators(),
            ChangeForm::Sure => self.sure_change(),
            ChangeForm::Replacement => self.replacement(number),
            ChangeForm::Stages => self.stages(),
            ChangeForm::Dollar => self.dollar(number),
        }
    }

    /// An update of a field whose name begins with `$`.
    pub(super) fn dollar(&mut self, number: i32) -> Change {
        let place = self.place_of(number);
        let with = |name: &str, value: Bson| {
            let mut document = doc! { "n": number };
            document.extend(place.clone());
            document.insert(name, value);
            document
        };
        match self.take::<DollarChange>() {
            DollarChange::SetTop => Change::of(bson!({ "$set": { "$f": 1 } })),
            DollarChange::IncTop => Change::of(bson!({ "$inc": { "$f": 1 } })),
            DollarChange::SetReference => {
                let names = ["$ref", "$id", "$db"];
                Change::of(bson!({ "$set": { self.example("update.dollar.setReference", &names): 1 } }))
            }
            DollarChange::SetNested => Change::of(bson!({ "$set": { "nested.$f": 1 } })),
            DollarChange::UnsetTop => Change::of(bson!({ "$unset": { "$f": 1 } })),
            DollarChange::ReplaceTop => Change::of(with("$f", bson!(1))),
            DollarChange::ReplaceNested => Change::of(with("nested", bson!({ "$f": 1 }))),
            DollarChange::Stage => Change::of(bson!([{ "$set": { "qty": { "$literal": { "$f": 1 } } } }])),
        }
    }

    fn operators(&mut self) -> Change {
        let mut operators = Document::new();
        for _ in 0..=self.below(3) {
            let (name, path, operand) = self.group(&UPDATE_OPERATOR, Self::operator);
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
        let has_time = self.shape.time.is_some();
        match self.take_where(|place: PathPlace| has_time || place != PathPlace::Time) {
            PathPlace::Key => {
                let keys = self.shape.key.clone();
                self.pick(&keys)
            }
            PathPlace::Time => self.shape.time.clone().unwrap_or_default(),
            place => self.path_at(place).to_owned(),
        }
    }

    fn path_at(&mut self, place: PathPlace) -> &'static str {
        match place {
            PathPlace::Id => "_id",
            PathPlace::Nested => self.pick(&["nested", "nested.x", "nested.y.z"]),
            PathPlace::NewNested => "nested.new.deep",
            PathPlace::Position => self.pick(&["tags.0", "tags.3", "history.1.x"]),
            PathPlace::ThroughArray => "tags.x",
            PathPlace::AllElements => self.pick(&["tags.$[]", "tags.$[].x", "qty.$[]"]),
            PathPlace::SomeElements => self.pick(&["tags.$[e]", "tags.$[e].x"]),
            PathPlace::Positional => "tags.$",
            PathPlace::WithinKey => "k.a",
            PathPlace::Absent => "absent",
            PathPlace::Empty => "",
            PathPlace::Dollar => "$f",
            PathPlace::NestedDollar => "nested.$f",
            _ => self.pick(&[
                "qty", "qty", "quantity", "count", "count", "history", "control", "tags", "tags", "stamp",
            ]),
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
        let is_about_outlier = self.outlier.is_some() && self.chance(60);
        let (name, operand) = match self.take::<UpdateOperator>() {
            UpdateOperator::Set => ("$set", self.new_value(&path)),
            UpdateOperator::Unset => ("$unset", bson!("")),
            UpdateOperator::Inc => (
                "$inc",
                self.pick(&[bson!(number), bson!(1.5), Bson::Int64(2), bson!("x"), bson!(f64::NAN)]),
            ),
            UpdateOperator::Mul => ("$mul", self.pick(&[bson!(number), bson!(0.5), Bson::Null])),
            UpdateOperator::Min => ("$min", self.new_value(&path)),
            UpdateOperator::Max => ("$max", self.new_value(&path)),
            UpdateOperator::Rename => ("$rename", bson!(self.changed_path())),
            UpdateOperator::Push | UpdateOperator::PushPosition | UpdateOperator::PushSlice if is_about_outlier => {
                ("$push", self.pushed_about())
            }
            UpdateOperator::Push => ("$push", self.scalar()),
            UpdateOperator::PushPosition => (
                "$push",
                bson!({ "$each": [self.scalar(), self.value()], "$position": self.between(-2, 2) }),
            ),
            UpdateOperator::PushSlice => (
                "$push",
                bson!({ "$each": [self.scalar()], "$slice": self.between(-4, 4) }),
            ),
            UpdateOperator::PushSort => (
                "$push",
                bson!({ "$each": [self.between(0, 5), 3], "$sort": self.pick(&[1, -1]) }),
            ),
            UpdateOperator::PushSortSlice => (
                "$push",
                bson!({ "$each": [{ "x": self.between(0, 5) }], "$sort": { "x": 1 }, "$slice": -3 }),
            ),
            UpdateOperator::AddToSet | UpdateOperator::AddEachToSet if is_about_outlier => {
                ("$addToSet", self.added_to_set())
            }
            UpdateOperator::AddToSet => ("$addToSet", bson!(number)),
            UpdateOperator::AddEachToSet => ("$addToSet", bson!({ "$each": [number, 1, number] })),
            UpdateOperator::Pull => ("$pull", self.scalar()),
            UpdateOperator::PullCondition => ("$pull", self.pulled()),
            UpdateOperator::PullIn => ("$pull", bson!({ "$in": [self.scalar(), self.scalar()] })),
            UpdateOperator::PullAll => ("$pullAll", bson!([number, self.scalar()])),
            UpdateOperator::Pop => ("$pop", self.pick(&[bson!(1), bson!(-1), bson!(7)])),
            UpdateOperator::Bit => ("$bit", bson!({ self.pick(&["and", "or", "xor", "not"]): number })),
            UpdateOperator::CurrentTimestamp => {
                return ("$currentDate", "stamp".to_owned(), bson!({ "$type": "timestamp" }));
            }
            // What is there then is never the same.
            UpdateOperator::CurrentDate => return ("$currentDate", "stamp".to_owned(), bson!({ "$type": "nope" })),
            UpdateOperator::SetOnInsert => ("$setOnInsert", self.new_value(&path)),
            UpdateOperator::Unknown => ("$nope", bson!(1)),
        };
        (name, path, operand)
    }

    fn pulled(&mut self) -> Bson {
        if self.chance(50) {
            bson!({ "$gt": self.scalar() })
        } else {
            bson!({ "x": self.scalar() })
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
        let id = self.id_of(number);
        match self.take::<ReplacementId>() {
            ReplacementId::Absent => drop(document.remove("_id")),
            ReplacementId::Any => {}
            ReplacementId::Same => drop(id.map(|id| document.insert("_id", id))),
            ReplacementId::AnotherType => drop(id.map(|id| document.insert("_id", with_another_type(id)))),
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
        let is_path = !key.is_empty() && !key.contains('$');
        match self.take_where(|stage: UpdateStage| is_path || stage != UpdateStage::Place) {
            UpdateStage::Literal => bson!({ "$set": { field: { "$literal": self.value() } } }),
            UpdateStage::Computed => bson!({ "$set": { field: { "$add": ["$n", 1] }, "nested.x": "$qty" } }),
            UpdateStage::AddFields => bson!({ "$addFields": { field: { "$concatArrays": ["$tags", [1]] } } }),
            UpdateStage::Unset => bson!({ "$unset": [field, "nested.y"] }),
            UpdateStage::Project => bson!({ "$project": { field: 0, "nested.x": 0 } }),
            UpdateStage::ReplaceWith => {
                bson!({ "$replaceWith": { "$mergeObjects": ["$$ROOT", { field: "$count" }] } })
            }
            UpdateStage::ReplaceRoot => {
                bson!({ "$replaceRoot": { "newRoot": { "$mergeObjects": [{ field: 1 }, "$$ROOT"] } } })
            }
            UpdateStage::Swap => bson!({ "$set": { field: "$quantity", "quantity": "$qty" } }),
            UpdateStage::Remove => bson!({ "$set": { field: { "$ifNull": ["$control", "$$REMOVE"] } } }),
            UpdateStage::Failing => bson!({ "$set": { field: { "$divide": ["$n", self.between(0, 1)] } } }),
            UpdateStage::TypeOfKey => bson!({ "$set": { field: { "$type": "$k" } } }),
            UpdateStage::Place => bson!({ "$set": { &key: { "$literal": self.new_value(&key) } } }),
            UpdateStage::EmptyTimestamp => {
                bson!({ "$set": { field: Bson::Timestamp(Timestamp { time: 0, increment: 0 }) } })
            }
            UpdateStage::Forbidden => bson!({ "$match": { "n": 1 } }),
            UpdateStage::Variable => bson!({ "$set": { field: "$$x" } }),
        }
    }

    /// An update that fails on no document that satisfies its needs.
    pub(super) fn sure_change(&mut self) -> Change {
        let field = self.pick(WHOLE);
        let number = self.between(0, 5);
        let is_array = doc! { "tags": { "$type": "array" } };
        let is_number = doc! { "count": { "$type": "number", "$not": { "$type": "array" } } };
        let is_document = doc! { "nested": { "$type": "object", "$not": { "$type": "array" } } };
        if self.outlier.is_some() && self.chance(30) {
            return self.sure_change_of_array(is_array);
        }
        let (update, needs) = match self.take::<SureChange>() {
            SureChange::Set => (bson!({ "$set": { field: self.value() } }), doc! {}),
            SureChange::Unset => (bson!({ "$unset": { field: 1 } }), doc! {}),
            SureChange::MinMax => (
                bson!({ self.pick(&["$min", "$max"]): { field: self.scalar() } }),
                doc! {},
            ),
            SureChange::Rename => {
                let to = self.pick(WHOLE);
                let to = if to == field { "other" } else { to };
                (bson!({ "$rename": { field: to } }), doc! {})
            }
            SureChange::Inc => (
                bson!({ "$inc": { "count": self.pick(&[bson!(1), bson!(0), bson!(0.5)]) } }),
                is_number,
            ),
            SureChange::Mul => (
                bson!({ "$mul": { "count": self.pick(&[bson!(1), bson!(-1), bson!(0.5)]) } }),
                is_number,
            ),
            SureChange::Push => (bson!({ "$push": { "tags": number } }), is_array),
            SureChange::AddToSet => (bson!({ "$addToSet": { "tags": { "$each": [number, 1] } } }), is_array),
            SureChange::Pull => (bson!({ "$pull": { "tags": { "$gte": number } } }), is_array),
            SureChange::Pop => (bson!({ "$pop": { "tags": 1 } }), is_array),
            SureChange::AllElements => (bson!({ "$set": { "tags.$[]": number } }), is_array),
            SureChange::Nested => (bson!({ "$set": { "nested.x": self.value() } }), is_document),
            SureChange::Literal => (bson!([{ "$set": { field: { "$literal": self.value() } } }]), doc! {}),
            SureChange::Stages => (bson!([{ "$set": { field: "$n" } }, { "$unset": "control" }]), doc! {}),
            SureChange::ReplaceWith => (
                bson!([{ "$replaceWith": { "$mergeObjects": ["$$ROOT", { field: "$qty" }] } }]),
                doc! {},
            ),
            SureChange::Place => {
                let keys: Vec<String> = self.shape.key.iter().chain(&self.shape.time).cloned().collect();
                let path = self.pick(&keys);
                (
                    bson!({ "$set": { &path: self.new_value(&path), field: number } }),
                    doc! {},
                )
            }
            SureChange::SomeElements => {
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
