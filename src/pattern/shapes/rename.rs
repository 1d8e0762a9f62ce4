//! Stored names of item fields.

use std::collections::BTreeMap;

use super::options::{ShapeError, check_field_name};

/// Item fields and their stored names, completed to a permutation of the names.
///
/// If only `quantity` is stored as `qty`, an item with a field `qty` would come back with a
/// `quantity`. So each chain of renames is closed to a cycle: the `qty` of that item is stored as
/// `quantity`, and every item comes back unchanged.
#[derive(Clone, Debug, PartialEq, Eq, Default)]
pub struct RenameMap {
    /// (item field, stored field). Each name occurs once on either side.
    pairs: Vec<(String, String)>,
    /// The number of configured pairs, which come first. The others close chains.
    configured: usize,
}

impl RenameMap {
    /// Checks configured renames (item field to stored field) against each other and the key, and
    /// closes their chains.
    ///
    /// # Errors
    /// All contradictions.
    pub(super) fn new(rename: &BTreeMap<String, String>, key: &[String]) -> Result<Self, Vec<ShapeError>> {
        let mut errors = Vec::new();
        let mut stored_to_item: BTreeMap<&str, &str> = BTreeMap::new();
        for (item, stored) in rename {
            for name in [item, stored] {
                check_field_name("rename", name, &mut errors);
                if name == "_id" || key.contains(name) {
                    errors.push(ShapeError::new(
                        "rename",
                        format!("`{item}` to `{stored}` involves `{name}`, which is `_id` or a key field"),
                        "rename only fields that are stored inside the items",
                    ));
                }
            }
            if let Some(other) = stored_to_item.insert(stored, item) {
                errors.push(ShapeError::new(
                    "rename",
                    format!("`{other}` and `{item}` are both stored as `{stored}`"),
                    "give each field a different stored name",
                ));
            }
        }
        if !errors.is_empty() {
            return Err(errors);
        }
        let differing = rename.iter().filter(|(item, stored)| item != stored);
        let mut pairs: Vec<(String, String)> = differing.map(|(item, stored)| (item.clone(), stored.clone())).collect();
        let configured = pairs.len();
        // A stored name that is not an item field ends a chain. As an item field it is stored under
        // the name that begins the chain.
        for end in rename.values().filter(|stored| !rename.contains_key(*stored)) {
            let mut begin = end.as_str();
            while let Some(item) = stored_to_item.get(begin) {
                begin = item;
            }
            pairs.push((end.clone(), begin.to_owned()));
        }
        Ok(Self { pairs, configured })
    }

    /// The stored name of an item field.
    #[must_use]
    pub fn stored<'a>(&'a self, item: &'a str) -> &'a str {
        self.pairs
            .iter()
            .find(|(from, _)| from == item)
            .map_or(item, |(_, to)| to)
    }

    /// The item field of a stored name.
    #[must_use]
    pub fn item<'a>(&'a self, stored: &'a str) -> &'a str {
        self.pairs
            .iter()
            .find(|(_, to)| to == stored)
            .map_or(stored, |(from, _)| from)
    }

    /// Whether a stored name was only added to close a chain. Hand-written buckets do not use such
    /// names: a `quantity` in such a bucket was not renamed.
    #[must_use]
    pub fn only_closes_a_chain(&self, stored: &str) -> bool {
        let mut closing = self.pairs.iter().skip(self.configured);
        closing.any(|(_, to)| to == stored)
    }

    /// (item field, stored field) of every configured rename.
    pub fn configured(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs().take(self.configured)
    }

    /// (item field, stored field) of every renamed field.
    pub fn pairs(&self) -> impl Iterator<Item = (&str, &str)> {
        self.pairs.iter().map(|(item, stored)| (item.as_str(), stored.as_str()))
    }
}
