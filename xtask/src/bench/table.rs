//! Tables: a line per variant. A line of mongoshape compares it with the other variants.

use super::servers::Variant;
use super::statistics::{median, ratio};

/// What a comparison is about.
#[derive(Clone, Copy, Debug)]
pub(super) enum Quantity {
    Time,
    Space,
}

impl Quantity {
    /// The comparison of mongoshape with another variant, whose cost is `times` as much.
    fn comparison(self, times: f64) -> String {
        let [better, worse, equal] = match self {
            Self::Time => ["faster", "slower", "as fast"],
            Self::Space => ["less", "more", "as much"],
        };
        let short = |times: f64| {
            let digits = if times < 10.0 { 2 } else { 0 };
            format!("{times:.digits$}")
        };
        if times > EQUAL {
            format!("{} times {better}", short(times))
        } else if times.recip() > EQUAL {
            format!("{} times {worse}", short(times.recip()))
        } else {
            equal.to_owned()
        }
    }
}

/// The figures of one variant.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Whether it is mongoshape's.
    pub(super) is_ours: bool,
    /// The figures, one a column.
    pub(super) figures: Vec<f64>,
    /// What is compared, round by round: the less the better. None: there is nothing to compare.
    pub(super) costs: Vec<f64>,
    /// What stands instead of figures.
    note: Option<String>,
}

impl Row {
    /// Of a variant that has one figure, a cost, which was measured so many times.
    pub(super) fn of_costs(variant: &Variant, costs: Vec<f64>) -> Self {
        Self::of(variant, vec![median(costs.iter().copied())], costs)
    }

    /// Of a variant.
    pub(super) fn of(variant: &Variant, figures: Vec<f64>, costs: Vec<f64>) -> Self {
        Self::named((variant.name, variant.is_ours()), figures, costs)
    }

    /// Of a variant of that name, and whether it is mongoshape's.
    pub(super) fn named((name, is_ours): (&'static str, bool), figures: Vec<f64>, costs: Vec<f64>) -> Self {
        Self {
            name,
            is_ours,
            figures,
            costs,
            note: None,
        }
    }

    /// Of a variant that was not measured, and why.
    pub(super) fn note(variant: &Variant, note: String) -> Self {
        Self {
            note: Some(note),
            ..Self::of(variant, Vec::new(), Vec::new())
        }
    }
}

/// Prints the line above all groups: what they differ in, the columns of figures, and the variants that
/// mongoshape is compared with.
pub(super) fn print_heading(label: &str, columns: &[&str], variants: &[Variant]) {
    let others = variants
        .iter()
        .filter(|variant| !variant.is_ours())
        .map(|variant| variant.name);
    print_titles(label, columns, others);
}

/// The same, by the names of those variants.
pub(super) fn print_titles<'a>(label: &str, columns: &[&str], others: impl Iterator<Item = &'a str>) {
    println!("{}", heading(label, columns, others));
}

/// Prints one group, such as the variants over one number of keys.
pub(super) fn print_group(value: &str, rows: &[Row], compared: Quantity) {
    for (number, row) in rows.iter().enumerate() {
        println!("{}", line(if number == 0 { value } else { "" }, row, rows, compared));
    }
}

fn heading<'a>(label: &str, columns: &[&str], others: impl Iterator<Item = &'a str>) -> String {
    let figures = columns.iter().map(|column| format!("{column:>WIDTH$}"));
    let comparisons = others.map(|variant| format!("  {:>COMPARISON$}", format!("than {variant}")));
    let cells: String = figures.chain(comparisons).collect();
    format!("{label:>12}  {:<NAME$}{cells}", "variant")
}

fn line(value: &str, row: &Row, rows: &[Row], compared: Quantity) -> String {
    let figures = row.figures.iter().map(|figure| format!("{:>WIDTH$}", short(*figure)));
    let is_compared = row.is_ours && !row.costs.is_empty();
    let others = rows.iter().filter(|other| is_compared && !other.is_ours);
    let comparison = |other: &Row| {
        let comparison = if other.costs.is_empty() {
            "-".to_owned()
        } else {
            compared.comparison(ratio(&other.costs, &row.costs))
        };
        format!("  {comparison:>COMPARISON$}")
    };
    let note = row.note.iter().map(|note| format!("  {note}"));
    let cells: String = figures.chain(others.map(comparison)).chain(note).collect();
    format!("{value:>12}  {:<NAME$}{cells}", row.name).trim_end().to_owned()
}

const NAME: usize = 19;
const WIDTH: usize = 9;
const COMPARISON: usize = 19;
/// A difference of up to 5 % is none.
const EQUAL: f64 = 1.05;

/// With no more digits than noise leaves.
fn short(figure: f64) -> String {
    if figure < 100.0 {
        format!("{figure:.1}")
    } else {
        format!("{figure:.0}")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn row(name: &'static str, cost: f64) -> Row {
        Row {
            name,
            is_ours: name.starts_with("mongoshape"),
            figures: vec![cost],
            costs: vec![cost],
            note: None,
        }
    }

    #[test]
    fn comparisons_are_below_their_headings_and_only_behind_mongoshape() {
        let rows = [row("plain", 7.0), row("by hand", 919.0), row("mongoshape unique", 10.0)];
        let lines: Vec<_> = rows.iter().map(|each| line("1", each, &rows, Quantity::Time)).collect();
        assert_eq!(
            heading("keys", &["µs/item"], ["plain", "by hand"].into_iter()),
            "        keys  variant              µs/item           than plain         than by hand"
        );
        assert_eq!(lines[1], "           1  by hand                  919");
        assert_eq!(
            lines[2],
            "           1  mongoshape unique       10.0    1.43 times slower      92 times faster"
        );
    }

    #[test]
    fn comparison_names_its_direction() {
        for (times, time, space) in [
            (0.5, "2.00 times slower", "2.00 times more"),
            (12.4, "12 times faster", "12 times less"),
            (0.96, "as fast", "as much"),
        ] {
            assert_eq!(Quantity::Time.comparison(times), time);
            assert_eq!(Quantity::Space.comparison(times), space);
        }
    }

    #[test]
    fn unmeasured_cell_shows_the_reason() {
        let unmeasured = Row {
            figures: Vec::new(),
            costs: Vec::new(),
            note: Some("has no index".to_owned()),
            ..row("plain", 0.0)
        };
        let rows = [unmeasured, row("by hand", 20.0), row("mongoshape unique", 10.0)];
        let lines: Vec<_> = rows.iter().map(|each| line("1", each, &rows, Quantity::Time)).collect();
        assert_eq!(lines[0], "           1  plain                has no index");
        assert_eq!(
            lines[2],
            "           1  mongoshape unique       10.0                    -    2.00 times faster"
        );
    }
}
