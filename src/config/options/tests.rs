use std::collections::BTreeSet;

use toml::{Table, Value};

use super::*;
use crate::config::error::ConfigErrors;
use crate::config::model::Config;

const EXAMPLE: &str = include_str!("../../../config/mongoshape.toml");

fn parse(text: &str) -> Result<Config, ConfigErrors> {
    Config::parse(text, "m.toml", &|_| None)
}

/// The commented example with all options enabled, even those that exclude each other.
fn example() -> Table {
    let is_option = |text: &str| {
        let name = text.split(" = ").next().unwrap_or_default();
        let is_name = !name.is_empty() && name.chars().all(|letter| letter == '_' || letter.is_ascii_lowercase());
        text.starts_with("[[") || is_name && text.contains(" = ")
    };
    let switched_on = EXAMPLE.lines().map(|line| {
        let uncommented = line
            .strip_prefix('#')
            .map(|rest| rest.strip_prefix(' ').unwrap_or(rest));
        uncommented.filter(|rest| is_option(rest)).unwrap_or(line)
    });
    toml::from_str(&switched_on.collect::<Vec<_>>().join("\n")).unwrap_or_else(|error| panic!("{error}"))
}

/// All options of a table, by path.
fn options_of(table: &Table, path: &str, found: &mut Vec<(String, Value)>) {
    for (name, value) in table {
        let path = if path.is_empty() {
            name.clone()
        } else {
            format!("{path}.{name}")
        };
        match value {
            Value::Table(inner) if name != bucket::RENAME.name => options_of(inner, &path, found),
            Value::Array(list) if list.first().is_some_and(Value::is_table) => {
                for inner in list.iter().filter_map(Value::as_table) {
                    options_of(inner, &path, found);
                }
            }
            value => found.push((path, value.clone())),
        }
    }
}

#[test]
fn the_example_has_every_option_with_its_default_and_no_other() {
    let mut found = Vec::new();
    options_of(&example(), "", &mut found);
    let mut described: Vec<OptionReference> = reference().into_iter().flat_map(|table| table.options).collect();
    for (path, value) in &found {
        let position = described.iter().position(|option| option.path == *path);
        let option = described.remove(position.unwrap_or_else(|| panic!("{path} is not described, or there twice")));
        match option.default {
            DefaultValue::Text(text) => assert_eq!(value.as_str(), Some(text), "{path}"),
            DefaultValue::Number(number) => assert_eq!(value.as_integer(), i64::try_from(number).ok(), "{path}"),
            DefaultValue::Flag(flag) => assert_eq!(value.as_bool(), Some(flag), "{path}"),
            DefaultValue::Required | DefaultValue::Otherwise(_) => {}
        }
    }
    let missing: Vec<String> = described.into_iter().map(|option| option.path).collect();
    assert_eq!(missing, [""; 0], "described, but not in config/mongoshape.toml");
}

#[test]
fn documented_options_equal_parsed_options() {
    // For an unknown field, the mistake lists the known ones.
    let text = "zzzzzzzzzzzz = 1\n[listen]\nzzzzzzzzzzzz = 1\n[listen.tls]\nzzzzzzzzzzzz = 1\n[[listen.member]]\nzzzzzzzzzzzz = 1\n\
                [upstream]\nzzzzzzzzzzzz = 1\n[admin]\nzzzzzzzzzzzz = 1\n[admin.tls]\nzzzzzzzzzzzz = 1\n[log]\nzzzzzzzzzzzz = 1\n\
                [traces]\nzzzzzzzzzzzz = 1\n[[bucket]]\nzzzzzzzzzzzz = 1\n[[outlier]]\nzzzzzzzzzzzz = 1\n[outlier.extras]\nzzzzzzzzzzzz = 1\n";
    let errors = parse(text).unwrap_err();
    let mut read = BTreeSet::new();
    for error in &errors {
        let Some((_, path)) = error
            .problem
            .strip_suffix("` is not known")
            .and_then(|path| path.split_once('`'))
        else {
            continue;
        };
        let around = path.strip_suffix("zzzzzzzzzzzz").unwrap();
        let fields = error.remedy.strip_prefix("the valid fields are ").unwrap();
        read.extend(fields.split(", ").map(|field| format!("{around}{field}")));
    }
    let mut described = BTreeSet::new();
    for table in reference() {
        described.insert(table.header.replace(['[', ']'], ""));
        described.extend(table.options.into_iter().map(|option| option.path));
    }
    assert_eq!(read, described);
}

#[test]
fn the_first_word_is_the_default() {
    fn check<T: Default + PartialEq + std::fmt::Debug>(option: &ConfigOption<Words<T>>) {
        assert_eq!(option.value.choices[0].1, T::default(), "{}", option.name);
    }
    check(&listen::PRESENT_AS);
    check(&log::FORMAT);
    check(&bucket::ITEM_IDS);
    check(&outlier::READS);
    check(&MODE);
}

const MINIMAL: &str = "listen.address = \"127.0.0.1:27018\"\nupstream.uri = \"mongodb://db\"\n\
    [[bucket]]\nnamespace = \"a.b\"\nkey = \"k\"\n[[outlier]]\nnamespace = \"a.c\"\narray = \"x\"\nthreshold = 1\n";

#[test]
fn limits_are_those_that_are_read() {
    let numbers = reference().into_iter().flat_map(|table| table.options);
    for option in numbers.filter(|option| option.kind == "number") {
        let values = option.values.split(',').next().unwrap();
        let (least, most) = values.split_once(" to ").unwrap();
        let (least, most): (i128, i128) = (least.parse().unwrap(), most.parse().unwrap());
        let variable = option.variable.unwrap();
        for (value, right) in [(least - 1, false), (least, true), (most, true), (most + 1, false)] {
            let lookup = |name: &str| (name == variable).then(|| value.to_string());
            let read = Config::parse(MINIMAL, "m.toml", &lookup);
            assert_eq!(read.is_ok(), right, "{variable} = {value}: {:?}", read.err());
        }
    }
}

#[test]
fn limits_of_percentages_are_those_that_are_read() {
    let options = reference().into_iter().flat_map(|table| table.options);
    for option in options.filter(|option| option.kind == "percentage") {
        let (least, most) = option.values.split_once(" to ").unwrap();
        let (least, most): (f64, f64) = (least.parse().unwrap(), most.parse().unwrap());
        let variable = option.variable.unwrap();
        for (value, right) in [(least - 0.01, false), (least, true), (most, true), (most + 0.01, false)] {
            let lookup = |name: &str| (name == variable).then(|| value.to_string());
            let read = Config::parse(MINIMAL, "m.toml", &lookup);
            assert_eq!(read.is_ok(), right, "{variable} = {value}: {:?}", read.err());
        }
    }
}
