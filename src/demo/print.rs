//! Formats the demo's output: headings, notes, extended JSON within 100 columns.

use bson::{Bson, Document};

/// Of a line, after the indent of four that documents get.
const WIDTH: usize = 92;

pub(super) fn section(title: &str) {
    println!(
        "\n── {title} {}\n",
        "─".repeat(WIDTH.saturating_sub(title.chars().count()))
    );
}

pub(super) fn note(text: &str) {
    println!("  {text}");
}

pub(super) fn indented(text: &str) {
    for line in text.lines() {
        println!("{}", format!("    {line}").trim_end());
    }
}

pub(super) fn document(document: &Document) {
    indented(&layout(&Bson::Document(document.clone()), 0));
}

/// What fits on a line is one line. Of what does not, plain fields fill their lines, and all else gets a line
/// a member.
fn layout(value: &Bson, depth: usize) -> String {
    let flat = flat(value);
    if flat.chars().count() + 2 * depth <= WIDTH {
        return flat;
    }
    let (open, close, members) = match value {
        Bson::Document(fields) if !fields.values().any(is_nested) => return filled(fields, depth),
        Bson::Document(fields) => {
            let member = |(name, value): (&String, &Bson)| format!("{name}: {}", layout(value, depth + 1));
            ('{', '}', fields.iter().map(member).collect::<Vec<_>>())
        }
        Bson::Array(values) => ('[', ']', values.iter().map(|value| layout(value, depth + 1)).collect()),
        _ => return flat,
    };
    let pad = "  ".repeat(depth + 1);
    let end = "  ".repeat(depth);
    format!("{open}\n{pad}{}\n{end}{close}", members.join(&format!(",\n{pad}")))
}

fn is_nested(value: &Bson) -> bool {
    matches!(value, Bson::Document(_) | Bson::Array(_))
}

fn filled(fields: &Document, depth: usize) -> String {
    let mut text = String::from("{");
    let mut column = 2 * depth + 1;
    for (number, (name, value)) in fields.iter().enumerate() {
        let field = format!(
            "{name}: {}{}",
            flat(value),
            if number + 1 == fields.len() { " }" } else { "," }
        );
        let width = field.chars().count() + 1;
        if column + width > WIDTH {
            text = text + "\n" + &"  ".repeat(depth) + " ";
            column = 2 * depth + 1;
        }
        text = text + " " + &field;
        column += width;
    }
    text
}

/// As mongosh prints it: names without quotes, dates and ids as their constructors.
fn flat(value: &Bson) -> String {
    match value {
        Bson::Document(fields) if fields.is_empty() => "{}".to_owned(),
        Bson::Document(fields) => {
            let fields: Vec<_> = fields
                .iter()
                .map(|(name, value)| format!("{name}: {}", flat(value)))
                .collect();
            format!("{{ {} }}", fields.join(", "))
        }
        Bson::Array(values) => format!("[{}]", values.iter().map(flat).collect::<Vec<_>>().join(", ")),
        Bson::DateTime(date) => format!("ISODate({:?})", date.try_to_rfc3339_string().unwrap_or_default()),
        Bson::ObjectId(id) => format!("ObjectId(\"{id}\")"),
        other => other.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use bson::{DateTime, doc};

    use super::*;

    #[test]
    fn short_values_stay_on_a_line_and_long_ones_break() {
        let date = DateTime::from_millis(1_698_335_223_434);
        let item = doc! { "type": "buy", "qty": 419, "date": date };
        let one = Bson::Document(item.clone());
        assert_eq!(
            layout(&one, 0),
            "{ type: \"buy\", qty: 419, date: ISODate(\"2023-10-26T15:47:03.434Z\") }"
        );
        let bucket = Bson::Document(doc! { "_id": "123_1698335223", "history": [item.clone(), item] });
        assert_eq!(layout(&bucket, 0).lines().count(), 7);
        let trade = doc! { "ticker": "MDB", "customerId": 123, "type": "buy", "quantity": 419, "date": date };
        let expected = "{ ticker: \"MDB\", customerId: 123, type: \"buy\", quantity: 419,\n  date: ISODate(\"2023-10-26T15:47:03.434Z\") }";
        assert_eq!(layout(&Bson::Document(trade), 0), expected);
    }
}
