//! The section `log`.

use super::{ConfigOption, ConfigTable, Holds, Occurrence, TextOption, Words};
use crate::telemetry::log::LogFormat;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "log",
    times: Occurrence::Once,
    meaning: "Content and format of the log on standard error.",
    options: &[&FILTER, &FORMAT],
    tables: &[],
};

pub(in crate::config) const FILTER: ConfigOption<TextOption> = ConfigOption {
    name: "filter",
    value: TextOption {
        what: "a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or levels by module as in `info,mongoshape::session=debug`",
        default: "info",
    },
    holds: Holds::FromStart,
    meaning: "Level of the log.",
};

pub(in crate::config) const FORMAT: ConfigOption<Words<LogFormat>> = ConfigOption {
    name: "format",
    value: Words {
        choices: &[("text", LogFormat::Text), ("json", LogFormat::Json)],
    },
    holds: Holds::FromStart,
    meaning: "`text` for people, `json` for one object per line.",
};
