//! Automatic shapes: whether they apply depends on what is stored.

use std::collections::HashMap;
use std::sync::Arc;

use bson::raw::{RawDocument, RawDocumentBuf};

use super::{BucketOptions, BucketShape, Mode, Shape, Shapes};
use crate::command::namespace::Namespace;
use crate::pattern::shape_marker;

/// The most databases for which the layout of one collection name is kept. A shape for all databases may
/// match more; their layouts are then determined again.
const MAX_DATABASES: usize = 10_000;

/// What a collection with an automatic shape contains.
#[derive(Clone, Debug, PartialEq)]
pub enum StoredLayout {
    /// Plain documents.
    Plain,
    /// Pages, with the options that their [shape marker](crate::pattern::shape_marker) records. `None`: they
    /// have no shape marker, or the collection is missing, and the first write stores pages of the configured
    /// shape.
    Pages(Option<RawDocumentBuf>),
}

impl StoredLayout {
    /// The layout of a collection that has the page index. `indexes`: all its indexes.
    #[must_use]
    pub fn of_pages<'a>(indexes: impl Iterator<Item = &'a RawDocument>) -> Self {
        let recorded = shape_marker::among(indexes).and_then(shape_marker::recorded);
        Self::Pages(recorded.map(RawDocument::to_owned))
    }

    /// Whether it contains plain documents.
    #[must_use]
    pub fn is_plain(&self) -> bool {
        *self == Self::Plain
    }

    /// The shape of the pages, if it is another one than `configured`, and this version knows its options.
    #[must_use]
    pub fn recorded_shape(&self, configured: &BucketShape) -> Option<BucketShape> {
        let Self::Pages(Some(recorded)) = self else {
            return None;
        };
        if shape_marker::differing(configured.stored_as(), &shape_marker::index(recorded)).is_empty() {
            return None;
        }
        let options = BucketShape::recorded(recorded, configured.namespace().clone())?;
        let own = configured.options();
        let options = BucketOptions {
            mode: own.mode,
            shadow_share: own.shadow_share,
            max_bytes: own.max_bytes,
            change_streams: own.change_streams,
            reject_direct_writes: own.reject_direct_writes,
            ..options
        };
        BucketShape::new(options).ok()
    }
}

/// A shape, and for an automatic one the shape of a collection that contains pages.
#[derive(Clone, Debug)]
pub(super) struct ConfiguredShape {
    pub(super) configured: Arc<Shape>,
    pub(super) rewriting: Option<Arc<Shape>>,
}

impl ConfiguredShape {
    pub(super) fn new(shape: Shape) -> Self {
        let rewriting = match &shape {
            Shape::Bucket(shape) if shape.mode() == Mode::Auto => {
                Some(Arc::new(Shape::Bucket(shape.with_mode(Mode::Rewrite))))
            }
            _ => None,
        };
        Self {
            configured: Arc::new(shape),
            rewriting,
        }
    }
}

/// The layout of a collection as last listed.
#[derive(Clone, Debug)]
struct KnownLayout {
    layout: StoredLayout,
    /// The shape of its pages, if it is another one than the configured shape.
    recorded: Option<Arc<Shape>>,
}

/// The known layouts, by collection and database.
#[derive(Clone, Debug, Default)]
pub(super) struct Layouts {
    known: HashMap<String, HashMap<String, KnownLayout>>,
}

impl Layouts {
    fn of(&self, namespace: Namespace<'_>) -> Option<&KnownLayout> {
        self.known.get(namespace.collection)?.get(namespace.database)
    }

    /// The shape of the pages that a collection is known to contain.
    pub(super) fn shape_of_pages<'a>(
        &'a self,
        namespace: Namespace<'_>,
        configured: &'a ConfiguredShape,
    ) -> Option<&'a Arc<Shape>> {
        let rewriting = configured.rewriting.as_ref()?;
        let known = self.of(namespace).filter(|known| !known.layout.is_plain())?;
        Some(known.recorded.as_ref().unwrap_or(rewriting))
    }

    /// Whether a collection of the shape is known to contain pages.
    pub(super) fn has_pages(&self, shape: &Shape) -> bool {
        let namespace = shape.namespace();
        let of_name = self.known.get(namespace.collection());
        let mut databases = of_name.into_iter().flatten();
        databases.any(|(database, known)| {
            !known.layout.is_plain() && namespace.matches(Namespace::new(database, namespace.collection()))
        })
    }
}

impl Shapes {
    /// The automatic shape of a namespace: that of its pages if it is known to contain pages, and otherwise
    /// the configured one.
    #[must_use]
    pub fn automatic(&self, namespace: Namespace<'_>) -> Option<&BucketShape> {
        let configured = self.find(namespace)?;
        let rewriting = configured.rewriting.as_ref()?;
        match &**self.layouts.shape_of_pages(namespace, configured).unwrap_or(rewriting) {
            Shape::Bucket(shape) => Some(shape),
            Shape::Outlier(_) => None,
        }
    }

    /// The names of the collections of a database that have an automatic shape.
    pub fn automatic_in<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.by_collection.keys().map(String::as_str);
        names.filter(move |collection| self.automatic(Namespace::new(database, collection)).is_some())
    }

    /// The collections with an automatic shape that names their database.
    pub fn automatic_collections(&self) -> impl Iterator<Item = Namespace<'_>> {
        self.configured_automatic().filter_map(|shape| {
            let namespace = shape.namespace();
            Some(Namespace::new(namespace.database()?, namespace.collection()))
        })
    }

    /// The first by name of the automatic shapes for every database.
    #[must_use]
    pub fn automatic_in_every_database(&self) -> Option<&Arc<Shape>> {
        let everywhere = self
            .configured_automatic()
            .filter(|shape| shape.namespace().database().is_none());
        everywhere.min_by_key(|shape| shape.namespace().collection())
    }

    fn configured_automatic(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.configured().filter(|shape| shape.mode() == Mode::Auto)
    }

    /// Whether any shape is automatic.
    #[must_use]
    pub fn has_automatic(&self) -> bool {
        self.has_automatic
    }

    /// The layout of a collection with an automatic shape. `None`: it is not known.
    #[must_use]
    pub fn layout(&self, namespace: Namespace<'_>) -> Option<&StoredLayout> {
        self.layouts.of(namespace).map(|known| &known.layout)
    }

    /// Whether a collection with an automatic shape contains pages of the configured shape in this layout. A
    /// missing one will.
    #[must_use]
    pub fn is_as_configured(&self, namespace: Namespace<'_>, layout: &StoredLayout) -> bool {
        !layout.is_plain() && self.known_layout(namespace, layout.clone()).recorded.is_none()
    }

    /// The same shapes, with the layout of one collection.
    #[must_use]
    pub fn with_layout(&self, namespace: Namespace<'_>, layout: StoredLayout) -> Self {
        let known = self.known_layout(namespace, layout);
        let mut shapes = self.clone();
        let of_name = shapes.layouts.known.entry(namespace.collection.to_owned()).or_default();
        if of_name.len() >= MAX_DATABASES {
            of_name.clear();
        }
        of_name.insert(namespace.database.to_owned(), known);
        shapes
    }

    fn known_layout(&self, namespace: Namespace<'_>, layout: StoredLayout) -> KnownLayout {
        let rewriting = self.find(namespace).and_then(|shape| shape.rewriting.as_deref());
        let recorded = match rewriting {
            Some(Shape::Bucket(configured)) => layout.recorded_shape(configured),
            _ => None,
        };
        KnownLayout {
            recorded: recorded.map(|shape| Arc::new(Shape::Bucket(shape))),
            layout,
        }
    }
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shapes(namespace: &str, mode: Mode) -> Shapes {
        shapes_by(namespace, mode, "k")
    }

    fn shapes_by(namespace: &str, mode: Mode, key: &str) -> Shapes {
        let pattern = NamespacePattern::parse(namespace).unwrap();
        let options = BucketOptions::new(pattern, vec![key.to_owned()]);
        let shape = BucketShape::new(BucketOptions { mode, ..options }).unwrap();
        Shapes::new(vec![Shape::Bucket(shape)]).unwrap()
    }

    #[test]
    fn layout_determines_the_mode() {
        let trades = Namespace::new("shop", "trades");
        let mode = |shapes: &Shapes| shapes.lookup(trades).unwrap().mode();
        let unknown = shapes("*.trades", Mode::Auto);
        assert_eq!((mode(&unknown), unknown.layout(trades)), (Mode::Auto, None));
        let pages = unknown.with_layout(trades, StoredLayout::Pages(None));
        assert_eq!(mode(&pages), Mode::Rewrite);
        assert!(pages.bucket(trades).is_some());
        assert!(pages.bucket(Namespace::new("other", "trades")).is_none());
        let plain = pages.with_layout(trades, StoredLayout::Plain);
        assert_eq!(mode(&plain), Mode::Auto);
    }

    #[test]
    fn pages_have_the_shape_that_they_record() {
        let trades = Namespace::new("shop", "trades");
        let unknown = shapes("*.trades", Mode::Auto);
        let configured = unknown.automatic(trades).unwrap().stored_as().to_owned();
        let key = |stored: &RawDocumentBuf| {
            let known = unknown.with_layout(trades, StoredLayout::Pages(Some(stored.clone())));
            known.bucket(trades).unwrap().options().key.clone()
        };
        assert_eq!(key(&configured), ["k"]);
        let other = shapes_by("*.trades", Mode::Auto, "j")
            .automatic(trades)
            .unwrap()
            .stored_as()
            .to_owned();
        assert_eq!(key(&other), ["j"]);
        // The collection's check reports options that are not known.
        assert_eq!(key(&rawdoc! { "later": 1 }), ["k"]);
        let is_as_configured = |layout: &StoredLayout| unknown.is_as_configured(trades, layout);
        assert!(is_as_configured(&StoredLayout::Pages(None)));
        assert!(is_as_configured(&StoredLayout::Pages(Some(configured))));
        assert!(!is_as_configured(&StoredLayout::Pages(Some(other))));
        assert!(!is_as_configured(&StoredLayout::Plain));
    }

    #[test]
    fn only_a_shape_in_auto_mode_is_automatic() {
        let trades = Namespace::new("shop", "trades");
        assert!(shapes("shop.trades", Mode::Rewrite).automatic(trades).is_none());
        let automatic = shapes("shop.trades", Mode::Auto);
        assert!(automatic.has_automatic());
        assert_eq!(automatic.automatic_in("shop").collect::<Vec<_>>(), ["trades"]);
        assert_eq!(automatic.automatic_in("other").count(), 0);
    }

    #[test]
    fn a_shape_for_every_database_names_no_collection() {
        let found = |namespace: &str| {
            let shapes = shapes(namespace, Mode::Auto);
            let named: Vec<String> = shapes.automatic_collections().map(|of| of.to_string()).collect();
            (named, shapes.automatic_in_every_database().is_some())
        };
        assert_eq!(found("shop.trades"), (vec!["shop.trades".to_owned()], false));
        assert_eq!(found("*.trades"), (vec![], true));
    }
}
