//! Tables: a line a way, and behind each of mongoshape's how many times as much the other ways take.

use super::servers::Way;

/// What was measured of one way.
#[derive(Debug)]
pub(super) struct Row {
    pub(super) name: &'static str,
    /// Whether it is mongoshape's.
    pub(super) is_ours: bool,
    /// The figures, one a column.
    pub(super) figures: Vec<f64>,
    /// What is compared: the less the better.
    pub(super) cost: f64,
}

impl Row {
    /// Of a way whose last figure is what is compared.
    pub(super) fn of(way: &Way, figures: Vec<f64>) -> Self {
        Self {
            name: way.name,
            is_ours: way.is_ours(),
            cost: figures.last().copied().unwrap_or(f64::NAN),
            figures,
        }
    }
}

/// The middle one of some figures.
pub(super) fn median(mut figures: Vec<f64>) -> f64 {
    figures.sort_by(f64::total_cmp);
    figures.get(figures.len() / 2).copied().unwrap_or(f64::NAN)
}

/// Prints the line above all groups: what they differ in, the columns of figures, and the ways that mongoshape is compared
/// with.
pub(super) fn print_heading(label: &str, columns: &[&str], ways: &[Way]) {
    let others = ways.iter().filter(|way| !way.is_ours()).map(|way| way.name);
    println!("{}", heading(label, columns, others));
}

/// Prints one group, such as the ways over one number of keys.
pub(super) fn print_group(value: &str, rows: &[Row]) {
    for (number, row) in rows.iter().enumerate() {
        println!("{}", line(if number == 0 { value } else { "" }, row, rows));
    }
}

fn heading<'a>(label: &str, columns: &[&str], others: impl Iterator<Item = &'a str>) -> String {
    let figures = columns.iter().map(|column| format!("{column:>WIDTH$}"));
    let ratios = others.map(|way| format!("  {way}/it"));
    let cells: String = figures.chain(ratios).collect();
    format!("{label:>12}  {:<NAME$}{cells}", "way")
}

fn line(value: &str, row: &Row, rows: &[Row]) -> String {
    let figures = row.figures.iter().map(|figure| format!("{:>WIDTH$}", short(*figure)));
    let others = rows.iter().filter(|other| row.is_ours && !other.is_ours);
    let ratio = |other: &Row| {
        let width = other.name.chars().count() + "  /it".len();
        format!("{:>width$.2}", other.cost / row.cost)
    };
    let cells: String = figures.chain(others.map(ratio)).collect();
    format!("{value:>12}  {:<NAME$}{cells}", row.name).trim_end().to_owned()
}

const NAME: usize = 19;
const WIDTH: usize = 9;

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
            cost,
        }
    }

    #[test]
    fn ratios_stand_below_their_headings_and_only_behind_mongoshape() {
        let rows = [row("naive", 7.0), row("by hand", 919.0), row("mongoshape unique", 10.0)];
        let lines: Vec<_> = rows.iter().map(|each| line("1", each, &rows)).collect();
        assert_eq!(
            heading("keys", &["µs/item"], ["naive", "by hand"].into_iter()),
            "        keys  way                  µs/item  naive/it  by hand/it"
        );
        assert_eq!(lines[1], "           1  by hand                  919");
        assert_eq!(
            lines[2],
            "           1  mongoshape unique       10.0      0.70       91.90"
        );
    }

    #[test]
    fn the_median_is_a_figure_in_the_middle() {
        assert_eq!(median(vec![3.0, 1.0, 2.0]).to_string(), "2");
    }
}
