//! The tests with another outcome on bucket collections, each with the cause.

use anyhow::{Context as _, Result};
use serde::Deserialize;

const LIST: &str = include_str!("expected.toml");

#[derive(Debug, Deserialize)]
pub(super) struct Expected {
    /// Full titles, or their prefixes.
    tests: Vec<String>,
    pub(super) cause: String,
}

#[derive(Debug, Deserialize)]
struct List {
    expected: Vec<Expected>,
}

impl Expected {
    pub(super) fn matches(&self, test: &str) -> bool {
        self.tests.iter().any(|title| test.starts_with(title.as_str()))
    }
}

pub(super) fn of_buckets() -> Result<Vec<Expected>> {
    let list: List = toml::from_str(LIST).context("xtask/src/mongoose/expected.toml")?;
    Ok(list.expected)
}
