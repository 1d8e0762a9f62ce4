//! The section `log`.

use super::{ConfigOption, ConfigTable, Holds, Text, Times, Words};
use crate::telemetry::log::LogFormat;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "log",
    times: Times::Once,
    meaning: "What is logged to standard error, and how.",
    options: &[&FILTER, &FORMAT],
    tables: &[],
};

pub(in crate::config) const FILTER: ConfigOption<Text> = ConfigOption {
    name: "filter",
    value: Text {
        what: "a level (`error`, `warn`, `info`, `debug`, `trace`, `off`), or levels by module as in `info,mongoshape::session=debug`",
        default: "info",
    },
    holds: Holds::FromStart,
    meaning: "What is logged.",
};

pub(in crate::config) const FORMAT: ConfigOption<Words<LogFormat>> = ConfigOption {
    name: "format",
    value: Words {
        choices: &[("text", LogFormat::Text), ("json", LogFormat::Json)],
    },
    holds: Holds::FromStart,
    meaning: "`text` for people, `json` for one object a line.",
};
