//! The collections that a change stream watches.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::rawdoc;

use crate::command::arguments::with_replaced;
use crate::command::document::{get, single};
use crate::command::namespace::Namespace;
use crate::pattern::bucket::beside;
use crate::pattern::bucket::change_stream::{BeforeChange, FullDocument, Images};
use crate::pattern::shapes::{BucketShape, Shapes};

/// The collections that proxies share: their leases, and the records of refused unique indexes.
const SHARED: [Namespace<'static>; 2] = [
    Namespace::new("mongoshape", "leases"),
    Namespace::new("mongoshape", "refused_unique_indexes"),
];

/// What a stream watches, with the shapes of its beginning.
#[derive(Debug)]
pub(in crate::session) struct Watched {
    shapes: Shapes,
    is_collection: bool,
}

/// The collection of an event.
pub(super) enum EventSource<'a> {
    /// A bucket collection: the event is that of a page.
    Bucket(&'a BucketShape),
    /// A collection of the proxy or of maintenance, which no client sees.
    Hidden,
    /// Any other collection, or none.
    Plain,
}

impl Watched {
    /// One bucket collection.
    pub(in crate::session) fn collection(shapes: Shapes) -> Self {
        Self {
            shapes,
            is_collection: true,
        }
    }

    /// A database or the cluster.
    pub(super) fn database(shapes: Shapes) -> Self {
        Self {
            shapes,
            is_collection: false,
        }
    }

    /// Whether the stream watches one collection.
    pub(super) fn is_collection(&self) -> bool {
        self.is_collection
    }

    /// The options `fullDocument` and `fullDocumentBeforeChange` of mongod's stream. A plain collection may
    /// store no images, so in a database they are required only if the client requires them.
    pub(super) fn images(&self, options: &RawDocument) -> RawDocumentBuf {
        let mut images = RawDocumentBuf::new();
        for name in [cstr!("fullDocument"), cstr!("fullDocumentBeforeChange")] {
            let is_required = self.is_collection || get(options, name.as_str()) == Some(RawBsonRef::String("required"));
            images.append(name, if is_required { "required" } else { "whenAvailable" });
        }
        images
    }

    /// The stage of mongod's stream on a database that removes images of other collections than shaped ones.
    /// Those that the client has requested are kept. An event with both images may exceed 16 MB. `None`: the
    /// client has requested both.
    pub(super) fn without_unrequested(&self, requested: Images) -> Option<RawDocumentBuf> {
        let mut names = RawArrayBuf::new();
        for configured in self.shapes.configured_namespaces() {
            names.push(configured.collection());
        }
        let is_shaped = rawdoc! { "$in": ["$ns.coll", { "$literal": names }] };
        let mut kept = RawDocumentBuf::new();
        if requested.full_document != FullDocument::PostImage {
            let is_other = rawdoc! { "$ne": ["$operationType", "update"] };
            let condition = rawdoc! { "$or": [is_shaped.clone(), is_other] };
            // The current version takes the place of `null`.
            let instead = match requested.full_document {
                FullDocument::UpdateLookup => RawBson::Null,
                FullDocument::Default | FullDocument::PostImage => "$$REMOVE".into(),
            };
            kept.append(
                cstr!("fullDocument"),
                rawdoc! { "$cond": [condition, "$fullDocument", instead] },
            );
        }
        if requested.before_change == BeforeChange::Off {
            kept.append(
                cstr!("fullDocumentBeforeChange"),
                rawdoc! { "$cond": [is_shaped, "$fullDocumentBeforeChange", "$$REMOVE"] },
            );
        }
        let is_necessary = !self.is_collection && !kept.is_empty();
        is_necessary.then(|| single("$set", &kept))
    }

    /// The collection of an event.
    pub(super) fn source(&self, event: &RawDocument) -> EventSource<'_> {
        let Some(namespace) = namespace_of(event) else {
            return EventSource::Plain;
        };
        if self.is_of_maintenance(event, namespace) {
            return EventSource::Hidden;
        }
        match self.shapes.bucket(namespace) {
            Some(shape) => EventSource::Bucket(shape),
            None => EventSource::Plain,
        }
    }

    /// Whether the collection of an event has an automatic shape.
    pub(super) fn is_automatic(&self, event: &RawDocument) -> bool {
        namespace_of(event).is_some_and(|namespace| self.shapes.automatic(namespace).is_some())
    }

    /// Whether the event is of a collection beside one with a shape, or of a swap that puts the collection
    /// with the shape there. In a stream on the collection, such a swap is the end.
    fn is_of_maintenance(&self, event: &RawDocument, namespace: Namespace<'_>) -> bool {
        let Namespace { database, collection } = namespace;
        let original = beside::original(collection).map(|original| Namespace::new(database, original));
        if SHARED.contains(&namespace) || original.is_some_and(|original| self.shapes.is_configured(original)) {
            return true;
        }
        let to = named(event, "to").filter(|_| !self.is_collection);
        to.is_some_and(|to| beside::original(to.collection) == Some(collection)) && self.shapes.is_configured(namespace)
    }
}

/// The command of a client that opens a change stream on a database or the cluster. Its stream has no events
/// of the collections of the proxy, although it is relayed.
pub(in crate::session) fn without_maintenance(shapes: &Shapes, body: &RawDocument) -> RawDocumentBuf {
    let stages = get(body, "pipeline").and_then(RawBsonRef::as_array);
    let stages: Result<Vec<RawBsonRef<'_>>, _> = stages.into_iter().flatten().collect();
    let Some((stream, rest)) = stages.as_deref().unwrap_or_default().split_first() else {
        // mongod refuses the command.
        return body.to_owned();
    };
    let mut stages = RawArrayBuf::new();
    stages.push(*stream);
    stages.push(single("$match", visible_events(shapes)));
    for stage in rest {
        stages.push(*stage);
    }
    with_replaced(body, &[("pipeline", Some(RawBsonRef::Array(&stages)))])
}

/// The filter of the events that are not of the proxy or of maintenance. mongod 6.0 fails for a `$nor` of
/// several conditions on `ns`.
fn visible_events(shapes: &Shapes) -> RawDocumentBuf {
    let (mut in_database, mut in_all) = (RawArrayBuf::new(), RawArrayBuf::new());
    for shared in SHARED {
        in_database.push(in_event(shared.database, shared.collection));
    }
    for configured in shapes.configured_namespaces() {
        for name in beside::names(configured.collection()) {
            match configured.database() {
                Some(database) => in_database.push(in_event(database, &name)),
                None => in_all.push(name),
            }
        }
    }
    let mut filter = single("ns", single("$nin", &in_database));
    filter.append(cstr!("ns.coll"), single("$nin", &in_all));
    filter
}

/// The field `ns` of the events of a collection.
fn in_event(database: &str, collection: &str) -> RawDocumentBuf {
    let mut namespace = single("db", database);
    namespace.append(cstr!("coll"), collection);
    namespace
}

/// The field `ns` of an event.
pub(super) fn namespace_of(event: &RawDocument) -> Option<Namespace<'_>> {
    named(event, "ns")
}

/// A field of an event that has a namespace.
fn named<'a>(event: &'a RawDocument, field: &str) -> Option<Namespace<'a>> {
    let namespace = get(event, field)?.as_document()?;
    let part = |name| get(namespace, name).and_then(RawBsonRef::as_str);
    Some(Namespace::new(part("db")?, part("coll")?))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::command::document::first_field;
    use crate::pattern::shapes::{BucketOptions, Mode, NamespacePattern, Shape};

    fn shapes() -> Shapes {
        let shape = |namespace: &str, mode: Mode| {
            let pattern = NamespacePattern::parse(namespace).unwrap();
            let options = BucketOptions::new(pattern, vec!["k".to_owned()]);
            Shape::Bucket(BucketShape::new(BucketOptions { mode, ..options }).unwrap())
        };
        Shapes::new(vec![
            shape("shop.trades", Mode::Rewrite),
            shape("*.orders", Mode::Shadow),
        ])
        .unwrap()
    }

    fn namespace(collection: &str) -> RawDocumentBuf {
        rawdoc! { "db": "shop", "coll": collection }
    }

    #[test]
    fn collections_of_maintenance_are_hidden() {
        let watched = Watched::database(shapes());
        let check = |collection: &str, is_hidden: bool| {
            let source = watched.source(&rawdoc! { "ns": namespace(collection) });
            assert_eq!(matches!(source, EventSource::Hidden), is_hidden, "{collection}");
        };
        for name in beside::names("trades").into_iter().chain(beside::names("orders")) {
            check(&name, true);
        }
        for name in [
            "trades",
            "orders",
            "others.mongoshape_convert",
            "trades.mongoshape_items",
        ] {
            check(name, false);
        }
    }

    #[test]
    fn the_renamings_of_a_swap_are_hidden() {
        let renamed = |from: &str, to: &str| rawdoc! { "ns": namespace(from), "to": namespace(to) };
        let of_database = Watched::database(shapes());
        let check = |from: &str, to: &str, is_hidden: bool| {
            let source = of_database.source(&renamed(from, to));
            assert_eq!(matches!(source, EventSource::Hidden), is_hidden, "{from} {to}");
        };
        check("trades", "trades.mongoshape_kept", true);
        check("trades.mongoshape_convert", "trades", true);
        check("orders", "orders.mongoshape_kept", true);
        check("trades", "orders.mongoshape_kept", false);
        check("trades", "sales", false);
        let of_collection = Watched::collection(shapes());
        let source = of_collection.source(&renamed("trades", "trades.mongoshape_kept"));
        assert!(matches!(source, EventSource::Bucket(_)));
    }

    #[test]
    fn a_relayed_stream_has_a_filter_behind_its_first_stage() {
        let stages = |body: &RawDocument| -> Vec<String> {
            let stages = body.get_array("pipeline").unwrap().into_iter();
            let name = |stage: RawBsonRef<'_>| first_field(stage.as_document().unwrap()).unwrap().0.to_owned();
            stages.map(|stage| name(stage.unwrap())).collect()
        };
        let stream = rawdoc! { "$changeStream": {} };
        let body = rawdoc! { "aggregate": 1, "pipeline": [stream, { "$project": { "ns": 0 } }], "$db": "shop" };
        let filtered = without_maintenance(&shapes(), &body);
        assert_eq!(stages(&filtered), ["$changeStream", "$match", "$project"]);
        assert_eq!(filtered.get_str("$db").unwrap(), "shop");
    }
}
