//! Prints the results as Markdown: each difference with its cause, and a table of counts.

use std::collections::BTreeMap;

use super::Compared;
use super::compare::Difference;
use super::expected::Expected;
use super::outcome::{Ended, Outcome, Outcomes, count};

/// The length of an error text that is enough to recognise it.
const DETAIL_LIMIT: usize = 240;
/// The length of an error text by which tests are grouped.
const CAUSE_LIMIT: usize = 120;
/// Of the tests that have one known cause in common.
const EXPECTED_SHOWN: usize = 10;
/// Of the proxy's log.
const LINES_SHOWN: usize = 20;

/// The table.
pub(super) fn counted(compared: &[Compared]) {
    println!("\n| presentation | | passed | failed | skipped | xfailed | differences | of them expected |");
    println!("|---|---|---:|---:|---:|---:|---:|---:|");
    for one in compared {
        let name = one.route.name();
        println!("| {name} | direct | {} | | |", cells(&one.direct));
        let all = one.expected.len() + one.unexpected.len();
        println!(
            "| | proxied | {} | {all} | {} |",
            cells(&one.proxied),
            one.expected.len()
        );
    }
}

/// What differs in one presentation.
pub(super) fn differences(one: &Compared, list: &[Expected]) {
    expected(one, list);
    let name = one.route.name();
    section(&format!("{name}: not expected"), &one.unexpected);
    causes(&name, &one.unexpected);
    section(
        &format!("{name}: differed once, but not when repeated alone"),
        &one.passing,
    );
    if !one.stale.is_empty() {
        println!("\n{name}: expected, and did not happen, {}:", one.stale.len());
        for test in &one.stale {
            println!("- `{test}`");
        }
    }
    for broken in &one.broken {
        println!("\n{broken}");
    }
    if !one.logged.is_empty() {
        println!("\n{name}: the proxy logged {} warnings or errors", one.logged.len());
        for line in one.logged.iter().take(LINES_SHOWN) {
            println!("- {line}");
        }
    }
}

/// As `passed 3, skipped 2`, without zero counts.
pub(super) fn counts(outcomes: &Outcomes) -> String {
    let all = [
        Outcome::Passed,
        Outcome::Failed,
        Outcome::Skipped,
        Outcome::Xfailed,
        Outcome::Xpassed,
    ];
    let counted = all.map(|outcome| (outcome, count(outcomes, outcome)));
    let some = counted.iter().filter(|(_, count)| *count > 0);
    some.map(|(outcome, count)| format!("{outcome} {count}"))
        .collect::<Vec<_>>()
        .join(", ")
}

fn cells(outcomes: &Outcomes) -> String {
    [Outcome::Passed, Outcome::Failed, Outcome::Skipped, Outcome::Xfailed]
        .map(|outcome| count(outcomes, outcome).to_string())
        .join(" | ")
}

/// By cause, as most have theirs in common with many.
fn expected(one: &Compared, list: &[Expected]) {
    for (number, entry) in list.iter().enumerate().filter(|(_, entry)| entry.is_for(&one.route)) {
        let tests: Vec<_> = one.expected.iter().filter(|(of, _)| *of == number).collect();
        if tests.is_empty() {
            continue;
        }
        println!("\n{}, expected, {}: {}", one.route.name(), tests.len(), entry.cause);
        for (_, difference) in tests.iter().take(EXPECTED_SHOWN) {
            let (direct, proxied) = (difference.direct.outcome, difference.proxied.outcome);
            println!("- `{}` {direct} → {proxied}", difference.short_name());
        }
        if let Some(others @ 1..) = tests.len().checked_sub(EXPECTED_SHOWN) {
            println!("- and {others} others");
        }
    }
}

fn section(title: &str, differences: &[Difference]) {
    if differences.is_empty() {
        return;
    }
    println!("\n{title}, {}:", differences.len());
    for difference in differences {
        println!("- `{}`", difference.short_name());
        println!("  - direct: {}", ended(&difference.direct));
        println!("  - proxied: {}", ended(&difference.proxied));
    }
}

/// How many tests each answer is behind, the commonest first: where much differs, it is for few reasons.
fn causes(name: &str, differences: &[Difference]) {
    let mut counts = BTreeMap::<String, usize>::new();
    for difference in differences {
        *counts.entry(cause(&difference.proxied)).or_default() += 1;
    }
    if counts.is_empty() {
        return;
    }
    let mut counts: Vec<_> = counts.into_iter().collect();
    counts.sort_by_key(|(_, count)| std::cmp::Reverse(*count));
    println!("\n{name}: unexpected differences, by error text");
    for (cause, count) in counts {
        println!("- {count}: {cause}");
    }
}

/// An error text without collection names and values of one reply.
fn cause(ended: &Ended) -> String {
    let line = ended.detail.lines().next().unwrap_or_default();
    let text = line.split_once(", full error").map_or(line, |(text, _)| text);
    let text = text.split_once(" pattern: ").map_or(text, |(_, text)| text);
    let text: String = text.chars().take(CAUSE_LIMIT).collect();
    format!("{} {text}", ended.outcome)
}

fn ended(ended: &Ended) -> String {
    let detail: Vec<_> = ended.detail.split_whitespace().collect();
    let detail: String = detail.join(" ").chars().take(DETAIL_LIMIT).collect();
    let space = if detail.is_empty() { "" } else { " " };
    format!("{}{space}{detail}", ended.outcome)
}
