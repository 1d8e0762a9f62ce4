//! A bucket shape as a test configures it: it becomes the proxy's configuration, and the invariants are
//! checked with it. The outlier shape is in a submodule.
//!
//! It does not use the proxy's types: the tested code must not check itself.

mod outlier;

use std::fmt::Write as _;

pub use outlier::{Outlier, Reads};

/// What becomes of the items' `_id`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ItemIds {
    /// Kept, indexed, duplicates refused.
    Unique,
    /// Kept, indexed, duplicates within a key refused.
    UniqueInKey,
    /// Kept, duplicates accepted.
    Stored,
    /// Not kept.
    Dropped,
}

impl ItemIds {
    /// As it is configured.
    #[must_use]
    pub fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::UniqueInKey => "unique_in_key",
            Self::Stored => "stored",
            Self::Dropped => "dropped",
        }
    }
}

/// The program that named the buckets.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Names {
    /// The proxy, or a writer that names pages like it.
    AsTheProxy,
    /// The author of hand-written buckets.
    Any,
}

/// A `[[bucket]]` table.
#[derive(Debug, Clone)]
#[expect(
    clippy::struct_excessive_bools,
    reason = "options of a table, which are set or not each by itself"
)]
pub struct Shape {
    /// The fields that items are grouped by.
    pub key: Vec<String>,
    /// The field that items are ordered by.
    pub time: Option<String>,
    /// Stored name of the array.
    pub items: String,
    /// Stored name of its length.
    pub count: String,
    /// Items a page, at most.
    pub max_items: usize,
    /// Bytes of items a page, at most, unless it is one item.
    pub max_bytes: usize,
    /// (item field, stored field).
    pub rename: Vec<(String, String)>,
    /// What becomes of the items' `_id`.
    pub item_ids: ItemIds,
    /// Whether there are change streams.
    pub change_streams: bool,
    /// Whether mongod refuses writes that bypass the proxy.
    pub reject_direct_writes: bool,
    /// What the buckets' `_id`s are; nothing that is configured.
    pub names: Names,
    /// Whether items are updated, so that they do not weigh what they weighed when they were inserted;
    /// nothing that is configured.
    pub items_change: bool,
    /// Whether the collection is clustered; nothing that is configured.
    pub is_clustered: bool,
}

impl Shape {
    /// The configuration's defaults for a key.
    #[must_use]
    pub fn new(key: &[&str]) -> Self {
        Self {
            key: key.iter().map(|field| (*field).to_owned()).collect(),
            time: None,
            items: "history".to_owned(),
            count: "count".to_owned(),
            max_items: 10,
            max_bytes: 1 << 20,
            rename: Vec::new(),
            item_ids: ItemIds::Unique,
            change_streams: false,
            reject_direct_writes: false,
            names: Names::AsTheProxy,
            items_change: false,
            is_clustered: false,
        }
    }

    /// The table for the proxy's configuration file, for one or, with `*.name`, many collections.
    #[must_use]
    pub fn toml(&self, namespace: &str) -> String {
        let ids = self.item_ids.name();
        let mut toml = format!(
            "[[bucket]]\nnamespace = \"{namespace}\"\nkey = {:?}\nitems = \"{}\"\ncount = \"{}\"\nmax_items = {}\n\
             max_bytes = {}\nitem_ids = \"{ids}\"\n",
            self.key, self.items, self.count, self.max_items, self.max_bytes
        );
        // Writing to a string cannot fail.
        if self.change_streams {
            toml.push_str("change_streams = true\n");
        }
        if self.reject_direct_writes {
            toml.push_str("reject_direct_writes = true\n");
        }
        if let Some(time) = &self.time {
            let _ = writeln!(toml, "time = \"{time}\"");
        }
        let renames = self
            .rename
            .iter()
            .map(|(item, stored)| format!("{item} = \"{stored}\""));
        let _ = writeln!(toml, "rename = {{ {} }}", renames.collect::<Vec<_>>().join(", "));
        toml
    }

    /// The name under which an item's field is stored.
    #[must_use]
    pub fn stored<'a>(&'a self, field: &'a str) -> &'a str {
        let renamed = self.rename.iter().find(|(item, _)| item == field);
        renamed.map_or(field, |(_, stored)| stored)
    }
}
