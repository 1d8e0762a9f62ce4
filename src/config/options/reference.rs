//! A reference of all options. Reads no configuration, and must not contain names of options.

use super::{
    ConfigOption, ConfigTable, Flag, Holds, Map, Number, Occurrence, OptionalText, Percentage, RequiredNumber,
    RequiredText, RequiredTexts, SECTIONS, Secret, TextOption, Words,
};

/// One table of the reference.
#[derive(Clone, Debug)]
pub struct TableReference {
    /// The header in the file: `[listen]`, `[[bucket]]`, `[outlier.extras]`.
    pub header: String,
    /// The purpose.
    pub meaning: &'static str,
    /// Its options.
    pub options: Vec<OptionReference>,
}

/// One option of the reference.
#[derive(Clone, Debug)]
pub struct OptionReference {
    /// The whole path: `listen.tls.cert`.
    pub path: String,
    /// Its type.
    pub kind: &'static str,
    /// The accepted values.
    pub values: String,
    /// The default.
    pub default: DefaultValue,
    /// The environment variable that overrides the file. For a table that may occur several times,
    /// that of the first one. `None`: the option can only be set in the file.
    pub variable: Option<String>,
    /// The time at which a changed value takes effect.
    pub holds: Holds,
    /// The effect.
    pub meaning: &'static str,
}

/// The default of an option.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum DefaultValue {
    /// None: the option is required.
    Required,
    /// This string.
    Text(&'static str),
    /// This number.
    Number(usize),
    /// This truth value.
    Flag(bool),
    /// Described in words: no value, or one that depends on other options.
    Otherwise(&'static str),
}

/// Every table with its options, in the order of `config/mongoshape.toml`.
#[must_use]
pub fn reference() -> Vec<TableReference> {
    let mut tables = Vec::new();
    for table in SECTIONS {
        collect_tables(table, "", "MONGOSHAPE", &mut tables);
    }
    tables
}

fn collect_tables(table: &ConfigTable, around: &str, variable: &str, tables: &mut Vec<TableReference>) {
    let dot = if around.is_empty() { "" } else { "." };
    let path = format!("{around}{dot}{}", table.name);
    let number = if table.times == Occurrence::Often { "_0" } else { "" };
    let variable = format!("{variable}_{}{number}", table.name.to_uppercase());
    let header = match table.times {
        Occurrence::Once => format!("[{path}]"),
        Occurrence::Often => format!("[[{path}]]"),
    };
    let row = |option: &&dyn Described| OptionReference {
        path: format!("{path}.{}", option.name()),
        variable: option
            .in_environment()
            .then(|| format!("{variable}_{}", option.name().to_uppercase())),
        ..option.row()
    };
    tables.push(TableReference {
        header,
        meaning: table.meaning,
        options: table.options.iter().map(row).collect(),
    });
    for inner in table.tables {
        collect_tables(inner, &path, &variable, tables);
    }
}

/// An option with any kind of values.
pub(in crate::config) trait Described: Sync {
    fn name(&self) -> &'static str;
    fn in_environment(&self) -> bool;
    /// The reference of the option without its path.
    fn row(&self) -> OptionReference;
}

impl<V: OptionKind + Sync> Described for ConfigOption<V> {
    fn name(&self) -> &'static str {
        self.name
    }

    fn in_environment(&self) -> bool {
        V::IN_ENVIRONMENT
    }

    fn row(&self) -> OptionReference {
        OptionReference {
            path: String::new(),
            kind: V::NAME,
            values: self.value.values(),
            default: self.value.default(),
            variable: None,
            holds: self.holds,
            meaning: self.meaning,
        }
    }
}

/// A kind of values.
pub(in crate::config) trait OptionKind {
    const NAME: &'static str;
    const IN_ENVIRONMENT: bool = true;
    fn values(&self) -> String;
    fn default(&self) -> DefaultValue;
}

impl OptionKind for TextOption {
    const NAME: &'static str = "string";

    fn values(&self) -> String {
        self.what.to_owned()
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Text(self.default)
    }
}

impl OptionKind for OptionalText {
    const NAME: &'static str = "string";

    fn values(&self) -> String {
        self.what.to_owned()
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Otherwise(self.otherwise)
    }
}

impl OptionKind for RequiredText {
    const NAME: &'static str = "string";

    fn values(&self) -> String {
        format!("{}, such as `{}`", self.what, self.example)
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Required
    }
}

impl OptionKind for RequiredTexts {
    const NAME: &'static str = "string, or list of strings";

    fn values(&self) -> String {
        format!("{}, such as `{}`", self.what, self.example)
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Required
    }
}

impl OptionKind for Secret {
    const NAME: &'static str = "string";

    fn values(&self) -> String {
        format!("{} to {} characters", self.least, self.most)
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Otherwise(self.otherwise)
    }
}

impl OptionKind for Number {
    const NAME: &'static str = "number";

    fn values(&self) -> String {
        format!("{} to {}", self.least, self.most)
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Number(self.default)
    }
}

impl OptionKind for Percentage {
    const NAME: &'static str = "percentage";

    fn values(&self) -> String {
        format!("{} to {}", self.least, self.most)
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Number(self.default)
    }
}

impl OptionKind for RequiredNumber {
    const NAME: &'static str = "number";

    fn values(&self) -> String {
        format!("{} to {}, such as `{}`", self.least, self.most, self.example)
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Required
    }
}

impl<T> OptionKind for Words<T> {
    const NAME: &'static str = "string";

    fn values(&self) -> String {
        let words: Vec<String> = self.choices.iter().map(|(word, _)| format!("`{word}`")).collect();
        words.join(", ")
    }

    fn default(&self) -> DefaultValue {
        let first = self.choices.first().map(|(word, _)| DefaultValue::Text(word));
        first.unwrap_or(DefaultValue::Required)
    }
}

impl OptionKind for Flag {
    const NAME: &'static str = "boolean";

    fn values(&self) -> String {
        "`true`, `false`".to_owned()
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Flag(false)
    }
}

impl OptionKind for Map {
    const NAME: &'static str = "table of strings";
    const IN_ENVIRONMENT: bool = false;

    fn values(&self) -> String {
        self.what.to_owned()
    }

    fn default(&self) -> DefaultValue {
        DefaultValue::Otherwise("none")
    }
}
