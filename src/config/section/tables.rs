//! Reads the tables inside a table: sections, lists of sections, and tables of strings.

use std::collections::BTreeMap;

use toml::de::{DeTable, DeValue};

use super::Section;
use crate::config::error::MistakeLocation;
use crate::config::options::{ConfigOption, ConfigTable, Map};

/// The most tables of one name that the environment may add. Bounds the loop that looks for their
/// variables.
const MOST_TABLES: usize = 1000;

impl<'a> Section<'a> {
    /// A table of strings. Only from the file, because the user chooses the names.
    pub(in crate::config) fn string_map(&mut self, option: &ConfigOption<Map>) -> BTreeMap<String, String> {
        let name = option.name;
        let Some((line, value)) = self.take_from_file(name) else {
            return BTreeMap::new();
        };
        self.places.insert(name, self.source.place(line));
        let DeValue::Table(table) = value else {
            self.wrong_type::<()>(name, &value, "a table of strings");
            return BTreeMap::new();
        };
        let pairs = table.into_iter().filter_map(|(key, value)| {
            let key = key.into_inner().into_owned();
            match value.into_inner() {
                DeValue::String(text) => Some((key, text.into_owned())),
                other => self.wrong_type(name, &other, &format!("`{key}` stored as a string")),
            }
        });
        pairs.collect()
    }

    /// The table of that name. Empty if it is not in the file, because the environment may set its
    /// fields.
    pub(in crate::config) fn table(&mut self, described: &ConfigTable) -> Self {
        let name = described.name;
        let (place, table) = match self.take_from_file(name) {
            Some((line, DeValue::Table(table))) => (self.source.place(line), table),
            Some((line, other)) => {
                self.places.insert(name, self.source.place(line));
                self.wrong_type::<()>(name, &other, "a table");
                (self.source.place(line), DeTable::new())
            }
            None => (self.place.clone(), DeTable::new()),
        };
        self.places.insert(name, place.clone());
        let (path, variable) = (self.path_of(name), self.variable_of(name));
        Self::new(self.source, table, path, variable, place)
    }

    /// The table of that name, if it is in the file or the environment sets one of its fields.
    /// `None` if a mistake made it unreadable.
    pub(in crate::config) fn optional_table(&mut self, described: &ConfigTable) -> Option<Self> {
        let name = described.name;
        let in_file = self.fields.contains_key(name) || self.lost.contains(name);
        let table_variable = self.variable_of(name);
        let in_environment = described.options.iter().any(|option| {
            let variable = format!("{table_variable}_{}", option.name().to_uppercase());
            self.source.variable(&variable).is_some()
        });
        let table = self.table(described);
        ((in_file || in_environment) && !self.is_faulty(name)).then_some(table)
    }

    /// The tables of that name: first those of the file, then those that the environment adds by
    /// setting their first option.
    pub(in crate::config) fn tables(&mut self, described: &ConfigTable) -> Vec<Self> {
        let name = described.name;
        let first_field = described.options.first().map_or("", |option| option.name());
        let mut found: Vec<(MistakeLocation, DeTable<'a>)> = Vec::new();
        match self.take_from_file(name) {
            None => {}
            Some((_, DeValue::Array(list))) => found.extend(list.into_iter().filter_map(|element| {
                let place = self.source.place(self.source.line(&element.span()));
                match element.into_inner() {
                    DeValue::Table(table) => Some((place, table)),
                    other => {
                        self.places.insert(name, place);
                        self.wrong_type(name, &other, "a table")
                    }
                }
            })),
            Some((line, DeValue::Table(table))) => {
                let place = self.source.place(line);
                let problem = format!("`{name}` is written as a single table");
                self.source.mistake(&place, problem, format!("write [[{name}]]"));
                found.push((place, table));
            }
            Some((line, other)) => {
                self.places.insert(name, self.source.place(line));
                self.wrong_type::<()>(name, &other, &format!("a list of tables, [[{name}]]"));
            }
        }
        let variable = |position: usize| format!("{}_{position}", self.variable_of(name));
        let first_of = |position| format!("{}_{}", variable(position), first_field.to_uppercase());
        while found.len() < MOST_TABLES && self.source.variable(&first_of(found.len())).is_some() {
            found.push((MistakeLocation::Variable(first_of(found.len())), DeTable::new()));
        }
        let section =
            |(position, (place, table))| Self::new(self.source, table, self.path_of(name), variable(position), place);
        found.into_iter().enumerate().map(section).collect()
    }
}
