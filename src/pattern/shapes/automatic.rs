//! Automatic shapes: whether they apply depends on what is stored.

use std::collections::HashMap;
use std::sync::Arc;

use super::{BucketShape, Mode, Shape, Shapes};
use crate::command::namespace::Namespace;

/// The most databases for which the layout of one collection name is kept. A shape for all databases may
/// match more; their layouts are then determined again.
const MAX_DATABASES: usize = 10_000;

/// What a collection with an automatic shape contains.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum StoredLayout {
    /// Plain documents.
    Plain,
    /// Pages, or nothing yet: the collection is missing, and the first write stores pages.
    Pages,
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

/// The known layouts, by collection and database.
#[derive(Clone, Debug, Default)]
pub(super) struct Layouts {
    known: HashMap<String, HashMap<String, StoredLayout>>,
}

impl Layouts {
    pub(super) fn of(&self, namespace: Namespace<'_>) -> Option<StoredLayout> {
        self.known.get(namespace.collection)?.get(namespace.database).copied()
    }

    /// Whether a collection of the shape is known to contain pages.
    pub(super) fn has_pages(&self, shape: &Shape) -> bool {
        let namespace = shape.namespace();
        let of_name = self.known.get(namespace.collection());
        let mut databases = of_name.into_iter().flatten();
        databases.any(|(database, layout)| {
            *layout == StoredLayout::Pages && namespace.matches(Namespace::new(database, namespace.collection()))
        })
    }
}

impl Shapes {
    /// The automatic shape of a namespace, whatever its layout.
    #[must_use]
    pub fn automatic(&self, namespace: Namespace<'_>) -> Option<&BucketShape> {
        match &**self.find(namespace)?.rewriting.as_ref()? {
            Shape::Bucket(shape) => Some(shape),
            Shape::Outlier(_) => None,
        }
    }

    /// The names of the collections of a database that have an automatic shape.
    pub fn automatic_in<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a str> {
        let names = self.by_collection.keys().map(String::as_str);
        names.filter(move |collection| self.automatic(Namespace::new(database, collection)).is_some())
    }

    /// Whether any shape is automatic.
    #[must_use]
    pub fn has_automatic(&self) -> bool {
        self.has_automatic
    }

    /// The layout of a collection with an automatic shape. `None`: it is not known.
    #[must_use]
    pub fn layout(&self, namespace: Namespace<'_>) -> Option<StoredLayout> {
        self.layouts.of(namespace)
    }

    /// The same shapes, with the layout of one collection. `None`: it is not known any more.
    #[must_use]
    pub fn with_layout(&self, namespace: Namespace<'_>, layout: Option<StoredLayout>) -> Self {
        let mut shapes = self.clone();
        let of_name = shapes.layouts.known.entry(namespace.collection.to_owned()).or_default();
        if of_name.len() >= MAX_DATABASES {
            of_name.clear();
        }
        match layout {
            Some(layout) => of_name.insert(namespace.database.to_owned(), layout),
            None => of_name.remove(namespace.database),
        };
        shapes
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::pattern::shapes::{BucketOptions, NamespacePattern};

    fn shapes(namespace: &str, mode: Mode) -> Shapes {
        let pattern = NamespacePattern::parse(namespace).unwrap();
        let options = BucketOptions::new(pattern, vec!["k".to_owned()]);
        let shape = BucketShape::new(BucketOptions { mode, ..options }).unwrap();
        Shapes::new(vec![Shape::Bucket(shape)]).unwrap()
    }

    #[test]
    fn layout_determines_the_mode() {
        let trades = Namespace::new("shop", "trades");
        let mode = |shapes: &Shapes| shapes.lookup(trades).unwrap().mode();
        let unknown = shapes("*.trades", Mode::Auto);
        assert_eq!((mode(&unknown), unknown.layout(trades)), (Mode::Auto, None));
        let pages = unknown.with_layout(trades, Some(StoredLayout::Pages));
        assert_eq!(mode(&pages), Mode::Rewrite);
        assert!(pages.bucket(trades).is_some());
        assert!(pages.bucket(Namespace::new("other", "trades")).is_none());
        let plain = pages.with_layout(trades, Some(StoredLayout::Plain));
        assert_eq!(mode(&plain), Mode::Auto);
        assert_eq!(pages.with_layout(trades, None).layout(trades), None);
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
}
