//! Random filters.

use bson::{Bson, DateTime, Document, bson, doc};

use super::Generator;
use super::grammar::{CONDITION, Clause, Connective, FieldPlace, FilterForm, Operator};

impl Generator {
    /// A field to filter, sort or project by.
    pub fn field(&mut self) -> String {
        if let Some(array) = self.outlier.as_ref().map(|outlier| outlier.array.clone())
            && self.chance(35)
        {
            return match self.below(5) {
                0 => format!("{array}.{}", self.position()),
                1 => format!("{array}.x"),
                _ => array,
            };
        }
        let has_time = self.shape.time.is_some();
        let has_ids = self.has_ids();
        match self.take_where(|place: FieldPlace| match place {
            FieldPlace::Time => has_time,
            FieldPlace::Id => has_ids,
            _ => true,
        }) {
            FieldPlace::Key => {
                let keys = self.shape.key.clone();
                self.pick(&keys)
            }
            FieldPlace::Time => self.shape.time.clone().unwrap_or_default(),
            FieldPlace::Id => "_id".to_owned(),
            place => self.field_at(place).to_owned(),
        }
    }

    fn field_at(&mut self, place: FieldPlace) -> &'static str {
        match place {
            FieldPlace::Serial => "n",
            FieldPlace::Nested => self.pick(&["nested", "nested.x", "nested.x.y", "nested.y.z"]),
            FieldPlace::Position => self.pick(&["tags.0", "history.0.x", "count.1"]),
            FieldPlace::ThroughArray => self.pick(&["tags.x", "qty.x"]),
            FieldPlace::WithinKey => "k.a",
            FieldPlace::LikeABucket => self.pick(&["control", "control.page"]),
            FieldPlace::Absent => "absent",
            FieldPlace::NestedDollar => self.pick(&["qty.$f", "reference.$id"]),
            FieldPlace::Empty => "",
            _ => self.pick(&["qty", "quantity", "count", "history", "tags", "stamp"]),
        }
    }

    /// A filter: nothing, one key, one key and more, or anything.
    pub fn filter(&mut self) -> Document {
        let (has_time, has_ids) = (self.shape.time.is_some(), self.has_ids());
        match self.take_where(|form: FilterForm| match form {
            FilterForm::OneKeyInTime | FilterForm::InTime => has_time,
            FilterForm::ById | FilterForm::ByIdAndMore | FilterForm::ByIds => has_ids,
            _ => true,
        }) {
            FilterForm::Everything => doc! {},
            FilterForm::OneKey => self.one_key(),
            FilterForm::OneKeyInTime => {
                let mut filter = self.one_key();
                filter.insert(self.shape.time.clone().unwrap_or_default(), self.time_range());
                filter
            }
            FilterForm::OneKeyAndMore => {
                let mut filter = self.one_key();
                self.append_condition(&mut filter, 2);
                filter
            }
            FilterForm::InTime => doc! { self.shape.time.clone().unwrap_or_default(): self.time_range() },
            FilterForm::ById => doc! { "_id": self.some_id().unwrap_or(Bson::Null) },
            FilterForm::ByIdAndMore => {
                let mut filter = doc! { "_id": self.some_id().unwrap_or(Bson::Null) };
                self.append_condition(&mut filter, 1);
                filter
            }
            FilterForm::ByIds => {
                let ids: Vec<Bson> = (0..3).filter_map(|_| self.some_id()).filter(is_literal).collect();
                doc! { "_id": { "$in": ids } }
            }
            FilterForm::Any => self.any_filter(2),
        }
    }

    /// Equality on every key field.
    pub fn one_key(&mut self) -> Document {
        let mut clauses = Vec::new();
        for field in 0..self.shape.key.len() {
            let name = self.shape.key[field].clone();
            let value = self.key_value(field).unwrap_or(Bson::Null);
            let is_pattern = matches!(value, Bson::RegularExpression(_));
            let value = if is_pattern || self.chance(20) {
                bson!({ "$eq": value })
            } else {
                value
            };
            clauses.push(doc! { name: value });
        }
        if self.chance(10) {
            return doc! { "$and": clauses };
        }
        clauses.into_iter().flatten().collect()
    }

    /// One key and a range of time, and a condition that mongod refuses.
    pub(super) fn failing_in_time(&mut self) -> Document {
        let mut filter = self.one_key();
        if let Some(time) = self.shape.time.clone() {
            filter.insert(time, self.time_range());
        }
        filter.insert("qty", doc! { "$nope": 1 });
        filter
    }

    fn time_range(&mut self) -> Document {
        let (one, other) = (self.some_time(), self.some_time());
        let (first, last) = if self.chance(90) {
            (one.min(other), one.max(other))
        } else {
            (one, other)
        };
        let mut range = doc! {};
        let ends = self.below(3);
        if ends != 1 {
            range.insert(self.pick(&["$gt", "$gte"]), DateTime::from_millis(first));
        }
        if ends != 0 {
            range.insert(self.pick(&["$lt", "$lte"]), DateTime::from_millis(last));
        }
        range
    }

    /// A filter of any kind.
    pub fn any_filter(&mut self, depth: u32) -> Document {
        let mut filter = Document::new();
        for _ in 0..=self.below(2) {
            self.append_condition(&mut filter, depth);
        }
        filter
    }

    fn append_condition(&mut self, filter: &mut Document, depth: u32) {
        match self.take_where(|clause: Clause| depth > 0 || clause != Clause::Connective) {
            Clause::Connective => {
                let name = match self.take::<Connective>() {
                    Connective::And => "$and",
                    Connective::Or => "$or",
                    Connective::Nor => "$nor",
                };
                let branches: Vec<Bson> = (0..=self.below(2))
                    .map(|_| self.branch(name, depth - 1).into())
                    .collect();
                filter.insert(name, branches);
            }
            Clause::Expression => self.append_expression(filter),
            Clause::Comment => {
                filter.insert("$comment", "nothing");
            }
            Clause::Refused => {
                let refused = [
                    doc! { "$text": { "$search": "a" } },
                    doc! { "nested": { "$near": [1, 2] } },
                    doc! { "nested": { "$nearSphere": [1, 2] } },
                ];
                filter.extend(self.example("filter.clause.refused", &refused));
            }
            Clause::Code => {
                let code = [
                    bson!("this.n > 1"),
                    bson!("function() { return obj.qty != null }"),
                    bson!("Object.keys(this).indexOf('qty') > 0"),
                    bson!("var least = 3; return this.n >= least"),
                    bson!("this.nested && this.nested.x == 1"),
                    bson!("this.n =="),
                    bson!(""),
                    bson!(5),
                ];
                filter.insert("$where", self.example("filter.clause.code", &code));
            }
            Clause::Broken => {
                let broken = [
                    doc! { "$nope": 1 },
                    doc! { "qty": { "$nope": 1 } },
                    doc! { "$and": [] },
                    doc! { "qty": { "$in": 1 } },
                    doc! { "qty": { "$size": -1 } },
                    doc! { "qty": { "$mod": [0, 1] } },
                    doc! { "qty": { "$not": 1 } },
                    doc! { "qty": { "$elemMatch": 1 } },
                    doc! { "qty": { "$type": "nope" } },
                    doc! { "k": { "$nope": 1 } },
                    doc! { "$or": [{ "k": { "$nope": 1 } }, { "n": 1 }] },
                ];
                filter.extend(self.example("filter.clause.broken", &broken));
            }
            Clause::Condition => self.group(&CONDITION, |generator| {
                let field = generator.field();
                let condition = generator.condition(&field, depth);
                filter.insert(field, condition);
            }),
        }
    }

    fn branch(&mut self, connective: &str, depth: u32) -> Document {
        loop {
            let branch = self.any_filter(depth);
            if connective != "$nor" || !names_shape(&branch) {
                return branch;
            }
        }
    }

    fn append_expression(&mut self, filter: &mut Document) {
        let field = format!(
            "${}",
            self.pick(&["qty", "quantity", "count", "n", "k", "nested.x", "history"])
        );
        let kinds = doc! { "required": ["qty"], "properties": { "qty": { "bsonType": "int" } } };
        let expressions = [
            doc! { "$gt": [&field, { "$literal": self.scalar() }] },
            doc! { "$eq": [&field, { "$literal": self.value() }] },
            doc! { "$eq": [{ "$type": &field }, "int"] },
            doc! { "$and": [{ "$gte": ["$n", 3] }, { "$not": [{ "$isArray": &field }] }] },
        ];
        let condition = match self.example("filter.clause.expression", &[0, 1, 2, 3, 4, 5, 6]) {
            4 => doc! { "$jsonSchema": kinds },
            5 => doc! { "$jsonSchema": { "properties": { "k": { "bsonType": ["string", "object"] } } } },
            6 => doc! { "$sampleRate": 1.0 },
            number => doc! { "$expr": expressions[number].clone() },
        };
        filter.extend(condition);
    }

    /// A value to compare a field with: often one that documents have there.
    fn operand(&mut self, field: &str) -> Bson {
        if self.chance(70) {
            if let Some(position) = self.shape.key.iter().position(|key| key == field) {
                return self.key_value(position).unwrap_or(Bson::Null);
            }
            if Some(field) == self.shape.time.as_deref() {
                return Bson::DateTime(DateTime::from_millis(self.some_time()));
            }
            match field {
                "_id" => return self.some_id().unwrap_or(Bson::Null),
                "n" => return self.some_serial().into(),
                _ => {}
            }
        }
        self.value()
    }

    /// A condition on a field.
    pub(super) fn condition(&mut self, field: &str, depth: u32) -> Bson {
        let operand = self.operand(field);
        // `$elemMatch` of a field without a name makes mongod 6.0.5 crash where an index on another field may
        // be used.
        match self.take_where(|operator: Operator| match operator {
            Operator::ElementMatch | Operator::AllElements => !field.is_empty(),
            // mongod answers with an assertion of its own on a clustered collection, and where an index is on the
            // field and the condition is negated.
            Operator::GeoWithin | Operator::GeoIntersects => field != "_id" && depth > 0,
            Operator::Not => depth > 0,
            _ => true,
        }) {
            Operator::Equal => operand,
            Operator::Eq => bson!({ "$eq": operand }),
            Operator::Ne => bson!({ "$ne": operand }),
            Operator::Gt => bson!({ "$gt": operand }),
            Operator::Gte => bson!({ "$gte": operand }),
            Operator::Lt => bson!({ "$lt": operand }),
            Operator::Lte => bson!({ "$lte": operand }),
            Operator::Range => bson!({ "$gte": operand, "$lt": self.operand(field) }),
            Operator::In => bson!({ "$in": [operand, self.operand(field), Bson::Null] }),
            Operator::Nin => bson!({ "$nin": [operand, self.operand(field)] }),
            Operator::InPatterns => bson!({ "$in": [operand, super::values::regex("^b")] }),
            Operator::Exists => bson!({ "$exists": self.chance(50) }),
            Operator::Type => {
                let types = [
                    "int",
                    "double",
                    "number",
                    "null",
                    "array",
                    "object",
                    "date",
                    "string",
                    "symbol",
                    "undefined",
                ];
                bson!({ "$type": self.example("filter.operator.type", &types) })
            }
            Operator::Types => bson!({ "$type": ["string", 16, "array"] }),
            Operator::Size => bson!({ "$size": self.position() }),
            Operator::All => bson!({ "$all": [operand, self.scalar()] }),
            Operator::AllElements => bson!({ "$all": [{ "$elemMatch": { "$gt": self.scalar() } }] }),
            Operator::ElementMatch => self.element_match(depth),
            Operator::Not => self.negated(field),
            Operator::NotPattern => bson!({ "$not": super::values::regex("^a") }),
            Operator::Regex => bson!({ "$regex": self.pick(&["^a", "B", "^$", "1"]) }),
            Operator::RegexWithOptions => bson!({ "$regex": "^a", "$options": "i" }),
            Operator::BitsAllSet => bson!({ "$bitsAllSet": 1 }),
            Operator::BitsAnySet => bson!({ "$bitsAnySet": [0, 2] }),
            Operator::BitsAllClear => bson!({ "$bitsAllClear": 2 }),
            Operator::BitsAnyClear => bson!({ "$bitsAnyClear": 3 }),
            Operator::Mod => bson!({ "$mod": [2, self.between(0, 1)] }),
            Operator::GeoWithin => bson!({ "$geoWithin": { "$center": [[0, 0], 5] } }),
            Operator::GeoIntersects => {
                bson!({ "$geoIntersects": { "$geometry": { "type": "Point", "coordinates": [1, 2] } } })
            }
        }
    }

    fn negated(&mut self, field: &str) -> Bson {
        let inner = self.condition(field, 0);
        let is_operator = |inner: &Document| inner.keys().any(|name| name.starts_with('$'));
        match inner.as_document().filter(|inner| is_operator(inner)) {
            Some(inner) => bson!({ "$not": inner.clone() }),
            None => bson!({ "$not": { "$eq": inner } }),
        }
    }

    fn element_match(&mut self, depth: u32) -> Bson {
        if depth > 0 && self.chance(50) {
            return bson!({ "$elemMatch": { "x": self.condition("x", 0) } });
        }
        bson!({ "$elemMatch": { self.pick(&["$gt", "$lte", "$eq"]): self.scalar() } })
    }

    /// Whether a filter sets every key field equal to one value, by a simple check. This defines the order.
    #[must_use]
    pub fn is_one_key(&self, filter: &Document) -> bool {
        if !self.keeps_order() {
            return false;
        }
        let sets = |field: &str| equalities(filter).into_iter().any(|name| name == field);
        self.shape.key.iter().all(|field| sets(field))
    }
}

/// Whether a value may be in a list of `$in`.
fn is_literal(value: &Bson) -> bool {
    let is_operator = |value: &Document| value.keys().any(|name| name.starts_with('$'));
    !value.as_document().is_some_and(is_operator)
}

fn equalities(filter: &Document) -> Vec<&str> {
    let mut fields = Vec::new();
    for (name, value) in filter {
        match (name.as_str(), value) {
            ("$and", Bson::Array(clauses)) => {
                let clauses = clauses.iter().filter_map(Bson::as_document);
                fields.extend(clauses.flat_map(equalities));
            }
            (name, Bson::Document(condition)) => match condition.iter().next() {
                Some((operator, Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined))
                    if operator == "$eq" => {}
                Some((operator, _)) if operator == "$eq" && condition.len() == 1 => fields.push(name),
                Some((operator, _)) if operator.starts_with('$') => {}
                _ => fields.push(name),
            },
            (_, Bson::Array(_) | Bson::RegularExpression(_) | Bson::Undefined | Bson::Symbol(_)) => {}
            (name, _) => fields.push(name),
        }
    }
    fields
}

/// Whether a filter names `_id`: then the plain collection may answer in the order of its index on it.
pub(super) fn names_id(filter: &Document) -> bool {
    filter
        .iter()
        .any(|(name, value)| name.split('.').next() == Some("_id") || holds_id(value))
}

fn holds_id(value: &Bson) -> bool {
    match value {
        Bson::Document(document) => names_id(document),
        Bson::Array(values) => values.iter().any(holds_id),
        _ => false,
    }
}

/// Whether a filter has a condition on a shape in the plane.
fn names_shape(filter: &Document) -> bool {
    filter.iter().any(|(name, value)| {
        name.starts_with("$geo")
            || match value {
                Bson::Document(inner) => names_shape(inner),
                Bson::Array(branches) => branches.iter().filter_map(Bson::as_document).any(names_shape),
                _ => false,
            }
    })
}
