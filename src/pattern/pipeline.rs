//! Rewrites the namespaces in a pipeline: a stage that reads a shaped collection reads its items.
//!
//! If mongod would refuse a stage, the stage is passed on in a form that mongod refuses, never in a
//! form that reads raw buckets. So a stage either names no shaped collection, or reads unwound
//! items, or is certainly malformed.

mod graph_lookup;
mod lookup;

use std::sync::Arc;

use bson::raw::{RawArray, RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::bucket::items_view;
use super::bucket::unwind::of_aggregate;
use super::outlier;
use super::shapes::{BucketShape, Mode, Shape, Shapes};
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, first_field, get, put, single};
use crate::command::namespace::Namespace;
use crate::command::referenced_namespaces;

/// Rewrites the pipelines of one command.
#[derive(Debug)]
pub struct Pipelines<'a> {
    shapes: &'a Shapes,
    database: &'a str,
    reached: Vec<ReferencedCollection>,
}

/// A shaped collection that a pipeline reads, in the command's database.
#[derive(Clone, Debug)]
pub struct ReferencedCollection {
    /// Its name.
    pub collection: String,
    shape: Arc<Shape>,
    /// Whether it is read through the view of its items ([`super::bucket::items_view`]), which must
    /// exist.
    pub needs_view: bool,
}

impl ReferencedCollection {
    /// Its shape.
    #[must_use]
    pub fn shape(&self) -> &Shape {
        &self.shape
    }

    /// The name of its pattern.
    #[must_use]
    pub fn pattern(&self) -> &'static str {
        self.shape.pattern()
    }

    /// The namespace as configured.
    #[must_use]
    pub fn configured(&self) -> String {
        self.shape.namespace().to_string()
    }
}

/// The reason why a pipeline cannot be run.
#[derive(Clone, Debug)]
pub struct PipelineRefusal {
    /// The database of the collection that does not support the pipeline.
    pub database: String,
    /// The name of that collection.
    pub collection: String,
    /// The namespace as configured.
    pub configured: String,
    /// The name of its pattern.
    pub pattern: &'static str,
    /// The unsupported feature.
    pub what: String,
}

/// The position of a pipeline in a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PipelinePosition {
    /// Not inside a `$facet`.
    Open,
    /// Inside a `$facet`, which does not allow `$documents` (mongod 6.0.5, error 40600).
    InFacet,
}

impl<'a> Pipelines<'a> {
    /// Rewrites pipelines of a command on `database`.
    #[must_use]
    pub fn new(shapes: &'a Shapes, database: &'a str) -> Self {
        Self {
            shapes,
            database,
            reached: Vec::new(),
        }
    }

    /// The shaped collections that the pipelines read.
    #[must_use]
    pub fn into_reached(self) -> Vec<ReferencedCollection> {
        self.reached
    }

    /// Rewrites the pipeline of a view or a command on a collection.
    ///
    /// # Errors
    /// A feature that a shaped collection does not support.
    pub fn on(&mut self, collection: &str, given: &[&RawDocument]) -> Result<Vec<RawDocumentBuf>, PipelineRefusal> {
        let stages = self.stages(given, PipelinePosition::Open)?;
        match self.shaped(collection) {
            Some(shape) => {
                let mut items = self.items(collection, &shape, given, &stages)?;
                if bucket(&shape).is_some() {
                    items.push(items_view::end());
                }
                Ok(items)
            }
            None => Ok(stages),
        }
    }

    /// Rewrites stages: a stage that reads a shaped collection reads its items.
    ///
    /// # Errors
    /// A feature that a shaped collection does not support.
    pub fn stages(
        &mut self,
        stages: &[&RawDocument],
        place: PipelinePosition,
    ) -> Result<Vec<RawDocumentBuf>, PipelineRefusal> {
        stages.iter().map(|stage| self.stage(stage, place)).collect()
    }

    fn stage(&mut self, stage: &RawDocument, place: PipelinePosition) -> Result<RawDocumentBuf, PipelineRefusal> {
        let as_it_is = || stage.to_owned();
        // mongod refuses a stage with more than one field.
        let Some((name, value)) = first_field(stage).filter(|_| stage.iter().count() == 1) else {
            return Ok(as_it_is());
        };
        let rewritten = match (name, value) {
            ("$lookup", RawBsonRef::Document(spec)) => self.lookup(stage, spec, place)?,
            ("$graphLookup", RawBsonRef::Document(spec)) => self.graph_lookup(stage, spec)?,
            ("$unionWith", RawBsonRef::String(collection)) => self.union_with_all(collection)?,
            ("$unionWith", RawBsonRef::Document(spec)) => self.union_with(spec, place)?,
            ("$facet", RawBsonRef::Document(facets)) => Some(self.facets(facets)?),
            ("$out" | "$merge", _) => {
                self.refuse_all(stage, &format!("{name} into it"))?;
                None
            }
            _ => None,
        };
        Ok(rewritten.map_or_else(as_it_is, |value| single(name, &value)))
    }

    fn union_with_all(&mut self, collection: &str) -> Result<Option<RawDocumentBuf>, PipelineRefusal> {
        let Some(shape) = self.shaped(collection) else {
            return Ok(None);
        };
        let mut spec = single("coll", collection);
        let nothing: [&RawDocument; 0] = [];
        put(
            &mut spec,
            "pipeline",
            array_of(&self.items(collection, &shape, &nothing, &nothing)?),
        );
        Ok(Some(spec))
    }

    fn union_with(
        &mut self,
        spec: &RawDocument,
        place: PipelinePosition,
    ) -> Result<Option<RawDocumentBuf>, PipelineRefusal> {
        let given = match get(spec, "pipeline") {
            None => Vec::new(),
            given => match documents(given) {
                Some(given) => given,
                None => return Ok(None),
            },
        };
        let stages = self.stages(&given, place)?;
        let of_collection = get(spec, "coll").and_then(RawBsonRef::as_str);
        let shaped = of_collection.and_then(|collection| Some((collection, self.shaped(collection)?)));
        let stages = match shaped {
            Some((collection, shape)) if !begins_with_documents(&stages) => {
                self.items(collection, &shape, &given, &stages)?
            }
            _ if stages.is_empty() => return Ok(None),
            _ => stages,
        };
        Ok(Some(with_pipeline(spec, &stages)))
    }

    fn facets(&mut self, facets: &RawDocument) -> Result<RawDocumentBuf, PipelineRefusal> {
        let mut rewritten = RawDocumentBuf::new();
        for (name, pipeline) in facets.iter().flatten() {
            match documents(Some(pipeline)) {
                Some(stages) => rewritten.append(name, array_of(&self.stages(&stages, PipelinePosition::InFacet)?)),
                None => rewritten.append(name, pipeline),
            }
        }
        Ok(rewritten)
    }

    /// The pipeline that makes the items of a shaped collection and continues with `stages`.
    /// `given` are the stages as the client sent them, `stages` the same with rewritten namespaces.
    fn items(
        &mut self,
        collection: &str,
        shape: &Arc<Shape>,
        given: &[&RawDocument],
        stages: &[impl AsRef<RawDocument>],
    ) -> Result<Vec<RawDocumentBuf>, PipelineRefusal> {
        let unpacked = match &**shape {
            Shape::Bucket(shape) => of_aggregate(shape, stages),
            Shape::Outlier(shape) => outlier::pipeline::of_aggregate(shape, given, stages),
        };
        let unpacked = unpacked.map_err(|what| self.refused(collection, shape, &what))?;
        self.reach(collection, shape, false);
        Ok(unpacked)
    }

    fn reach(&mut self, collection: &str, shape: &Arc<Shape>, needs_view: bool) {
        match self.reached.iter_mut().find(|reached| reached.collection == collection) {
            Some(reached) => reached.needs_view |= needs_view,
            None => self.reached.push(ReferencedCollection {
                collection: collection.to_owned(),
                shape: Arc::clone(shape),
                needs_view,
            }),
        }
    }

    /// The shape of a collection in the command's database, if its commands are rewritten.
    fn shaped(&self, collection: &str) -> Option<Arc<Shape>> {
        self.shaped_namespace(Namespace::new(self.database, collection))
    }

    fn shaped_namespace(&self, namespace: Namespace<'_>) -> Option<Arc<Shape>> {
        let shape = self.shapes.lookup(namespace)?;
        (shape.mode() == Mode::Rewrite).then(|| Arc::clone(shape))
    }

    fn bucket<'s>(&self, collection: &str, shape: &'s Arc<Shape>) -> Result<&'s BucketShape, PipelineRefusal> {
        bucket(shape).ok_or_else(|| self.refused(collection, shape, "the outlier pattern"))
    }

    fn refused(&self, collection: &str, shape: &Shape, what: &str) -> PipelineRefusal {
        PipelineRefusal {
            database: self.database.to_owned(),
            collection: collection.to_owned(),
            configured: shape.namespace().to_string(),
            pattern: shape.pattern(),
            what: what.to_owned(),
        }
    }

    /// Refuses a stage if it names any shaped collection.
    fn refuse_all(&self, stage: &RawDocument, what: &str) -> Result<(), PipelineRefusal> {
        let mut refused = None;
        referenced_namespaces::in_stage(self.database, stage, &mut |namespace| {
            if refused.is_none()
                && let Some(shape) = self.shaped_namespace(namespace)
            {
                refused = Some(PipelineRefusal {
                    database: namespace.database.to_owned(),
                    ..self.refused(namespace.collection, &shape, what)
                });
            }
        });
        refused.map_or(Ok(()), Err)
    }
}

fn bucket(shape: &Shape) -> Option<&BucketShape> {
    match shape {
        Shape::Bucket(shape) => Some(shape),
        Shape::Outlier(_) => None,
    }
}

/// The elements of an array of documents. `None` for any other value.
#[must_use]
pub fn documents(value: Option<RawBsonRef<'_>>) -> Option<Vec<&RawDocument>> {
    let elements = value.and_then(RawBsonRef::as_array)?;
    elements_of(elements)
}

fn elements_of(array: &RawArray) -> Option<Vec<&RawDocument>> {
    array.into_iter().map(|element| element.ok()?.as_document()).collect()
}

/// Whether a pipeline begins with `$documents` and so reads no collection.
fn begins_with_documents(stages: &[RawDocumentBuf]) -> bool {
    let first = stages.first().and_then(|stage| first_field(stage));
    first.is_some_and(|(name, _)| name == "$documents")
}

/// A stage's arguments with another pipeline.
fn with_pipeline(spec: &RawDocument, stages: &[RawDocumentBuf]) -> RawDocumentBuf {
    let stages: RawArrayBuf = array_of(stages);
    if get(spec, "pipeline").is_some() {
        return with_replaced(spec, &[("pipeline", Some(RawBsonRef::Array(&stages)))]);
    }
    let mut spec = spec.to_owned();
    spec.append(cstr!("pipeline"), &stages);
    spec
}

#[cfg(test)]
mod tests;
