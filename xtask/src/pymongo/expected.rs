//! The committed list of differences that are known, each with its cause.

use anyhow::{Context as _, Result};
use serde::Deserialize;

use super::compare::Difference;
use super::outcome::Outcome;
use super::presentation::Presentation;

const LIST: &str = include_str!("expected.toml");

/// One entry: a rule that differences match, and why they are there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    presentations: Vec<Presentation>,
    tests: Vec<String>,
    direct: Option<Outcome>,
    proxied: Option<Outcome>,
    detail: Option<String>,
    pub(super) cause: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct List {
    difference: Vec<Expected>,
}

/// The whole list.
pub(super) fn list() -> Result<Vec<Expected>> {
    Ok(toml::from_str::<List>(LIST).context("expected.toml")?.difference)
}

impl Expected {
    pub(super) fn is_for(&self, presentation: Presentation) -> bool {
        self.presentations.contains(&presentation)
    }

    pub(super) fn matches(&self, difference: &Difference) -> bool {
        let is = |expected: Option<Outcome>, outcome| expected.is_none_or(|expected| expected == outcome);
        let says = |part: &String| difference.proxied.detail.contains(part);
        is(self.direct, difference.direct.outcome)
            && is(self.proxied, difference.proxied.outcome)
            && self.detail.as_ref().is_none_or(says)
            && self.tests.iter().any(|glob| matches(glob, difference.short_name()))
    }
}

/// Whether the whole of `text` is what `glob` says, in which each `*` stands for any text.
fn matches(glob: &str, text: &str) -> bool {
    match glob.split_once('*') {
        None => glob == text,
        Some((start, rest)) => text
            .strip_prefix(start)
            .is_some_and(|text| (0..=text.len()).any(|at| text.get(at..).is_some_and(|end| matches(rest, end)))),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_committed_list_can_be_read() {
        list().unwrap();
    }

    #[test]
    fn a_star_stands_for_anything() {
        let check = |glob, text, expected| assert_eq!(matches(glob, text), expected, "{glob} {text}");
        check("a::b", "a::b", true);
        check("a::b", "a::bc", false);
        check("*", "", true);
        check("a*c", "abcbc", true);
        check("a*c*", "abcbd", true);
        check("a*c", "abcbd", false);
    }
}
