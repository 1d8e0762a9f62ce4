//! Made-up filters.

use bson::{Bson, DateTime, Document, bson, doc};

use super::World;

/// Fields that filters name, beside key, time and `_id`.
const FIELDS: &[&str] = &[
    "qty",
    "quantity",
    "count",
    "history",
    "control",
    "tags",
    "nested",
    "nested.x",
    "nested.x.y",
    "nested.y.z",
    "tags.0",
    "tags.x",
    "history.0.x",
    "qty.x",
    "count.1",
    "control.page",
    "absent",
    "n",
    "stamp",
    "k.a",
    "",
];

impl World {
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
        match self.below(20) {
            0..=2 => {
                let keys = self.shape.key.clone();
                self.pick(&keys)
            }
            3 | 4 if self.shape.time.is_some() => self.shape.time.clone().unwrap_or_default(),
            5 if self.has_ids() => "_id".to_owned(),
            _ => self.pick(FIELDS).to_owned(),
        }
    }

    /// A filter: nothing, one key, one key and more, or anything.
    pub fn filter(&mut self) -> Document {
        match self.below(20) {
            0 | 1 => doc! {},
            2..=5 => self.one_key(),
            6..=8 => {
                let mut filter = self.one_key();
                if let (Some(time), true) = (self.shape.time.clone(), self.chance(50)) {
                    filter.insert(time, self.time_range());
                } else {
                    self.append_condition(&mut filter, 2);
                }
                filter
            }
            _ => self.any_filter(2),
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

    fn time_range(&mut self) -> Document {
        let mut range = doc! { self.pick(&["$gt", "$gte"]): DateTime::from_millis(self.some_time()) };
        if self.chance(50) {
            range.insert(self.pick(&["$lt", "$lte"]), DateTime::from_millis(self.some_time()));
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
        let choice = self.below(100);
        match choice {
            0..=19 if depth > 0 => {
                let name = self.pick(&["$and", "$or", "$nor"]);
                let branches: Vec<Bson> = (0..=self.below(2)).map(|_| self.any_filter(depth - 1).into()).collect();
                filter.insert(name, branches);
            }
            20..=29 => self.append_expression(filter),
            30..=32 => {
                filter.insert("$comment", "nothing");
            }
            33 => {
                let refused = [
                    doc! { "$where": "this.n > 1" },
                    doc! { "$text": { "$search": "a" } },
                    doc! { "nested": { "$near": [1, 2] } },
                    doc! { "$or": [{ "n": 1 }, { "$where": "true" }] },
                ];
                filter.extend(self.pick(&refused));
            }
            34 => {
                let broken = [
                    doc! { "$nope": 1 },
                    doc! { "qty": { "$nope": 1 } },
                    doc! { "$and": [] },
                    doc! { "qty": { "$in": 1 } },
                    doc! { "qty": { "$size": -1 } },
                    doc! { "k": { "$nope": 1 } },
                    doc! { "$or": [{ "k": { "$nope": 1 } }, { "n": 1 }] },
                ];
                filter.extend(self.pick(&broken));
            }
            _ => {
                let field = self.field();
                let condition = self.condition(&field, depth);
                filter.insert(field, condition);
            }
        }
    }

    fn append_expression(&mut self, filter: &mut Document) {
        let field = format!(
            "${}",
            self.pick(&["qty", "quantity", "count", "n", "k", "nested.x", "history"])
        );
        let condition = match self.below(5) {
            0 => doc! { "$expr": { "$gt": [field, { "$literal": self.scalar() }] } },
            1 => doc! { "$expr": { "$eq": [field, { "$literal": self.value() }] } },
            2 => doc! { "$expr": { "$eq": [{ "$type": field }, "int"] } },
            3 => doc! { "$jsonSchema": { "required": ["qty"], "properties": { "qty": { "bsonType": "int" } } } },
            _ => doc! { "$jsonSchema": { "properties": { "k": { "bsonType": ["string", "object"] } } } },
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

    fn condition(&mut self, field: &str, depth: u32) -> Bson {
        let operand = self.operand(field);
        match self.below(24) {
            0..=3 => operand,
            4 => bson!({ "$eq": operand }),
            5 | 6 => bson!({ "$ne": operand }),
            7..=10 => bson!({ self.pick(&["$gt", "$gte", "$lt", "$lte"]): operand }),
            11 => bson!({ "$gte": operand, "$lt": self.operand(field) }),
            12 | 13 => bson!({ self.pick(&["$in", "$nin"]): [operand, self.operand(field), Bson::Null] }),
            14 => bson!({ self.pick(&["$in", "$nin"]): [operand, self.operand(field)] }),
            15 | 16 => bson!({ "$exists": self.chance(50) }),
            17 => {
                bson!({ "$type": self.pick(&["int", "double", "number", "null", "array", "object", "date", "string"]) })
            }
            18 => bson!({ "$size": self.position() }),
            19 => bson!({ "$all": [operand, self.scalar()] }),
            // Of a field without a name it makes mongod 6.0.5 crash where an index on another field may be used.
            20 if !field.is_empty() => self.element_match(depth),
            21 if depth > 0 => {
                let inner = self.condition(field, 0);
                let is_operator = |inner: &Document| inner.keys().any(|name| name.starts_with('$'));
                match inner.as_document().filter(|inner| is_operator(inner)) {
                    Some(inner) => bson!({ "$not": inner.clone() }),
                    None => bson!({ "$not": { "$eq": inner } }),
                }
            }
            22 => self.pattern(),
            _ => bson!({ "$mod": [2, self.between(0, 1)] }),
        }
    }

    fn pattern(&mut self) -> Bson {
        match self.below(3) {
            0 => bson!({ "$regex": self.pick(&["^a", "B", "^$", "1"]) }),
            1 => bson!({ "$regex": "^a", "$options": "i" }),
            _ => bson!({ "$bitsAllSet": 1 }),
        }
    }

    fn element_match(&mut self, depth: u32) -> Bson {
        if depth > 0 && self.chance(50) {
            return bson!({ "$elemMatch": { "x": self.condition("x", 0) } });
        }
        bson!({ "$elemMatch": { self.pick(&["$gt", "$lte", "$eq"]): self.scalar() } })
    }

    /// Whether a filter sets every key field equal to one value, by the plainest reading, and so tells the order.
    #[must_use]
    pub fn is_one_key(&self, filter: &Document) -> bool {
        if !self.keeps_order() {
            return false;
        }
        let sets = |field: &str| equalities(filter).into_iter().any(|name| name == field);
        self.shape.key.iter().all(|field| sets(field))
    }
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
                Some((operator, Bson::Array(_) | Bson::Undefined)) if operator == "$eq" => {}
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

/// Whether a filter names `_id`: then the naive collection may answer in the order of its index on it.
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
