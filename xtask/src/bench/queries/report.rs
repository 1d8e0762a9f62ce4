//! The report: Markdown tables, one for each size, and one of growth.

use std::fmt::Write as _;

use super::growth::{Growth, Size};
use super::measure::{Measured, Row};
use super::servers::Variant;
use crate::bench::load::{self, Figures};

/// A ratio up to this counts as equal.
const EQUAL: f64 = 1.05;

/// The title row of the tables of latencies.
const LATENCIES: [&str; 6] = [
    "query",
    "plain, p50 / p99 µs",
    "plain through HAProxy",
    "mongoshape",
    "mongoshape than plain",
    "mongoshape than HAProxy",
];
/// The title row of the tables of costs. Each has plain / mongoshape.
const COSTS: [&str; 7] = [
    "query",
    "documents or pages examined",
    "keys examined",
    "commands",
    "kB to the application",
    "kB from mongod",
    "CPU µs: plain / HAProxy / mongoshape",
];
/// The title row of the table of growth.
const GROWTH: [&str; 5] = ["query", "plain", "mongoshape", "pages examined", "fails because"];

/// The tables of one size.
pub(super) fn size(size: &Size) -> String {
    let mut text = format!("### {} items\n\n", grouped(size.items));
    titles(&mut text, &LATENCIES);
    for row in &size.rows {
        line(&mut text, &latencies(row));
    }
    text.push_str(
        "\nA query costs, plain / mongoshape. What mongod counts includes the commands that mongoshape sends by itself. The \
         kernel counts CPU time in 10 ms, so it is exact for queries of which a run makes many.\n\n",
    );
    titles(&mut text, &COSTS);
    for row in &size.rows {
        line(&mut text, &costs(row));
    }
    text
}

/// The table of growth. At one size there is none, so it has the rows that fail.
pub(super) fn growth(growths: &[Growth], allowance: f64) -> String {
    let mut text = format!(
        "### Growth\n\nExponents of the latency (p50 of the quickest round) against the number of items: 0 is constant, 1 is \
         proportional. A row fails if mongoshape's exceeds plain's (0, if that is negative) by more than {allowance}. Where a \
         plain collection answers from an index, it fails also if mongod examines more than two pages for each document or \
         index key that it examines on the plain collection, and four.\n\n"
    );
    titles(&mut text, &GROWTH);
    let exponent = |exponent: Option<f64>| exponent.map_or_else(|| "-".to_owned(), |exponent| format!("{exponent:.2}"));
    let has_growth = |growth: &Growth| growth.shaped.is_some() || !growth.failures.is_empty();
    for growth in growths.iter().filter(|growth| has_growth(growth)) {
        let cells = [growth.plain, growth.shaped, growth.pages].map(exponent);
        let mut cells: Vec<_> = std::iter::once(growth.name.to_owned()).chain(cells).collect();
        cells.push(growth.failures.join("; "));
        line(&mut text, &cells);
    }
    text
}

fn titles(text: &mut String, titles: &[&str]) {
    // Writing to a string cannot fail.
    let _ = writeln!(text, "| {} |\n|{}", titles.join(" | "), "---|".repeat(titles.len()));
}

fn line(text: &mut String, cells: &[String]) {
    let _ = writeln!(text, "| {} |", cells.join(" | "));
}

fn latencies(row: &Row) -> Vec<String> {
    let shaped = row.of(Variant::Shaped);
    let times = |variant| match (row.of(variant), shaped) {
        (Some(other), Some(shaped)) => comparison(load::ratio(&shaped.rounds, &other.rounds, |round| round.p50_us)),
        _ => "-".to_owned(),
    };
    let figures = [Variant::Plain, Variant::HaProxy, Variant::Shaped]
        .map(|variant| row.of(variant).map_or_else(dash, percentiles));
    let times = [Variant::Plain, Variant::HaProxy].map(times);
    std::iter::once(row.name.to_owned())
        .chain(figures)
        .chain(times)
        .collect()
}

fn costs(row: &Row) -> Vec<String> {
    let both = |figure: fn(&Measured) -> f64| {
        let figures =
            [Variant::Plain, Variant::Shaped].map(|variant| row.of(variant).map_or_else(dash, |of| short(figure(of))));
        figures.join(" / ")
    };
    let cpu = [Variant::Plain, Variant::HaProxy, Variant::Shaped].map(|variant| {
        row.of(variant)
            .map_or_else(dash, |of| short(of.mongod_cpu_us() + of.proxy_cpu_us()))
    });
    vec![
        row.name.to_owned(),
        both(Measured::examined),
        both(Measured::keys),
        both(Measured::commands),
        both(|of| of.bytes() / 1000.0),
        both(|of| of.mongod_bytes() / 1000.0),
        cpu.join(" / "),
    ]
}

fn dash() -> String {
    "-".to_owned()
}

fn percentiles(measured: &Measured) -> String {
    let Figures { p50_us, p99_us, .. } = Figures::median(&measured.rounds);
    format!("{} / {}", short(p50_us), short(p99_us))
}

/// How much longer or shorter: a bare ratio would not show its direction.
pub(super) fn comparison(ratio: f64) -> String {
    if ratio > EQUAL {
        format!("{} times slower", short(ratio))
    } else if ratio.recip() > EQUAL {
        format!("{} times faster", short(ratio.recip()))
    } else {
        "as fast".to_owned()
    }
}

/// Three digits or all before the point.
fn short(figure: f64) -> String {
    let digits = match figure {
        ..0.05 => return "0".to_owned(),
        ..10.0 => 1,
        _ => return grouped(whole(figure)),
    };
    let text = format!("{figure:.digits$}");
    text.strip_suffix(".0").map_or_else(|| text.clone(), str::to_owned)
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "figures are positive and far below 2^52"
)]
fn whole(figure: f64) -> usize {
    figure.round() as usize
}

/// With commas between thousands.
pub(super) fn grouped(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.chars().enumerate() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_comparison_names_its_direction() {
        for (ratio, expected) in [
            (2.0, "2 times slower"),
            (1.26, "1.3 times slower"),
            (0.25, "4 times faster"),
            (1.03, "as fast"),
            (1234.0, "1,234 times slower"),
        ] {
            assert_eq!(comparison(ratio), expected);
        }
    }

    #[test]
    fn figures_are_short() {
        for (figure, expected) in [
            (0.0, "0"),
            (0.12, "0.1"),
            (9.0, "9"),
            (9.44, "9.4"),
            (12_345.6, "12,346"),
        ] {
            assert_eq!(short(figure), expected);
        }
    }
}
