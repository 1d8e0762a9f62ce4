//! `docs/configuration.md` has what the program reads. `CONFIGURATION=write` writes its tables anew.

use std::fmt::Write as _;

use mongoshape::config::{DefaultValue, Holds, OptionReference, reference};

const FILE: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/docs/configuration.md");
/// Between these lines, the file is made of the options.
const BEGIN: &str = "<!-- made of src/config/options by tests/configuration_reference.rs -->";
const END: &str = "<!-- end -->";

fn row(option: &OptionReference) -> String {
    let OptionReference {
        path,
        kind,
        values,
        meaning,
        ..
    } = option;
    let default = match option.default {
        DefaultValue::Required => "**required**".to_owned(),
        DefaultValue::Text(text) => format!("`\"{text}\"`"),
        DefaultValue::Number(number) => format!("`{number}`"),
        DefaultValue::Flag(flag) => format!("`{flag}`"),
        DefaultValue::Otherwise(words) => words.to_owned(),
    };
    let variable = option
        .variable
        .as_ref()
        .map_or("none".to_owned(), |name| format!("`{name}`"));
    let holds = match option.holds {
        Holds::FromReload => "SIGHUP",
        Holds::FromStart => "restart",
    };
    format!("| `{path}` | {kind} | {values} | {default} | {variable} | {holds} | {meaning} |")
}

fn tables() -> String {
    let mut text = String::new();
    for table in reference() {
        write!(text, "\n## `{}`\n\n{}\n\n", table.header, table.meaning).expect("a string");
        text.push_str("| option | type | values | default | environment | takes effect after | meaning |\n");
        text.push_str("|---|---|---|---|---|---|---|\n");
        for option in &table.options {
            writeln!(text, "{}", row(option)).expect("a string");
        }
    }
    text.push('\n');
    text
}

#[test]
fn document_lists_the_options_that_are_read() {
    let tables = tables();
    let document = std::fs::read_to_string(FILE).expect("docs/configuration.md");
    let (before, rest) = document.split_once(BEGIN).expect("the line that begins the tables");
    let (told, after) = rest.split_once(END).expect("the line that ends the tables");
    if std::env::var("CONFIGURATION").is_ok_and(|wish| wish == "write") {
        std::fs::write(FILE, format!("{before}{BEGIN}\n{tables}{END}{after}")).expect("docs/configuration.md");
        return;
    }
    let told: Vec<&str> = told.trim().lines().collect();
    let is: Vec<&str> = tables.trim().lines().collect();
    for (told, is) in told.iter().zip(&is) {
        assert_eq!(
            told, is,
            "docs/configuration.md: CONFIGURATION=write cargo test --test configuration_reference"
        );
    }
    assert_eq!(
        told.len(),
        is.len(),
        "docs/configuration.md has more options than are read, or fewer"
    );
}
