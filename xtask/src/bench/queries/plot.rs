//! A plot of the medians of every query and every variant, as an SVG file: a line for each query, latency on a
//! logarithmic axis.

use std::fmt::{self, Write as _};
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result};

use super::growth::Size;
use super::measure::Row;
use super::report::grouped;
use super::servers::Variant;
use crate::bench::load::Figures;
use crate::bench::place::as_f64;

const WIDTH: f64 = 960.0;
const LEFT: f64 = 330.0;
const RIGHT: f64 = WIDTH - 30.0;
/// The first line of a query.
const TOP: f64 = 90.0;
/// From one query to the next.
const LINE: f64 = 18.0;
/// The variants with Okabe and Ito's colours, which the colour-blind distinguish.
const VARIANTS: [Series; 3] = [
    Series {
        variant: Variant::Plain,
        name: "plain",
        colour: "#333333",
    },
    Series {
        variant: Variant::HaProxy,
        name: "plain through HAProxy",
        colour: "#e69f00",
    },
    Series {
        variant: Variant::Shaped,
        name: "mongoshape",
        colour: "#0072b2",
    },
];

struct Series {
    variant: Variant,
    name: &'static str,
    colour: &'static str,
}

/// Writes the plot of one size.
pub(super) fn write(file: &Path, size: &Size) -> Result<()> {
    let svg = svg(size).context("a plot")?;
    fs::write(file, svg).with_context(|| format!("{}", file.display()))
}

/// Where a latency is: from the decade of the least on.
#[derive(Debug, Clone, Copy)]
struct Axis {
    first_decade: i32,
    last_decade: i32,
}

impl Axis {
    fn over(latencies_us: impl Iterator<Item = f64> + Clone) -> Self {
        let least = latencies_us.clone().fold(f64::INFINITY, f64::min).max(1.0);
        let most = latencies_us.fold(10.0, f64::max);
        #[expect(clippy::cast_possible_truncation, reason = "logarithms of latencies are small")]
        let (first_decade, last_decade) = (least.log10().floor() as i32, most.log10().ceil() as i32);
        Self {
            first_decade,
            last_decade: last_decade.max(first_decade + 1),
        }
    }

    fn at(self, latency_us: f64) -> f64 {
        let decades = f64::from(self.last_decade - self.first_decade);
        LEFT + (latency_us.log10() - f64::from(self.first_decade)) / decades * (RIGHT - LEFT)
    }
}

fn median(row: &Row, variant: Variant) -> Option<f64> {
    Some(Figures::median(&row.of(variant)?.rounds).p50_us)
}

fn svg(size: &Size) -> Result<String, fmt::Error> {
    let medians = || {
        let variants = |row| VARIANTS.iter().filter_map(move |series| median(row, series.variant));
        size.rows.iter().flat_map(variants)
    };
    let axis = Axis::over(medians().collect::<Vec<_>>().into_iter());
    let bottom = TOP + LINE * as_f64(size.rows.len());
    let height = bottom + 50.0;
    let mut svg = String::new();
    writeln!(
        svg,
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {height}\" width=\"{WIDTH}\" height=\"{height}\" \
         font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" font-size=\"12\" fill=\"#222222\">\n\
         <rect width=\"{WIDTH}\" height=\"{height}\" fill=\"#ffffff\"/>\n\
         <text x=\"20\" y=\"30\" font-size=\"17\" font-weight=\"bold\">Median latency of queries of {} messages</text>",
        grouped(size.items)
    )?;
    legend(&mut svg, size)?;
    grid(&mut svg, axis, bottom)?;
    for (number, row) in size.rows.iter().enumerate() {
        line(&mut svg, axis, &Line { number, row })?;
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn legend(svg: &mut String, size: &Size) -> fmt::Result {
    let is_measured = |series: &&Series| size.rows.iter().any(|row| row.of(series.variant).is_some());
    for (number, Series { name, colour, .. }) in VARIANTS.iter().filter(is_measured).enumerate() {
        let x = LEFT + 190.0 * as_f64(number);
        writeln!(
            svg,
            "<circle cx=\"{x}\" cy=\"56\" r=\"5\" fill=\"{colour}\"/><text x=\"{}\" y=\"60\">{name}</text>",
            x + 12.0
        )?;
    }
    Ok(())
}

fn grid(svg: &mut String, axis: Axis, bottom: f64) -> fmt::Result {
    for decade in axis.first_decade..=axis.last_decade {
        let x = axis.at(10_f64.powi(decade));
        let label = match decade {
            ..3 => format!("{} µs", 10_f64.powi(decade)),
            3..6 => format!("{} ms", 10_f64.powi(decade - 3)),
            _ => format!("{} s", 10_f64.powi(decade - 6)),
        };
        writeln!(
            svg,
            "<path d=\"M{x:.1} {:.1}L{x:.1} {bottom:.1}\" stroke=\"#cccccc\"/>\n\
             <text x=\"{x:.1}\" y=\"{:.1}\" text-anchor=\"middle\">{label}</text>",
            TOP - LINE / 2.0,
            bottom + 20.0
        )?;
    }
    Ok(())
}

/// A query's line.
struct Line<'a> {
    number: usize,
    row: &'a Row,
}

fn line(svg: &mut String, axis: Axis, line: &Line<'_>) -> fmt::Result {
    let y = TOP + LINE * as_f64(line.number);
    writeln!(
        svg,
        "<path d=\"M{LEFT} {y}L{RIGHT} {y}\" stroke=\"#eeeeee\"/>\n\
         <text x=\"{}\" y=\"{}\" text-anchor=\"end\">{}</text>",
        LEFT - 10.0,
        y + 4.0,
        line.row.name
    )?;
    for Series { variant, colour, .. } in &VARIANTS {
        if let Some(median) = median(line.row, *variant) {
            let x = axis.at(median);
            writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y}\" r=\"4.5\" fill=\"{colour}\"/>")?;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_latency_lies_between_its_powers_of_ten() {
        let axis = Axis::over([150.0, 20_000.0].into_iter());
        assert_eq!((axis.first_decade, axis.last_decade), (2, 5));
        let middle = LEFT + (RIGHT - LEFT) / 3.0;
        assert!((axis.at(1000.0) - middle).abs() < 1e-9);
    }
}
