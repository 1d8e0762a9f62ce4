//! Finds the series that a `PromQL` text names, without a parser: metric names of mongoshape, and the
//! matchers in braces after them.

use std::collections::BTreeSet;

/// What our metrics' names begin with.
const PREFIXES: [&str; 2] = ["mongoshape_", "process_"];

/// `label="value"`, or with another operator.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Matcher {
    pub(super) label: String,
    pub(super) value: String,
    is_regex: bool,
}

impl Matcher {
    /// The values that it names: of `=~` and `!~` those between bars. None where it has variables or
    /// patterns.
    pub(super) fn alternatives(&self) -> impl Iterator<Item = &str> {
        let is_plain = !self.value.contains(['$', '*', '+', '(']);
        let text = is_plain.then_some(self.value.as_str());
        let is_regex = self.is_regex;
        text.into_iter()
            .flat_map(move |text| text.split(move |c| is_regex && c == '|'))
    }
}

/// A series of ours that a text names.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Selector {
    pub(super) name: String,
    pub(super) matchers: Vec<Matcher>,
}

/// All selectors of our series in a text.
pub(super) fn selectors(text: &str) -> Vec<Selector> {
    let is_word = |c: char| c.is_ascii_alphanumeric() || c == '_' || c == ':';
    let mut found = Vec::new();
    let mut rest = text;
    while let Some(start) = rest.find(is_word) {
        let word = &rest[start..];
        let end = word.find(|c| !is_word(c)).unwrap_or(word.len());
        let (name, behind) = word.split_at(end);
        if PREFIXES.iter().any(|prefix| name.starts_with(prefix)) {
            found.push(Selector {
                name: name.to_owned(),
                matchers: matchers(behind),
            });
        }
        rest = behind;
    }
    found
}

/// What stands in the braces that a text begins with, if it does.
pub(super) fn matchers(text: &str) -> Vec<Matcher> {
    let mut found = Vec::new();
    let Some(mut rest) = text.strip_prefix('{') else {
        return found;
    };
    while let Some((head, tail)) = rest.split_once('"') {
        let operator = head.trim_start_matches([',', ' ']);
        let label = operator.trim_end_matches(['=', '~', '!', ' ']);
        if head.contains('}') || label.is_empty() {
            break;
        }
        let Some((value, behind)) = tail.split_once('"') else {
            break;
        };
        found.push(Matcher {
            label: label.to_owned(),
            value: value.to_owned(),
            is_regex: operator.contains('~'),
        });
        rest = behind;
    }
    found
}

/// The labels that an expression groups `by`.
pub(super) fn grouped_by(text: &str) -> BTreeSet<String> {
    let lists = text.split("by (").skip(1).filter_map(|behind| behind.split_once(')'));
    let labels = lists.flat_map(|(list, _)| list.split(','));
    labels.map(|label| label.trim().to_owned()).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn selectors_are_found_with_their_matchers() {
        let text = "sum by (a, le) (rate(mongoshape_x_total{job=~\"$job\", outcome!=\"failed\"}[5m])) / process_y > 1";
        let found = selectors(text);
        let names: Vec<_> = found.iter().map(|selector| selector.name.as_str()).collect();
        assert_eq!(names, ["mongoshape_x_total", "process_y"]);
        let labels: Vec<_> = found[0]
            .matchers
            .iter()
            .map(|matcher| (matcher.label.as_str(), matcher.value.as_str()))
            .collect();
        assert_eq!(labels, [("job", "$job"), ("outcome", "failed")]);
        assert!(found[1].matchers.is_empty());
        assert_eq!(grouped_by(text), ["a".to_owned(), "le".to_owned()].into());
    }

    #[test]
    fn alternatives_are_those_of_plain_values() {
        let check = |selector: &str, expected: &[&str]| {
            let found = matchers(selector);
            assert_eq!(found[0].alternatives().collect::<Vec<_>>(), expected);
        };
        check("{a=\"x\"}", &["x"]);
        check("{a!~\"x|y\"}", &["x", "y"]);
        check("{a=\"x|y\"}", &["x|y"]);
        check("{a=~\"$a\"}", &[]);
    }
}
