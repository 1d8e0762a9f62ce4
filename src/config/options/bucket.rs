//! The tables `bucket`. The shape itself checks limits.

use super::{
    ConfigOption, ConfigTable, Flag, Holds, Map, Number, Occurrence, OptionalText, Percentage, RequiredText,
    RequiredTexts, TextOption, Words,
};
use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds, Mode};

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "bucket",
    times: Occurrence::Often,
    meaning: "One table for each collection that is stored in the bucket pattern.",
    options: &[
        &NAMESPACE,
        &KEY,
        &TIME,
        &ITEMS,
        &COUNT,
        &MAX_ITEMS,
        &MAX_BYTES,
        &RENAME,
        &ITEM_IDS,
        &CHANGE_STREAMS,
        &REJECT_DIRECT_WRITES,
        &MODE,
        &SHADOW_SHARE,
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
    meaning: "The collection. `*.collection` is this collection in every database, except those that have a table of their own for it.",
};

pub(in crate::config) const KEY: ConfigOption<RequiredTexts> = ConfigOption {
    name: "key",
    value: RequiredTexts {
        what: "top-level fields",
        example: "\"customerId\"",
    },
    holds: Holds::FromReload,
    meaning: "The field or fields by which items are grouped. In the environment, only one field.",
};

pub(in crate::config) const TIME: ConfigOption<OptionalText> = ConfigOption {
    name: "time",
    value: OptionalText {
        what: "a field inside the items",
        otherwise: "items keep their insertion order",
    },
    holds: Holds::FromReload,
    meaning: "The field that orders items and names pages.",
};

pub(in crate::config) const ITEMS: ConfigOption<TextOption> = ConfigOption {
    name: "items",
    value: TextOption {
        what: "a field name",
        default: BucketOptions::DEFAULT_ITEMS,
    },
    holds: Holds::FromReload,
    meaning: "The stored name of a bucket's array of items.",
};

pub(in crate::config) const COUNT: ConfigOption<TextOption> = ConfigOption {
    name: "count",
    value: TextOption {
        what: "a field name",
        default: BucketOptions::DEFAULT_COUNT,
    },
    holds: Holds::FromReload,
    meaning: "The stored name of the number of its items.",
};

pub(in crate::config) const MAX_ITEMS: ConfigOption<Number> = ConfigOption {
    name: "max_items",
    value: Number {
        least: BucketShape::MIN_ITEMS as usize,
        most: BucketShape::MAX_ITEMS_LIMIT as usize,
        default: BucketOptions::DEFAULT_MAX_ITEMS as usize,
    },
    holds: Holds::FromReload,
    meaning: "Maximum number of items on a page. [Costs and benefits of the size](choosing-shapes.md#pages-of-which-size).",
};

pub(in crate::config) const MAX_BYTES: ConfigOption<Number> = ConfigOption {
    name: "max_bytes",
    value: Number {
        least: BucketShape::MIN_BYTES as usize,
        most: BucketShape::MAX_BYTES_LIMIT as usize,
        default: BucketOptions::DEFAULT_MAX_BYTES as usize,
    },
    holds: Holds::FromReload,
    meaning: "Bytes of items at which a page is closed before it is full.",
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
            (ItemIds::Unique.name(), ItemIds::Unique),
            (ItemIds::UniqueInKey.name(), ItemIds::UniqueInKey),
            (ItemIds::Stored.name(), ItemIds::Stored),
            (ItemIds::Dropped.name(), ItemIds::Dropped),
        ],
    },
    holds: Holds::FromReload,
    meaning: "How the items' `_id` is stored. `unique`: stored and indexed, duplicates are refused as in a plain collection. `unique_in_key`: \
              the same within each key; the choice for a sharded collection, which has no unique index on `_id` alone. `stored`: stored without an \
              index, duplicates are accepted. `dropped`: not stored.",
};

pub(in crate::config) const CHANGE_STREAMS: ConfigOption<Flag> = ConfigOption {
    name: "change_streams",
    value: Flag,
    holds: Holds::FromReload,
    meaning: "Whether applications may open change streams on the collection. mongod then stores every page before and after each change for \
              [some time](decisions/0035-change-streams-compare-images-of-pages.md). Requires `item_ids = \"unique\"` or `\"unique_in_key\"`.",
};

pub(in crate::config) const REJECT_DIRECT_WRITES: ConfigOption<Flag> = ConfigOption {
    name: "reject_direct_writes",
    value: Flag,
    holds: Holds::FromReload,
    meaning: "Whether mongod [refuses writes of programs that bypass the proxy](operations.md#writes-that-bypass-the-proxy), except deletes. A \
              new collection gets it from its first write, an existing one from `mongoshape setup`.",
};

pub(in crate::config) const MODE: ConfigOption<Words<Mode>> = ConfigOption {
    name: "mode",
    value: Words {
        choices: &[
            ("rewrite", Mode::Rewrite),
            ("observe", Mode::Observe),
            ("auto", Mode::Auto),
            ("shadow", Mode::Shadow),
            ("off", Mode::Off),
        ],
    },
    holds: Holds::FromReload,
    meaning: "`rewrite`; `observe`: commands are relayed, and the proxy [counts](metrics.md#observe-mode) those that it would have \
              rewritten or refused, and estimates the savings; `auto`: commands are relayed while the collection contains plain documents, and \
              rewritten while it [contains pages](operations.md#automatic-shapes); `shadow`: commands are relayed, and a share of the \
              reads is [compared with a copy in pages](converting.md#shadow-mode); `off`: commands are relayed.",
};

pub(in crate::config) const SHADOW_SHARE: ConfigOption<Percentage> = ConfigOption {
    name: "shadow_share",
    value: Percentage {
        least: "0.01",
        most: "100",
        default: 1,
    },
    holds: Holds::FromReload,
    meaning: "With `mode = \"shadow\"`: the percentage of the reads that are compared.",
};
