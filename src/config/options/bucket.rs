//! The tables `bucket`. The shape itself checks limits.

use super::{
    ConfigOption, ConfigTable, Holds, MODE, Map, Number, Occurrence, OptionalText, RequiredText, RequiredTexts,
    TextOption, Words,
};
use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds};

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "bucket",
    times: Occurrence::Often,
    meaning: "One for each collection that is stored in the bucket pattern.",
    options: &[
        &NAMESPACE, &KEY, &TIME, &ITEMS, &COUNT, &MAX_ITEMS, &MAX_BYTES, &RENAME, &ITEM_IDS, &MODE,
    ],
    tables: &[],
};

/// Also the option of an outlier collection.
pub(in crate::config) const NAMESPACE: ConfigOption<RequiredText> = ConfigOption {
    name: "namespace",
    value: RequiredText {
        what: "a namespace",
        example: "\"database.collection\"",
    },
    holds: Holds::FromReload,
    meaning: "The collection; `*.collection` is that collection in every database but those that have a table of their own for it.",
};

pub(in crate::config) const KEY: ConfigOption<RequiredTexts> = ConfigOption {
    name: "key",
    value: RequiredTexts {
        what: "top-level fields",
        example: "\"customerId\"",
    },
    holds: Holds::FromReload,
    meaning: "The field or fields that items are grouped by; by the environment one alone.",
};

pub(in crate::config) const TIME: ConfigOption<OptionalText> = ConfigOption {
    name: "time",
    value: OptionalText {
        what: "a field inside the items",
        otherwise: "items keep the order of their insertion",
    },
    holds: Holds::FromReload,
    meaning: "The field that items are ordered and pages are named by.",
};

pub(in crate::config) const ITEMS: ConfigOption<TextOption> = ConfigOption {
    name: "items",
    value: TextOption {
        what: "a field name",
        default: BucketOptions::DEFAULT_ITEMS,
    },
    holds: Holds::FromReload,
    meaning: "The name of a bucket's array of items, as it is stored.",
};

pub(in crate::config) const COUNT: ConfigOption<TextOption> = ConfigOption {
    name: "count",
    value: TextOption {
        what: "a field name",
        default: BucketOptions::DEFAULT_COUNT,
    },
    holds: Holds::FromReload,
    meaning: "The name of the number of its items, as it is stored.",
};

pub(in crate::config) const MAX_ITEMS: ConfigOption<Number> = ConfigOption {
    name: "max_items",
    value: Number {
        least: BucketShape::MIN_ITEMS as usize,
        most: BucketShape::MAX_ITEMS_LIMIT as usize,
        default: BucketOptions::DEFAULT_MAX_ITEMS as usize,
    },
    holds: Holds::FromReload,
    meaning: "Items a page. [What a page's size costs and gains](choosing-shapes.md#pages-of-which-size).",
};

pub(in crate::config) const MAX_BYTES: ConfigOption<Number> = ConfigOption {
    name: "max_bytes",
    value: Number {
        least: BucketShape::MIN_BYTES as usize,
        most: BucketShape::MAX_BYTES_LIMIT as usize,
        default: BucketOptions::DEFAULT_MAX_BYTES as usize,
    },
    holds: Holds::FromReload,
    meaning: "Bytes of items after which a page is closed before it is full.",
};

pub(in crate::config) const RENAME: ConfigOption<Map> = ConfigOption {
    name: "rename",
    value: Map {
        what: "item field = stored field",
    },
    holds: Holds::FromReload,
    meaning: "Fields that are stored under another name, usually a shorter one.",
};

pub(in crate::config) const ITEM_IDS: ConfigOption<Words<ItemIds>> = ConfigOption {
    name: "item_ids",
    value: Words {
        choices: &[
            ("unique", ItemIds::Unique),
            ("stored", ItemIds::Stored),
            ("dropped", ItemIds::Dropped),
        ],
    },
    holds: Holds::FromReload,
    meaning: "What becomes of the items' `_id`. `unique`: kept, indexed, duplicates refused, as in a plain collection; `stored`: kept, not \
              indexed: an `_id` that comes twice is stored twice; `dropped`: not kept.",
};
