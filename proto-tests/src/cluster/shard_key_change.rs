//! Refuses updates that would move a document to another shard. Only changes that the update itself shows are
//! recognised: an update by a pipeline is refused if a stage names a field of the shard key.

use bson::{Bson, Document};

use super::refusal::Refusal;
use super::routing::Sharded;
use super::targeting::exact_value;
use super::value_order::compare;

/// Fails if the update may change the shard key of a document so that another shard would own it. `shards`
/// are those that the update is sent to, for this filter.
pub(super) fn check(sharded: &Sharded, filter: &Document, update: &Bson, shards: &[usize]) -> Result<(), Refusal> {
    if is_of_nothing(filter) {
        return Ok(());
    }
    match update {
        Bson::Document(operators) if is_operators(operators) => {
            for (operator, changes) in operators {
                let is_kept = |(path, value): (&String, &Bson)| -> bool {
                    exact_value(filter, path).is_some_and(|kept| compare(&kept, value).is_eq())
                };
                // `{ $set: { key: value } }` with the filter's own value is no change.
                let kept = changes.as_document().filter(|_| operator == "$set");
                let changed = kept.map(|fields| {
                    let fields = fields.iter().filter(|field| !is_kept(*field));
                    Bson::Document(fields.map(|(name, value)| (name.clone(), value.clone())).collect())
                });
                check_operator(sharded, operator, changed.as_ref().unwrap_or(changes))?;
            }
            Ok(())
        }
        Bson::Document(replacement) => {
            if shards == [sharded.owner_of_document(replacement)?] {
                Ok(())
            } else {
                Err(refused())
            }
        }
        Bson::Array(stages) => {
            let stages = stages.iter().filter_map(Bson::as_document);
            for (operator, changes) in stages.flatten() {
                check_operator(sharded, operator, changes)?;
            }
            Ok(())
        }
        _ => Ok(()),
    }
}

/// Whether a filter demands a value below all values, or one of no values, so that the update changes nothing.
fn is_of_nothing(filter: &Document) -> bool {
    filter.iter().any(|(name, value)| match value {
        Bson::Array(parts) if name == "$and" => parts.iter().filter_map(Bson::as_document).any(is_of_nothing),
        Bson::Document(operators) => {
            operators.get("$lt") == Some(&Bson::MinKey) || operators.get_array("$in").is_ok_and(Vec::is_empty)
        }
        _ => false,
    })
}

/// Whether an update has operators, and is no replacement.
pub(super) fn is_operators(update: &Document) -> bool {
    update.keys().next().is_some_and(|name| name.starts_with('$'))
}

fn check_operator(sharded: &Sharded, operator: &str, changes: &Bson) -> Result<(), Refusal> {
    if operator == "$setOnInsert" {
        return Ok(());
    }
    let names: Vec<&str> = match changes {
        Bson::Document(changes) => {
            let targets = changes.values().filter(|_| operator == "$rename");
            let targets = targets.filter_map(Bson::as_str);
            changes.keys().map(String::as_str).chain(targets).collect()
        }
        Bson::Array(names) => names.iter().filter_map(Bson::as_str).collect(),
        Bson::String(name) if operator == "$unset" => vec![name],
        _ => Vec::new(),
    };
    // A `$project` of the whole key, and a new root, are not looked into.
    if ["$project", "$replaceWith", "$replaceRoot"].contains(&operator) {
        return Ok(());
    }
    let is_touched = |path: &String| names.iter().any(|name| overlap(name, path));
    if sharded.pattern.keys().any(is_touched) {
        return Err(refused());
    }
    Ok(())
}

/// Whether one path is the other one, or leads to it.
fn overlap(one: &str, other: &str) -> bool {
    let leads_to = |one: &str, other: &str| other.strip_prefix(one).is_some_and(|rest| rest.starts_with('.'));
    one == other || leads_to(one, other) || leads_to(other, one)
}

fn refused() -> Refusal {
    Refusal::not_modelled("updates of the shard key")
}
