//! Compares two runs test by test.

use super::outcome::{Ended, Outcomes};

/// A test that the two runs do not agree on.
#[derive(Debug, Clone)]
pub(super) struct Difference {
    /// pytest's name, as `test/test_cursor.py::TestCursor::test_explain`.
    pub(super) test: String,
    pub(super) direct: Ended,
    pub(super) proxied: Ended,
}

impl Difference {
    /// The name without the suite's folder.
    pub(super) fn short_name(&self) -> &str {
        short_name(&self.test)
    }
}

/// pytest's name of a test, without the suite's folder.
pub(super) fn short_name(test: &str) -> &str {
    test.strip_prefix("test/").unwrap_or(test)
}

/// Every test that the runs do not agree on, in the order of their names.
pub(super) fn compare(direct: &Outcomes, proxied: &Outcomes) -> Vec<Difference> {
    let only_proxied = proxied.keys().filter(|test| !direct.contains_key(*test));
    let mut tests: Vec<_> = direct.keys().chain(only_proxied).collect();
    tests.sort();
    let ended = |outcomes: &Outcomes, test| outcomes.get(test).cloned().unwrap_or_else(Ended::missing);
    let pairs = tests.into_iter().map(|test| Difference {
        test: test.clone(),
        direct: ended(direct, test),
        proxied: ended(proxied, test),
    });
    pairs.filter(|pair| !pair.direct.agrees_with(&pair.proxied)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pymongo::outcome::{Outcome, parse};

    #[test]
    fn a_test_that_one_run_lacks_differs() {
        let line = |test| format!("{{\"test\":\"{test}\",\"outcome\":\"passed\",\"detail\":\"\"}}\n");
        let direct = parse(&(line("test/a") + &line("test/b"))).unwrap();
        let proxied = parse(&(line("test/b") + &line("test/c"))).unwrap();
        let differences = compare(&direct, &proxied);
        let names: Vec<_> = differences.iter().map(Difference::short_name).collect();
        assert_eq!(names, ["a", "c"]);
        assert_eq!(differences[0].proxied.outcome, Outcome::Missing);
        assert_eq!(differences[1].direct.outcome, Outcome::Missing);
    }
}
