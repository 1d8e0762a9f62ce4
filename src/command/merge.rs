//! The `$merge` stage of an `aggregate`.

use bson::raw::{RawArray, RawBsonRef, RawDocument, RawDocumentBuf};

use super::document::{first_field, get};
use super::namespace::Namespace;

/// The variable with the source's document in the pipeline of `whenMatched`.
pub const NEW: &str = "new";

/// The arguments of a valid `$merge`, except `into`.
#[derive(Clone, Debug)]
pub struct MergeStage<'a> {
    /// The fields that identify a document, in the order of their names.
    pub on: Vec<&'a str>,
    /// Whether the client named the fields.
    pub is_on_given: bool,
    /// What happens to an existing document.
    pub when_matched: WhenMatched<'a>,
    /// What happens if there is none.
    pub when_not_matched: WhenNotMatched,
    /// The client's variables of the pipeline, without [`NEW`].
    pub let_variables: Option<RawDocumentBuf>,
    is_let_empty: bool,
}

/// What happens to an existing document.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum WhenMatched<'a> {
    /// It gets the fields of the source's document.
    Merge,
    /// The source's document replaces it.
    Replace,
    /// Nothing.
    KeepExisting,
    /// The command fails.
    Fail,
    /// The stages of an update change it.
    Pipeline(&'a RawArray),
}

/// What happens if no document exists.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum WhenNotMatched {
    /// The source's document is inserted.
    Insert,
    /// Nothing.
    Discard,
    /// The command fails.
    Fail,
}

/// The collection into which a stage merges. `None`: another stage, or a malformed one.
#[must_use]
pub fn target<'a>(database: &'a str, stage: &'a RawDocument) -> Option<Namespace<'a>> {
    let into = match arguments(stage)? {
        RawBsonRef::Document(spec) => get(spec, "into")?,
        into => into,
    };
    match into {
        RawBsonRef::String(collection) => Some(Namespace::new(database, collection)),
        RawBsonRef::Document(into) => {
            let database = match get(into, "db") {
                None => database,
                Some(database) => database.as_str()?,
            };
            Some(Namespace::new(database, get(into, "coll")?.as_str()?))
        }
        _ => None,
    }
}

fn arguments(stage: &RawDocument) -> Option<RawBsonRef<'_>> {
    let (name, value) = first_field(stage).filter(|_| stage.iter().count() == 1)?;
    (name == "$merge").then_some(value)
}

impl<'a> MergeStage<'a> {
    /// Parses a stage that has a [`target`]. `None`: it is malformed.
    #[must_use]
    pub fn parse(stage: &'a RawDocument) -> Option<Self> {
        let mut merge = Self {
            on: vec!["_id"],
            is_on_given: false,
            when_matched: WhenMatched::Merge,
            when_not_matched: WhenNotMatched::Insert,
            let_variables: None,
            is_let_empty: false,
        };
        let RawBsonRef::Document(spec) = arguments(stage)? else {
            return Some(merge);
        };
        let mut seen = Vec::new();
        for field in spec {
            let (name, value) = field.ok()?;
            // Of a repeated argument, mongod may use either.
            if seen.contains(&name.as_str()) {
                return None;
            }
            seen.push(name.as_str());
            match name.as_str() {
                "into" => {}
                "on" => {
                    merge.on = paths(value)?;
                    merge.is_on_given = true;
                }
                "let" => {
                    let variables = value.as_document()?;
                    merge.let_variables = Some(without_new(variables));
                    merge.is_let_empty = variables.is_empty();
                }
                "whenMatched" => merge.when_matched = WhenMatched::parse(value)?,
                "whenNotMatched" => merge.when_not_matched = WhenNotMatched::parse(value)?,
                _ => return None,
            }
        }
        Some(merge)
    }

    /// Whether [`NEW`] is defined. With an empty `let`, it is only if documents are inserted (mongod 6.0.5).
    #[must_use]
    pub fn defines_new(&self) -> bool {
        !self.is_let_empty || self.when_not_matched == WhenNotMatched::Insert
    }

    /// Whether merging a document twice has the result of merging it once.
    #[must_use]
    pub fn is_idempotent(&self) -> bool {
        matches!(
            self.when_matched,
            WhenMatched::Merge | WhenMatched::Replace | WhenMatched::KeepExisting
        )
    }

    /// Whether documents are identified by their `_id` alone.
    #[must_use]
    pub fn is_by_id(&self) -> bool {
        self.on == ["_id"]
    }

    /// Whether the unique index with this specification makes the fields identify one document.
    #[must_use]
    pub fn is_supported_by(&self, index: &RawDocument) -> bool {
        let key = get(index, "key").and_then(RawBsonRef::as_document);
        let mut fields: Vec<&str> = key
            .into_iter()
            .flat_map(RawDocument::iter)
            .flatten()
            .map(|(name, _)| name.as_str())
            .collect();
        fields.sort_unstable();
        fields == self.on
    }
}

/// The paths of `on`, sorted. `None`: mongod refuses them.
fn paths(on: RawBsonRef<'_>) -> Option<Vec<&str>> {
    let mut paths = match on {
        RawBsonRef::String(path) => vec![path],
        RawBsonRef::Array(paths) => paths
            .into_iter()
            .map(|path| path.ok()?.as_str())
            .collect::<Option<Vec<_>>>()?,
        _ => return None,
    };
    let is_path = |path: &str| path.split('.').all(|name| !name.is_empty() && !name.starts_with('$'));
    let given = paths.len();
    paths.sort_unstable();
    paths.dedup();
    (given > 0 && paths.len() == given && paths.iter().all(|path| is_path(path))).then_some(paths)
}

fn without_new(variables: &RawDocument) -> RawDocumentBuf {
    variables
        .iter()
        .flatten()
        .filter(|(name, _)| name.as_str() != NEW)
        .collect()
}

impl<'a> WhenMatched<'a> {
    fn parse(value: RawBsonRef<'a>) -> Option<Self> {
        Some(match value {
            RawBsonRef::Array(stages) => Self::Pipeline(stages),
            RawBsonRef::String("merge") => Self::Merge,
            RawBsonRef::String("replace") => Self::Replace,
            RawBsonRef::String("keepExisting") => Self::KeepExisting,
            RawBsonRef::String("fail") => Self::Fail,
            _ => return None,
        })
    }
}

impl WhenNotMatched {
    fn parse(value: RawBsonRef<'_>) -> Option<Self> {
        Some(match value.as_str()? {
            "insert" => Self::Insert,
            "discard" => Self::Discard,
            "fail" => Self::Fail,
            _ => return None,
        })
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn finds_the_target_of_each_form() {
        let check = |stage: RawDocumentBuf, expected: Option<&str>| {
            let found = target("d", &stage).map(|found| found.to_string());
            assert_eq!(found.as_deref(), expected, "{stage:?}");
        };
        check(rawdoc! { "$merge": "b" }, Some("d.b"));
        check(rawdoc! { "$merge": { "into": "b" } }, Some("d.b"));
        check(rawdoc! { "$merge": { "into": { "coll": "b" } } }, Some("d.b"));
        check(
            rawdoc! { "$merge": { "into": { "db": "e", "coll": "b" } } },
            Some("e.b"),
        );
        check(rawdoc! { "$merge": { "into": { "db": 1, "coll": "b" } } }, None);
        check(rawdoc! { "$merge": { "on": "b" } }, None);
        check(rawdoc! { "$merge": "b", "$out": "c" }, None);
        check(rawdoc! { "$out": "b" }, None);
    }

    #[test]
    fn parses_what_mongod_accepts() {
        let on = |on: RawDocumentBuf| {
            let stage = rawdoc! { "$merge": { "into": "b", "on": on.get("on").unwrap().unwrap() } };
            MergeStage::parse(&stage).map(|merge| merge.on.join(" "))
        };
        assert_eq!(on(rawdoc! { "on": "a" }).as_deref(), Some("a"));
        assert_eq!(on(rawdoc! { "on": ["b", "a.c"] }).as_deref(), Some("a.c b"));
        for malformed in [
            rawdoc! { "on": [] },
            rawdoc! { "on": ["a", "a"] },
            rawdoc! { "on": [1] },
            rawdoc! { "on": "" },
            rawdoc! { "on": "$a" },
            rawdoc! { "on": "a." },
        ] {
            assert_eq!(on(malformed), None);
        }
        let variables = rawdoc! { "$merge": { "into": "b", "let": { "new": "$$ROOT", "x": 1 }, "whenMatched": [] } };
        let variables = MergeStage::parse(&variables).and_then(|merge| merge.let_variables);
        assert_eq!(variables, Some(rawdoc! { "x": 1 }));
        assert!(MergeStage::parse(&rawdoc! { "$merge": { "into": "b", "into": "c" } }).is_none());
        assert!(MergeStage::parse(&rawdoc! { "$merge": { "into": "b", "whenMatched": "x" } }).is_none());
    }
}
