//! Shapes: which namespace is stored in which pattern, as validated values.
//!
//! [`BucketShape::new`] and [`OutlierShape::new`] create shapes and report all contradictions at
//! once. No later code validates a shape again.

mod automatic;
mod bucket;
mod fingerprint;
mod namespace_pattern;
mod options;
mod outlier;
mod rename;

use std::collections::HashMap;
use std::sync::Arc;

pub use self::automatic::StoredLayout;
use self::automatic::{ConfiguredShape, Layouts};
pub use self::bucket::{BucketOptions, BucketShape, ItemIds};
pub use self::namespace_pattern::NamespacePattern;
pub use self::options::{Mode, ShadowShare, ShapeError};
pub use self::outlier::{ExtrasOptions, OutlierOptions, OutlierShape, Reads};
pub use self::rename::RenameMap;
use crate::command::namespace::Namespace;

/// The pattern of one namespace.
#[derive(Clone, Debug)]
pub enum Shape {
    /// The bucket pattern: many small items in one document per page.
    Bucket(BucketShape),
    /// The outlier pattern: an array's elements beyond a threshold in another collection.
    Outlier(OutlierShape),
}

impl Shape {
    /// The configured namespace.
    #[must_use]
    pub fn namespace(&self) -> &NamespacePattern {
        match self {
            Self::Bucket(shape) => shape.namespace(),
            Self::Outlier(shape) => shape.namespace(),
        }
    }

    /// The pattern's name.
    #[must_use]
    pub fn pattern(&self) -> &'static str {
        match self {
            Self::Bucket(_) => BucketShape::PATTERN,
            Self::Outlier(_) => OutlierShape::PATTERN,
        }
    }

    /// Whether applications may open change streams on the collection.
    #[must_use]
    pub fn has_change_streams(&self) -> bool {
        match self {
            Self::Bucket(shape) => shape.change_streams(),
            Self::Outlier(_) => false,
        }
    }

    /// How commands on the namespace are handled.
    #[must_use]
    pub fn mode(&self) -> Mode {
        match self {
            Self::Bucket(shape) => shape.mode(),
            Self::Outlier(shape) => shape.mode(),
        }
    }
}

/// All shapes of one configuration. A lookup, done for every command, allocates nothing.
#[derive(Clone, Debug, Default)]
pub struct Shapes {
    by_collection: HashMap<String, Vec<ConfiguredShape>>,
    /// The layouts of collections with an automatic shape, as far as they are known.
    layouts: Layouts,
    has_automatic: bool,
    /// Whether any shape does more than relay.
    has_active: bool,
    has_shadows: bool,
}

impl Shapes {
    /// Collects the shapes. Those that only relay are found by [`Shapes::shadow`] alone, but take precedence
    /// over a shape for every database.
    ///
    /// # Errors
    /// Each pair of positions in `shapes` with the same namespace.
    pub fn new(shapes: Vec<Shape>) -> Result<Self, Vec<(usize, usize)>> {
        let clashes: Vec<(usize, usize)> = shapes
            .iter()
            .enumerate()
            .filter_map(|(later, shape)| {
                let same = move |other: &Shape| other.namespace() == shape.namespace();
                shapes.iter().take(later).position(same).map(|earlier| (earlier, later))
            })
            .collect();
        if !clashes.is_empty() {
            return Err(clashes);
        }
        let mut by_collection: HashMap<String, Vec<ConfiguredShape>> = HashMap::new();
        for shape in shapes {
            let collection = shape.namespace().collection().to_owned();
            let of_name = by_collection.entry(collection).or_default();
            of_name.push(ConfiguredShape::new(shape));
            // A named database takes precedence over the wildcard.
            of_name.sort_by_key(|shape| shape.configured.namespace().database().is_none());
        }
        let any = |is: fn(&ConfiguredShape) -> bool| by_collection.values().flatten().any(is);
        Ok(Self {
            has_automatic: any(|shape| shape.rewriting.is_some()),
            has_active: any(|shape| !shape.configured.mode().only_relays()),
            has_shadows: any(|shape| shape.configured.mode() == Mode::Shadow),
            by_collection,
            layouts: Layouts::default(),
        })
    }

    /// The shape of a namespace, if it has one. A shape of the named database takes precedence over
    /// one for every database. An automatic shape has the mode `rewrite` while its collection is known to
    /// contain pages, and otherwise `auto`. Its other options are then those of the pages. `None` also for a
    /// shape that only relays.
    #[must_use]
    pub fn lookup(&self, namespace: Namespace<'_>) -> Option<&Arc<Shape>> {
        let found = self.find(namespace)?;
        if found.configured.mode().only_relays() {
            return None;
        }
        let of_pages = self.layouts.shape_of_pages(namespace, found);
        Some(of_pages.unwrap_or(&found.configured))
    }

    /// The shape of a namespace in the mode `shadow`.
    #[must_use]
    pub fn shadow(&self, namespace: Namespace<'_>) -> Option<&Arc<Shape>> {
        if !self.has_shadows {
            return None;
        }
        let found = &self.find(namespace)?.configured;
        (found.mode() == Mode::Shadow).then_some(found)
    }

    /// The shapes in the mode `shadow`, in no particular order.
    pub fn shadows(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.configured().filter(|shape| shape.mode() == Mode::Shadow)
    }

    fn configured(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.by_collection.values().flatten().map(|shape| &shape.configured)
    }

    /// Whether the namespace has a shape in any mode.
    #[must_use]
    pub fn is_configured(&self, namespace: Namespace<'_>) -> bool {
        self.find(namespace).is_some()
    }

    /// The namespaces of the shapes in all modes, in no particular order.
    pub fn configured_namespaces(&self) -> impl Iterator<Item = &NamespacePattern> {
        self.configured().map(|shape| shape.namespace())
    }

    fn find(&self, namespace: Namespace<'_>) -> Option<&ConfiguredShape> {
        let of_name = self.by_collection.get(namespace.collection)?;
        let mut of_name = of_name.iter();
        of_name.find(|shape| shape.configured.namespace().matches(namespace))
    }

    /// The bucket collections of a database whose commands are rewritten, with their shapes, in no
    /// particular order.
    pub fn buckets_in<'a>(&'a self, database: &'a str) -> impl Iterator<Item = (&'a str, &'a BucketShape)> {
        self.by_collection.keys().filter_map(move |collection| {
            let shape = self.bucket(Namespace::new(database, collection))?;
            Some((collection.as_str(), shape))
        })
    }

    /// Like [`Self::buckets_in`], with all collections that have an automatic shape, whatever they contain.
    pub fn buckets_in_any_layout<'a>(&'a self, database: &'a str) -> impl Iterator<Item = (&'a str, &'a BucketShape)> {
        self.by_collection.keys().filter_map(move |collection| {
            let namespace = Namespace::new(database, collection);
            let shape = self.bucket(namespace).or_else(|| self.automatic(namespace))?;
            Some((collection.as_str(), shape))
        })
    }

    /// The first by name of the collections of a database whose commands are rewritten.
    #[must_use]
    pub fn first_rewritten_in<'a>(&'a self, database: &'a str) -> Option<&'a Arc<Shape>> {
        self.rewritten_in(database)
            .min_by_key(|shape| shape.namespace().collection())
    }

    /// The collections of a database whose commands are rewritten, in no particular order.
    pub fn rewritten_in<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a Arc<Shape>> {
        let collections = self.by_collection.keys();
        let shapes = collections.filter_map(move |collection| self.lookup(Namespace::new(database, collection)));
        shapes.filter(|shape| shape.mode() == Mode::Rewrite)
    }

    /// Of all collections whose commands are rewritten, the first by name.
    #[must_use]
    pub fn first_rewritten(&self) -> Option<&Arc<Shape>> {
        let name = |shape: &&Arc<Shape>| shape.namespace().to_string();
        self.rewritten().min_by_key(name)
    }

    /// All collections whose commands are rewritten, in no particular order.
    pub fn rewritten(&self) -> impl Iterator<Item = &Arc<Shape>> {
        let shapes = self.by_collection.values().flatten();
        shapes.filter_map(|shape| match &shape.rewriting {
            Some(rewriting) => self.layouts.has_pages(rewriting).then_some(rewriting),
            None => Some(&shape.configured).filter(|configured| configured.mode() == Mode::Rewrite),
        })
    }

    /// The outlier collections of a database whose commands are rewritten, in no particular order.
    pub fn outliers_in<'a>(&'a self, database: &'a str) -> impl Iterator<Item = &'a OutlierShape> {
        self.by_collection.keys().filter_map(move |collection| {
            match &**self.lookup(Namespace::new(database, collection))? {
                Shape::Outlier(shape) if shape.mode() == Mode::Rewrite => Some(shape),
                _ => None,
            }
        })
    }

    /// The shape of a bucket collection whose commands are rewritten.
    #[must_use]
    pub fn bucket(&self, namespace: Namespace<'_>) -> Option<&BucketShape> {
        match &**self.lookup(namespace)? {
            Shape::Bucket(shape) if shape.mode() == Mode::Rewrite => Some(shape),
            _ => None,
        }
    }

    /// The same shapes, with the modes `observe` and `rewrite` exchanged: a dry run plans only for the shapes
    /// in observe mode. An automatic shape is not planned for.
    #[must_use]
    pub fn for_dry_run(&self) -> Self {
        let exchanged = |shape: &ConfiguredShape| {
            let shape = &shape.configured;
            let mode = match shape.mode() {
                Mode::Observe => Mode::Rewrite,
                Mode::Rewrite | Mode::Auto => Mode::Observe,
                Mode::Shadow | Mode::Off => Mode::Off,
            };
            ConfiguredShape::new(match &**shape {
                Shape::Bucket(shape) => Shape::Bucket(shape.with_mode(mode)),
                Shape::Outlier(shape) => Shape::Outlier(shape.with_mode(mode)),
            })
        };
        let shapes = self.by_collection.iter();
        let shapes = shapes.map(|(name, of_name)| (name.clone(), of_name.iter().map(exchanged).collect()));
        Self {
            by_collection: shapes.collect(),
            layouts: Layouts::default(),
            has_automatic: false,
            has_active: self.has_active,
            has_shadows: false,
        }
    }

    /// Every shape as configured, except those that only relay, in no particular order.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Shape>> {
        self.configured().filter(|shape| !shape.mode().only_relays())
    }

    /// Whether all commands are relayed, because no shape does more.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.has_active
    }
}

#[cfg(test)]
mod tests;
