//! Parses `/metrics`: families, and the labels and values of their series.

use std::collections::{BTreeMap, BTreeSet};

use super::expression::{Matcher, matchers};

/// Labels that Prometheus adds, and the one of histograms' buckets.
const ADDED: [&str; 4] = ["alertname", "instance", "job", "le"];

/// Labels whose values depend on the configuration or the build.
const OPEN: [&str; 2] = ["namespace", "version"];

#[derive(Debug, Default)]
pub(super) struct Family {
    is_histogram: bool,
    labels: BTreeMap<String, BTreeSet<String>>,
}

/// The families of a text in Prometheus's format, by name.
#[derive(Debug)]
pub(super) struct Exposition(BTreeMap<String, Family>);

impl Exposition {
    pub(super) fn parse(text: &str) -> Self {
        let mut families: BTreeMap<String, Family> = BTreeMap::new();
        for line in text.lines() {
            if let Some((name, kind)) = line.strip_prefix("# TYPE ").and_then(|typed| typed.split_once(' ')) {
                families.entry(name.to_owned()).or_default().is_histogram = kind == "histogram";
            }
        }
        let mut parsed = Self(families);
        for line in text.lines().filter(|line| !line.starts_with('#')) {
            let end = line.find(['{', ' ']).unwrap_or(line.len());
            let Some(family) = parsed
                .family_name(&line[..end])
                .and_then(|name| parsed.0.get_mut(&name))
            else {
                continue;
            };
            for Matcher { label, value, .. } in matchers(&line[end..]) {
                family.labels.entry(label).or_default().insert(value);
            }
        }
        parsed
    }

    /// Why no series has this name, or one of these labels and values; `None`: it is there.
    pub(super) fn fault(&self, series: &str, matchers: &[Matcher]) -> Option<String> {
        let Some(family) = self.family_name(series).and_then(|name| self.0.get(&name)) else {
            return Some(format!("there is no {series}"));
        };
        matchers.iter().find_map(|matcher| {
            let Matcher { label, value, .. } = matcher;
            if ADDED.contains(&label.as_str()) {
                return None;
            }
            let Some(values) = family.labels.get(label) else {
                return Some(format!("{series} has no label {label}"));
            };
            let unknown = matcher
                .alternatives()
                .find(|one| !OPEN.contains(&label.as_str()) && !values.contains(*one));
            unknown.map(|_| format!("{series} has no {label}={value:?}"))
        })
    }

    /// Whether one of these series has this label.
    pub(super) fn has_label(&self, series: &BTreeSet<String>, label: &str) -> bool {
        let family = |name: &String| self.family_name(name).and_then(|name| self.0.get(&name));
        let mut families = series.iter().filter_map(family);
        ADDED.contains(&label) || families.any(|family| family.labels.contains_key(label))
    }

    fn family_name(&self, series: &str) -> Option<String> {
        if self.0.contains_key(series) {
            return Some(series.to_owned());
        }
        let of_histogram = |suffix| series.strip_suffix(suffix);
        let name = ["_bucket", "_sum", "_count"].into_iter().find_map(of_histogram)?;
        let family = self.0.get(name)?;
        family.is_histogram.then(|| name.to_owned())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str = "# HELP a_total A.\n# TYPE a_total counter\na_total{kind=\"x\"} 1\na_total{kind=\"y\"} 0\n\
                        # TYPE b_seconds histogram\nb_seconds_bucket{le=\"1\"} 0\nb_seconds_sum 0\nb_seconds_count 0\n";

    #[track_caller]
    fn check(series: &str, selector: &str, expected: Option<&str>) {
        let fault = Exposition::parse(TEXT).fault(series, &matchers(selector));
        assert_eq!(fault.as_deref(), expected);
    }

    #[test]
    fn series_are_looked_for_with_their_labels_and_values() {
        check("a_total", "", None);
        check("a_total", "{kind=\"x\", job=~\"any.*\"}", None);
        check("a_total", "{kind!~\"x|y\"}", None);
        check("a_total", "{kind=\"z\"}", Some("a_total has no kind=\"z\""));
        check("a_total", "{king=\"x\"}", Some("a_total has no label king"));
        check("a", "", Some("there is no a"));
        check("b_seconds_bucket", "{le=\"1\"}", None);
        check("a_total_sum", "", Some("there is no a_total_sum"));
    }
}
