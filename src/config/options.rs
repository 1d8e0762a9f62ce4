//! Describes every option once: name, limits, default, and meaning. The modules that read options
//! take them from here, so no option is read that is not described. `docs/configuration.md` is
//! generated from these descriptions.

pub(super) mod admin;
pub(super) mod bucket;
pub(super) mod listen;
pub(super) mod log;
pub(super) mod outlier;
mod reference;
pub(super) mod tls;
pub(super) mod traces;
pub(super) mod upstream;

pub use self::reference::{DefaultValue, OptionReference, TableReference, reference};
use crate::pattern::shapes::Mode;

/// One option. `V` describes its values.
pub(super) struct ConfigOption<V> {
    /// The name in its table.
    pub(super) name: &'static str,
    pub(super) value: V,
    pub(super) holds: Holds,
    /// The effect, in plain sentences.
    pub(super) meaning: &'static str,
}

/// The time at which a changed value takes effect.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// At the next SIGHUP.
    FromReload,
    /// At the next start.
    FromStart,
}

/// A string with a default.
pub(super) struct TextOption {
    /// The kind of string: "a level, or ..".
    pub(super) what: &'static str,
    pub(super) default: &'static str,
}

/// An optional string.
pub(super) struct OptionalText {
    pub(super) what: &'static str,
    /// The behaviour without it.
    pub(super) otherwise: &'static str,
}

/// A required string.
pub(super) struct RequiredText {
    pub(super) what: &'static str,
    /// A value in TOML.
    pub(super) example: &'static str,
}

/// A required string or list of strings.
pub(super) struct RequiredTexts {
    pub(super) what: &'static str,
    /// A value in TOML.
    pub(super) example: &'static str,
}

/// An optional string that must not be shown.
pub(super) struct Secret {
    /// The least number of characters.
    pub(super) least: usize,
    pub(super) most: usize,
    /// The behaviour without it.
    pub(super) otherwise: &'static str,
}

/// A whole number with a default.
pub(super) struct Number {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) default: usize,
}

/// A required whole number.
pub(super) struct RequiredNumber {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) example: &'static str,
}

/// A part of 100, with up to two decimal places.
pub(super) struct Percentage {
    pub(super) least: &'static str,
    pub(super) most: &'static str,
    pub(super) default: usize,
}

/// One of several words with their values. The first word is the default.
pub(super) struct Words<T: 'static> {
    pub(super) choices: &'static [(&'static str, T)],
}

/// `true` or `false`, by default `false`.
pub(super) struct Flag;

/// A table of strings with names that the user chooses.
pub(super) struct Map {
    pub(super) what: &'static str,
}

/// The option `mode` of a shape that cannot be automatic.
pub(super) const MODE: ConfigOption<Words<Mode>> = ConfigOption {
    name: "mode",
    value: Words {
        choices: &[
            ("rewrite", Mode::Rewrite),
            ("observe", Mode::Observe),
            ("off", Mode::Off),
        ],
    },
    holds: Holds::FromReload,
    meaning: "`rewrite`; `observe`: commands are relayed, and the proxy [counts](metrics.md#observe-mode) those that it would have \
              rewritten or refused, and estimates the savings; `off`: commands are relayed.",
};

/// One table of the file.
pub(super) struct ConfigTable {
    /// The name in the table around it.
    pub(super) name: &'static str,
    pub(super) times: Occurrence,
    /// The purpose.
    pub(super) meaning: &'static str,
    /// If the table may occur several times, the environment adds one by the first option.
    pub(super) options: &'static [&'static dyn reference::Described],
    pub(super) tables: &'static [&'static ConfigTable],
}

/// The number of times that a table may occur.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    Once,
    Often,
}

/// The sections of the file.
pub(super) const SECTIONS: [&ConfigTable; 7] = [
    &listen::TABLE,
    &upstream::TABLE,
    &admin::TABLE,
    &log::TABLE,
    &traces::TABLE,
    &bucket::TABLE,
    &outlier::TABLE,
];

#[cfg(test)]
mod tests;
