//! Prints the outcome of each test on every route as Markdown.

use std::collections::BTreeSet;

use crate::pymongo::Compared;
use crate::pymongo::compare::{Difference, short_name};
use crate::pymongo::outcome::{Ended, Outcome};

/// A table with a line for each test and a column for each route.
pub(in crate::pymongo) fn print(compared: &[Compared]) {
    let names: Vec<_> = compared.iter().map(|one| one.route.name()).collect();
    println!("\n| test | {} |", names.join(" | "));
    println!("|---|{}", "---|".repeat(compared.len()));
    let tests: BTreeSet<_> = compared.iter().flat_map(|one| one.direct.keys()).collect();
    for test in tests {
        let verdicts: Vec<_> = compared.iter().map(|one| verdict(one, test)).collect();
        println!("| `{}` | {} |", short_name(test), verdicts.join(" | "));
    }
}

/// In a word: its outcome if it is the same directly and through the proxy, or whether its difference is listed.
fn verdict(one: &Compared, test: &String) -> String {
    let is_it = |difference: &Difference| difference.test == *test;
    if one.unexpected.iter().any(is_it) {
        return "**differs**".to_owned();
    }
    if one.expected.iter().any(|(_, difference)| is_it(difference)) {
        return "expected".to_owned();
    }
    let ended = one.direct.get(test).cloned().unwrap_or_else(Ended::missing);
    match ended.outcome {
        Outcome::Passed => "passes".to_owned(),
        other => other.to_string(),
    }
}
