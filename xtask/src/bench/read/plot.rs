//! A plot of latencies by page number, both logarithmic, as an SVG file. It is a hundred lines: a plotting
//! library would be larger and position labels less exactly.

use std::fmt::Write as _;
use std::fs;
use std::path::Path;

use anyhow::{Context as _, Result, ensure};

/// The medians of one variant.
#[derive(Debug)]
pub(super) struct Series {
    name: &'static str,
    /// Page number, µs.
    pub(super) points: Vec<(usize, f64)>,
}

impl Series {
    /// Without points.
    pub(super) fn new(name: &'static str) -> Self {
        Self {
            name,
            points: Vec::new(),
        }
    }
}

const WIDTH: f64 = 860.0;
const HEIGHT: f64 = 540.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = WIDTH - 45.0;
const TOP: f64 = 60.0;
const BOTTOM: f64 = HEIGHT - 75.0;
/// Okabe and Ito's colours, which are distinct for colour-blind readers.
const COLOURS: [&str; 5] = ["#333333", "#e69f00", "#0072b2", "#d55e00", "#009e73"];
const DASHES: [&str; 5] = ["none", "8 4", "2 4", "none", "10 4 2 4"];

/// Writes the plot of the variants' medians, in a collection of which the key has so many items.
pub(super) fn write(file: &Path, series: &[Series], items: usize) -> Result<()> {
    let svg = svg(series, items)?;
    fs::write(file, svg).with_context(|| format!("{}", file.display()))
}

/// An axis whose scale is logarithmic, over whole decades.
#[derive(Debug, Clone, Copy)]
struct Axis {
    /// Exponents of the first and the last power of ten.
    decades: (i32, i32),
    /// Where in the picture they are.
    ends: (f64, f64),
}

impl Axis {
    fn over(values: impl Iterator<Item = f64> + Clone, ends: (f64, f64)) -> Result<Self> {
        let least = values.clone().fold(f64::INFINITY, f64::min);
        let most = values.fold(0.0, f64::max);
        ensure!(0.0 < least && least.is_finite(), "nothing to plot");
        #[expect(
            clippy::cast_possible_truncation,
            reason = "logarithms of what was measured are small"
        )]
        let decades = (least.log10().floor() as i32, most.log10().ceil() as i32);
        let decades = (decades.0, decades.1.max(decades.0 + 1));
        Ok(Self { decades, ends })
    }

    fn at(&self, value: f64) -> f64 {
        let (first, last) = (f64::from(self.decades.0), f64::from(self.decades.1));
        let share = (value.log10() - first) / (last - first);
        self.ends.0 + share * (self.ends.1 - self.ends.0)
    }

    /// The powers of ten.
    fn powers(&self) -> impl Iterator<Item = f64> {
        (self.decades.0..=self.decades.1).map(|exponent| 10_f64.powi(exponent))
    }

    /// The values between that have one digit.
    fn between(&self) -> impl Iterator<Item = f64> {
        let decades = self.decades.0..self.decades.1;
        decades.flat_map(|exponent| (2..10).map(move |digit| f64::from(digit) * 10_f64.powi(exponent)))
    }
}

fn svg(series: &[Series], items: usize) -> Result<String> {
    let points = || series.iter().flat_map(|series| &series.points);
    let pages = Axis::over(points().map(|(page, _)| page_number(*page)), (LEFT, RIGHT))?;
    let times = Axis::over(points().map(|(_, us)| us / 1000.0), (BOTTOM, TOP))?;
    let mut svg = format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" viewBox=\"0 0 {WIDTH} {HEIGHT}\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
         font-family=\"DejaVu Sans, Verdana, Helvetica, Arial, sans-serif\" font-size=\"14\" fill=\"#222222\">\n\
         <rect width=\"{WIDTH}\" height=\"{HEIGHT}\" fill=\"#ffffff\"/>\n\
         <text x=\"{LEFT}\" y=\"32\" font-size=\"17\" font-weight=\"bold\">Reading page n of a key with {} items, ten a \
         page</text>\n",
        grouped(items)
    );
    // Writing to a string cannot fail.
    let _ = grid(&mut svg, pages, times);
    for (number, series) in series
        .iter()
        .enumerate()
        .filter(|(_, series)| !series.points.is_empty())
    {
        let _ = line(&mut svg, (pages, times), (number, series));
    }
    svg.push_str("</svg>\n");
    Ok(svg)
}

fn grid(svg: &mut String, pages: Axis, times: Axis) -> std::fmt::Result {
    let mut rule = |value: f64, axis: Axis, colour: &str| {
        let at = axis.at(value);
        let [x1, x2, y1, y2] = if axis.ends.0 == LEFT {
            [at, at, TOP, BOTTOM]
        } else {
            [LEFT, RIGHT, at, at]
        };
        writeln!(
            svg,
            "<path d=\"M{x1:.1} {y1:.1}L{x2:.1} {y2:.1}\" stroke=\"{colour}\"/>"
        )
    };
    for axis in [pages, times] {
        axis.between().try_for_each(|value| rule(value, axis, "#f0f0f0"))?;
    }
    for axis in [pages, times] {
        axis.powers().try_for_each(|value| rule(value, axis, "#cccccc"))?;
    }
    for page in pages.powers() {
        let (x, y) = (pages.at(page), BOTTOM + 22.0);
        writeln!(
            svg,
            "<text x=\"{x:.1}\" y=\"{y}\" text-anchor=\"middle\">{}</text>",
            power(page)
        )?;
    }
    for time in times.powers() {
        let (x, y) = (LEFT - 10.0, times.at(time) + 5.0);
        writeln!(
            svg,
            "<text x=\"{x}\" y=\"{y:.1}\" text-anchor=\"end\">{}</text>",
            power(time)
        )?;
    }
    let (middle, below) = (f64::midpoint(LEFT, RIGHT), HEIGHT - 20.0);
    writeln!(
        svg,
        "<text x=\"{middle}\" y=\"{below}\" text-anchor=\"middle\" font-size=\"15\">page number (logarithmic)</text>"
    )?;
    let middle = f64::midpoint(TOP, BOTTOM);
    writeln!(
        svg,
        "<text transform=\"translate(26 {middle}) rotate(-90)\" text-anchor=\"middle\" font-size=\"15\">median latency in \
         milliseconds (logarithmic)</text>"
    )
}

/// The line of one variant, with its marks, and its entry in the legend.
fn line(svg: &mut String, (pages, times): (Axis, Axis), (number, series): (usize, &Series)) -> std::fmt::Result {
    let (colour, dash) = (COLOURS[number % COLOURS.len()], DASHES[number % DASHES.len()]);
    let place = |(page, us): &(usize, f64)| (pages.at(page_number(*page)), times.at(us / 1000.0));
    let stroke = format!("stroke=\"{colour}\" stroke-width=\"2.5\" stroke-dasharray=\"{dash}\" fill=\"none\"");
    let points: Vec<_> = series.points.iter().map(place).collect();
    let path: Vec<_> = points.iter().map(|(x, y)| format!("{x:.1} {y:.1}")).collect();
    writeln!(svg, "<path d=\"M{}\" {stroke}/>", path.join("L"))?;
    for (x, y) in points {
        writeln!(svg, "<circle cx=\"{x:.1}\" cy=\"{y:.1}\" r=\"4.5\" fill=\"{colour}\"/>")?;
    }
    let entry = u32::try_from(number).map_or(0.0, f64::from);
    let (x, y) = (LEFT + 20.0, TOP + 24.0 + 23.0 * entry);
    let (end, text, baseline) = (x + 46.0, x + 56.0, y + 5.0);
    // Behind the text, so that no line of the grid runs through it.
    writeln!(
        svg,
        "<rect x=\"{}\" y=\"{}\" width=\"226\" height=\"23\" fill=\"#ffffff\" fill-opacity=\"0.9\"/>",
        x - 8.0,
        y - 11.5
    )?;
    writeln!(svg, "<path d=\"M{x} {y}L{end} {y}\" {stroke}/>")?;
    writeln!(
        svg,
        "<circle cx=\"{}\" cy=\"{y}\" r=\"4.5\" fill=\"{colour}\"/>",
        f64::midpoint(x, end)
    )?;
    writeln!(svg, "<text x=\"{text}\" y=\"{baseline}\">{}</text>", series.name)
}

#[expect(clippy::cast_precision_loss, reason = "page numbers are far below 2^52")]
fn page_number(page: usize) -> f64 {
    page as f64
}

/// A power of ten, as labels have it.
fn power(value: f64) -> String {
    if value < 1.0 {
        return value.to_string();
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a power of ten from 1 on"
    )]
    grouped(value.round() as usize)
}

/// With commas between thousands.
fn grouped(number: usize) -> String {
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
    fn points_lie_between_the_powers_of_ten_around_them() {
        let series = [Series {
            name: "plain",
            points: vec![(1, 200.0), (1000, 20_000.0)],
        }];
        let svg = svg(&series, 10_003).expect("a plot");
        assert!(svg.contains("a key with 10,003 items"), "{svg}");
        // From page 1 on the left to page 1,000 on the right; 0.2 ms is 0.3 of the distance from 0.1 to 1, of
        // three decades.
        let (low, high) = (
            BOTTOM - (BOTTOM - TOP) * 0.301 / 3.0,
            BOTTOM - (BOTTOM - TOP) * 2.301 / 3.0,
        );
        let path = format!("<path d=\"M{LEFT:.1} {low:.1}L{RIGHT:.1} {high:.1}\"");
        assert!(svg.contains(&path), "{path} is not in {svg}");
        for label in [">0.1<", ">100<", ">1<", ">1,000<", ">plain<"] {
            assert!(svg.contains(label), "{label} is not in {svg}");
        }
    }
}
