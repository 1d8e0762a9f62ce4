//! HTML from values: everything is escaped on its way in. Knows no metric.

use std::fmt::Write;

/// What stands where there is nothing to show.
const NOTHING: &str = "\u{2013}";
/// Groups of three digits are kept together.
const NARROW_SPACE: char = '\u{202f}';
/// The width of a whole bar.
const BAR_WIDTH: f64 = 120.0;

/// One cell of a table, or the value of a tile.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    /// Words.
    Text(String),
    /// A name that is spelt exactly so.
    Code(String),
    /// A number of things, which is the sum of the series that this selects in `/metrics`.
    Number(Option<f64>, String),
    /// Things a second.
    Rate(Option<f64>),
    /// Bytes a second.
    BytesRate(Option<f64>),
    /// A time, in seconds.
    Seconds(Option<f64>),
    /// A size.
    Bytes(Option<f64>),
    /// A share of all, from 0 to 1.
    Bar(f64),
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn code(text: impl Into<String>) -> Self {
        Self::Code(text.into())
    }

    /// The cell's element, which is of this kind.
    fn write(&self, html: &mut String, element: &str) {
        let class = match self {
            Self::Text(_) | Self::Code(_) | Self::Bar(_) => "",
            _ => " class=\"number\"",
        };
        let series = match self {
            Self::Number(Some(_), series) => format!(" data-series=\"{}\"", escape(series)),
            _ => String::new(),
        };
        // Writing to a string does not fail, here and below.
        let _ = write!(html, "<{element}{class}{series}>{}</{element}>", self.content());
    }

    fn content(&self) -> String {
        match self {
            Self::Text(text) => escape(text),
            Self::Code(text) => format!("<code>{}</code>", escape(text)),
            Self::Number(value, _) => value.map_or(NOTHING.to_owned(), count),
            Self::Rate(value) => value.map_or(NOTHING.to_owned(), rate),
            Self::BytesRate(value) => value.map_or(NOTHING.to_owned(), |value| format!("{}/s", bytes(value))),
            Self::Seconds(value) => value.map_or(NOTHING.to_owned(), seconds),
            Self::Bytes(value) => value.map_or(NOTHING.to_owned(), bytes),
            Self::Bar(share) => bar(*share),
        }
    }
}

/// How much of a wide window a table takes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Half,
    Whole,
}

/// A table with a heading above it, or a sentence where it would have no rows.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) title: &'static str,
    pub(super) width: Width,
    /// What the numbers mean.
    pub(super) note: String,
    pub(super) head: Vec<&'static str>,
    /// The first cell of a row is its name.
    pub(super) rows: Vec<Vec<Cell>>,
    pub(super) empty: &'static str,
}

impl Table {
    pub(super) fn write(&self, html: &mut String) {
        let class = match self.width {
            Width::Half => "",
            Width::Whole => " class=\"wide\"",
        };
        let _ = write!(html, "<section{class}><h2>{}</h2>", escape(self.title));
        if self.rows.is_empty() {
            let _ = write!(html, "<p class=\"note\">{}</p></section>", escape(self.empty));
            return;
        }
        if !self.note.is_empty() {
            let _ = write!(html, "<p class=\"note\">{}</p>", escape(&self.note));
        }
        let title = escape(self.title);
        let _ = write!(
            html,
            "<div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table><thead><tr>"
        );
        let first = self.rows.first().map(Vec::as_slice).unwrap_or_default();
        for (place, name) in self.head.iter().enumerate() {
            let is_number = !matches!(
                first.get(place),
                Some(Cell::Text(_) | Cell::Code(_) | Cell::Bar(_)) | None
            );
            let class = if is_number { " class=\"number\"" } else { "" };
            let _ = write!(html, "<th scope=\"col\"{class}>{}</th>", escape(name));
        }
        html.push_str("</tr></thead><tbody>");
        for row in &self.rows {
            html.push_str("<tr>");
            for (place, cell) in row.iter().enumerate() {
                match (place, cell) {
                    (0, cell) => {
                        let _ = write!(html, "<th scope=\"row\">{}</th>", cell.content());
                    }
                    (_, cell) => cell.write(html, "td"),
                }
            }
            html.push_str("</tr>");
        }
        html.push_str("</tbody></table></div></section>");
    }
}

/// A few numbers that say how it goes, each under its name.
pub(super) fn tiles(html: &mut String, tiles: &[(&str, Cell, String)]) {
    html.push_str("<dl class=\"tiles\">");
    for (name, cell, note) in tiles {
        let _ = write!(html, "<div><dt>{}</dt>", escape(name));
        cell.write(html, "dd");
        let _ = write!(html, "<dd class=\"note\">{}</dd></div>", escape(note));
    }
    html.push_str("</dl>");
}

/// Text that stays text wherever it stands in HTML, in an attribute's quotes too.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // What a peer sent may hold anything; invisible characters that turn text around are shown as
            // what they are.
            '\n' | '\r' | '\t' => escaped.push(' '),
            control if control.is_control() || matches!(control, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                let _ = write!(escaped, "{}", control.escape_unicode());
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// A whole number with its thousands apart.
pub(super) fn count(value: f64) -> String {
    let digits = format!("{:.0}", value.abs());
    let mut text = String::new();
    if value < 0.0 {
        text.push('-');
    }
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(NARROW_SPACE);
        }
        text.push(digit);
    }
    text
}

pub(super) fn rate(value: f64) -> String {
    if value == 0.0 || value >= 100.0 {
        format!("{}/s", count(value))
    } else {
        format!("{value:.1}/s")
    }
}

/// With three digits that count.
pub(super) fn seconds(value: f64) -> String {
    let (value, unit) = match value {
        value if value < 0.000_999_5 => (value * 1e6, "\u{b5}s"),
        value if value < 0.999_5 => (value * 1e3, "ms"),
        value => (value, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

pub(super) fn bytes(value: f64) -> String {
    let mut value = value;
    for unit in ["B", "KiB", "MiB", "GiB"] {
        if value < 1023.5 {
            return format!("{} {unit}", three_digits(value));
        }
        value /= 1024.0;
    }
    format!("{} TiB", three_digits(value))
}

fn three_digits(value: f64) -> String {
    match value {
        0.0 => "0".to_owned(),
        value if value >= 99.95 => format!("{value:.0}"),
        value if value >= 9.995 => format!("{value:.1}"),
        value => format!("{value:.2}"),
    }
}

/// Said to the eye alone: the number stands beside it.
fn bar(share: f64) -> String {
    let width = share.clamp(0.0, 1.0) * BAR_WIDTH;
    format!(
        "<svg class=\"bar\" width=\"{BAR_WIDTH}\" height=\"10\" aria-hidden=\"true\"><rect width=\"{width:.1}\" height=\"10\"/></svg>"
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nothing_gets_out_of_its_place() {
        assert_eq!(
            escape("<a href='x'>\"&\""),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;"
        );
        assert_eq!(escape("a\u{202e}b\nc\u{7}"), "a\\u{202e}b c\\u{7}");
        let mut html = String::new();
        let table = Table {
            title: "<t>",
            width: Width::Half,
            note: "<n>".to_owned(),
            head: vec!["<h>"],
            rows: vec![vec![
                Cell::code("<c>"),
                Cell::text("<x>"),
                Cell::Number(Some(1.0), "m{l=\"<v>\"}".to_owned()),
            ]],
            empty: "",
        };
        table.write(&mut html);
        tiles(&mut html, &[("<name>", Cell::text("<value>"), "<note>".to_owned())]);
        for part in ["<t>", "<n>", "<h>", "<c>", "<x>", "<v>", "<name>", "<value>", "<note>"] {
            assert!(!html.contains(part), "{part} in {html}");
        }
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!((count(0.0), count(999.0)), ("0".to_owned(), "999".to_owned()));
        assert_eq!(
            (rate(0.0), rate(0.25), rate(1234.0)),
            ("0/s".into(), "0.2/s".into(), "1\u{202f}234/s".into())
        );
        assert_eq!(seconds(0.000_012_34), "12.3 \u{b5}s");
        assert_eq!(
            (seconds(0.001), seconds(0.25), seconds(2.0)),
            ("1.00 ms".into(), "250 ms".into(), "2.00 s".into())
        );
        assert_eq!(
            (bytes(0.0), bytes(1023.0), bytes(3.0 * 1_048_576.0)),
            ("0".to_owned() + " B", "1023 B".into(), "3.00 MiB".into())
        );
    }
}
