//! The shape of a bucket collection.

use std::collections::BTreeMap;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::fingerprint;
use super::namespace_pattern::NamespacePattern;
use super::options::{Mode, ShadowShare, ShapeError, check_field_name};
use super::rename::RenameMap;

/// The storage of the items' `_id`.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub enum ItemIds {
    /// Stored and indexed. Duplicates are refused, as in a plain collection.
    #[default]
    Unique,
    /// Stored and indexed. Duplicates within a key are refused, and accepted in different keys. A sharded
    /// collection has no other unique index.
    UniqueInKey,
    /// Stored, not indexed: duplicates are accepted.
    Stored,
    /// Not stored, as in MongoDB's bucket pattern.
    Dropped,
}

impl ItemIds {
    /// The name in the configuration.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::Unique => "unique",
            Self::UniqueInKey => "unique_in_key",
            Self::Stored => "stored",
            Self::Dropped => "dropped",
        }
    }

    /// Whether the `_id`s are indexed, and no two items of a key have the same one.
    #[must_use]
    pub const fn are_indexed(self) -> bool {
        matches!(self, Self::Unique | Self::UniqueInKey)
    }
}

/// The configured options of a bucket collection. [`BucketShape::new`] checks them.
#[derive(Clone, Debug)]
pub struct BucketOptions {
    /// The collection.
    pub namespace: NamespacePattern,
    /// The fields by which items are grouped, at least one.
    pub key: Vec<String>,
    /// The field by which items are ordered. Its first value on a page is part of the page's `_id`.
    pub time: Option<String>,
    /// Stored name of the array of items.
    pub items: String,
    /// Stored name of the number of items.
    pub count: String,
    /// The most items on a page.
    pub max_items: u32,
    /// The most bytes of items on a page. A single item may be larger.
    pub max_bytes: u32,
    /// Stored names by item field.
    pub rename: BTreeMap<String, String>,
    /// The storage of the items' `_id`.
    pub item_ids: ItemIds,
    /// Whether applications may open change streams, for which mongod stores images of pages.
    pub change_streams: bool,
    /// Whether mongod refuses writes of programs that bypass the proxy.
    pub reject_direct_writes: bool,
    /// How commands on the collection are handled.
    pub mode: Mode,
    /// The share of the reads that are compared in the mode `shadow`.
    pub shadow_share: ShadowShare,
}

impl BucketOptions {
    /// The default of `items`.
    pub const DEFAULT_ITEMS: &'static str = "history";
    /// The default of `count`.
    pub const DEFAULT_COUNT: &'static str = "count";
    /// The default of `max_items`.
    pub const DEFAULT_MAX_ITEMS: u32 = 10;
    /// The default of `max_bytes`.
    pub const DEFAULT_MAX_BYTES: u32 = 1 << 20;

    /// Options with defaults, for a namespace and a key.
    #[must_use]
    pub fn new(namespace: NamespacePattern, key: Vec<String>) -> Self {
        Self {
            namespace,
            key,
            time: None,
            items: Self::DEFAULT_ITEMS.to_owned(),
            count: Self::DEFAULT_COUNT.to_owned(),
            max_items: Self::DEFAULT_MAX_ITEMS,
            max_bytes: Self::DEFAULT_MAX_BYTES,
            rename: BTreeMap::new(),
            item_ids: ItemIds::default(),
            change_streams: false,
            reject_direct_writes: false,
            mode: Mode::default(),
            shadow_share: ShadowShare::default(),
        }
    }
}

/// The validated, immutable shape of a bucket collection.
#[derive(Clone, Debug)]
pub struct BucketShape {
    options: BucketOptions,
    rename: RenameMap,
    stored_as: RawDocumentBuf,
}

impl BucketShape {
    /// The pattern's name.
    pub const PATTERN: &'static str = "bucket";
    /// The bucket's field for the page header, in addition to the configured fields.
    pub const CONTROL: &'static str = "control";
    /// The least valid `max_items`.
    pub const MIN_ITEMS: u32 = 1;
    /// The greatest valid `max_items`.
    pub const MAX_ITEMS_LIMIT: u32 = 10_000;
    /// The least valid `max_bytes`.
    pub const MIN_BYTES: u32 = 1024;
    /// The greatest valid `max_bytes`: half of the limit of a document, so that a page that exceeds
    /// it is still far from that limit.
    pub const MAX_BYTES_LIMIT: u32 = 8 << 20;

    /// The options.
    #[must_use]
    pub fn options(&self) -> &BucketOptions {
        &self.options
    }

    /// The options that a [shape marker](crate::pattern::shape_marker) records. Others have their defaults.
    /// `None`: this version does not know all of them.
    #[must_use]
    pub fn recorded(stored: &RawDocument, namespace: NamespacePattern) -> Option<BucketOptions> {
        fingerprint::bucket_options(stored, namespace)
    }

    /// Checks the options.
    ///
    /// # Errors
    /// All contradictions, not only the first.
    pub fn new(options: BucketOptions) -> Result<Self, Vec<ShapeError>> {
        let mut errors = Vec::new();
        check_key(&options, &mut errors);
        check_time(&options, &mut errors);
        check_stored_names(&options, &mut errors);
        check_limits(&options, &mut errors);
        check_change_streams(&options, &mut errors);
        match RenameMap::new(&options.rename, &options.key) {
            Ok(rename) if errors.is_empty() => Ok(Self {
                stored_as: fingerprint::of_bucket(&options),
                options,
                rename,
            }),
            Ok(_) => Err(errors),
            Err(of_rename) => {
                errors.extend(of_rename);
                Err(errors)
            }
        }
    }

    /// The configured namespace.
    #[must_use]
    pub fn namespace(&self) -> &NamespacePattern {
        &self.options.namespace
    }

    /// The fields by which items are grouped. Never empty.
    #[must_use]
    pub fn key(&self) -> &[String] {
        &self.options.key
    }

    /// The field by which items are ordered, under the application's name.
    #[must_use]
    pub fn time(&self) -> Option<&str> {
        self.options.time.as_deref()
    }

    /// Stored name of the array of items.
    #[must_use]
    pub fn items(&self) -> &str {
        &self.options.items
    }

    /// Stored name of the number of items.
    #[must_use]
    pub fn count(&self) -> &str {
        &self.options.count
    }

    /// The most items on a page.
    #[must_use]
    pub fn max_items(&self) -> u32 {
        self.options.max_items
    }

    /// The most bytes of items on a page. A single item may be larger.
    #[must_use]
    pub fn max_bytes(&self) -> u32 {
        self.options.max_bytes
    }

    /// Item fields and their stored names.
    #[must_use]
    pub fn rename(&self) -> &RenameMap {
        &self.rename
    }

    /// The storage of the items' `_id`.
    #[must_use]
    pub fn item_ids(&self) -> ItemIds {
        self.options.item_ids
    }

    /// Whether applications may open change streams on the collection.
    #[must_use]
    pub fn change_streams(&self) -> bool {
        self.options.change_streams
    }

    /// Whether mongod refuses writes of programs that bypass the proxy.
    #[must_use]
    pub fn rejects_direct_writes(&self) -> bool {
        self.options.reject_direct_writes
    }

    /// How commands on the collection are handled.
    #[must_use]
    pub fn mode(&self) -> Mode {
        self.options.mode
    }

    /// The same shape in another mode.
    pub(super) fn with_mode(&self, mode: Mode) -> Self {
        let mut shape = self.clone();
        shape.options.mode = mode;
        shape
    }

    /// The fingerprint: the options that stored pages depend on.
    #[must_use]
    pub fn stored_as(&self) -> &RawDocument {
        &self.stored_as
    }
}

fn check_key(options: &BucketOptions, errors: &mut Vec<ShapeError>) {
    if options.key.is_empty() {
        errors.push(ShapeError::new(
            "key",
            "the list is empty",
            "name the field that items are grouped by",
        ));
    }
    // MongoDB allows 32 fields in a compound index, and the page number and the bounds need some of
    // them.
    if options.key.len() > 16 {
        errors.push(ShapeError::new("key", "more than 16 fields", "group by fewer fields"));
    }
    for (position, field) in options.key.iter().enumerate() {
        check_field_name("key", field, errors);
        if field == "_id" {
            errors.push(ShapeError::new(
                "key",
                "every item has its own `_id`",
                "group by a field that items share",
            ));
        }
        if field == BucketShape::CONTROL {
            errors.push(ShapeError::new(
                "key",
                "`control` is a field of every bucket",
                "group by another field",
            ));
        }
        if options.key.iter().take(position).any(|earlier| earlier == field) {
            errors.push(ShapeError::new(
                "key",
                format!("`{field}` is named twice"),
                "name it once",
            ));
        }
    }
}

fn check_time(options: &BucketOptions, errors: &mut Vec<ShapeError>) {
    let Some(time) = &options.time else { return };
    check_field_name("time", time, errors);
    if time == "_id" || options.key.contains(time) {
        errors.push(ShapeError::new(
            "time",
            format!("`{time}` is `_id` or a key field"),
            "name the date field that orders the items",
        ));
    }
}

fn check_stored_names(options: &BucketOptions, errors: &mut Vec<ShapeError>) {
    for (option, name) in [("items", &options.items), ("count", &options.count)] {
        check_field_name(option, name, errors);
        if ["_id", BucketShape::CONTROL].contains(&name.as_str()) || options.key.contains(name) {
            errors.push(ShapeError::new(
                option,
                format!("a bucket uses `{name}` for `_id`, `control` or a key field"),
                "choose another name",
            ));
        }
    }
    if options.items == options.count {
        let problem = format!("`{}` is also the name of `items`", options.count);
        errors.push(ShapeError::new("count", problem, "choose another name"));
    }
}

/// The items of two versions of a page are compared by their `_id`.
fn check_change_streams(options: &BucketOptions, errors: &mut Vec<ShapeError>) {
    let are_unique = [ItemIds::Unique, ItemIds::UniqueInKey].contains(&options.item_ids);
    if options.change_streams && !are_unique {
        errors.push(ShapeError::new(
            "change_streams",
            "change streams identify items by unique `_id`s",
            "remove `change_streams`, or write item_ids = \"unique\" or \"unique_in_key\"",
        ));
    }
}

fn check_limits(options: &BucketOptions, errors: &mut Vec<ShapeError>) {
    let limits = [
        (
            "max_items",
            options.max_items,
            BucketShape::MIN_ITEMS..=BucketShape::MAX_ITEMS_LIMIT,
        ),
        (
            "max_bytes",
            options.max_bytes,
            BucketShape::MIN_BYTES..=BucketShape::MAX_BYTES_LIMIT,
        ),
    ];
    for (option, value, limits) in limits {
        if !limits.contains(&value) {
            let remedy = format!("write a number from {} to {}", limits.start(), limits.end());
            errors.push(ShapeError::new(option, format!("{value} is out of range"), remedy));
        }
    }
}
