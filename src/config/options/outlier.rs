//! The tables `outlier`. The shape itself checks limits.

use super::bucket::NAMESPACE;
use super::{
    ConfigOption, ConfigTable, Holds, MODE, Number, Occurrence, OptionalText, RequiredNumber, RequiredText, TextOption,
    Words,
};
use crate::pattern::shapes::{ExtrasOptions, OutlierOptions, OutlierShape, Reads};

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "outlier",
    times: Occurrence::Often,
    meaning: "One table for each collection whose arrays may grow very large: [how they are stored](outliers.md).",
    options: &[&NAMESPACE, &ARRAY, &THRESHOLD, &FLAG, &READS, &MODE],
    tables: &[&extras::TABLE],
};

pub(in crate::config) const ARRAY: ConfigOption<RequiredText> = ConfigOption {
    name: "array",
    value: RequiredText {
        what: "a top-level field",
        example: "\"customers_purchased\"",
    },
    holds: Holds::FromReload,
    meaning: "The array that may grow.",
};

pub(in crate::config) const THRESHOLD: ConfigOption<RequiredNumber> = ConfigOption {
    name: "threshold",
    value: RequiredNumber {
        least: OutlierShape::MIN_ITEMS as usize,
        most: OutlierShape::MAX_ITEMS_LIMIT as usize,
        example: "50",
    },
    holds: Holds::FromReload,
    meaning: "Number of elements that stay in the document.",
};

pub(in crate::config) const FLAG: ConfigOption<TextOption> = ConfigOption {
    name: "flag",
    value: TextOption {
        what: "a field name",
        default: OutlierOptions::DEFAULT_FLAG,
    },
    holds: Holds::FromReload,
    meaning: "The field that marks a document with extras. A second field has the same name followed by `_control`. The application's \
              documents cannot have either field.",
};

pub(in crate::config) const READS: ConfigOption<Words<Reads>> = ConfigOption {
    name: "reads",
    value: Words {
        choices: &[("merged", Reads::Merged), ("base", Reads::Base)],
    },
    holds: Holds::FromReload,
    meaning: "What reads return. `merged`: the whole array; `base`: the first `threshold` elements and the flag.",
};

pub(in crate::config) mod extras {
    //! The table `outlier.extras`.

    use super::{
        ConfigOption, ConfigTable, ExtrasOptions, Holds, Number, Occurrence, OptionalText, OutlierShape, TextOption,
    };

    pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
        name: "extras",
        times: Occurrence::Once,
        meaning: "Where the elements beyond the threshold are stored: in documents of another collection in the same database.",
        options: &[&COLLECTION, &REF, &ARRAY, &MAX_ITEMS],
        tables: &[],
    };

    pub(in crate::config) const COLLECTION: ConfigOption<OptionalText> = ConfigOption {
        name: "collection",
        value: OptionalText {
            what: "a collection without a shape",
            otherwise: "`extra_` and the collection's name",
        },
        holds: Holds::FromReload,
        meaning: "The collection.",
    };

    pub(in crate::config) const REF: ConfigOption<TextOption> = ConfigOption {
        name: "ref",
        value: TextOption {
            what: "a field name",
            default: ExtrasOptions::DEFAULT_REFERENCE,
        },
        holds: Holds::FromReload,
        meaning: "The field that references the document's `_id`.",
    };

    pub(in crate::config) const ARRAY: ConfigOption<OptionalText> = ConfigOption {
        name: "array",
        value: OptionalText {
            what: "a field name",
            otherwise: "the array's name and `_extra`",
        },
        holds: Holds::FromReload,
        meaning: "The field that contains the elements.",
    };

    pub(in crate::config) const MAX_ITEMS: ConfigOption<Number> = ConfigOption {
        name: "max_items",
        value: Number {
            least: OutlierShape::MIN_ITEMS as usize,
            most: OutlierShape::MAX_ITEMS_LIMIT as usize,
            default: ExtrasOptions::DEFAULT_MAX_ITEMS as usize,
        },
        holds: Holds::FromReload,
        meaning: "Maximum number of elements per document.",
    };
}
