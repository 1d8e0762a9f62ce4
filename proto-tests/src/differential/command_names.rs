//! The names in a command: its own, its options, and every operator.

use std::collections::BTreeSet;

use bson::{Bson, Document};

/// `find`, `find.sort`, `updates.multi` as `update.multi`, `$gt`.
pub(super) fn of(command: &Document) -> BTreeSet<String> {
    let mut words = BTreeSet::new();
    let Some(name) = command.keys().next() else {
        return words;
    };
    words.insert(name.clone());
    for (option, value) in command.iter().skip(1) {
        words.insert(format!("{name}.{option}"));
        if ["updates", "deletes", "indexes"].contains(&option.as_str()) {
            let statements = value.as_array().into_iter().flatten().filter_map(Bson::as_document);
            words.extend(statements.flat_map(|one| one.keys().map(|part| format!("{name}.{option}.{part}"))));
        }
        append_operators(value, &mut words);
    }
    words
}

fn append_operators(value: &Bson, words: &mut BTreeSet<String>) {
    match value {
        Bson::Document(document) => {
            for (name, value) in document {
                if name.starts_with('$') {
                    words.insert(name.clone());
                }
                append_operators(value, words);
            }
        }
        Bson::Array(values) => values.iter().for_each(|value| append_operators(value, words)),
        Bson::String(text) if text.starts_with("$$") => {
            words.insert(text.split('.').next().unwrap_or_default().to_owned());
        }
        _ => {}
    }
}
