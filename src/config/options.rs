//! Every option, said once: name, limits, default, and what it does. The readers beside this module take them
//! from here, so that nothing is read that is not described; `docs/configuration.md` is made of it.

pub(super) mod admin;
pub(super) mod bucket;
pub(super) mod listen;
pub(super) mod log;
pub(super) mod outlier;
mod reference;
pub(super) mod tls;
pub(super) mod upstream;

pub use self::reference::{DefaultValue, OptionReference, TableReference, reference};
use crate::pattern::shapes::Mode;

/// One option; `V` is what its values may be.
pub(super) struct ConfigOption<V> {
    /// Its name in its table.
    pub(super) name: &'static str,
    pub(super) value: V,
    pub(super) holds: Holds,
    /// What it does, in plain sentences.
    pub(super) meaning: &'static str,
}

/// From when on a changed value holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Holds {
    /// The next SIGHUP.
    FromReload,
    /// The next start.
    FromStart,
}

/// A string that has a default.
pub(super) struct TextOption {
    /// What it is: "a level, or ..".
    pub(super) what: &'static str,
    pub(super) default: &'static str,
}

/// A string that need not be there.
pub(super) struct OptionalText {
    pub(super) what: &'static str,
    /// What is done without it.
    pub(super) otherwise: &'static str,
}

/// A string that must be there.
pub(super) struct RequiredText {
    pub(super) what: &'static str,
    /// A value as TOML has it.
    pub(super) example: &'static str,
}

/// A string or a list of strings, one at least.
pub(super) struct RequiredTexts {
    pub(super) what: &'static str,
    /// A value as TOML has it.
    pub(super) example: &'static str,
}

/// A string that is not to be shown, and need not be there.
pub(super) struct Secret {
    /// The fewest characters.
    pub(super) least: usize,
    pub(super) most: usize,
    /// What is done without it.
    pub(super) otherwise: &'static str,
}

/// A whole number that has a default.
pub(super) struct Number {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) default: usize,
}

/// A whole number that must be there.
pub(super) struct RequiredNumber {
    pub(super) least: usize,
    pub(super) most: usize,
    pub(super) example: &'static str,
}

/// One of a few words, each with what it stands for. The first is the default.
pub(super) struct Words<T: 'static> {
    pub(super) choices: &'static [(&'static str, T)],
}

/// A table of strings, whose names are the user's.
pub(super) struct Map {
    pub(super) what: &'static str,
}

/// The option `mode` of any shape.
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
    meaning: "`rewrite`; `observe`: [relay, and count](metrics.md#observe-mode) what would have been rewritten, refused and saved; \
              `off`: relay.",
};

/// One table of the file.
pub(super) struct ConfigTable {
    /// Its name in the table around it.
    pub(super) name: &'static str,
    pub(super) times: Occurrence,
    /// What it is for.
    pub(super) meaning: &'static str,
    /// Where there may be several, the environment adds one by the first option.
    pub(super) options: &'static [&'static dyn reference::Described],
    pub(super) tables: &'static [&'static ConfigTable],
}

/// How often a table may be there.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(super) enum Occurrence {
    Once,
    Often,
}

/// The sections of the file.
pub(super) const SECTIONS: [&ConfigTable; 6] = [
    &listen::TABLE,
    &upstream::TABLE,
    &admin::TABLE,
    &log::TABLE,
    &bucket::TABLE,
    &outlier::TABLE,
];

#[cfg(test)]
mod tests;
