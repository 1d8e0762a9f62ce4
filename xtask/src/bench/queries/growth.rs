//! How costs grow with the size of the collection, and which rows fail.

use super::measure::Row;
use super::servers::Variant;
use super::shape::PlainPlan;
use crate::bench::place::as_f64;

/// The most pages that mongod may examine for each document or index key that the plain collection examines
/// or returns.
const PAGES_EACH: f64 = 2.0;
/// Pages that it may examine besides: the exceptions of a key, the page behind the last.
const PAGES_BESIDES: f64 = 4.0;

/// All rows of one size.
#[derive(Debug)]
pub(super) struct Size {
    pub(super) items: usize,
    pub(super) rows: Vec<Row>,
}

impl Size {
    /// The row of a shape.
    pub(super) fn row(&self, name: &str) -> Option<&Row> {
        self.rows.iter().find(|row| row.name == name)
    }
}

/// What became of a shape over all sizes.
#[derive(Debug)]
pub(super) struct Growth {
    pub(super) name: &'static str,
    /// The exponent of the latency against the size. `None`: measured at one size only.
    pub(super) plain: Option<f64>,
    pub(super) shaped: Option<f64>,
    /// The exponent of the pages that mongod examines.
    pub(super) pages: Option<f64>,
    /// Human-readable reasons for which the row fails. Empty if it passes.
    pub(super) failures: Vec<String>,
}

/// Judges all shapes, in the order of the table. `allowance` is the most by which the exponent of the shaped
/// collection may exceed that of the plain one.
pub(super) fn judge(sizes: &[Size], allowance: f64) -> Vec<Growth> {
    let mut names: Vec<&'static str> = Vec::new();
    // The largest collection has all shapes that any other has.
    for row in sizes.iter().rev().flat_map(|size| &size.rows) {
        if !names.contains(&row.name) {
            names.push(row.name);
        }
    }
    names.into_iter().map(|name| growth(name, sizes, allowance)).collect()
}

fn growth(name: &'static str, sizes: &[Size], allowance: f64) -> Growth {
    let latency = |variant| exponent(&points(name, sizes, |row| least_p50_us(row, variant)));
    let (plain, shaped) = (latency(Variant::Plain), latency(Variant::Shaped));
    let pages = points(name, sizes, |row| Some(row.of(Variant::Shaped)?.examined().max(1.0)));
    let mut failures = Vec::new();
    if let (Some(plain), Some(shaped)) = (plain, shaped)
        && shaped > plain.max(0.0) + allowance
    {
        failures.push(format!("grows with exponent {shaped:.2}, plain with {plain:.2}"));
    }
    for size in sizes {
        failures.extend(
            size.row(name)
                .and_then(excess)
                .map(|excess| format!("{} items: {excess}", size.items)),
        );
    }
    Growth {
        name,
        plain,
        shaped,
        pages: exponent(&pages),
        failures,
    }
}

/// The median latency of the round where it is the least: other work on the machine only adds to it, and
/// growth compares what was measured minutes apart.
fn least_p50_us(row: &Row, variant: Variant) -> Option<f64> {
    let rounds = row.of(variant)?.rounds.iter();
    rounds.map(|round| round.p50_us).min_by(f64::total_cmp)
}

/// Human-readable: how far a row exceeds the pages that it may examine.
fn excess(row: &Row) -> Option<String> {
    let (plain, shaped) = (row.of(Variant::Plain)?, row.of(Variant::Shaped)?);
    let needed = plain.documents().max(plain.keys()).max(plain.examined());
    let limit = PAGES_EACH * needed + PAGES_BESIDES;
    let is_excess = row.plan == PlainPlan::Indexed && shaped.examined() > limit;
    is_excess.then(|| {
        format!(
            "{:.0} pages examined, at most {limit:.0} expected since plain examines {needed:.0}",
            shaped.examined()
        )
    })
}

/// A figure at one size.
#[derive(Debug, Clone, Copy)]
struct Point {
    items: f64,
    figure: f64,
}

fn points(name: &str, sizes: &[Size], figure: impl Fn(&Row) -> Option<f64>) -> Vec<Point> {
    let point = |size: &Size| {
        let figure = figure(size.row(name)?)?;
        let items = as_f64(size.items);
        Some(Point { items, figure })
    };
    sizes.iter().filter_map(point).collect()
}

/// The slope of the line through the logarithms that has the least squares. `None`: fewer than two points.
fn exponent(points: &[Point]) -> Option<f64> {
    let count = as_f64(points.len());
    let mean = |of: fn(&Point) -> f64| points.iter().map(of).sum::<f64>() / count;
    let (x, y) = (mean(|point| point.items.ln()), mean(|point| point.figure.ln()));
    let deviations = |point: &Point| (point.items.ln() - x, point.figure.ln() - y);
    let square: f64 = points.iter().map(|point| deviations(point).0.powi(2)).sum();
    let product: f64 = points.iter().map(deviations).map(|(x, y)| x * y).sum();
    (square > 0.0).then(|| product / square)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_exponent_is_a_slope_of_logarithms() {
        let points = |figures: [f64; 3]| {
            let sizes = [1e4, 1e5, 1e6].into_iter().zip(figures);
            sizes.map(|(items, figure)| Point { items, figure }).collect::<Vec<_>>()
        };
        for (figures, expected) in [([5.0; 3], 0.0), ([1.0, 10.0, 100.0], 1.0), ([100.0, 10.0, 1.0], -1.0)] {
            let slope = exponent(&points(figures)).expect("a slope");
            assert!((slope - expected).abs() < 1e-9, "{slope} is not {expected}");
        }
        assert!(exponent(&points([1.0; 3])[..1]).is_none());
    }
}
