//! Formats the findings for a person. Pure. Contains names of fields and collections, no values of
//! documents.

use std::fmt::Write as _;

use super::bucket::BucketProposal;
use super::configuration::Proposal;
use super::outlier::OutlierProposal;
use super::rounding::{real, share, whole};
use super::sizes::{Known, Sizes};

/// Length of the longest bar of a histogram, in characters.
const BAR: f64 = 40.0;

/// The findings for one collection.
#[derive(Debug)]
pub(super) struct Report {
    pub(super) namespace: String,
    pub(super) documents: u64,
    pub(super) mean_bytes: u64,
    /// Documents read.
    pub(super) seen: u64,
    /// Queries observed.
    pub(super) queries: usize,
    pub(super) proposal: Option<Proposal>,
    /// Pairs of a pattern and a reason against it.
    pub(super) against: Vec<(&'static str, String)>,
}

impl Report {
    /// The report as lines of text. Control characters in names are removed, because a terminal
    /// would interpret them.
    pub(super) fn text(&self) -> String {
        let mut text = format!("{}:", self.namespace);
        if self.seen > 0 {
            let queries = u64::try_from(self.queries).unwrap_or(u64::MAX);
            let _ = write!(
                text,
                " {} documents of {} bytes; {} of them inspected; {} queries observed",
                grouped(self.documents),
                grouped(self.mean_bytes),
                grouped(self.seen),
                grouped(queries)
            );
        }
        text.push('\n');
        match &self.proposal {
            Some(Proposal::Bucket(bucket)) => add_bucket(&mut text, bucket),
            Some(Proposal::Outlier(outlier)) => add_outlier(&mut text, outlier, self),
            None => text.push_str("  no shape is proposed\n"),
        }
        for (pattern, reason) in &self.against {
            let _ = writeln!(text, "  no {pattern}: {reason}");
        }
        text.replace(
            |character: char| character.is_control() && character != '\n',
            "\u{fffd}",
        )
    }
}

fn add_bucket(text: &mut String, bucket: &BucketProposal) {
    let _ = writeln!(text, "  a bucket collection");
    add_row(
        text,
        "key",
        &format!("{}: {}", bucket.key.join(", "), bucket.why.join("; ")),
    );
    add_row(text, "time", bucket.time.as_deref().unwrap_or("none"));
    add_row(text, "max_items", &format!("{}: {}", bucket.max_items, bucket.why_page));
    add_row(text, "per key", &per_key(bucket));
    add_row(text, "page fill", &format!("{} %", whole(bucket.fill() * 100.0)));
    let _ = writeln!(text, "    {:<14}{:>14}{:>14}", "", "now", "as pages");
    let (now, then) = (&bucket.now, &bucket.then);
    let counts = [
        ("documents", now.documents, then.documents),
        ("index entries", now.entries, then.entries),
    ];
    for (name, now, then) in counts {
        let _ = writeln!(text, "    {name:<14}{:>14}{:>14}", grouped(now), grouped(then));
    }
    let on_disk = |number: u64| {
        if bucket.is_before_checkpoint {
            "not known".to_owned()
        } else {
            bytes(number)
        }
    };
    let sizes = [
        ("index bytes", on_disk(now.indexes), bytes(then.indexes)),
        ("data", bytes(now.data), bytes(then.data)),
        ("storage", on_disk(now.storage), bytes(then.storage)),
    ];
    for (name, now, then) in sizes {
        let _ = writeln!(text, "    {name:<14}{now:>14}{then:>14}");
    }
    if bucket.is_before_checkpoint {
        let why = "mongod has not written a checkpoint since the documents were stored; run `mongoshape advise` again in a minute";
        add_row(text, "not known", why);
    }
    add_options(text, bucket);
}

/// The options that only the operator can decide.
fn add_options(text: &mut String, bucket: &BucketProposal) {
    let stored = format!(
        "item_ids = \"stored\" saves {} index entries, {}, if every _id is unique and no query uses it{}",
        grouped(bucket.id_entries()),
        bytes(bucket.ids),
        bucket.ids_used.map_or(String::new(), |times| format!(
            " (the index on _id was used {} times)",
            grouped(times)
        ))
    );
    add_row(text, "options", &stored);
    let dropped = format!(
        "item_ids = \"dropped\": the storage is {}, without any _id",
        bytes(bucket.without_ids.storage)
    );
    add_row(text, "", &dropped);
    if !bucket.renames.names.is_empty() {
        let pair = |(name, short): (&String, &String)| format!("{name} as {short}");
        let pairs: Vec<String> = bucket.renames.names.iter().map(pair).collect();
        let saved = bytes(bucket.renames.saved);
        add_row(
            text,
            "",
            &format!(
                "rename saves {saved} of data, less after compression: {}",
                pairs.join(", ")
            ),
        );
    }
}

fn per_key(bucket: &BucketProposal) -> String {
    let mean = bucket.sizes.mean();
    let mean = if mean < 100.0 {
        format!("{mean:.1}")
    } else {
        grouped(whole(mean))
    };
    let known = match bucket.sizes.known {
        Known::Whole => "all documents were inspected".to_owned(),
        Known::Counted(keys) => format!(
            "from {keys} keys, each counted with an index up to {}",
            grouped(Sizes::COUNTED)
        ),
        Known::Guessed => "estimated from repeated values in the sample; there may be more and smaller keys".to_owned(),
    };
    format!(
        "about {mean} documents; there are about {} keys ({known})",
        grouped(bucket.keys())
    )
}

fn add_outlier(text: &mut String, outlier: &OutlierProposal, report: &Report) {
    let Report { seen, documents, .. } = *report;
    let _ = writeln!(text, "  an outlier collection");
    add_row(text, "array", &outlier.array);
    add_row(text, "threshold", &format!("{}: {}", outlier.threshold, outlier.why));
    let lengths = format!(
        "the median is {} elements, the maximum {}",
        grouped(outlier.median),
        grouped(outlier.longest)
    );
    add_row(text, "lengths", &lengths);
    let mut above = None;
    for (limit, number) in &outlier.histogram {
        let range = match above {
            None => "0".to_owned(),
            Some(above) => format!("{}-{}", grouped(above + 1), grouped(*limit)),
        };
        let line = format!("    {range:>17} {:>9} {}", grouped(*number), bar(*number, seen));
        let _ = writeln!(text, "{}", line.trim_end());
        above = Some(*limit);
    }
    let missed = if seen < documents {
        format!("; the sample may miss values rarer than 1 in {}", grouped(seen / 3))
    } else {
        String::new()
    };
    let of_all = format!(
        "about {} ({} in the sample){missed}",
        grouped(outlier.outliers),
        grouped(outlier.seen)
    );
    add_row(text, "outliers", &of_all);
    let moved = format!(
        "about {}, into {} documents of extras",
        bytes(outlier.moved),
        grouped(outlier.pages)
    );
    add_row(text, "moved", &moved);
}

fn add_row(text: &mut String, name: &str, value: &str) {
    let _ = writeln!(text, "    {name:<14}{value}");
}

/// A bar proportional to the share, and at least one character if the share is not 0.
fn bar(number: u64, all: u64) -> String {
    let length = (share(number, all) * BAR).ceil();
    "#".repeat(usize::try_from(whole(length)).unwrap_or(0))
}

/// 1234567 as 1,234,567.
pub(super) fn grouped(number: u64) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (place, digit) in digits.chars().enumerate() {
        if place > 0 && (digits.len() - place).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

/// A size of three digits or more in the largest suitable unit.
pub(super) fn bytes(number: u64) -> String {
    let mut rest = real(number);
    for unit in ["B", "kB", "MB", "GB"] {
        if rest < 1000.0 {
            return match unit {
                "B" => format!("{rest:.0} B"),
                _ if rest < 10.0 => format!("{rest:.2} {unit}"),
                _ => format!("{rest:.1} {unit}"),
            };
        }
        rest /= 1000.0;
    }
    format!("{rest:.1} TB")
}

#[cfg(test)]
mod tests {
    use super::super::tests::{books, trades};
    use super::*;

    fn report(proposal: Option<Proposal>) -> Report {
        Report {
            namespace: "shop.trades".to_owned(),
            documents: 100_000,
            mean_bytes: 97,
            seen: 200,
            queries: 0,
            proposal,
            against: vec![("outlier shape", "no top-level field is an array".to_owned())],
        }
    }

    #[test]
    fn buckets_are_a_table() {
        let mut bucket = trades();
        // Reservation ids are random, so these differ by some bytes.
        bucket.then.storage = 2_310_000;
        bucket.without_ids.storage = 2_250_000;
        insta::assert_snapshot!(report(Some(Proposal::Bucket(bucket))).text());
    }

    #[test]
    fn sizes_from_before_a_checkpoint_are_not_shown() {
        let mut bucket = trades();
        bucket.is_before_checkpoint = true;
        let text = report(Some(Proposal::Bucket(bucket))).text();
        assert!(text.contains("storage            not known"), "{text}");
        assert!(text.contains("run `mongoshape advise` again"), "{text}");
    }

    #[test]
    fn outliers_are_a_histogram() {
        insta::assert_snapshot!(report(Some(Proposal::Outlier(books()))).text());
    }

    #[test]
    fn a_terminal_gets_no_report() {
        let mut report = report(None);
        report.namespace = "shop.\u{1b}[2J".to_owned();
        assert!(
            report
                .text()
                .starts_with("shop.\u{fffd}[2J: 100,000 documents of 97 bytes")
        );
    }

    #[test]
    fn numbers_are_readable() {
        assert_eq!(
            [grouped(7), grouped(1000), grouped(1_234_567)],
            ["7", "1,000", "1,234,567"]
        );
        assert_eq!(
            [bytes(999), bytes(1500), bytes(2_000_000_000_000)],
            ["999 B", "1.50 kB", "2.0 TB"]
        );
    }
}
