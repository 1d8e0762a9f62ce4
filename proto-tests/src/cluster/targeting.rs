//! Which shards a filter concerns.

use bson::{Bson, Document};

use super::routing::{Sharded, slot_of};

/// The most combinations of listed values that are looked up. More concern all shards.
const MAX_COMBINATIONS: usize = 1000;

/// The shards that a filter concerns.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Targets {
    /// In ascending order.
    pub(super) shards: Vec<usize>,
    /// The slot, if the filter has one value for each field of the shard key.
    pub(super) slot: Option<usize>,
}

/// The targets of a filter. `options` has the collation of the statement: strings that are equal by a
/// collation may have different slots.
pub(super) fn targets(sharded: &Sharded, filter: &Document, options: &Document) -> Targets {
    let all = Targets {
        shards: sharded.all_owners(),
        slot: None,
    };
    if has_collation(options) {
        return all;
    }
    let mut combinations: Vec<Vec<Bson>> = vec![Vec::new()];
    for path in sharded.pattern.keys() {
        let Some(values) = listed_values(filter, path) else {
            return all;
        };
        if combinations.len().saturating_mul(values.len()) > MAX_COMBINATIONS {
            return all;
        }
        combinations = combinations
            .iter()
            .flat_map(|before| {
                values
                    .iter()
                    .map(|value| [&before[..], std::slice::from_ref(value)].concat())
            })
            .collect();
    }
    // mongos finds no shard key in a query that names a field of it twice.
    let is_named_once = sharded.pattern.keys().all(|path| equalities(filter, path) == 1);
    let slots: Vec<usize> = combinations.iter().map(|values| slot_of(values)).collect();
    let mut shards: Vec<usize> = slots.iter().map(|slot| sharded.owner_of_slot(*slot)).collect();
    shards.sort_unstable();
    shards.dedup();
    if shards.is_empty() {
        // An empty `$in` matches nothing, which any shard confirms.
        shards = all.shards.into_iter().take(1).collect();
    }
    Targets {
        shards,
        slot: slots.first().copied().filter(|_| slots.len() == 1 && is_named_once),
    }
}

/// The value that a filter demands at the path, if it is only one.
pub(super) fn exact_value(filter: &Document, path: &str) -> Option<Bson> {
    match listed_values(filter, path)?.as_slice() {
        [value] => Some(value.clone()),
        _ => None,
    }
}

/// Whether a filter demands one `_id`.
pub(super) fn has_exact_id(filter: &Document, options: &Document) -> bool {
    !has_collation(options) && exact_value(filter, "_id").is_some()
}

fn has_collation(options: &Document) -> bool {
    let collation = options.get_document("collation").ok();
    collation.is_some_and(|collation| !collation.is_empty() && collation.get_str("locale").ok() != Some("simple"))
}

/// The number of conditions that list the values at the path.
fn equalities(filter: &Document, path: &str) -> usize {
    let counts = filter.iter().map(|(name, value)| match (name.as_str(), value) {
        ("$and", Bson::Array(parts)) => {
            let parts = parts.iter().filter_map(Bson::as_document);
            parts.map(|part| equalities(part, path)).sum()
        }
        _ => usize::from(name == path && allowed(value).is_some()),
    });
    counts.sum()
}

/// The values that a filter allows at the path. `None`: it may allow any.
fn listed_values(filter: &Document, path: &str) -> Option<Vec<Bson>> {
    let mut found: Option<Vec<Bson>> = None;
    for (name, value) in filter {
        let values = if name == path {
            allowed(value)
        } else if let ("$and", Bson::Array(parts)) = (name.as_str(), value) {
            let parts = parts.iter().filter_map(Bson::as_document);
            parts.filter_map(|part| listed_values(part, path)).min_by_key(Vec::len)
        } else {
            None
        };
        // All conditions hold, so any of them suffices.
        found = [found, values].into_iter().flatten().min_by_key(Vec::len);
    }
    found
}

fn allowed(condition: &Bson) -> Option<Vec<Bson>> {
    let operators = match condition {
        Bson::Document(operators) if operators.keys().next().is_some_and(|name| name.starts_with('$')) => operators,
        value => return is_plain(value).then(|| vec![value.clone()]),
    };
    match (operators.get("$eq"), operators.get("$in")) {
        (Some(value), _) if is_plain(value) => Some(vec![value.clone()]),
        (None, Some(Bson::Array(values))) if values.iter().all(is_plain) => Some(values.clone()),
        _ => None,
    }
}

/// Whether a value matches only equal ones, in a field that is no array.
fn is_plain(value: &Bson) -> bool {
    !matches!(value, Bson::RegularExpression(_) | Bson::Array(_) | Bson::Undefined)
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    fn check(filter: &Document, expected: Option<&[Bson]>) {
        assert_eq!(listed_values(filter, "k").as_deref(), expected, "{filter}");
    }

    #[test]
    fn equalities_of_filters() {
        assert_eq!(equalities(&doc! { "k": 1, "n": 2 }, "k"), 1);
        assert_eq!(
            equalities(&doc! { "k": 1, "$and": [{ "k": { "$eq": 1 } }, { "n": 1 }] }, "k"),
            2
        );
        assert_eq!(equalities(&doc! { "k": { "$gt": 1 } }, "k"), 0);
    }

    #[test]
    fn listed_values_of_filters() {
        check(&doc! { "k": 1, "n": 2 }, Some(&[1.into()]));
        check(&doc! { "k": { "$eq": 1 } }, Some(&[1.into()]));
        check(&doc! { "k": { "$in": [1, 2] } }, Some(&[1.into(), 2.into()]));
        check(&doc! { "k": { "$in": [] } }, Some(&[]));
        check(&doc! { "$and": [{ "n": 1 }, { "k": 2 }] }, Some(&[2.into()]));
        check(&doc! { "k": { "a": 1 } }, Some(&[doc! { "a": 1 }.into()]));
        check(&doc! { "k": Bson::Null }, Some(&[Bson::Null]));
        check(&doc! { "k": { "$gt": 1 } }, None);
        check(&doc! { "k": [1] }, None);
        check(&doc! { "$or": [{ "k": 1 }] }, None);
        check(&doc! { "n": 1 }, None);
    }
}
