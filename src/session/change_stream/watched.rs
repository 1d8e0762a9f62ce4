//! The collections that a change stream watches.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::document::get;
use crate::command::namespace::Namespace;
use crate::pattern::bucket::{compact, pack};
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
    /// A collection of the proxy, which no client sees.
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

    /// The collection of an event.
    pub(super) fn source(&self, event: &RawDocument) -> EventSource<'_> {
        let Some(namespace) = namespace_of(event) else {
            return EventSource::Plain;
        };
        if let Some(shape) = self.shapes.bucket(namespace) {
            return EventSource::Bucket(shape);
        }
        if self.is_copy(namespace) || SHARED.contains(&namespace) {
            return EventSource::Hidden;
        }
        EventSource::Plain
    }

    /// Whether the collection is a copy that may replace a bucket collection.
    fn is_copy(&self, Namespace { database, collection }: Namespace<'_>) -> bool {
        let Some((original, _)) = collection.rsplit_once(".mongoshape_") else {
            return false;
        };
        let names = [compact::copy_name, compact::stopped_name, pack::copy_name];
        names.iter().any(|name| name(original) == collection)
            && self.shapes.bucket(Namespace::new(database, original)).is_some()
    }
}

/// The field `ns` of an event.
pub(super) fn namespace_of(event: &RawDocument) -> Option<Namespace<'_>> {
    let namespace = get(event, "ns")?.as_document()?;
    let part = |name| get(namespace, name).and_then(RawBsonRef::as_str);
    Some(Namespace::new(part("db")?, part("coll")?))
}
