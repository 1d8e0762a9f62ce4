//! The section on conversions.

use std::time::Duration;

use crate::telemetry::admin::page::html::{Cell, Table, Width, span, time};
use crate::telemetry::admin::page::rows::{ConversionFiguresRow, ConversionRow};

const NOTHING: &str = "\u{2013}";

pub(super) fn conversions(rows: &[ConversionRow]) -> Table {
    Table {
        id: "conversions",
        title: "Conversions",
        width: Width::Whole,
        note: "What `mongoshape convert` has recorded last. The percentage and the time left are those of the phase. If the last column is old, \
               the command has ended: run it again (docs/converting.md)."
            .to_owned(),
        groups: &[],
        head: &["Collection", "Direction", "Phase", "", "Done", "Behind", "Left", "Write delay", "Last comparison", "Recorded (UTC)"],
        rows: rows.iter().map(row).collect(),
    }
}

fn row(conversion: &ConversionRow) -> Vec<Cell> {
    let mut cells = vec![
        Cell::code(&conversion.namespace),
        Cell::text(&conversion.direction),
        Cell::text(&conversion.phase),
    ];
    let Some(figures) = &conversion.figures else {
        cells.extend(std::iter::repeat_n(Cell::text(NOTHING), 7));
        return cells;
    };
    let ConversionFiguresRow {
        ratio,
        lag,
        remaining,
        write_delay,
        comparison,
        recorded,
    } = figures;
    // Rounded down, so that 100 % is complete.
    let percentage = ratio.map(|ratio| format!("{:.0} %", (ratio * 100.0).floor()));
    let seconds = |duration: Option<Duration>| duration.map(|duration| span(duration.as_secs()));
    let delay = (*write_delay > Duration::ZERO).then(|| format!("{} ms", write_delay.as_millis()));
    let texts = [
        percentage,
        seconds(*lag),
        seconds(*remaining),
        delay,
        comparison.clone(),
    ];
    cells.push(ratio.map_or(Cell::text(NOTHING), Cell::Bar));
    cells.extend(texts.map(|text| Cell::text(text.unwrap_or_else(|| NOTHING.to_owned()))));
    cells.push(Cell::text(time(*recorded)));
    cells
}

#[cfg(test)]
mod tests {
    use std::time::SystemTime;

    use super::*;

    fn html(rows: &[ConversionRow]) -> String {
        let mut html = String::new();
        conversions(rows).write(&mut html);
        html
    }

    #[test]
    fn the_section_has_figures_only_while_a_conversion_runs() {
        assert!(conversions(&[]).rows.is_empty());
        let mut row = ConversionRow {
            namespace: "d.c".to_owned(),
            direction: "from a to b".to_owned(),
            phase: "copying".to_owned(),
            figures: Some(ConversionFiguresRow {
                ratio: Some(0.999),
                lag: Some(Duration::from_secs(3)),
                remaining: None,
                write_delay: Duration::from_millis(8),
                comparison: Some("5 documents, equal".to_owned()),
                recorded: SystemTime::UNIX_EPOCH,
            }),
        };
        let expected = "</svg></td><td>99 %</td><td>3 s</td><td>\u{2013}</td><td>8 ms</td>\
                        <td>5 documents, equal</td><td>1970-01-01 00:00:00</td>";
        assert!(html(&[row.clone()]).contains(expected), "{}", html(&[row]));
        row.figures = None;
        let without = format!("<td>copying</td>{}</tr>", "<td>\u{2013}</td>".repeat(7));
        assert!(html(&[row.clone()]).contains(&without), "{}", html(&[row]));
    }
}
