//! Proposes short names for fields that every item repeats. Pure.

use std::collections::{BTreeMap, BTreeSet};

use super::rounding::{count, real, share, whole};
use super::sample::Sample;

/// Shorter names are kept.
const LONG: usize = 5;
/// Fields in a smaller fraction of documents are kept.
const OFTEN: f64 = 0.5;
/// Maximum number of renames: those that save most.
const MOST: usize = 8;

/// Renames, and the bytes that they save in all documents.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Renames {
    pub(super) names: BTreeMap<String, String>,
    pub(super) saved: u64,
}

/// The proposed renames. Key fields and `_id` are never renamed, and no new name is used by a
/// document.
pub(super) fn renames(sample: &Sample, key: &[String], documents: u64) -> Renames {
    let mut taken: BTreeSet<String> = sample.fields().map(|(name, _)| name.to_owned()).collect();
    taken.extend(key.iter().cloned());
    let is_long =
        |name: &str| name.len() >= LONG && name.bytes().all(|byte| byte.is_ascii_alphanumeric() || byte == b'_');
    let mut fields: Vec<(&str, f64)> = sample
        .fields()
        .filter(|(name, _)| is_long(name) && !key.iter().any(|field| field == name))
        .map(|(name, field)| (name, share(field.present, sample.len())))
        .filter(|(_, share)| *share >= OFTEN)
        .collect();
    fields.sort_by(|(one, _), (other, _)| other.len().cmp(&one.len()).then_with(|| one.cmp(other)));
    let mut renames = Renames::default();
    let mut saved = 0.0;
    for (name, share) in fields.into_iter().take(MOST) {
        let Some(short) = short_name(name, &taken) else {
            continue;
        };
        saved += share * real(documents) * real(count(name.len() - short.len()));
        taken.insert(short.clone());
        renames.names.insert(name.to_owned(), short);
    }
    renames.saved = whole(saved);
    renames
}

/// The name's first letter, alone or followed by another letter of the name.
fn short_name(name: &str, taken: &BTreeSet<String>) -> Option<String> {
    let mut letters = name
        .chars()
        .filter(char::is_ascii_alphabetic)
        .map(|letter| letter.to_ascii_lowercase());
    let first = letters.next()?;
    let two = letters.map(|letter| format!("{first}{letter}"));
    std::iter::once(first.to_string())
        .chain(two)
        .find(|short| !taken.contains(short))
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn long_names_become_unused_short_names() {
        let document =
            rawdoc! { "_id": 1, "customerId": 1, "quantity": 5, "quality": 1, "q": 3, "tick": 1, "a.long": 1 };
        let sample = Sample::new(vec![document], true);
        let found = renames(&sample, &["customerId".to_owned()], 100);
        let names: Vec<_> = found
            .names
            .iter()
            .map(|(name, short)| (name.as_str(), short.as_str()))
            .collect();
        assert_eq!(names, [("quality", "qa"), ("quantity", "qu")]);
        assert_eq!(found.saved, 1100);
        assert_eq!(renames(&Sample::default(), &[], 100), Renames::default());
    }
}
