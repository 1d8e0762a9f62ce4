//! Prints the outcomes as a table.

use std::fmt::Write as _;

use super::program::Driver;
use super::run::Outcome;

/// As many characters of a line are shown around the first that differs.
const BEFORE: usize = 60;
const AFTER: usize = 240;

/// One line as soon as a cell is done.
pub(super) fn line(outcome: &Outcome) -> String {
    let (cell, took) = (&outcome.cell, outcome.took.as_secs_f32());
    let verdict = if outcome.is_equal() { "equal" } else { "DIFFERENT" };
    format!(
        "{:8} {cell:26} {verdict} ({took:.1} s)",
        cell.driver.name(),
        cell = cell.to_string()
    )
}

/// A row for each connection, a column for each driver. The differences are below.
pub(super) fn of(outcomes: &[Outcome]) -> String {
    let drivers: Vec<_> = Driver::ALL
        .into_iter()
        .filter(|driver| outcomes.iter().any(|outcome| outcome.cell.driver == *driver))
        .collect();
    let mut rows: Vec<String> = Vec::new();
    for outcome in outcomes {
        let row = outcome.cell.to_string();
        if !rows.contains(&row) {
            rows.push(row);
        }
    }
    let mut table = format!("\n{:26}", "");
    for driver in &drivers {
        let _ = write!(table, " {:>9}", driver.name());
    }
    for row in rows {
        let _ = write!(table, "\n{row:26}");
        for driver in &drivers {
            let at = |outcome: &&Outcome| outcome.cell.driver == *driver && outcome.cell.to_string() == row;
            let verdict = match outcomes.iter().find(at) {
                Some(outcome) if outcome.is_equal() => "equal",
                Some(_) => "DIFFERENT",
                None => "-",
            };
            let _ = write!(table, " {verdict:>9}");
        }
    }
    for outcome in outcomes.iter().filter(|outcome| !outcome.is_equal()) {
        let _ = write!(table, "\n\n{}\n{}", line(outcome), outcome.difference);
    }
    table
}

/// The lines that differ, without and through the proxy; empty if none does.
pub(super) fn difference(direct: &str, proxied: &str) -> String {
    let mut shown = String::new();
    let (mut expected, mut seen) = (direct.lines(), proxied.lines());
    loop {
        match (expected.next(), seen.next()) {
            (None, None) => return shown,
            (expected, seen) if expected == seen => {}
            (expected, seen) => {
                let (expected, seen) = (expected.unwrap_or("(no line)"), seen.unwrap_or("(no line)"));
                let (expected, seen) = excerpts(expected, seen);
                let _ = write!(shown, "  direct:  {expected}\n  proxied: {seen}\n");
            }
        }
    }
}

/// The step's name and what is around the first character that differs.
fn excerpts(expected: &str, seen: &str) -> (String, String) {
    let common = expected
        .chars()
        .zip(seen.chars())
        .take_while(|(one, other)| one == other)
        .count();
    let from = common.saturating_sub(BEFORE);
    let excerpt = |line: &str| {
        let step: String = line.chars().take(from.min(24)).collect();
        let part: String = line.chars().skip(from).take(BEFORE + AFTER).collect();
        if from == 0 { part } else { format!("{step} ... {part}") }
    };
    (excerpt(expected), excerpt(seen))
}

#[test]
fn difference_shows_the_first_lines_that_differ() {
    assert_eq!(difference("a 1\nb 2", "a 1\nb 2"), "");
    assert_eq!(difference("a 1\nb 2", "a 1\nb 3"), "  direct:  b 2\n  proxied: b 3\n");
    assert_eq!(difference("a 1", "a 1\nb 2"), "  direct:  (no line)\n  proxied: b 2\n");
    let long = "x".repeat(100);
    let cut = format!("  direct:  {} ... {}1\n", "x".repeat(24), "x".repeat(60));
    assert!(difference(&format!("{long}1"), &format!("{long}2")).starts_with(&cut));
}
