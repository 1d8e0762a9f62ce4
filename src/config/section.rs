//! Reads one table of the file, field by field. The environment overrides the file. Fields that were not read
//! are unknown. Checks types, not the meaning of options.

mod tables;

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use toml::Spanned;
use toml::de::{DeArray, DeInteger, DeTable, DeValue};

use super::error::MistakeLocation;
use super::options::{
    ConfigOption, Flag, Number, OptionalText, Percentage, RequiredNumber, RequiredText, RequiredTexts, Secret,
    TextOption, Words,
};
use super::source::ConfigSource;
use super::suggest;

type FieldType<'a> = (usize, DeValue<'a>);

/// One table: `[listen]`, the second `[[bucket]]`, or an inline table.
pub(super) struct Section<'a> {
    pub(super) source: &'a ConfigSource<'a>,
    /// The path of the table: `listen`, `bucket`, `outlier.extras`. Empty for the whole file.
    path: String,
    /// The prefix of its fields' environment variables: `MONGOSHAPE_BUCKET_0`.
    variable: String,
    /// The place where the table begins.
    place: MistakeLocation,
    /// Fields that were not read yet, with the lines of their keys.
    fields: BTreeMap<String, FieldType<'a>>,
    /// Lists that cannot be read because of syntax mistakes. They exist, but are neither valid nor
    /// invalid.
    lost: BTreeSet<String>,
    known: Vec<&'static str>,
    /// The place of each field that was read.
    places: BTreeMap<&'static str, MistakeLocation>,
    /// Fields with a recorded mistake. No further mistakes are derived from their substitute
    /// values.
    faulty: BTreeSet<&'static str>,
}

impl<'a> Section<'a> {
    /// The whole file.
    pub(super) fn root(source: &'a ConfigSource<'a>, table: DeTable<'a>) -> Self {
        let place = source.whole_file();
        Self::new(source, table, String::new(), "MONGOSHAPE".to_owned(), place)
    }

    fn new(
        source: &'a ConfigSource<'a>,
        table: DeTable<'a>,
        path: String,
        variable: String,
        place: MistakeLocation,
    ) -> Self {
        let (mut fields, mut lost) = (BTreeMap::new(), BTreeSet::new());
        for (key, value) in table {
            let line = source.line(&key.span());
            let name = key.into_inner().into_owned();
            if is_list(value.get_ref()) && source.has_syntax_mistake(&value.span()) {
                lost.insert(name);
            } else {
                fields.insert(name, (line, value.into_inner()));
            }
        }
        Self {
            source,
            path,
            variable,
            place,
            fields,
            lost,
            known: Vec::new(),
            places: BTreeMap::new(),
            faulty: BTreeSet::new(),
        }
    }

    /// An optional string.
    pub(super) fn string(&mut self, option: &ConfigOption<OptionalText>) -> Option<String> {
        self.take_string(option.name)
    }

    /// A required string that another option can make unnecessary.
    pub(super) fn string_if_given(&mut self, option: &ConfigOption<RequiredText>) -> Option<String> {
        self.take_string(option.name)
    }

    /// A string that must not be shown.
    pub(super) fn secret(&mut self, option: &ConfigOption<Secret>) -> Option<String> {
        self.take_string(option.name)
    }

    /// A string with a default.
    pub(super) fn text(&mut self, option: &ConfigOption<TextOption>) -> String {
        let given = self.take_string(option.name);
        given.unwrap_or_else(|| option.value.default.to_owned())
    }

    fn take_string(&mut self, name: &'static str) -> Option<String> {
        match self.take(name)? {
            Value::Variable(text) => Some(text),
            Value::File(DeValue::String(text)) => Some(text.into_owned()),
            Value::File(other) => self.wrong_type(name, &other, "a string"),
        }
    }

    /// A required string.
    pub(super) fn required_string(&mut self, option: &ConfigOption<RequiredText>) -> Option<String> {
        let value = self.take_string(option.name);
        self.require(option.name, value, option.value.example)
    }

    /// A string or a list of strings. From the environment always one string.
    pub(super) fn required_strings(&mut self, option: &ConfigOption<RequiredTexts>) -> Option<Vec<String>> {
        let name = option.name;
        let value = match self.take(name) {
            None => None,
            Some(Value::Variable(text)) => Some(vec![text]),
            Some(Value::File(DeValue::String(text))) => Some(vec![text.into_owned()]),
            Some(Value::File(DeValue::Array(list))) => self.list_of_strings(name, list),
            Some(Value::File(other)) => self.wrong_type(name, &other, "a string or a list of strings"),
        };
        self.require(name, value, option.value.example)
    }

    /// A whole number in the range of `T`.
    pub(super) fn integer<T: TryFrom<i128>>(&mut self, option: &ConfigOption<Number>) -> Option<T> {
        self.take_integer(option.name)
    }

    fn take_integer<T: TryFrom<i128>>(&mut self, name: &'static str) -> Option<T> {
        let (value, text) = match self.take(name)? {
            Value::Variable(text) => (text.trim().parse::<i128>().ok(), text),
            Value::File(DeValue::Integer(number)) => (integer_value(&number), number.to_string()),
            Value::File(other) => return self.wrong_type(name, &other, "a whole number"),
        };
        let Some(value) = value else {
            return self.refuse(name, &format!("`{text}` is not a whole number"), "write only digits");
        };
        let remedy = if value < 0 {
            "write a positive number"
        } else {
            "write a smaller number"
        };
        let fault = format!("{value} is out of range");
        T::try_from(value).ok().or_else(|| self.refuse(name, &fault, remedy))
    }

    /// A number of percent, as `of_percent` accepts it.
    pub(super) fn percentage<T>(
        &mut self,
        option: &ConfigOption<Percentage>,
        of_percent: fn(f64) -> Option<T>,
    ) -> Option<T> {
        let (name, Percentage { least, most, .. }) = (option.name, &option.value);
        let text = match self.take(name)? {
            Value::Variable(text) => text,
            Value::File(DeValue::Integer(number)) => number.to_string(),
            Value::File(DeValue::Float(number)) => number.to_string(),
            Value::File(other) => return self.wrong_type(name, &other, "a number"),
        };
        let percent = text.trim().parse().ok().and_then(of_percent);
        percent.or_else(|| {
            let remedy = format!("write a number from {least} to {most}");
            self.refuse(name, &format!("`{text}` is no such percentage"), &remedy)
        })
    }

    /// A required whole number.
    pub(super) fn required_integer<T: TryFrom<i128>>(&mut self, option: &ConfigOption<RequiredNumber>) -> Option<T> {
        let value = self.take_integer(option.name);
        self.require(option.name, value, option.value.example)
    }

    /// `true` or `false`.
    pub(super) fn flag(&mut self, option: &ConfigOption<Flag>) -> bool {
        let name = option.name;
        let flag = match self.take(name) {
            None => None,
            Some(Value::Variable(text)) => match text.trim().parse() {
                Ok(flag) => Some(flag),
                Err(_) => self.refuse(name, &format!("`{text}` is no truth value"), "write `true` or `false`"),
            },
            Some(Value::File(DeValue::Boolean(flag))) => Some(flag),
            Some(Value::File(other)) => self.wrong_type(name, &other, "`true` or `false`"),
        };
        flag.unwrap_or_default()
    }

    /// One of several words.
    pub(super) fn choice<T: Copy>(&mut self, option: &ConfigOption<Words<T>>) -> Option<T> {
        let (name, choices) = (option.name, option.value.choices);
        let word = self.take_string(name)?;
        let chosen = choices.iter().find(|(known, _)| *known == word);
        chosen.map(|(_, value)| *value).or_else(|| {
            let known: Vec<String> = choices.iter().map(|(known, _)| format!("\"{known}\"")).collect();
            let remedy = format!("write {}", known.join(" or "));
            self.refuse(name, &format!("\"{word}\" is not known"), &remedy)
        })
    }

    /// Records a mistake in the value of a field that was read. Mistakes that follow from the value
    /// are not recorded any more.
    pub(super) fn fault(&mut self, name: &'static str, problem: &str, remedy: &str) {
        self.faulty.insert(name);
        self.contradiction(name, problem, remedy);
    }

    /// Records a mistake, and returns `None` in place of the value.
    pub(super) fn refuse<T>(&mut self, name: &'static str, problem: &str, remedy: &str) -> Option<T> {
        self.fault(name, problem, remedy);
        None
    }

    /// Records a contradiction between a field and others. There may be several for one field.
    pub(super) fn contradiction(&self, name: &'static str, problem: &str, remedy: &str) {
        let problem = format!("`{}`: {problem}", self.path_of(name));
        self.source.mistake(&self.place_of(name), problem, remedy);
    }

    /// Whether a mistake in this field was recorded.
    pub(super) fn is_faulty(&self, name: &str) -> bool {
        self.faulty.contains(name)
    }

    /// The place of a field, or of its section if the field was not given.
    pub(super) fn place_of(&self, name: &str) -> MistakeLocation {
        self.places.get(name).unwrap_or(&self.place).clone()
    }

    /// Records every field that was not read as unknown.
    pub(super) fn finish(self) {
        for (name, (line, _)) in &self.fields {
            let remedy = suggest::nearest(name, self.known.iter().copied()).map_or_else(
                || format!("the valid fields are {}", self.known.join(", ")),
                |known| format!("did you mean `{known}`?"),
            );
            let problem = format!("`{}` is not known", self.path_of(name));
            self.source.misplaced(&self.source.place(*line), problem, remedy);
        }
    }

    /// The value of a field, from the environment or else from the file.
    fn take(&mut self, name: &'static str) -> Option<Value<'a>> {
        let from_file = self.take_from_file(name);
        let variable = self.variable_of(name);
        if let Some(text) = self.source.variable(&variable) {
            self.places.insert(name, MistakeLocation::Variable(variable));
            return Some(Value::Variable(text));
        }
        let (line, value) = from_file?;
        self.places.insert(name, self.source.place(line));
        Some(Value::File(value))
    }

    fn take_from_file(&mut self, name: &'static str) -> Option<FieldType<'a>> {
        self.known.push(name);
        if self.lost.contains(name) {
            self.faulty.insert(name);
        }
        self.fields.remove(name)
    }

    fn require<T>(&mut self, name: &'static str, value: Option<T>, example: &str) -> Option<T> {
        if value.is_none() && self.faulty.insert(name) {
            let problem = format!("`{}` is missing", self.path_of(name));
            let remedy = format!("write {name} = {example}, or set {}", self.variable_of(name));
            self.source.misplaced(&self.place, problem, remedy);
        }
        value
    }

    fn list_of_strings(&mut self, name: &'static str, list: DeArray<'a>) -> Option<Vec<String>> {
        let mut strings = Vec::with_capacity(list.len());
        for element in list {
            match element.into_inner() {
                DeValue::String(text) => strings.push(text.into_owned()),
                other => return self.wrong_type(name, &other, "a list that contains only strings"),
            }
        }
        Some(strings)
    }

    /// The value itself is not shown, because it may be a credential.
    fn wrong_type<T>(&mut self, name: &'static str, value: &DeValue<'_>, expected: &str) -> Option<T> {
        let kind = match value {
            DeValue::String(_) => "a string",
            DeValue::Integer(_) => "a whole number",
            DeValue::Float(_) => "a fraction",
            DeValue::Boolean(_) => "a boolean",
            DeValue::Datetime(_) => "a date",
            DeValue::Array(_) => "a list",
            DeValue::Table(_) => "a table",
        };
        self.refuse(name, &format!("it is {kind}"), &format!("write {expected}"))
    }

    fn path_of(&self, name: impl fmt::Display) -> String {
        if self.path.is_empty() {
            name.to_string()
        } else {
            format!("{}.{name}", self.path)
        }
    }

    fn variable_of(&self, name: &str) -> String {
        format!("{}_{}", self.variable, name.to_uppercase())
    }
}

/// A field's value and its source.
enum Value<'a> {
    Variable(String),
    File(DeValue<'a>),
}

/// Whether the value is a list of values, not a list of tables, which `[[name]]` makes.
fn is_list(value: &DeValue<'_>) -> bool {
    matches!(value, DeValue::Array(list) if !matches!(list.first().map(Spanned::get_ref), Some(DeValue::Table(_))))
}

fn integer_value(number: &DeInteger<'_>) -> Option<i128> {
    i128::from_str_radix(number.as_str(), number.radix()).ok()
}
