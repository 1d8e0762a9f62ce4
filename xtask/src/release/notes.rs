//! The notes of a version: its part of `CHANGELOG.md`.

use anyhow::{Context as _, Result, ensure};

/// The part of a changelog about a version, without its heading. `or_unreleased`: if there is none, the part about the
/// next version.
pub(super) fn of_version(changelog: &str, version: &str, or_unreleased: bool) -> Result<String> {
    let part = part(changelog, version).or_else(|| part(changelog, "Unreleased").filter(|_| or_unreleased));
    let part = part.with_context(|| format!("CHANGELOG.md has no part `## {version} - DATE`"))?;
    ensure!(!part.is_empty(), "the part about {version} in CHANGELOG.md is empty");
    Ok(format!("{part}\n"))
}

fn part<'a>(changelog: &'a str, name: &str) -> Option<&'a str> {
    let mut parts = changelog.split("\n## ").skip(1);
    let part = parts.find(|part| part.split([' ', '\n']).next() == Some(name))?;
    let (_heading, text) = part.split_once('\n')?;
    Some(text.trim())
}

#[cfg(test)]
mod tests {
    use super::*;

    const CHANGELOG: &str =
        "# Changelog\n\n## Unreleased\n\nSoon.\n\n## 0.2.0 - 2026-12-01\n\n### Added\n- One.\n\n## 0.1.0\n- All.\n";

    #[test]
    fn a_version_has_its_own_part() {
        let notes = of_version(CHANGELOG, "0.2.0", false).unwrap();
        assert_eq!(notes, "### Added\n- One.\n");
        assert_eq!(of_version(CHANGELOG, "0.1.0", false).unwrap(), "- All.\n");
    }

    #[test]
    fn an_unknown_version_has_the_unreleased_part_in_a_dry_run_alone() {
        assert_eq!(of_version(CHANGELOG, "0.3.0", true).unwrap(), "Soon.\n");
        assert!(of_version(CHANGELOG, "0.3.0", false).is_err());
    }
}
