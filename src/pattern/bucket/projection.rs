//! Simple projections, evaluated by the proxy: whole fields, included or excluded by name.

use std::collections::HashSet;

use bson::raw::RawDocument;

use crate::command::document::as_flag;

/// A projection that the proxy evaluates: top-level fields, each included or excluded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Projection {
    /// Every field.
    All,
    /// Only these fields, sorted: a client may name hundreds of thousands.
    Include(Vec<String>),
    /// All fields but these, sorted.
    Exclude(Vec<String>),
}

impl Projection {
    /// Parses a projection. `None` if it is not simple, or if mongod would refuse it: mongod then
    /// evaluates it.
    #[must_use]
    pub fn parse(projection: Option<&RawDocument>) -> Option<Self> {
        let (mut included, mut excluded, mut id) = (Vec::new(), Vec::new(), None);
        let mut names = HashSet::new();
        for field in projection.into_iter().flat_map(RawDocument::iter) {
            let (name, value) = field.ok()?;
            let name = name.as_str();
            let plain = !name.is_empty() && !name.contains('.') && !name.starts_with('$');
            let taken = plain.then(|| as_flag(value)).flatten()?;
            // mongod refuses a repeated field.
            if !names.insert(name) {
                return None;
            }
            match (name, taken) {
                ("_id", taken) => id = Some(taken),
                (name, true) => included.push(name.to_owned()),
                (name, false) => excluded.push(name.to_owned()),
            }
        }
        let id_name = || "_id".to_owned();
        match (included.is_empty(), excluded.is_empty(), id) {
            (true, true, None) => Some(Self::All),
            (true, true, Some(true)) => Some(Self::Include(vec![id_name()])),
            (false, true, None | Some(true)) => {
                included.push(id_name());
                Some(Self::Include(sorted(included)))
            }
            (false, true, Some(false)) => Some(Self::Include(sorted(included))),
            (true, _, Some(false)) => {
                excluded.push(id_name());
                Some(Self::Exclude(sorted(excluded)))
            }
            (true, false, None) => Some(Self::Exclude(sorted(excluded))),
            // `_id: 1` among exclusions, or both kinds mixed.
            _ => None,
        }
    }

    /// Whether the result contains a field.
    #[must_use]
    pub fn keeps(&self, name: &[u8]) -> bool {
        match self {
            Self::All => true,
            Self::Include(names) => has(names, name),
            Self::Exclude(names) => !has(names, name),
        }
    }
}

fn sorted(mut names: Vec<String>) -> Vec<String> {
    names.sort_unstable();
    names
}

fn has(names: &[String], name: &[u8]) -> bool {
    names.binary_search_by(|field| field.as_bytes().cmp(name)).is_ok()
}

#[cfg(test)]
mod tests {
    use bson::{RawDocumentBuf, rawdoc};

    use super::*;
    use crate::command::document::put;

    fn check(projection: &RawDocument, expected: Option<&RawDocument>) {
        let item = rawdoc! { "_id": 1, "a": 2, "b": { "c": 3 } };
        let projected = Projection::parse(Some(projection)).map(|projection| -> RawDocumentBuf {
            let kept = item
                .iter()
                .flatten()
                .filter(|(name, _)| projection.keeps(name.as_str().as_bytes()));
            kept.collect()
        });
        assert_eq!(projected.as_deref(), expected, "{projection:?}");
    }

    #[test]
    fn takes_and_leaves_fields() {
        check(&rawdoc! {}, Some(&rawdoc! { "_id": 1, "a": 2, "b": { "c": 3 } }));
        check(&rawdoc! { "a": 1 }, Some(&rawdoc! { "_id": 1, "a": 2 }));
        check(&rawdoc! { "a": true, "_id": 0 }, Some(&rawdoc! { "a": 2 }));
        check(&rawdoc! { "_id": 1 }, Some(&rawdoc! { "_id": 1 }));
        check(&rawdoc! { "_id": 0 }, Some(&rawdoc! { "a": 2, "b": { "c": 3 } }));
        check(&rawdoc! { "a": 0 }, Some(&rawdoc! { "_id": 1, "b": { "c": 3 } }));
        check(&rawdoc! { "a": 0.0, "_id": 0 }, Some(&rawdoc! { "b": { "c": 3 } }));
    }

    #[test]
    fn many_names_are_searched() {
        // A comparison of each field with each name would take minutes here.
        const NAMES: usize = 100_000;
        let name = |number: usize| format!("f{}", NAMES - number);
        for (value, kept) in [(1, true), (0, false)] {
            let mut projection = RawDocumentBuf::new();
            for number in 0..NAMES {
                put(&mut projection, &name(number), value);
            }
            let projection = Projection::parse(Some(&projection)).unwrap();
            for number in 0..NAMES {
                assert_eq!(projection.keeps(name(number).as_bytes()), kept);
                assert_eq!(projection.keeps(format!("g{number}").as_bytes()), !kept);
            }
        }
    }

    #[test]
    fn leaves_the_rest_to_mongod() {
        for projection in [
            rawdoc! { "a": 1, "b": 0 },
            rawdoc! { "a": 0, "_id": 1 },
            rawdoc! { "b.c": 1 },
            rawdoc! { "a": "$b" },
            rawdoc! { "a": { "$slice": 1 } },
            rawdoc! { "a.$": 1 },
            rawdoc! { "": 1 },
            rawdoc! { "a": 1, "a": 1 },
            rawdoc! { "a": 0, "b": 0, "a": false },
            rawdoc! { "_id": 1, "_id": 1 },
        ] {
            check(&projection, None);
        }
    }
}
