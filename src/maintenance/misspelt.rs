//! Detects a configured collection that does not exist next to one with nearly the same name, which
//! is probably a typing error. `setup` would create an empty collection, and the documents would
//! remain in the other one without a shape.

use mongodb::Database;

use super::finding::Finding;
use super::upstream::{ShapedCollection, description};
use crate::command::namespace::Namespace;
use crate::config::suggest;
use crate::pattern::bucket::pack;
use crate::pattern::shapes::{OutlierShape, Shapes};

/// The most letters in which the name of a collection of extras differs from a misspelt one. The default
/// name contains that of the collection, so other names are more similar than they are meant to be.
const MOST_IN_EXTRAS: usize = 2;

/// An error if the target does not exist and a collection without a shape in its database has
/// nearly the same name; or if the database does not exist and one with the same letters in another order
/// has the collection. `None` also if the user may not list collections.
pub(crate) async fn finding(target: &ShapedCollection, shapes: &Shapes) -> Option<Finding> {
    let (database, collection) = (&target.database, &target.collection);
    if description(database, collection).await.ok()?.is_some() {
        return None;
    }
    let names = database.list_collection_names().await.ok()?;
    // A packing run renamed it, or a client has created it meanwhile.
    if names.iter().any(|name| name == collection) || names.contains(&pack::plain_name(collection)) {
        return None;
    }
    let near = suggest::near_misses(collection, candidates(database, &names, collection, shapes));
    let near = if near.is_empty() {
        vec![in_another_database(target, shapes).await?]
    } else {
        near.into_iter().map(str::to_owned).collect()
    };
    let quoted: Vec<String> = near.iter().map(|name| format!("'{name}'")).collect();
    let text = format!(
        "does not exist, but {} does: correct `namespace`; or, if the name is correct, create the collection first: \
         db.getSiblingDB(\"{}\").createCollection(\"{collection}\")",
        quoted.join(" or "),
        database.name()
    );
    Some(Finding::error(target.namespace(), text))
}

/// An error if the collection of extras does not exist, and one without a shape has nearly the same name.
pub(crate) async fn extras(target: &ShapedCollection, shape: &OutlierShape, shapes: &Shapes) -> Option<Finding> {
    let (database, extras) = (&target.database, shape.extras_collection());
    if description(database, extras).await.ok()?.is_some() {
        return None;
    }
    let names = database.list_collection_names().await.ok()?;
    // A proxy has created it meanwhile.
    if names.iter().any(|name| name == extras) {
        return None;
    }
    let names = candidates(database, &names, extras, shapes);
    let near = suggest::near_misses_within(MOST_IN_EXTRAS, extras, names);
    let near = near.first()?;
    let text = format!(
        "its collection of extras, {extras}, does not exist, but '{near}' does: correct `extras.collection`; or, if the name is \
         correct, create the collection first: db.getSiblingDB(\"{}\").createCollection(\"{extras}\")",
        database.name()
    );
    Some(Finding::error(target.namespace(), text))
}

/// The names of collections that are not used by a shape or by this program.
fn candidates<'a>(
    database: &Database,
    names: &'a [String],
    misspelt: &str,
    shapes: &Shapes,
) -> impl Iterator<Item = &'a str> {
    let has_shape = |name: &str| shapes.lookup(Namespace::new(database.name(), name)).is_some();
    names.iter().map(String::as_str).filter(move |name| {
        let is_other = !pack::is_beside(name) && !name.starts_with("system.") && !has_shape(name);
        is_other && !differ_in_digits(name, misspelt)
    })
}

/// The collection of the same name in a database whose name has the letters of a missing database's. Names
/// that differ in a letter are often those of tenants.
async fn in_another_database(target: &ShapedCollection, shapes: &Shapes) -> Option<String> {
    let client = target.database.client();
    let databases = client.list_database_names().await.ok()?;
    let name = target.database.name();
    if databases.iter().any(|database| database == name) {
        return None;
    }
    let is_near = |other: &&String| has_same_letters(other, name) && !differ_in_digits(other, name);
    for near in databases.iter().filter(is_near) {
        let there = description(&client.database(near), &target.collection).await.ok()?;
        let namespace = Namespace::new(near, &target.collection);
        if there.is_some() && shapes.lookup(namespace).is_none() {
            return Some(namespace.to_string());
        }
    }
    None
}

/// Whether two names differ only in the order of their letters, in case, `_` and `-`. Numbers are equal,
/// because they often distinguish tenants.
fn has_same_letters(one: &str, other: &str) -> bool {
    let parts = |name: &str| -> (Vec<char>, Vec<char>) {
        let characters = name.chars().filter(|character| !['_', '-'].contains(character));
        let lowercase = characters.flat_map(char::to_lowercase);
        let (digits, mut letters): (Vec<char>, Vec<char>) = lowercase.partition(char::is_ascii_digit);
        letters.sort_unstable();
        (digits, letters)
    };
    parts(one) == parts(other)
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
    fn databases_of_tenants_are_not_reported_as_misspelt() {
        assert!(has_same_letters("shop", "shpo"));
        assert!(has_same_letters("webShop", "web_shop"));
        assert!(!has_same_letters("tenant_a", "tenant_b"));
        assert!(!has_same_letters("shop", "shop_eu"));
        assert!(has_same_letters("shop_214", "shpo_214"));
        assert!(!has_same_letters("shop_214", "shpo_124"));
    }

    #[test]
    fn numbered_names_are_not_reported_as_misspelt() {
        assert!(differ_in_digits("trades_2025", "trades_2026"));
        assert!(!differ_in_digits("trades", "trdes"));
        assert!(!differ_in_digits("trades", "trades"));
    }
}
