//! Compares the output in a document with the real output.
//!
//! In a document, a line `...` matches any lines, and `...` within a line matches any text. Ids and current
//! times are treated as equal.

use anyhow::{Result, bail};

/// Fails where the output does not have the lines that are shown, in this order and, but for `...`, without
/// others between them.
pub(crate) fn compare(shown: &str, printed: &str) -> Result<()> {
    let wanted: Vec<String> = lines(shown);
    let found: Vec<String> = lines(printed);
    let mut at = 0;
    let mut may_skip = false;
    for line in &wanted {
        if line == "..." {
            may_skip = true;
            continue;
        }
        let next = found.iter().skip(at).position(|found| is_like(line, found));
        match next {
            Some(skipped) if skipped == 0 || may_skip => at += skipped + 1,
            _ => bail!("{line:?} is shown, and not printed there:\n{printed}"),
        }
        may_skip = false;
    }
    if at < found.len() && !may_skip {
        bail!("{:?} is printed, and not shown:\n{printed}", found[at]);
    }
    Ok(())
}

fn lines(text: &str) -> Vec<String> {
    let neutral = text.lines().map(|line| without_ids(line.trim_end()));
    neutral.filter(|line| !line.is_empty()).collect()
}

/// Whether a line is as it is shown: what is left of `...` in the one comes in this order in the other.
fn is_like(shown: &str, found: &str) -> bool {
    let parts: Vec<&str> = shown.split("...").collect();
    let [first, middle @ .., last] = parts.as_slice() else {
        return shown == found;
    };
    let Some(mut rest) = found.strip_prefix(first) else {
        return false;
    };
    for part in middle {
        let Some((_, behind)) = rest.split_once(part) else {
            return false;
        };
        rest = behind;
    }
    rest.ends_with(last)
}

/// Puts the same in place of each `ObjectId`'s 24 digits.
fn without_ids(line: &str) -> String {
    let mut neutral = String::new();
    let mut word = String::new();
    for character in line.chars().chain(std::iter::once('\n')) {
        if character.is_ascii_alphanumeric() {
            word.push(character);
            continue;
        }
        let is_id = word.len() == 24 && word.chars().all(|digit| digit.is_ascii_hexdigit());
        neutral.push_str(if is_id { "<id>" } else { &word });
        word.clear();
        neutral.push(character);
    }
    neutral.trim_end().to_owned()
}

#[test]
fn dots_in_expected_output_match_any_text() {
    let check = |shown: &str, printed: &str, is_same: bool| {
        assert_eq!(compare(shown, printed).is_ok(), is_same, "{shown:?} and {printed:?}");
    };
    check("a\nb\n", "a\n\nb\n", true);
    check("a\nb\n", "a\nx\nb\n", false);
    check("a\n...\nb\n", "a\nx\ny\nb\n", true);
    check("a\n", "a\nb\n", false);
    check("a\n...\n", "a\nb\n", true);
    check("took ... ms, ... items", "took 3 ms, 40 items", true);
    check("took ... ms, ... items", "took 3 s, 40 items", false);
    check(
        "ObjectId('6921d2c8f0a1b2c3d4e5f601')",
        "ObjectId('000000000000000000000000')",
        true,
    );
}
