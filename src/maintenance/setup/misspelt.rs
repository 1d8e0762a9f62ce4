//! Detects a configured collection that does not exist next to one with nearly the same name, which
//! is probably a typing error. `setup` would create an empty collection, and the documents would
//! remain in the other one without a shape.

use crate::command::namespace::Namespace;
use crate::config::{Config, suggest};
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::{ShapedCollection, description};
use crate::pattern::bucket::pack;

/// An error if the target does not exist and a collection without a shape in its database has
/// nearly the same name. `None` also if the user may not list collections.
pub(super) async fn finding(target: &ShapedCollection, config: &Config) -> Option<Finding> {
    let database = &target.database;
    if description(database, &target.collection).await.ok()?.is_some() {
        return None;
    }
    let names = database.list_collection_names().await.ok()?;
    let has_shape = |name: &str| config.shapes.lookup(Namespace::new(database.name(), name)).is_some();
    let candidates = names.iter().map(String::as_str).filter(|name| {
        let is_other = !pack::is_beside(name) && !name.starts_with("system.") && !has_shape(name);
        is_other && !differ_in_digits(name, &target.collection)
    });
    let near = suggest::nearest(&target.collection, candidates)?;
    let text = format!(
        "does not exist, but '{near}' does: correct `namespace`; or, if the name is correct, create the collection first: \
         db.getSiblingDB(\"{}\").createCollection(\"{}\")",
        database.name(),
        target.collection
    );
    Some(Finding::error(target.namespace(), text))
}

/// Whether two names differ only in digits, such as `trades_2025` and `trades_2026`.
fn differ_in_digits(one: &str, other: &str) -> bool {
    let without_digits = |name: &str| name.replace(|letter: char| letter.is_ascii_digit(), "");
    one != other && without_digits(one) == without_digits(other)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbered_names_are_not_reported_as_misspelt() {
        assert!(differ_in_digits("trades_2025", "trades_2026"));
        assert!(!differ_in_digits("trades", "trdes"));
        assert!(!differ_in_digits("trades", "trades"));
    }
}
