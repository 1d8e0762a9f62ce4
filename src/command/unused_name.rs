//! Names that the proxy adds beside those of a client: of variables, fields and identifiers.

use std::collections::BTreeSet;

/// The digits of a number behind a name. There are more such numbers than occurrences of a name in a command.
const DIGITS: usize = 8;

/// A name that is in none of the texts: `name`, or `name` with a number of 8 digits behind it. Costs one pass
/// over the texts, whatever they contain.
#[must_use]
pub fn unused_name<'a>(name: &str, texts: impl IntoIterator<Item = &'a [u8]>) -> String {
    let mut is_used = false;
    // The numbers have one length, so each occurrence of the name excludes one of them at most.
    let mut excluded = BTreeSet::new();
    for text in texts {
        for place in 0..text.len() {
            if let Some(behind) = text.get(place..).and_then(|rest| rest.strip_prefix(name.as_bytes())) {
                is_used = true;
                excluded.extend(number_at_begin(behind));
            }
        }
    }
    if !is_used {
        return name.to_owned();
    }
    let number = (0..=u32::MAX)
        .find(|number| !excluded.contains(number))
        .unwrap_or_default();
    format!("{name}{number:0DIGITS$}")
}

fn number_at_begin(text: &[u8]) -> Option<u32> {
    let digits = text.first_chunk::<DIGITS>()?;
    std::str::from_utf8(digits).ok()?.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn unused(texts: &[&str]) -> String {
        unused_name("own", texts.iter().map(|text| text.as_bytes()))
    }

    #[test]
    fn a_name_is_numbered_if_a_text_contains_it() {
        assert_eq!(unused(&[]), "own");
        assert_eq!(unused(&["", "ow", "nwo"]), "own");
        for text in ["own", "down", "own_", "own0", "ownown", "own0000000"] {
            assert_eq!(unused(&["", text]), "own00000000", "{text}");
        }
        assert_eq!(unused(&["own00000000"]), "own00000001");
        assert_eq!(unused(&["own000000001", "own00000002", "own00000001"]), "own00000003");
    }

    #[test]
    fn a_long_text_does_not_make_the_name_long() {
        for behind in ["_", "x", "0"] {
            let name = unused(&[&format!("own{}", behind.repeat(1 << 20))]);
            assert_eq!(name.len(), "own".len() + DIGITS);
        }
    }
}
