//! The layout of a collection: plain documents, or pages of a shape.

use bson::raw::RawDocumentBuf;
use bson::{Bson, Document};
use mongodb::Database;

use super::task::ConvertTask;
use crate::maintenance::finding::Finding;
use crate::maintenance::inspect::has;
use crate::maintenance::swap::{Halt, SwapKind};
use crate::maintenance::upstream::{ShapedCollection, indexes_of, raw_specs};
use crate::pattern::bucket::{index, pack};
use crate::pattern::shape_marker;
use crate::pattern::shapes::{BucketOptions, BucketShape, ItemIds, Mode, NamespacePattern, Shape};

/// The layout of a collection.
#[derive(Clone, Debug)]
pub(super) enum Layout {
    Plain,
    /// Pages. The options have the namespace that the configuration or the collection has.
    Pages(Box<BucketOptions>),
}

impl Layout {
    /// The layout that a configured shape has.
    pub(super) fn of_shape(shape: &BucketShape) -> Self {
        Self::Pages(Box::new(shape.options().clone()))
    }

    /// The layout of an existing collection. `configured`: the collection with its shape in the
    /// configuration.
    pub(super) async fn of_collection(
        database: &Database,
        collection: &str,
        configured: Option<&ShapedCollection>,
    ) -> Result<Self, Halt> {
        let listed = raw_specs(&indexes_of(database, collection).await?);
        if let Some(marker) = shape_marker::among(listed.iter().map(|spec| &**spec)) {
            let unknown = || Halt::Words("its shape marker has options that this version does not know".to_owned());
            let namespace = pattern(database, collection)?;
            let recorded = shape_marker::recorded(marker).and_then(|stored| BucketShape::recorded(stored, namespace));
            return recorded
                .map(|options| Self::Pages(Box::new(options)))
                .ok_or_else(unknown);
        }
        let has_page_index = listed
            .iter()
            .any(|spec| spec.get_str("name").is_ok_and(|name| name == index::PAGE));
        let shape = configured.and_then(|target| Some((target, target.bucket()?)));
        let buckets = match shape {
            Some((target, shape)) => has(target, pack::buckets(shape), None).await?,
            None => None,
        };
        if has_page_index || buckets.is_some() {
            let words = "it contains buckets that no `mongoshape setup` has adopted; run `mongoshape setup` first";
            return Err(Halt::Words(words.to_owned()));
        }
        Ok(Self::Plain)
    }

    /// Whether a collection in this layout can be read in the other.
    pub(super) fn is_same(&self, other: &Self) -> bool {
        self.record() == other.record()
    }

    /// The layout as the record of a conversion contains it: "plain", or the options that pages depend on.
    pub(super) fn record(&self) -> Bson {
        match self {
            Self::Plain => Bson::String("plain".to_owned()),
            Self::Pages(options) => {
                let shape = BucketShape::new((**options).clone()).ok();
                let stored = shape.and_then(|shape| Document::try_from(shape.stored_as()).ok());
                stored.map_or(Bson::Null, Bson::Document)
            }
        }
    }

    /// The layout of a [record](Self::record).
    pub(super) fn recorded(record: &Bson, database: &Database, collection: &str) -> Result<Self, Halt> {
        let unknown = || Halt::Words("its conversion was begun by another version".to_owned());
        match record {
            Bson::String(text) if text == "plain" => Ok(Self::Plain),
            Bson::Document(stored) => {
                let stored = RawDocumentBuf::try_from(stored).map_err(|_| unknown())?;
                let options = BucketShape::recorded(&stored, pattern(database, collection)?).ok_or_else(unknown)?;
                Ok(Self::Pages(Box::new(options)))
            }
            _ => Err(unknown()),
        }
    }

    /// The kind of a swap of a collection in this layout, by a run of this task.
    pub(super) fn swap_kind(&self, task: ConvertTask) -> SwapKind {
        if self.is_plain() {
            SwapKind::ConvertPlain(task.command())
        } else {
            SwapKind::ConvertPages(task.command())
        }
    }

    pub(super) fn is_plain(&self) -> bool {
        matches!(self, Self::Plain)
    }

    /// The shape of a collection with this name in this layout. `None`: a plain one has no shape.
    pub(super) fn shape(&self, of: &PagesOf<'_>) -> Result<Option<Shape>, Halt> {
        let Self::Pages(options) = self else {
            return Ok(None);
        };
        let options = BucketOptions {
            namespace: pattern(of.database, of.collection)?,
            mode: Mode::Rewrite,
            change_streams: of.has_change_streams,
            reject_direct_writes: of.rejects_direct_writes,
            ..(**options).clone()
        };
        let invalid = |_| Halt::Words(format!("{} is no valid name of a collection of pages", of.collection));
        BucketShape::new(options)
            .map(|shape| Some(Shape::Bucket(shape)))
            .map_err(invalid)
    }

    /// An error if `_id`s are not unique in this layout. A conversion identifies a document by its `_id`.
    pub(super) fn unfit(&self, namespace: &str) -> Option<Finding> {
        match self {
            Self::Pages(options) if options.item_ids != ItemIds::Unique => {
                let text = "cannot be converted while applications write: that requires item_ids = \"unique\"; for plain documents, \
                            stop all writers and use `mongoshape setup --pack`";
                Some(Finding::error(namespace, text))
            }
            _ => None,
        }
    }

    /// The fields that determine a document's page.
    pub(super) fn placing(&self) -> Vec<String> {
        match self {
            Self::Plain => Vec::new(),
            Self::Pages(options) => options.key.iter().chain(&options.time).cloned().collect(),
        }
    }

    /// The order in which a copy of this layout is filled. Empty: any.
    pub(super) fn order(&self) -> RawDocumentBuf {
        match self {
            Self::Plain => RawDocumentBuf::new(),
            Self::Pages(options) => BucketShape::new((**options).clone())
                .map(|shape| pack::order(&shape))
                .unwrap_or_default(),
        }
    }
}

/// A collection of pages.
pub(super) struct PagesOf<'a> {
    pub(super) database: &'a Database,
    pub(super) collection: &'a str,
    /// Whether mongod stores images of its pages.
    pub(super) has_change_streams: bool,
    /// Whether a collection that is created refuses direct writes.
    pub(super) rejects_direct_writes: bool,
}

fn pattern(database: &Database, collection: &str) -> Result<NamespacePattern, Halt> {
    let text = format!("{}.{collection}", database.name());
    NamespacePattern::parse(&text).ok_or_else(|| Halt::Words(format!("{text} cannot have a shape")))
}

impl std::fmt::Display for Layout {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        match self {
            Self::Plain => f.write_str("plain documents"),
            Self::Pages(options) => write!(f, "pages of {} items by {}", options.max_items, options.key.join(", ")),
        }
    }
}
