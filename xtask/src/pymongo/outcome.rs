//! The outcome of a test, parsed from the lines of our pytest plugin.

use std::collections::BTreeMap;
use std::fmt;

use anyhow::{Context as _, Result};
use serde::Deserialize;

/// How a test ended, the gravest last: a test has steps and subtests, and the gravest of theirs is its own.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
#[serde(rename_all = "lowercase")]
pub(super) enum Outcome {
    /// It was not reached: the run ended before, or there is no such test.
    #[serde(skip)]
    Missing,
    /// The suite skipped it: it does not apply to this deployment.
    Skipped,
    /// It failed, as the suite expects it to.
    Xfailed,
    Passed,
    /// It passed, although the suite expects it to fail.
    Xpassed,
    Failed,
}

impl fmt::Display for Outcome {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(match self {
            Self::Missing => "missing",
            Self::Skipped => "skipped",
            Self::Xfailed => "xfailed",
            Self::Passed => "passed",
            Self::Xpassed => "xpassed",
            Self::Failed => "failed",
        })
    }
}

/// The outcome of a test and its text: the reason to skip it, or its error.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ended {
    pub(super) outcome: Outcome,
    pub(super) detail: String,
}

impl Ended {
    pub(super) fn missing() -> Self {
        Self {
            outcome: Outcome::Missing,
            detail: String::new(),
        }
    }

    /// Whether two runs agree. Error texts are not compared, since they have times and ids. Skip reasons are
    /// compared, since a test that is skipped for another reason had another environment.
    pub(super) fn agrees_with(&self, other: &Self) -> bool {
        self.outcome == other.outcome && (self.outcome != Outcome::Skipped || self.detail == other.detail)
    }
}

/// All tests of a run by their pytest names.
pub(super) type Outcomes = BTreeMap<String, Ended>;

#[derive(Deserialize)]
struct Line {
    test: String,
    outcome: Outcome,
    detail: String,
}

/// Reads the plugin's lines.
pub(super) fn parse(text: &str) -> Result<Outcomes> {
    let mut outcomes = Outcomes::new();
    for line in text.lines() {
        let Line { test, outcome, detail } = serde_json::from_str(line).with_context(|| line.to_owned())?;
        let ended = outcomes.entry(test).or_insert_with(Ended::missing);
        if outcome > ended.outcome {
            *ended = Ended { outcome, detail };
        }
    }
    Ok(outcomes)
}

/// How many tests ended so.
pub(super) fn count(outcomes: &Outcomes, outcome: Outcome) -> usize {
    outcomes.values().filter(|ended| ended.outcome == outcome).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn outcome_is_the_worst_step() {
        let text = r#"{"test":"a","outcome":"passed","detail":""}
{"test":"a","outcome":"failed","detail":"in teardown"}
{"test":"b","outcome":"skipped","detail":"a subtest"}
{"test":"b","outcome":"passed","detail":""}"#;
        let outcomes = parse(text).unwrap();
        assert_eq!(outcomes["a"].outcome, Outcome::Failed);
        assert_eq!(outcomes["a"].detail, "in teardown");
        assert_eq!(outcomes["b"].outcome, Outcome::Passed);
    }

    #[test]
    fn a_line_cut_short_is_an_error() {
        assert!(parse(r#"{"test":"a","#).is_err());
    }

    #[test]
    fn reasons_to_skip_are_compared_and_errors_are_not() {
        let ended = |outcome, detail: &str| Ended {
            outcome,
            detail: detail.to_owned(),
        };
        let check = |left: Ended, right: Ended, expected| assert_eq!(left.agrees_with(&right), expected);
        check(ended(Outcome::Skipped, "a"), ended(Outcome::Skipped, "b"), false);
        check(ended(Outcome::Failed, "a"), ended(Outcome::Failed, "b"), true);
        check(ended(Outcome::Passed, ""), ended(Outcome::Skipped, ""), false);
    }
}
