//! The collections with an automatic shape that a command touches.

use crate::command::change_stream::{StreamScope, scope};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::pattern::shapes::Shapes;

/// A collection with an automatic shape.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(in crate::session) struct TouchedCollection {
    database: String,
    collection: String,
}

impl TouchedCollection {
    pub(in crate::session) fn namespace(&self) -> Namespace<'_> {
        Namespace::new(&self.database, &self.collection)
    }
}

/// The collections whose layout determines how the command is handled. A cursor belongs to the layout in
/// which it was opened. A change stream on the cluster is refused if a shape is for every database, because
/// its databases are not known.
pub(in crate::session) fn touched(shapes: &Shapes, head: &CommandHeader<'_>) -> Vec<TouchedCollection> {
    let mut touched = Vec::new();
    if !shapes.has_automatic() || head.command == Command::KillCursors {
        return touched;
    }
    if head.command == Command::GetMore
        && head
            .namespace()
            .is_none_or(|namespace| shapes.layout(namespace).is_some())
    {
        return touched;
    }
    let mut add = |namespace: Namespace<'_>| {
        let of = TouchedCollection {
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
        };
        if shapes.automatic(namespace).is_some() && !touched.contains(&of) {
            touched.push(of);
        }
    };
    if let Some(namespace) = head.namespace() {
        add(namespace);
    }
    referenced_namespaces::for_each(head, &mut add);
    if scope(head) == Some(StreamScope::Cluster) {
        shapes.automatic_collections().for_each(add);
        return touched;
    }
    let is_of_database = matches!(head.command, Command::ListCollections | Command::DbStats)
        || (head.command == Command::Aggregate && head.target.is_none())
        || referenced_namespaces::names_by_uuid(head);
    if is_of_database {
        let in_database = shapes.automatic_in(head.database);
        in_database.for_each(|collection| add(Namespace::new(head.database, collection)));
    }
    touched
}

#[cfg(test)]
mod tests {
    use bson::raw::RawDocument;
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, BucketShape, Mode, NamespacePattern, Shape};

    fn check(body: &RawDocument, expected: &[&str]) {
        let pattern = NamespacePattern::parse("shop.trades").unwrap();
        let options = BucketOptions::new(pattern, vec!["k".to_owned()]);
        let mode = Mode::Auto;
        let shape = BucketShape::new(BucketOptions { mode, ..options }).unwrap();
        let shapes = Shapes::new(vec![Shape::Bucket(shape)]).unwrap();
        let head = CommandHeader::of_body(body).unwrap();
        let touched = touched(&shapes, &head);
        let found: Vec<String> = touched.iter().map(|of| of.namespace().to_string()).collect();
        assert_eq!(found, expected, "{body:?}");
    }

    #[test]
    fn finds_own_and_referenced_collections() {
        check(&rawdoc! { "find": "trades", "$db": "shop" }, &["shop.trades"]);
        check(&rawdoc! { "find": "trades", "$db": "other" }, &[]);
        check(&rawdoc! { "listCollections": 1, "$db": "shop" }, &["shop.trades"]);
        let lookup = rawdoc! { "$lookup": { "from": "trades" } };
        check(
            &rawdoc! { "aggregate": "other", "pipeline": [lookup], "$db": "shop" },
            &["shop.trades"],
        );
        check(&rawdoc! { "killCursors": "trades", "cursors": [], "$db": "shop" }, &[]);
    }

    #[test]
    fn a_change_stream_touches_all_that_it_watches() {
        let stream = rawdoc! { "$changeStream": {} };
        check(
            &rawdoc! { "aggregate": 1, "pipeline": [stream.clone()], "$db": "shop" },
            &["shop.trades"],
        );
        check(&rawdoc! { "aggregate": 1, "pipeline": [stream], "$db": "admin" }, &[]);
        let of_cluster = rawdoc! { "$changeStream": { "allChangesForCluster": true } };
        check(
            &rawdoc! { "aggregate": 1, "pipeline": [of_cluster], "$db": "admin" },
            &["shop.trades"],
        );
    }
}
