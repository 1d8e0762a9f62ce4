//! The section `log`.

use super::{ConfigOption, ConfigTable, Holds, Number, Occurrence, TextOption, Words};
use crate::telemetry::log::LogFormat;

pub(in crate::config) const TABLE: ConfigTable = ConfigTable {
    name: "log",
    times: Occurrence::Once,
    meaning: "Content and format of the log on standard error.",
    options: &[&FILTER, &FORMAT, &SLOW_COMMAND_MS],
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

pub(in crate::config) const SLOW_COMMAND_MS: ConfigOption<Number> = ConfigOption {
    name: "slow_command_ms",
    value: Number {
        least: 0,
        // A day.
        most: 24 * 3_600_000,
        default: 0,
    },
    holds: Holds::FromReload,
    meaning: "Commands that take at least so many milliseconds are logged at level `info`, with their namespace, access path, statements \
              and duration, and without values of documents. 0: none.",
};
