//! Finds the collections that change streams watch, in `$currentOp`. Pure.

use bson::Document;

/// The scope of a change stream.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Watched {
    Cluster,
    Database(String),
    Collection(String),
}

impl Watched {
    /// Whether the scope includes this collection.
    pub(super) fn has(&self, namespace: &str) -> bool {
        match self {
            Self::Cluster => true,
            Self::Database(database) => namespace.split_once('.').is_some_and(|(name, _)| name == database),
            Self::Collection(name) => name == namespace,
        }
    }
}

/// The scope of an operation or idle cursor. `None`: it is not a change stream.
pub(super) fn watched(operation: &Document) -> Option<Watched> {
    let cursor = operation
        .get_document("cursor")
        .and_then(|cursor| cursor.get_document("originatingCommand"));
    let commands = [operation.get_document("command"), cursor];
    let stream = commands.into_iter().flatten().find_map(stream)?;
    let (database, collection) = operation.get_str("ns").ok()?.split_once('.')?;
    Some(if stream.get_bool("allChangesForCluster").unwrap_or(false) {
        Watched::Cluster
    } else if collection.starts_with('$') {
        Watched::Database(database.to_owned())
    } else {
        Watched::Collection(format!("{database}.{collection}"))
    })
}

fn stream(command: &Document) -> Option<&Document> {
    let first = command.get_array("pipeline").ok()?.first()?;
    first.as_document()?.get_document("$changeStream").ok()
}

#[cfg(test)]
mod tests {
    use bson::doc;

    use super::*;

    #[test]
    fn change_streams_are_distinguished_from_other_operations() {
        let check = |namespace: &str, stage: Document, expected: Option<Watched>| {
            let command = doc! { "aggregate": 1, "pipeline": [stage] };
            let idle = doc! { "ns": namespace, "cursor": { "originatingCommand": command.clone() } };
            assert_eq!(watched(&idle), expected, "{idle}");
            assert_eq!(watched(&doc! { "ns": namespace, "command": command }), expected);
        };
        let stream = |options: Document| doc! { "$changeStream": options };
        check("d.c", stream(doc! {}), Some(Watched::Collection("d.c".to_owned())));
        check(
            "d.$cmd.aggregate",
            stream(doc! {}),
            Some(Watched::Database("d".to_owned())),
        );
        check(
            "admin.$cmd.aggregate",
            stream(doc! { "allChangesForCluster": true }),
            Some(Watched::Cluster),
        );
        check("d.c", doc! { "$match": {} }, None);
        assert_eq!(watched(&doc! { "ns": "d.c" }), None);
    }

    #[test]
    fn a_database_stands_for_its_collections() {
        let database = Watched::Database("d".to_owned());
        assert!(database.has("d.c") && !database.has("e.c") && !database.has("dd.c"));
        assert!(Watched::Cluster.has("d.c"));
        let collection = Watched::Collection("d.c".to_owned());
        assert!(collection.has("d.c") && !collection.has("d.c.e"));
    }
}
