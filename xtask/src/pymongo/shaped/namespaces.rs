//! The collections that a file of unified tests uses, and which of them cannot be shaped.

use std::collections::BTreeSet;
use std::fmt;

use serde_json::{Map, Value};

/// `database.collection`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Namespace {
    pub(super) database: String,
    pub(super) collection: String,
}

impl fmt::Display for Namespace {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}", self.database, self.collection)
    }
}

/// All collections that files use.
#[derive(Debug, Default)]
pub(super) struct Namespaces {
    used: BTreeSet<Namespace>,
    /// What a test makes a view of, and what `$out` and `$merge` write to: refused on a shaped collection.
    plain: BTreeSet<Namespace>,
    /// What tests find something in.
    filled: BTreeSet<Namespace>,
}

impl Namespaces {
    /// Those of a file. A collection that it names without a database is taken to be in each of its
    /// databases.
    pub(super) fn of(file: &Value) -> Self {
        let mut found = Found::default();
        found.visit(file);
        let mut namespaces = Self {
            filled: found.filled.into_iter().collect(),
            ..Self::default()
        };
        for (id, collection) in &found.collections {
            let databases = found.databases.iter().filter(|(of, _)| of == id);
            namespaces
                .used
                .extend(databases.map(|(_, name)| namespace(name, collection)));
        }
        namespaces.used.extend(found.namespaces);
        let databases: BTreeSet<_> = found.databases.iter().map(|(_, name)| name).collect();
        for (database, collection) in found.plain {
            let databases = database
                .as_ref()
                .map_or_else(|| databases.clone(), |one| BTreeSet::from([one]));
            let targets = databases.into_iter().map(|database| namespace(database, &collection));
            namespaces.plain.extend(targets);
        }
        namespaces
    }

    /// Whether none that is plain in one is shaped in the other.
    pub(super) fn agree_with(&self, other: &Self) -> bool {
        let are_shaped_in = |plain: &Self, shaped: &Self| shaped.shaped().any(|one| plain.plain.contains(one));
        !are_shaped_in(self, other) && !are_shaped_in(other, self)
    }

    /// Adds others, with which these agree.
    pub(super) fn extend(&mut self, others: Self) {
        self.used.extend(others.used);
        self.plain.extend(others.plain);
        self.filled.extend(others.filled);
    }

    /// Whether something is stored in those to shape before a test.
    pub(super) fn has_data(&self) -> bool {
        self.shaped().any(|one| self.filled.contains(one))
    }

    /// Those to shape.
    pub(super) fn shaped(&self) -> impl Iterator<Item = &Namespace> {
        self.used.difference(&self.plain)
    }

    /// Those that stay as they are.
    pub(super) fn plain(&self) -> impl Iterator<Item = &Namespace> {
        self.used.intersection(&self.plain)
    }
}

fn namespace(database: &str, collection: &str) -> Namespace {
    Namespace {
        database: database.to_owned(),
        collection: collection.to_owned(),
    }
}

/// The names in a file, unresolved.
#[derive(Debug, Default)]
struct Found {
    /// (entity, name)
    databases: Vec<(String, String)>,
    /// (entity of its database, name)
    collections: Vec<(String, String)>,
    /// Of `initialData`, `outcome` and assertions.
    namespaces: Vec<Namespace>,
    /// (database, if it is named, collection)
    plain: Vec<(Option<String>, String)>,
    filled: Vec<Namespace>,
}

impl Found {
    fn visit(&mut self, value: &Value) {
        match value {
            Value::Array(values) => values.iter().for_each(|value| self.visit(value)),
            Value::Object(object) => {
                self.object(object);
                object.values().for_each(|value| self.visit(value));
            }
            _ => {}
        }
    }

    fn object(&mut self, object: &Map<String, Value>) {
        let text = |field: &str| object.get(field).and_then(Value::as_str).map(str::to_owned);
        if let (Some(id), Some(name)) = (text("id"), text("databaseName")) {
            self.databases.push((id, name));
        }
        if let (Some(database), Some(name)) = (text("database"), text("collectionName")) {
            self.collections.push((database, name));
        }
        if let (Some(database), Some(collection)) = (text("databaseName"), text("collectionName")) {
            let documents = object.get("documents").and_then(Value::as_array);
            if documents.is_some_and(|documents| !documents.is_empty()) {
                self.filled.push(namespace(&database, &collection));
            }
            self.namespaces.push(namespace(&database, &collection));
        }
        if let (Some(view), Some(_)) = (text("collection"), text("viewOn")) {
            self.plain.push((None, view));
        }
        self.plain.extend(object.get("$out").and_then(target));
        self.plain.extend(
            object
                .get("$merge")
                .and_then(|stage| target(stage.get("into").unwrap_or(stage))),
        );
    }
}

/// Where `$out` or `$merge` writes: a name, or `{db, coll}`.
fn target(value: &Value) -> Option<(Option<String>, String)> {
    let text = |field| value.get(field).and_then(Value::as_str).map(str::to_owned);
    match value {
        Value::String(collection) => Some((None, collection.clone())),
        _ => Some((text("db"), text("coll")?)),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn file(tests: &Value) -> Namespaces {
        Namespaces::of(&json!({
            "createEntities": [
                { "client": { "id": "client0" } },
                { "database": { "id": "database0", "client": "client0", "databaseName": "db" } },
                { "collection": { "id": "collection0", "database": "database0", "collectionName": "a" } },
                { "collection": { "id": "collection1", "database": "database0", "collectionName": "b" } },
            ],
            "initialData": [{ "databaseName": "other", "collectionName": "c", "documents": [] }],
            "tests": tests,
        }))
    }

    fn check(tests: &Value, shaped: &[&str], plain: &[&str]) {
        let namespaces = file(tests);
        let named = |all: Vec<&Namespace>| all.into_iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(named(namespaces.shaped().collect()), shaped, "{tests}");
        assert_eq!(named(namespaces.plain().collect()), plain, "{tests}");
    }

    #[test]
    fn collections_are_found_in_entities_and_in_data() {
        check(&json!([]), &["db.a", "db.b", "other.c"], &[]);
    }

    #[test]
    fn collection_written_by_a_pipeline_stays_plain() {
        for stage in [
            json!({ "$out": "b" }),
            json!({ "$out": { "db": "db", "coll": "b" } }),
            json!({ "$merge": "b" }),
            json!({ "$merge": { "into": "b" } }),
            json!({ "$merge": { "into": { "db": "db", "coll": "b" } } }),
        ] {
            check(
                &json!([{ "arguments": { "pipeline": [stage] } }]),
                &["db.a", "other.c"],
                &["db.b"],
            );
        }
    }

    #[test]
    fn a_view_stays_plain() {
        let arguments = json!({ "collection": "b", "viewOn": "a" });
        check(&json!([{ "arguments": arguments }]), &["db.a", "other.c"], &["db.b"]);
    }

    #[test]
    fn files_conflict_if_only_one_writes_to_a_collection_by_a_pipeline() {
        let plain = file(&json!([]));
        let writing = file(&json!([{ "arguments": { "pipeline": [{ "$out": "b" }] } }]));
        assert!(plain.agree_with(&plain));
        assert!(writing.agree_with(&writing));
        assert!(!plain.agree_with(&writing));
        assert!(!writing.agree_with(&plain));
        let both = file(&json!([{ "arguments": { "pipeline": [{ "$out": "d" }] } }]));
        assert!(plain.agree_with(&both));
    }
}
