//! Finds every namespace that a command references in addition to its own: a view's source, the
//! collections of a pipeline, the target of a rename.
//!
//! A reference to a shaped collection must not be overlooked, because mongod would read or write
//! raw buckets.

use bson::raw::{RawBsonRef, RawDocument};
use bson::spec::BinarySubtype;

use super::document::{as_name, first_field, get};
use super::header::CommandHeader;
use super::namespace::Namespace;
use super::registry::{Command, is_of_chunks_or_zones, names_user_or_role};

/// The deepest nesting of pipelines (`$facet` in `$lookup` in ...). mongod's own limit is 20 for
/// views, and 200 for documents.
const MAX_DEPTH: usize = 100;

/// Calls `visit` with every namespace that the command references in addition to its own.
///
/// For commands without such references the cost is one comparison of the name.
pub fn for_each(head: &CommandHeader<'_>, visit: &mut dyn FnMut(Namespace<'_>)) {
    let mut visitor = Visitor {
        database: head.database,
        visit,
        depth: 0,
    };
    visitor.command(head.name, head.body());
    if head.command == Command::BulkWrite {
        let infos = head
            .message
            .sequences
            .iter()
            .filter(|sequence| sequence.identifier == "nsInfo");
        infos
            .flat_map(|sequence| sequence.documents().flatten())
            .for_each(|info| visitor.full_name(get(info, "ns")));
    }
}

/// Whether a command names a collection by its UUID, which the proxy cannot resolve to a name: as
/// its own collection, as that of the command that it explains, or in an operation that it applies.
#[must_use]
pub fn names_by_uuid(head: &CommandHeader<'_>) -> bool {
    let body = head.body();
    let inner = get(body, "explain").and_then(RawBsonRef::as_document);
    let explained = inner.filter(|_| head.command == Command::Explain).and_then(first_field);
    let mut targets = first_field(body).into_iter().chain(explained);
    targets.any(|(name, value)| {
        is_uuid(value) || (matches!(name, "applyOps" | "doTxn") && operation_names_by_uuid(value, MAX_DEPTH))
    })
}

fn is_uuid(value: RawBsonRef<'_>) -> bool {
    matches!(value, RawBsonRef::Binary(binary) if matches!(binary.subtype, BinarySubtype::Uuid | BinarySubtype::UuidOld))
}

fn operation_names_by_uuid(operations: RawBsonRef<'_>, depth: usize) -> bool {
    let operations = operations.as_array().into_iter().flatten().flatten();
    operations.filter_map(RawBsonRef::as_document).any(|operation| {
        let nested = get(operation, "o")
            .and_then(RawBsonRef::as_document)
            .and_then(|applied| get(applied, "applyOps"));
        let deeper = depth.checked_sub(1);
        get(operation, "ui").is_some()
            || nested.is_some_and(|nested| deeper.is_none_or(|depth| operation_names_by_uuid(nested, depth)))
    })
}

/// Calls `visit` with every namespace that a stage of a pipeline on `database` references.
pub fn in_stage(database: &str, stage: &RawDocument, visit: &mut dyn FnMut(Namespace<'_>)) {
    let mut visitor = Visitor {
        database,
        visit,
        depth: 0,
    };
    if let Some((name, value)) = first_field(stage) {
        visitor.stage(name, value);
    }
}

/// Whether an operation of `applyOps` changes a document. Otherwise it is a command, or has no effect.
fn is_of_document(operation: &RawDocument) -> bool {
    let kind = get(operation, "op").and_then(RawBsonRef::as_str);
    // mongod reads only the first character.
    kind.is_some_and(|kind| kind.starts_with(['i', 'u', 'd']))
}

struct Visitor<'v> {
    database: &'v str,
    visit: &'v mut dyn FnMut(Namespace<'_>),
    depth: usize,
}

impl Visitor<'_> {
    fn command(&mut self, name: &str, body: &RawDocument) {
        match Command::of(name) {
            Command::Aggregate => self.pipeline(get(body, "pipeline")),
            Command::Create | Command::CollMod => {
                self.collection(get(body, "viewOn"));
                self.pipeline(get(body, "pipeline"));
            }
            Command::Explain => self.explained(body),
            Command::BulkWrite => {
                self.documents(get(body, "nsInfo"), |visitor, info| visitor.full_name(get(info, "ns")));
            }
            Command::MapReduce => self.target(get(body, "out"), &["replace", "merge", "reduce"]),
            Command::RenameCollection => {
                self.full_name(get(body, "renameCollection"));
                self.full_name(get(body, "to"));
            }
            // A namespace in the command's own database is in the head of the command.
            Command::DataSize => {
                let namespace = get(body, name).and_then(as_name).and_then(Namespace::parse);
                if namespace.is_some_and(|namespace| namespace.database != self.database) {
                    self.full_name(get(body, name));
                }
            }
            _ => self.other_command(name, body),
        }
    }

    fn other_command(&mut self, name: &str, body: &RawDocument) {
        match name {
            "cloneCollectionAsCapped" => self.collection(get(body, "toCollection")),
            "applyOps" | "doTxn" => {
                self.operations(get(body, name));
                self.documents(get(body, "preCondition"), |visitor, condition| {
                    visitor.full_name(get(condition, "ns"));
                });
            }
            // GridFS stores files in two collections; the command reads the chunks.
            "filemd5" => {
                let root = get(body, "root").and_then(RawBsonRef::as_str).unwrap_or("fs");
                let chunks = format!("{root}.chunks");
                (self.visit)(Namespace::new(self.database, &chunks));
            }
            "internalRenameIfOptionsAndIndexesMatch" => {
                self.full_name(get(body, "from"));
                self.full_name(get(body, "to"));
            }
            "splitVector" | "checkShardingIndex" => self.full_name(get(body, name)),
            _ if names_user_or_role(name) || is_of_chunks_or_zones(name) => {}
            // Administrative commands (sharding, cloning) have a whole namespace in their first
            // value.
            _ if self.database == "admin" => self.full_name(get(body, name)),
            _ => {}
        }
    }

    fn explained(&mut self, body: &RawDocument) {
        let inner = get(body, "explain").and_then(RawBsonRef::as_document);
        let Some((inner, (name, _))) = inner.and_then(|inner| Some((inner, first_field(inner)?))) else {
            return;
        };
        self.nested(|visitor| visitor.command(name, inner));
    }

    fn operations(&mut self, operations: Option<RawBsonRef<'_>>) {
        self.documents(operations, |visitor, operation| {
            visitor.full_name(get(operation, "ns"));
            let namespace = get(operation, "ns").and_then(as_name).unwrap_or_default();
            let applied = get(operation, "o").and_then(RawBsonRef::as_document);
            if let Some(command) = applied.filter(|_| !is_of_document(operation)) {
                let mut visitor = Visitor {
                    // mongod executes the command on the database of `ns`.
                    database: namespace.split_once('.').map_or(namespace, |(database, _)| database),
                    visit: &mut *visitor.visit,
                    depth: visitor.depth,
                };
                visitor.nested(|visitor| visitor.applied(command));
            }
        });
    }

    /// Visits the namespaces of a command among operations.
    fn applied(&mut self, command: &RawDocument) {
        if let Some((name, target)) = first_field(command) {
            // `renameCollection` has a whole namespace in its first value.
            if Command::of(name) != Command::RenameCollection {
                self.collection(Some(target));
            }
            self.command(name, command);
        }
    }

    fn pipeline(&mut self, pipeline: Option<RawBsonRef<'_>>) {
        self.documents(pipeline, |visitor, stage| {
            let Some((name, value)) = first_field(stage) else {
                return;
            };
            visitor.nested(|visitor| visitor.stage(name, value));
        });
    }

    fn stage(&mut self, name: &str, value: RawBsonRef<'_>) {
        match name {
            "$lookup" | "$graphLookup" => self.arguments(value, &["from"], &["pipeline"]),
            "$unionWith" => {
                self.target(Some(value), &[]);
                self.arguments(value, &["coll"], &["pipeline"]);
            }
            "$out" => self.target(Some(value), &["coll"]),
            "$merge" => {
                self.target(Some(value), &[]);
                self.arguments(value, &["into"], &["whenMatched"]);
            }
            "$facet" => {
                let facets = value.as_document().into_iter().flat_map(RawDocument::iter).flatten();
                facets.for_each(|(_, pipeline)| self.pipeline(Some(pipeline)));
            }
            _ => {}
        }
    }

    /// Visits the arguments of a stage that are collections and those that are pipelines. A
    /// repeated argument is visited twice, because mongod uses the last one.
    fn arguments(&mut self, value: RawBsonRef<'_>, collections: &[&str], pipelines: &[&str]) {
        let arguments = value.as_document().into_iter().flat_map(RawDocument::iter).flatten();
        for (name, value) in arguments {
            if collections.contains(&name.as_str()) {
                self.target(Some(value), &["coll"]);
            } else if pipelines.contains(&name.as_str()) {
                self.pipeline(Some(value));
            }
        }
    }

    /// Visits a collection, given as its name, or as a document that has the name in one of
    /// `fields` and an optional `db`.
    fn target(&mut self, value: Option<RawBsonRef<'_>>, fields: &[&str]) {
        match value {
            Some(RawBsonRef::String(collection) | RawBsonRef::Symbol(collection)) => {
                (self.visit)(Namespace::new(self.database, collection));
            }
            Some(RawBsonRef::Document(document)) => {
                let database = document.get_str("db").unwrap_or(self.database);
                for collection in fields.iter().filter_map(|field| document.get_str(field).ok()) {
                    (self.visit)(Namespace::new(database, collection));
                }
            }
            _ => {}
        }
    }

    fn collection(&mut self, value: Option<RawBsonRef<'_>>) {
        self.target(value, &[]);
    }

    fn full_name(&mut self, value: Option<RawBsonRef<'_>>) {
        if let Some(namespace) = value.and_then(as_name).and_then(Namespace::parse) {
            (self.visit)(namespace);
        }
    }

    fn documents(&mut self, array: Option<RawBsonRef<'_>>, mut each: impl FnMut(&mut Self, &RawDocument)) {
        let elements = array.and_then(RawBsonRef::as_array).into_iter().flatten().flatten();
        elements
            .filter_map(RawBsonRef::as_document)
            .for_each(|document| each(self, document));
    }

    /// Visits one level deeper. mongod refuses pipelines that are nested deeper than the limit.
    fn nested(&mut self, visit: impl FnOnce(&mut Self)) {
        if self.depth < MAX_DEPTH {
            self.depth = self.depth.saturating_add(1);
            visit(self);
            self.depth = self.depth.saturating_sub(1);
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocumentBuf;
    use bson::rawdoc;

    use super::*;
    use crate::wire::{OpMsg, OpMsgBuilder};

    fn check(body: &RawDocument, expected: &[&str]) {
        let frame = OpMsgBuilder::new(1, 0).body(body).build().unwrap();
        let head = CommandHeader::of(OpMsg::parse(&frame).unwrap()).unwrap();
        let mut found = Vec::new();
        for_each(&head, &mut |namespace| found.push(namespace.to_string()));
        assert_eq!(found, expected, "{body:?}");
    }

    #[test]
    fn finds_the_collections_of_pipelines() {
        let stages = |stage: RawDocumentBuf| rawdoc! { "aggregate": "a", "pipeline": [stage], "$db": "d" };
        check(&stages(rawdoc! { "$lookup": { "from": "b" } }), &["d.b"]);
        check(
            &stages(rawdoc! { "$lookup": { "from": { "db": "e", "coll": "b" } } }),
            &["e.b"],
        );
        check(&stages(rawdoc! { "$graphLookup": { "from": "b" } }), &["d.b"]);
        check(&stages(rawdoc! { "$unionWith": "b" }), &["d.b"]);
        let nested = rawdoc! { "$unionWith": { "coll": "b", "pipeline": [{ "$lookup": { "from": "c" } }] } };
        check(&stages(rawdoc! { "$facet": { "x": [nested] } }), &["d.b", "d.c"]);
        check(&stages(rawdoc! { "$out": "b" }), &["d.b"]);
        check(&stages(rawdoc! { "$out": { "db": "e", "coll": "b" } }), &["e.b"]);
        check(&stages(rawdoc! { "$merge": "b" }), &["d.b"]);
        check(
            &stages(rawdoc! { "$merge": { "into": { "db": "e", "coll": "b" } } }),
            &["e.b"],
        );
        check(&stages(rawdoc! { "$match": { "from": "b" } }), &[]);
        let mut twice = rawdoc! { "from": "a" };
        twice.append(bson::raw::cstr!("from"), "b");
        check(&stages(rawdoc! { "$lookup": twice }), &["d.a", "d.b"]);
    }

    #[test]
    fn finds_collections_named_by_other_commands() {
        check(
            &rawdoc! { "create": "v", "viewOn": "b", "pipeline": [{ "$unionWith": "c" }], "$db": "d" },
            &["d.b", "d.c"],
        );
        check(
            &rawdoc! { "renameCollection": "d.a", "to": "e.b", "$db": "admin" },
            &["d.a", "e.b"],
        );
        check(&rawdoc! { "explain": { "find": "a" }, "$db": "d" }, &[]);
        check(
            &rawdoc! { "explain": { "aggregate": 1, "pipeline": [{ "$out": "b" }] }, "$db": "d" },
            &["d.b"],
        );
        check(
            &rawdoc! { "mapReduce": "a", "out": { "merge": "b", "db": "e" }, "$db": "d" },
            &["e.b"],
        );
        check(&rawdoc! { "shardCollection": "d.a", "$db": "admin" }, &["d.a"]);
        check(&rawdoc! { "refineCollectionShardKey": "d.a", "$db": "admin" }, &["d.a"]);
        check(&rawdoc! { "moveCollection": "d.a", "$db": "admin" }, &["d.a"]);
        check(&rawdoc! { "moveChunk": "d.a", "$db": "admin" }, &[]);
        check(&rawdoc! { "createUser": "d.a", "$db": "admin" }, &[]);
        check(&rawdoc! { "dataSize": "d.a", "$db": "admin" }, &["d.a"]);
        check(&rawdoc! { "dataSize": "d.a", "$db": "d" }, &[]);
        check(
            &rawdoc! { "bulkWrite": 1, "nsInfo": [{ "ns": "d.a" }], "$db": "admin" },
            &["d.a"],
        );
        check(&rawdoc! { "find": "d.a", "$db": "d" }, &[]);
        check(&rawdoc! { "filemd5": 1, "root": "a", "$db": "d" }, &["d.a.chunks"]);
        check(
            &rawdoc! { "applyOps": [{ "op": "i", "ns": "d.a", "o": { "x": 1 } }], "$db": "admin" },
            &["d.a"],
        );
    }

    #[test]
    fn finds_the_collections_of_applied_operations() {
        let check_one = |operation: RawDocumentBuf, expected: &[&str]| {
            check(&rawdoc! { "applyOps": [operation], "$db": "admin" }, expected);
        };
        let command = |command: RawDocumentBuf| rawdoc! { "op": "c", "ns": "d.$cmd", "o": command };
        check_one(command(rawdoc! { "drop": "a" }), &["d.$cmd", "d.a"]);
        check_one(
            command(rawdoc! { "renameCollection": "d.a", "to": "d.b" }),
            &["d.$cmd", "d.a", "d.b"],
        );
        let create = rawdoc! { "create": "v", "viewOn": "a", "pipeline": [{ "$unionWith": "b" }] };
        check_one(command(create), &["d.$cmd", "d.v", "d.a", "d.b"]);
        let nested = rawdoc! { "applyOps": [command(rawdoc! { "drop": "a" })] };
        check_one(
            rawdoc! { "op": "c", "ns": "admin.$cmd", "o": nested },
            &["admin.$cmd", "d.$cmd", "d.a"],
        );
        check_one(rawdoc! { "op": "i", "ns": "d.a", "o": { "drop": "b" } }, &["d.a"]);
        check_one(rawdoc! { "op": "n", "ns": "", "o": { "msg": 1 } }, &[]);
    }

    #[test]
    fn finds_collections_named_by_uuid() {
        let check = |body: &RawDocument, expected: bool| {
            let frame = OpMsgBuilder::new(1, 0).body(body).build().unwrap();
            let head = CommandHeader::of(OpMsg::parse(&frame).unwrap()).unwrap();
            assert_eq!(names_by_uuid(&head), expected, "{body:?}");
        };
        let uuid = bson::Binary {
            subtype: BinarySubtype::Uuid,
            bytes: vec![1; 16],
        };
        check(&rawdoc! { "find": uuid.clone(), "$db": "d" }, true);
        check(&rawdoc! { "explain": { "count": uuid.clone() }, "$db": "d" }, true);
        check(&rawdoc! { "find": "a", "comment": uuid.clone(), "$db": "d" }, false);
        let operation = rawdoc! { "op": "i", "ns": "d.a", "ui": uuid, "o": {} };
        let nested = rawdoc! { "op": "c", "ns": "admin.$cmd", "o": { "applyOps": [operation.clone()] } };
        check(&rawdoc! { "applyOps": [operation], "$db": "admin" }, true);
        check(&rawdoc! { "applyOps": [nested], "$db": "admin" }, true);
        check(
            &rawdoc! { "applyOps": [{ "op": "i", "ns": "d.a", "o": {} }], "$db": "admin" },
            false,
        );
    }
}
