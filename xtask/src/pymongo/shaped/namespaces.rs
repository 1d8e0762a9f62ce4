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
}

impl Namespaces {
    /// Adds those of a file. A collection that it names without a database is taken to be in each of its databases.
    pub(super) fn add(&mut self, file: &Value) {
        let mut found = Found::default();
        found.visit(file);
        for (id, collection) in &found.collections {
            let databases = found.databases.iter().filter(|(of, _)| of == id);
            self.used.extend(databases.map(|(_, name)| namespace(name, collection)));
        }
        self.used.extend(found.namespaces);
        let databases: BTreeSet<_> = found.databases.iter().map(|(_, name)| name).collect();
        for target in found.plain {
            match target {
                (Some(database), collection) => drop(self.plain.insert(namespace(&database, &collection))),
                (None, collection) => self
                    .plain
                    .extend(databases.iter().map(|database| namespace(database, &collection))),
            }
        }
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

/// What a file says, as it says it.
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

    fn check(tests: &Value, shaped: &[&str], plain: &[&str]) {
        let mut namespaces = Namespaces::default();
        namespaces.add(&json!({
            "createEntities": [
                { "client": { "id": "client0" } },
                { "database": { "id": "database0", "client": "client0", "databaseName": "db" } },
                { "collection": { "id": "collection0", "database": "database0", "collectionName": "a" } },
                { "collection": { "id": "collection1", "database": "database0", "collectionName": "b" } },
            ],
            "initialData": [{ "databaseName": "other", "collectionName": "c", "documents": [] }],
            "tests": tests,
        }));
        let named = |all: Vec<&Namespace>| all.into_iter().map(ToString::to_string).collect::<Vec<_>>();
        assert_eq!(named(namespaces.shaped().collect()), shaped, "{tests}");
        assert_eq!(named(namespaces.plain().collect()), plain, "{tests}");
    }

    #[test]
    fn collections_are_found_in_entities_and_in_data() {
        check(&json!([]), &["db.a", "db.b", "other.c"], &[]);
    }

    #[test]
    fn what_is_written_to_by_a_pipeline_stays_plain() {
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
}
