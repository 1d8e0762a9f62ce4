//! The committed lists of known differences, each with its cause.

use anyhow::{Context as _, Result};
use proto_tests::mongod;
use serde::Deserialize;

use super::compare::Difference;
use super::outcome::Outcome;
use super::presentation::Presentation;
use super::route::Route;

/// Without shapes.
const PLAIN: &str = include_str!("expected.toml");
const SHAPED: &str = include_str!("shaped/expected.toml");

/// One entry: a rule that differences match, and why they are there.
#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct Expected {
    presentations: Option<Vec<Presentation>>,
    keys: Option<Vec<String>>,
    tests: Vec<String>,
    direct: Option<Outcome>,
    proxied: Option<Outcome>,
    detail: Option<String>,
    /// The least major version of the server.
    server: Option<u32>,
    pub(super) cause: String,
}

#[derive(Debug, Default, Deserialize)]
#[serde(deny_unknown_fields, default)]
struct List {
    difference: Vec<Expected>,
}

/// The list of all differences without shapes.
pub(super) fn plain() -> Result<Vec<Expected>> {
    Ok(toml::from_str::<List>(PLAIN).context("expected.toml")?.difference)
}

/// The list of all differences with shapes on the version of mongod under test.
pub(super) fn shaped() -> Result<Vec<Expected>> {
    let mut list = toml::from_str::<List>(SHAPED)
        .context("shaped/expected.toml")?
        .difference;
    let major = mongod::find_program()?.version.major;
    list.retain(|expected| expected.server.is_none_or(|least| major >= least));
    Ok(list)
}

impl Expected {
    pub(super) fn is_for(&self, route: &Route) -> bool {
        let presentations = self.presentations.as_ref();
        let has_key = |keys: &Vec<String>| keys.iter().any(|key| Some(key.as_str()) == route.key());
        presentations.is_none_or(|presentations| presentations.contains(&route.presentation))
            && self.keys.as_ref().is_none_or(has_key)
    }

    pub(super) fn matches(&self, difference: &Difference) -> bool {
        let is = |expected: Option<Outcome>, outcome| expected.is_none_or(|expected| expected == outcome);
        let contains = |part: &String| difference.proxied.detail.contains(part);
        is(self.direct, difference.direct.outcome)
            && is(self.proxied, difference.proxied.outcome)
            && self.detail.as_ref().is_none_or(contains)
            && self.tests.iter().any(|glob| matches(glob, difference.short_name()))
    }

    /// Those of its tests that none of these differences is of.
    pub(super) fn unmet(&self, differences: &[&Difference]) -> Vec<&str> {
        let occurred = |glob: &str| differences.iter().any(|one| matches(glob, one.short_name()));
        let globs = self.tests.iter().map(String::as_str);
        globs.filter(|glob| !occurred(glob)).collect()
    }
}

/// Whether the whole of `text` matches `glob`, in which each `*` stands for any text.
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
    use crate::pymongo::outcome::Ended;

    #[test]
    fn the_committed_lists_can_be_read() {
        plain().unwrap();
        shaped().unwrap();
    }

    #[test]
    fn expected_difference_that_did_not_occur_is_reported() {
        let list = "[[difference]]\ntests = [\"*::a\", \"*::b\"]\ncause = \"\"";
        let list = toml::from_str::<List>(list).unwrap().difference;
        let difference = Difference {
            test: "test/t.py::a".to_owned(),
            direct: Ended::missing(),
            proxied: Ended::missing(),
        };
        assert!(list[0].matches(&difference));
        assert_eq!(list[0].unmet(&[&difference]), ["*::b"]);
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
