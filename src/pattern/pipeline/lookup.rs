//! `$lookup` in all its forms.
//!
//! With `localField` and `foreignField` mongod matches before it runs the `pipeline`, so it matches
//! raw buckets. A key field is at the top level of a bucket under its own name, and equal for all
//! items of the bucket. Any other field is matched twice. First on the buckets, under its stored
//! path, which matches a bucket if and only if it matches one of its items. An index on the path
//! answers this match. Then by another `$lookup` of the same two fields, on the items of one bucket
//! at a time, passed by `$documents`.
//! Inside a `$facet`, which does not allow `$documents`, the view of the items is read instead.
//!
//! A sub-pipeline that needs the first or last items of a key reads the pages at that end of the key: see
//! [`key_end`](crate::pattern::bucket::key_end).

use std::sync::Arc;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{PipelinePosition, PipelineRefusal, Pipelines, begins_with_documents, documents, with_pipeline};
use crate::command::arguments::with_replaced;
use crate::command::document::{array_of, get, put, single};
use crate::command::unused_name::unused_name;
use crate::pattern::bucket::key_end::{KeyLookup, WantedKey};
use crate::pattern::bucket::predicate_pushdown::{key_position, only_variable};
use crate::pattern::bucket::{items_view, unwind};
use crate::pattern::outlier::classify::{depends_on_array, names_own};
use crate::pattern::shapes::{BucketShape, OutlierShape, Shape};
use crate::pattern::unwound;

/// The arguments of which mongod uses the last if they are repeated.
const ARGUMENTS: &[&str] = &["from", "localField", "foreignField", "let", "pipeline"];

/// The fields of two collections that must be equal.
struct Join<'a> {
    local: &'a str,
    foreign: &'a str,
}

impl Pipelines<'_> {
    /// The stage's new arguments. `None` if they do not change.
    pub(super) fn lookup(
        &mut self,
        stage: &RawDocument,
        spec: &RawDocument,
        place: PipelinePosition,
    ) -> Result<Option<RawDocumentBuf>, PipelineRefusal> {
        let from = match get(spec, "from") {
            _ if !ARGUMENTS.iter().all(|name| is_given_once(spec, name)) => {
                self.refuse_all(stage, "a $lookup with an argument that is given twice")?;
                return Ok(None);
            }
            Some(RawBsonRef::Document(_)) => {
                self.refuse_all(stage, "a $lookup with a database in from")?;
                return Ok(None);
            }
            from => from.and_then(RawBsonRef::as_str),
        };
        let given = documents(get(spec, "pipeline"));
        let stages = match &given {
            Some(given) => Some(self.stages(given, place)?),
            None if get(spec, "pipeline").is_some() => return Ok(None),
            None => None,
        };
        let given = given.unwrap_or_default();
        let shaped = from.and_then(|from| Some((from, self.shaped(from)?)));
        let Some((from, shape)) = shaped else {
            return Ok(stages.map(|stages| with_pipeline(spec, &stages)));
        };
        if stages.as_deref().is_some_and(begins_with_documents) {
            return Ok(stages.map(|stages| with_pipeline(spec, &stages)));
        }
        let fields = ["localField", "foreignField"].map(|name| get(spec, name));
        // mongod refuses the stage.
        if stages.is_none() && (get(spec, "let").is_some() || fields == [None, None]) {
            return Ok(None);
        }
        let stages = stages.unwrap_or_default();
        if let Shape::Outlier(outlier) = &*shape {
            if is_by_array(outlier, spec) {
                let what = format!("a $lookup by {}", outlier.array());
                return Err(self.refused(from, &shape, &what));
            }
            return Ok(Some(with_pipeline(spec, &self.items(from, &shape, &given, &stages)?)));
        }
        let bucket = self.bucket(from, &shape)?;
        let at_end = (place == PipelinePosition::Open).then(|| at_key_end(bucket, from, spec, &stages));
        if let Some(arguments) = at_end.flatten() {
            unwind::check(bucket, &stages).map_err(|what| self.refused(from, &shape, &what))?;
            self.reach(from, &shape, false);
            return Ok(Some(arguments));
        }
        let Some(join) = Join::of(fields).filter(|join| key_position(bucket, join.foreign).is_none()) else {
            return Ok(Some(with_pipeline(spec, &self.items(from, &shape, &given, &stages)?)));
        };
        if place == PipelinePosition::InFacet {
            return self.through_view(spec, from, &shape, &stages).map(Some);
        }
        let narrowing = unwind::check(bucket, &stages).map_err(|what| self.refused(from, &shape, &what))?;
        self.reach(from, &shape, false);
        let mut unpacked = vec![match join.stored(bucket) {
            Some(_) => narrowing.match_beside_item_condition(bucket),
            None => narrowing.bucket_match(),
        }];
        let variable = local_variable(spec);
        unpacked.extend(join.items(bucket, &variable));
        unpacked.extend(unwound::behind(&stages));
        Ok(Some(join.arguments(bucket, spec, &variable, &unpacked)))
    }

    fn through_view(
        &mut self,
        spec: &RawDocument,
        from: &str,
        shape: &Arc<Shape>,
        stages: &[RawDocumentBuf],
    ) -> Result<RawDocumentBuf, PipelineRefusal> {
        let bucket = self.bucket(from, shape)?;
        unwind::check(bucket, stages).map_err(|what| self.refused(from, shape, &what))?;
        self.reach(from, shape, true);
        let view = items_view::name(from);
        let spec = with_replaced(spec, &[("from", Some(RawBsonRef::String(&view)))]);
        if get(&spec, "pipeline").is_none() {
            return Ok(spec);
        }
        let stages: Vec<RawDocumentBuf> = unwound::behind(stages).collect();
        Ok(with_pipeline(&spec, &stages))
    }
}

/// Whether the foreign field is the array of outliers, or a field that the pattern adds.
fn is_by_array(outlier: &OutlierShape, spec: &RawDocument) -> bool {
    let foreign = get(spec, "foreignField").and_then(RawBsonRef::as_str);
    foreign
        .is_some_and(|path| depends_on_array(outlier, &single(path, 1)) || names_own(outlier, RawBsonRef::String(path)))
}

/// The arguments of a `$lookup` that reads the pages at one end of a key. `None` if it needs other items.
fn at_key_end(
    shape: &BucketShape,
    from: &str,
    spec: &RawDocument,
    stages: &[RawDocumentBuf],
) -> Option<RawDocumentBuf> {
    let [key] = shape.key() else { return None };
    let mut variables = match get(spec, "let") {
        None => RawDocumentBuf::new(),
        given => given?.as_document()?.to_owned(),
    };
    let fields = ["localField", "foreignField"].map(|name| get(spec, name));
    let join = Join::of(fields).filter(|join| join.foreign == key);
    let filter = stages.first().and_then(|stage| unwound::only_match(stage));
    let equal = filter.and_then(|filter| only_variable(key, filter));
    let equal = equal.filter(|_| fields == [None, None]);
    if join.is_none() && equal.is_none() {
        return None;
    }
    let variable = local_variable(spec);
    let wanted = if let Some(join) = join {
        let (first, rest) = split(join.local);
        put(&mut variables, &variable, top(first));
        // An expression has no path with such a name.
        let is_expression = !rest.contains(".$");
        is_expression.then_some(WantedKey::LocalField {
            variable: &variable,
            rest,
        })?
    } else {
        WantedKey::Variable(equal?)
    };
    let lookup = KeyLookup {
        shape,
        collection: from,
        key,
        wanted,
        prefix: &variable,
    };
    let pipeline = lookup.of_end(stages)?;
    let mut arguments = RawDocumentBuf::new();
    for (name, value) in spec.iter().flatten() {
        if !ARGUMENTS.contains(&name.as_str()) {
            arguments.append(name, value);
        }
    }
    arguments.append(cstr!("let"), &variables);
    arguments.append(cstr!("pipeline"), array_of(&pipeline));
    Some(arguments)
}

impl<'a> Join<'a> {
    /// The two fields, if both are valid paths.
    fn of([local, foreign]: [Option<RawBsonRef<'a>>; 2]) -> Option<Self> {
        let field = |value: Option<RawBsonRef<'a>>| value.and_then(RawBsonRef::as_str).filter(|path| is_path(path));
        Some(Self {
            local: field(local)?,
            foreign: field(foreign)?,
        })
    }

    /// The stored path of the foreign field. `None` if it begins with a number, because mongod
    /// would take the number for a position in the array of items.
    fn stored(&self, shape: &BucketShape) -> Option<String> {
        let (root, rest) = split(self.foreign);
        let is_position = !root.is_empty() && root.bytes().all(|byte| byte.is_ascii_digit());
        (!is_position).then(|| format!("{}.{}{rest}", shape.items(), shape.rename().stored(root)))
    }

    /// The stages that turn buckets into the items that match the document in `variable`.
    fn items(&self, shape: &BucketShape, variable: &str) -> [RawDocumentBuf; 4] {
        let mut root = single("local", format!("$${variable}"));
        root.append(cstr!("items"), unwind::items(shape));
        let mut lookup = single("localField", format!("local{}", split(self.local).1));
        lookup.append(cstr!("foreignField"), self.foreign);
        lookup.append(cstr!("let"), single("mongoshape_items", "$items"));
        let documents = single("$documents", "$$mongoshape_items");
        lookup.append(cstr!("pipeline"), array_of(&[documents]));
        lookup.append(cstr!("as"), "found");
        [
            single("$replaceRoot", single("newRoot", &root)),
            single("$lookup", &lookup),
            single("$unwind", "$found"),
            single("$replaceRoot", single("newRoot", "$found")),
        ]
    }

    /// The stage's arguments for this pipeline.
    fn arguments(
        &self,
        shape: &BucketShape,
        spec: &RawDocument,
        variable: &str,
        stages: &[RawDocumentBuf],
    ) -> RawDocumentBuf {
        let mut variables = RawDocumentBuf::new();
        match get(spec, "let") {
            Some(RawBsonRef::Document(given)) => variables = given.to_owned(),
            // mongod refuses the stage.
            Some(_) => return with_pipeline(spec, stages),
            None => {}
        }
        put(&mut variables, variable, top(split(self.local).0));
        let stored = self.stored(shape);
        let mut arguments = RawDocumentBuf::new();
        for (name, value) in spec.iter().flatten() {
            match (name.as_str(), &stored) {
                ("let" | "pipeline", _) | ("localField" | "foreignField", None) => {}
                ("foreignField", Some(stored)) => arguments.append(name, stored.as_str()),
                _ => arguments.append(name, value),
            }
        }
        arguments.append(cstr!("let"), &variables);
        arguments.append(cstr!("pipeline"), array_of(stages));
        arguments
    }
}

/// The first field of a path, and the rest with its leading dot.
fn split(path: &str) -> (&str, &str) {
    path.split_at(path.find('.').unwrap_or(path.len()))
}

/// Whether the string is a path to a field. Other strings are passed on to mongod, which refuses
/// them.
fn is_path(path: &str) -> bool {
    let may_begin = |name: &str| !name.starts_with('$') || matches!(name, "$db" | "$id" | "$ref");
    let is_name = |name: &str| !name.is_empty() && may_begin(name) && !name.contains('\0');
    path.split('.').all(is_name)
}

/// The expression for a top-level field.
fn top(field: &str) -> RawBson {
    if field.starts_with('$') {
        RawBson::Document(single("$getField", single("$literal", field)))
    } else {
        RawBson::String(format!("${field}"))
    }
}

/// Whether an argument is given at most once.
pub(super) fn is_given_once(spec: &RawDocument, argument: &str) -> bool {
    spec.iter().flatten().filter(|(name, _)| *name == argument).count() <= 1
}

/// The variable for the local document. Its name is not in the stage.
pub(super) fn local_variable(spec: &RawDocument) -> String {
    unused_name("mongoshape_local", [spec.as_bytes()])
}
