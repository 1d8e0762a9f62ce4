//! The collections of shapes.

use std::sync::Arc;

use mongodb::Client;
use mongodb::error::Error;

use super::{ShapedCollection, description, explain, is_unavailable, with_recorded_shape};
use crate::command::namespace::Namespace;
use crate::pattern::shapes::{Mode, Shape, Shapes};

/// Collections that cannot be listed.
#[derive(Debug, thiserror::Error)]
#[error("{subject} cannot be listed: {}", explain(.reason))]
pub(crate) struct Unlisted {
    /// A namespace, or `databases`.
    subject: String,
    reason: Error,
}

impl Unlisted {
    /// Whether the server [is not available](is_unavailable).
    pub(crate) fn is_unavailable(&self) -> bool {
        is_unavailable(&self.reason)
    }
}

/// Collections of shapes, and the reasons why others cannot be listed.
#[derive(Default)]
pub(crate) struct ListedTargets {
    /// Sorted by namespace.
    pub(crate) targets: Vec<ShapedCollection>,
    pub(crate) unlisted: Vec<Unlisted>,
}

impl ListedTargets {
    /// The collections of all shapes in these modes.
    async fn in_modes(client: &Client, shapes: &Shapes, modes: &[Mode]) -> Self {
        let mut listed = Self::default();
        for shape in shapes.iter().filter(|shape| modes.contains(&shape.mode())) {
            listed.add(client, shapes, shape).await;
        }
        listed.targets.sort_by_key(ShapedCollection::namespace);
        listed
    }

    /// Adds the collections of one shape.
    async fn add(&mut self, client: &Client, shapes: &Shapes, shape: &Arc<Shape>) {
        let collection = shape.namespace().collection();
        let databases = match shape.namespace().database() {
            Some(name) => vec![name.to_owned()],
            None => self.databases_with(client, collection).await,
        };
        // A shape for one database takes precedence over a shape for all.
        let is_its_own = |name: &String| {
            let found = shapes.lookup(Namespace::new(name, collection));
            found.is_some_and(|found| found.namespace() == shape.namespace())
        };
        let own = databases.into_iter().filter(is_its_own);
        self.targets
            .extend(own.map(|name| ShapedCollection::of(client, &name, shape)));
    }

    /// The databases that have this collection.
    async fn databases_with(&mut self, client: &Client, collection: &str) -> Vec<String> {
        if self.is_unavailable() {
            return Vec::new();
        }
        let names = match client.list_database_names().await {
            Ok(names) => names,
            Err(reason) => {
                self.miss("databases".to_owned(), reason);
                return Vec::new();
            }
        };
        let mut having = Vec::new();
        for name in names {
            if self.is_unavailable() {
                break;
            }
            match description(&client.database(&name), collection).await {
                Ok(Some(_)) => having.push(name),
                Ok(None) => {}
                Err(reason) => self.miss(Namespace::new(&name, collection).to_string(), reason),
            }
        }
        having
    }

    /// Leaves out plain documents. The others with an automatic shape get the shape that their pages record.
    async fn of_pages(mut self) -> Self {
        for target in std::mem::take(&mut self.targets) {
            if !target.is_automatic() {
                self.targets.push(target);
            } else if !self.is_unavailable() {
                match with_recorded_shape(&target).await {
                    Ok(of_pages) => self.targets.extend(of_pages),
                    Err(reason) => self.miss(target.namespace(), reason),
                }
            }
        }
        self
    }

    fn miss(&mut self, subject: String, reason: Error) {
        self.unlisted.push(Unlisted { subject, reason });
    }

    /// Whether the server is not available: then nothing more can be listed.
    pub(crate) fn is_unavailable(&self) -> bool {
        self.unlisted.iter().any(Unlisted::is_unavailable)
    }

    /// # Errors
    /// If a collection cannot be listed.
    fn complete(self) -> Result<Vec<ShapedCollection>, Unlisted> {
        match self.unlisted.into_iter().next() {
            Some(unlisted) => Err(unlisted),
            None => Ok(self.targets),
        }
    }
}

/// The collections of all shapes: those named in full, whether they exist or not, and for
/// `*.collection` one in each database that has the collection. Sorted by namespace.
///
/// Shapes in observe mode are left out, because their collections contain plain documents, and automatic
/// shapes whose collections do.
///
/// # Errors
/// If a collection cannot be listed.
pub(crate) async fn targets(client: &Client, shapes: &Shapes) -> Result<Vec<ShapedCollection>, Unlisted> {
    listed_targets(client, shapes).await.complete()
}

/// The [targets] that can be listed, and the reasons why others cannot.
pub(crate) async fn listed_targets(client: &Client, shapes: &Shapes) -> ListedTargets {
    let listed = ListedTargets::in_modes(client, shapes, &[Mode::Rewrite, Mode::Auto]).await;
    listed.of_pages().await
}

/// The collections with an automatic shape that contain plain documents.
///
/// # Errors
/// If a collection cannot be listed.
pub(crate) async fn plain_targets(client: &Client, shapes: &Shapes) -> Result<Vec<ShapedCollection>, Unlisted> {
    let automatic = ListedTargets::in_modes(client, shapes, &[Mode::Auto]).await;
    let mut plain = Vec::new();
    for target in automatic.complete()? {
        match with_recorded_shape(&target).await {
            Ok(Some(_)) => {}
            Ok(None) => plain.push(target),
            Err(reason) => {
                let subject = target.namespace();
                return Err(Unlisted { subject, reason });
            }
        }
    }
    Ok(plain)
}

/// Like [`targets`], for the shapes in observe mode.
///
/// # Errors
/// If a collection cannot be listed.
pub(crate) async fn observed(client: &Client, shapes: &Shapes) -> Result<Vec<ShapedCollection>, Unlisted> {
    let observed = ListedTargets::in_modes(client, shapes, &[Mode::Observe]).await;
    observed.complete()
}

/// The [targets] of shapes that name the database. Sends nothing.
pub(crate) fn named_targets(client: &Client, shapes: &Shapes) -> Vec<ShapedCollection> {
    let rewritten = shapes
        .iter()
        .filter(|shape| matches!(shape.mode(), Mode::Rewrite | Mode::Auto));
    let named = rewritten.filter_map(|shape| Some(ShapedCollection::of(client, shape.namespace().database()?, shape)));
    named.collect()
}

/// The collections in shadow mode whose shapes name the database. Sends nothing.
pub(crate) fn named_shadows(client: &Client, shapes: &Shapes) -> Vec<ShapedCollection> {
    let named = shapes
        .shadows()
        .filter_map(|shape| Some(ShapedCollection::of(client, shape.namespace().database()?, shape)));
    named.collect()
}
