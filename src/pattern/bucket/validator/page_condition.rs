//! Conditions on items as conditions on pages.
//!
//! A validator is rewritten as a conjunction of [disjunctions](Disjunction), its clauses. A clause holds for
//! each item, or the page has one of its alternatives. A key field is stored once in the page, and in an item
//! only where its value has another form. So a condition on a key field is two clauses: an item with an own
//! value satisfies it, and either all items have own values, or the page satisfies it.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::json_schema;
use crate::command::document::{array_of, put, single};
use crate::pattern::shapes::{BucketShape, ItemIds};
use crate::pattern::unsupported::Unsupported;

/// The most clauses of a validator. More arise from alternatives that contain conjunctions on key fields.
const MAX_CLAUSES: usize = 100;

/// A disjunction.
#[derive(Clone, Debug, Default)]
pub(super) struct Disjunction {
    /// Queries on an item, with stored names.
    pub(super) item: Vec<RawDocumentBuf>,
    /// JSON schemas of an item, with stored names.
    pub(super) schema: Vec<RawDocumentBuf>,
    /// Queries on the page.
    pub(super) page: Vec<RawDocumentBuf>,
}

impl Disjunction {
    /// Both clauses in one.
    fn or(&self, other: &Self) -> Self {
        let mut both = self.clone();
        both.extend(other);
        both
    }

    /// Adds the alternatives of another clause.
    fn extend(&mut self, other: &Self) {
        self.item.extend_from_slice(&other.item);
        self.schema.extend_from_slice(&other.schema);
        self.page.extend_from_slice(&other.page);
    }

    /// The clause that a key field, or a value of it, must satisfy.
    pub(super) fn of_key(field: &str, page: RawDocumentBuf) -> Self {
        Self {
            item: vec![single(field, single("$exists", true))],
            page: vec![page],
            schema: Vec::new(),
        }
    }

    fn on_page(self, shape: &BucketShape) -> Result<RawDocumentBuf, Unsupported> {
        let mut alternatives = self.page;
        match (self.item.as_slice(), self.schema.as_slice()) {
            ([], []) => {}
            (item, []) => {
                let violated = single("$nor", array_of(item));
                let has_violated = single(shape.items(), single("$elemMatch", violated));
                alternatives.push(single("$nor", array_of(&[has_violated])));
            }
            ([], [schema]) => {
                let of_items = single(shape.items(), single("items", schema));
                alternatives.push(single("$jsonSchema", single("properties", of_items)));
            }
            _ => return Err("a validator with a $jsonSchema in an $or".into()),
        }
        Ok(match alternatives.pop() {
            Some(only) if alternatives.is_empty() => only,
            last => {
                alternatives.extend(last);
                single("$or", array_of(&alternatives))
            }
        })
    }
}

/// The conditions that a page satisfies if and only if each of its items satisfies the validator.
///
/// # Errors
/// A validator that has no equivalent on pages.
pub(super) fn conditions(shape: &BucketShape, validator: &RawDocument) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    let clauses = Rewrite { shape }.all_of(validator, Sign::Plain)?;
    clauses.into_iter().map(|clause| clause.on_page(shape)).collect()
}

/// Whether a query is negated.
#[derive(Clone, Copy, PartialEq)]
enum Sign {
    Plain,
    Negated,
}

impl Sign {
    fn negated(self) -> Self {
        match self {
            Self::Plain => Self::Negated,
            Self::Negated => Self::Plain,
        }
    }

    fn of(self, query: RawDocumentBuf) -> RawDocumentBuf {
        match self {
            Self::Plain => query,
            Self::Negated => single("$nor", array_of(&[query])),
        }
    }
}

struct Rewrite<'a> {
    shape: &'a BucketShape,
}

impl Rewrite<'_> {
    /// The clauses of a query: the conjunction of its fields.
    fn all_of(&self, query: &RawDocument, sign: Sign) -> Result<Vec<Disjunction>, Unsupported> {
        if let Some(item) = self.on_item(query)? {
            let clause = Disjunction {
                item: vec![sign.of(item)],
                ..Disjunction::default()
            };
            return Ok(vec![clause]);
        }
        let mut parts = Vec::new();
        for (name, value) in query.iter().flatten().filter(|(name, _)| *name != "$comment") {
            parts.push(self.field(name.as_str(), value, sign)?);
        }
        combined(parts, sign == Sign::Plain)
    }

    /// The clauses of one field of a query.
    fn field(&self, name: &str, value: RawBsonRef<'_>, sign: Sign) -> Result<Vec<Disjunction>, Unsupported> {
        match (name, value) {
            ("$and" | "$or" | "$nor", RawBsonRef::Array(branches)) => {
                let sign = if name == "$nor" { sign.negated() } else { sign };
                let parts = branches_of(branches).map(|branch| self.all_of(branch, sign));
                let parts = parts.collect::<Result<_, _>>()?;
                combined(parts, (name == "$and") == (sign == Sign::Plain))
            }
            ("$jsonSchema", RawBsonRef::Document(schema)) if sign == Sign::Plain => {
                json_schema::clauses(self.shape, schema)
            }
            ("$jsonSchema", _) => Err("a validator with a $jsonSchema in a $nor".into()),
            (path, value) => {
                let field = path.split('.').next().unwrap_or(path);
                let query = single(path, value);
                if !self.shape.key().iter().any(|key| key == field) {
                    return self.all_of(&query, sign);
                }
                let condition = sign.of(query);
                let own = Disjunction {
                    item: vec![single(field, single("$exists", false)), condition.clone()],
                    ..Disjunction::default()
                };
                Ok(vec![own, Disjunction::of_key(field, condition)])
            }
        }
    }

    /// The query with stored names, if it has no condition on a key field and no schema.
    fn on_item(&self, query: &RawDocument) -> Result<Option<RawDocumentBuf>, Unsupported> {
        let mut stored = RawDocumentBuf::new();
        for (name, value) in query.iter().flatten() {
            match (name.as_str(), value) {
                ("$comment", _) => {}
                (connective @ ("$and" | "$or" | "$nor"), RawBsonRef::Array(branches)) => {
                    let branches = branches_of(branches).map(|branch| self.on_item(branch));
                    let Some(branches) = branches.collect::<Result<Option<Vec<_>>, _>>()? else {
                        return Ok(None);
                    };
                    put(&mut stored, connective, array_of(&branches));
                }
                ("$jsonSchema", _) => return Ok(None),
                (operator, _) if operator.starts_with('$') => {
                    return Err(format!("a validator with {operator}").into());
                }
                (path, value) => {
                    let (field, rest) = path.split_at(path.find('.').unwrap_or(path.len()));
                    if self.shape.key().iter().any(|key| key == field) {
                        return Ok(None);
                    }
                    check_id(self.shape, field)?;
                    put(
                        &mut stored,
                        &format!("{}{rest}", self.shape.rename().stored(field)),
                        value,
                    );
                }
            }
        }
        Ok(Some(stored))
    }
}

/// Refuses a condition on the `_id` of items that are stored without.
pub(super) fn check_id(shape: &BucketShape, field: &str) -> Result<(), Unsupported> {
    if field == "_id" && shape.item_ids() == ItemIds::Dropped {
        return Err("a validator with a condition on `_id`, which `item_ids = \"dropped\"` does not store".into());
    }
    Ok(())
}

fn branches_of(branches: &RawArray) -> impl Iterator<Item = &RawDocument> {
    branches.into_iter().flatten().filter_map(RawBsonRef::as_document)
}

/// The conjunction or the disjunction of parts.
fn combined(parts: Vec<Vec<Disjunction>>, is_conjunction: bool) -> Result<Vec<Disjunction>, Unsupported> {
    if is_conjunction {
        check_count(parts.iter().map(Vec::len).sum())?;
        return Ok(parts.concat());
    }
    let mut combined = vec![Disjunction::default()];
    for part in parts {
        if let [only] = part.as_slice() {
            // In place: the alternatives before are not copied for each branch.
            for one in &mut combined {
                one.extend(only);
            }
            continue;
        }
        check_count(combined.len().saturating_mul(part.len()))?;
        let pairs = combined.iter().flat_map(|one| part.iter().map(|other| one.or(other)));
        combined = pairs.collect();
    }
    Ok(combined)
}

fn check_count(clauses: usize) -> Result<(), Unsupported> {
    if clauses > MAX_CLAUSES {
        return Err("a validator with so many conditions on key fields in an $or".into());
    }
    Ok(())
}
