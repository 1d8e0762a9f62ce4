//! Renders values as HTML. Everything is escaped. Independent of metrics.

use std::fmt::Write;
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bson::DateTime;

/// The text for a missing value.
const NOTHING: &str = "\u{2013}";
/// Separates groups of three digits without a line break.
const NARROW_SPACE: char = '\u{202f}';
/// The width of a full bar.
const BAR_WIDTH: f64 = 120.0;

/// A table cell, or the value of a tile.
#[derive(Clone, Debug)]
pub(super) enum Cell {
    Text(String),
    /// A sentence.
    Long(String),
    /// A name in code font.
    Code(String),
    /// The sum of the series that this selector matches in `/metrics`.
    Number(Option<f64>, String),
    /// Events per second.
    Rate(Option<f64>),
    /// Bytes per second.
    BytesRate(Option<f64>),
    /// A duration in seconds.
    Seconds(Option<f64>),
    /// A number of bytes.
    Bytes(Option<f64>),
    /// A share from 0 to 1.
    Bar(f64),
}

impl Cell {
    pub(super) fn text(text: impl Into<String>) -> Self {
        Self::Text(text.into())
    }

    pub(super) fn code(text: impl Into<String>) -> Self {
        Self::Code(text.into())
    }

    /// The attribute of the cell's element, and of its column's heading.
    fn class(&self) -> &'static str {
        match self {
            Self::Text(_) | Self::Code(_) | Self::Bar(_) => "",
            Self::Long(_) => " class=\"long\"",
            _ => " class=\"number\"",
        }
    }

    /// Writes the cell as this HTML element.
    fn write(&self, html: &mut String, element: &str) {
        let class = match self {
            Self::Number(Some(0.0), _) | Self::Rate(Some(0.0)) => " class=\"number zero\"",
            _ => self.class(),
        };
        let series = match self {
            Self::Number(Some(_), series) => format!(" data-series=\"{}\"", escape(series)),
            _ => String::new(),
        };
        // Writing to a string cannot fail, here and below.
        let _ = write!(html, "<{element}{class}{series}>{}</{element}>", self.content());
    }

    fn content(&self) -> String {
        match self {
            Self::Text(text) => escape(text),
            Self::Long(text) => with_documents(text),
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

/// The importance of a notice, which determines its colour.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Level {
    Good,
    Hint,
    Warning,
    Bad,
}

impl Level {
    pub(super) fn class(self) -> &'static str {
        match self {
            Self::Good => "good",
            Self::Hint => "hint",
            Self::Warning => "warning",
            Self::Bad => "bad",
        }
    }
}

/// What an operator should know, and what to do.
#[derive(Clone, Debug)]
pub(super) struct Notice {
    pub(super) level: Level,
    pub(super) text: String,
    pub(super) next: String,
    /// The section with the details.
    pub(super) section: Option<&'static str>,
}

impl Notice {
    pub(super) fn write(&self, html: &mut String) {
        let (class, text, next) = (self.level.class(), escape(&self.text), with_documents(&self.next));
        let text = match self.section {
            Some(id) => format!("<a href=\"#{id}\">{text}</a>"),
            None => text,
        };
        let _ = write!(html, "<li class=\"{class}\"><b>{text}</b> {next}</li>");
    }
}

/// The width of a table in a wide window.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Width {
    Half,
    Whole,
}

/// A heading above several columns: its text, and their number.
#[derive(Clone, Copy, Debug)]
pub(super) struct GroupHeading(pub(super) &'static str, pub(super) usize);

/// A table with a heading.
#[derive(Clone, Debug)]
pub(super) struct Table {
    pub(super) id: &'static str,
    pub(super) title: &'static str,
    pub(super) width: Width,
    /// An explanation of the numbers.
    pub(super) note: String,
    /// Headings of several columns each, with the number of columns.
    pub(super) groups: &'static [GroupHeading],
    /// The columns' headings.
    pub(super) head: &'static [&'static str],
    /// The first cell of a row is its name.
    pub(super) rows: Vec<Vec<Cell>>,
}

impl Table {
    pub(super) fn write(&self, html: &mut String) {
        let class = match self.width {
            Width::Half => "",
            Width::Whole => " class=\"wide\"",
        };
        let (id, title, note) = (self.id, escape(self.title), with_documents(&self.note));
        let _ = write!(
            html,
            "<section{class} id=\"{id}\"><h2>{title}</h2><p class=\"note\">{note}</p>\
             <div class=\"scroll\" tabindex=\"0\" role=\"region\" aria-label=\"{title}\"><table><thead>"
        );
        self.write_head(html);
        html.push_str("</thead><tbody>");
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

    fn write_head(&self, html: &mut String) {
        if !self.groups.is_empty() {
            html.push_str("<tr class=\"groups\">");
            for GroupHeading(name, columns) in self.groups {
                let (open, close) = if name.is_empty() {
                    ("td", "td")
                } else {
                    ("th scope=\"colgroup\"", "th")
                };
                let _ = write!(html, "<{open} colspan=\"{columns}\">{}</{close}>", escape(name));
            }
            html.push_str("</tr>");
        }
        html.push_str("<tr>");
        let first = self.rows.first().map(Vec::as_slice).unwrap_or_default();
        for (place, name) in self.head.iter().enumerate() {
            let class = first.get(place).map_or("", Cell::class);
            let _ = write!(html, "<th scope=\"col\"{class}>{}</th>", escape(name));
        }
        html.push_str("</tr>");
    }
}

/// A row of values, each with its name and a note.
pub(super) fn tiles(html: &mut String, tiles: &[(&str, Cell, String)]) {
    html.push_str("<dl class=\"tiles\">");
    for (name, cell, note) in tiles {
        let _ = write!(html, "<div><dt>{}</dt>", escape(name));
        cell.write(html, "dd");
        let _ = write!(html, "<dd class=\"note\">{}</dd></div>", escape(note));
    }
    html.push_str("</dl>");
}

/// Escapes a sentence. Names between backticks, and of documents, have code font.
pub(super) fn with_documents(text: &str) -> String {
    let mut html = String::new();
    for (place, part) in text.split('`').enumerate() {
        if place % 2 == 1 {
            let _ = write!(html, "<code>{}</code>", escape(part));
            continue;
        }
        for word in part.split_inclusive(' ') {
            let name = word.trim_matches(|character| "(),;:. ".contains(character));
            let (word, name) = (escape(word), escape(name));
            if name.starts_with("docs/") {
                html.push_str(&word.replace(&name, &format!("<code>{name}</code>")));
            } else {
                html.push_str(&word);
            }
        }
    }
    html
}

/// Escapes text for HTML, including quoted attributes.
pub(super) fn escape(text: &str) -> String {
    let mut escaped = String::with_capacity(text.len());
    for character in text.chars() {
        match character {
            '&' => escaped.push_str("&amp;"),
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '"' => escaped.push_str("&quot;"),
            '\'' => escaped.push_str("&#39;"),
            // A peer's text may contain anything. Control characters and characters that change the
            // text direction are shown by their numbers.
            '\n' | '\r' | '\t' => escaped.push(' '),
            control if control.is_control() || matches!(control, '\u{202a}'..='\u{202e}' | '\u{2066}'..='\u{2069}') => {
                let _ = write!(escaped, "[U+{:04X}]", u32::from(control));
            }
            other => escaped.push(other),
        }
    }
    escaped
}

/// An integer with separated thousands.
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
    } else if value < 0.05 {
        // Not zero: something happens.
        "under 0.1/s".to_owned()
    } else {
        format!("{value:.1}/s")
    }
}

/// A duration with three significant digits.
pub(super) fn seconds(value: f64) -> String {
    let (value, unit) = match value {
        value if value < 0.000_999_5 => (value * 1e6, "\u{b5}s"),
        value if value < 0.999_5 => (value * 1e3, "ms"),
        value => (value, "s"),
    };
    format!("{} {unit}", three_digits(value))
}

/// A time as `2026-11-23 00:11:50`, in UTC.
pub(super) fn time(at: SystemTime) -> String {
    let seconds = at.duration_since(UNIX_EPOCH).unwrap_or_default().as_secs();
    let whole = DateTime::from_system_time(UNIX_EPOCH + Duration::from_secs(seconds));
    let text = whole.try_to_rfc3339_string().unwrap_or_default();
    text.trim_end_matches('Z').replace('T', " ")
}

/// A long duration, in its two largest units.
pub(super) fn span(seconds: u64) -> String {
    match (seconds / 86400, seconds / 3600 % 24, seconds / 60 % 60, seconds % 60) {
        (0, 0, 0, seconds) => format!("{seconds} s"),
        (0, 0, minutes, seconds) => format!("{minutes} min {seconds} s"),
        (0, hours, minutes, _) => format!("{hours} h {minutes} min"),
        (days, hours, ..) => format!("{days} d {hours} h"),
    }
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

/// Hidden from screen readers, because the number is beside it.
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
    fn html_values_are_escaped() {
        assert_eq!(
            escape("<a href='x'>\"&\""),
            "&lt;a href=&#39;x&#39;&gt;&quot;&amp;&quot;"
        );
        assert_eq!(escape("a\u{202e}b\nc\u{7}"), "a[U+202E]b c[U+0007]");
        let mut html = String::new();
        let table = Table {
            id: "t",
            title: "<t>",
            width: Width::Half,
            note: "<n> `<m>`".to_owned(),
            groups: &[GroupHeading("<g>", 3)],
            head: &["<h>"],
            rows: vec![vec![
                Cell::code("<c>"),
                Cell::text("<x>"),
                Cell::Long("<y> (docs/<z>)".to_owned()),
                Cell::Number(Some(1.0), "m{l=\"<v>\"}".to_owned()),
            ]],
        };
        table.write(&mut html);
        tiles(&mut html, &[("<name>", Cell::text("<value>"), "<note>".to_owned())]);
        let notice = Notice {
            level: Level::Bad,
            text: "<what>".to_owned(),
            next: "<next>".to_owned(),
            section: Some("t"),
        };
        notice.write(&mut html);
        for part in "t n m g h c x y z v name value note what next".split(' ') {
            assert!(!html.contains(&format!("<{part}>")), "{part} in {html}");
        }
    }

    #[test]
    fn documents_and_names_have_code_font() {
        assert_eq!(
            with_documents("see docs/a.md (docs/b.md for `c`)."),
            "see <code>docs/a.md</code> (<code>docs/b.md</code> for <code>c</code>)."
        );
    }

    #[test]
    fn times_are_readable() {
        assert_eq!(time(UNIX_EPOCH + Duration::from_millis(61_500)), "1970-01-01 00:01:01");
        let spans = [7, 67, 3_720, 180_000].map(span);
        assert_eq!(spans, ["7 s", "1 min 7 s", "1 h 2 min", "2 d 2 h"]);
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(count(1_234_567.0), "1\u{202f}234\u{202f}567");
        assert_eq!((count(0.0), count(999.0)), ("0".to_owned(), "999".to_owned()));
        assert_eq!(
            [rate(0.0), rate(0.01), rate(0.25), rate(1234.0)],
            ["0/s", "under 0.1/s", "0.2/s", "1\u{202f}234/s"]
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
