//! Queries by distance: `$near` and `$nearSphere` in a `find`, and the stage `$geoNear`.
//!
//! mongod's `$geoNear` reads pages by the application's index, in the order of their nearest item. Their
//! items are sorted by their own [distances](distance). The n nearest items are on the n nearest pages, so a
//! `limit` bounds the pages that are read, unless a condition on other fields or a least distance excludes
//! items.

mod condition;
mod distance;
#[cfg(test)]
mod tests;

use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{rawbson, rawdoc};

pub use self::condition::{GeoNear, NearFilter};
use self::distance::{EARTH_RADIUS, NO_POINT, Nearest, WRAPS};
use super::index::has_items;
use super::item_index::{GeoIndex, GeoKind, stored_path};
use super::predicate_pushdown::{BucketPredicate, is_page};
use super::readable_indexes::ReadableIndexes;
use super::unwind::{FieldOrder, unpack_matching};
use crate::command::document::{array_of, as_whole_number, first_field, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::Find;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::BucketShape;
use crate::pattern::unsupported::Unsupported;
use crate::pattern::unwound::{self, match_query, number_stage};

/// How distances are measured.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Metric {
    /// On a plane, in the units of the coordinates.
    Flat,
    /// On a sphere, in meters.
    Meters,
    /// On a sphere, in radians.
    Radians,
}

/// The point from which distances are measured.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Center {
    x: f64,
    y: f64,
}

impl Center {
    /// A GeoJSON point, without a coordinate system.
    fn of_geo_json(value: RawBsonRef<'_>) -> Option<Self> {
        let point = value.as_document()?;
        let is_point = get(point, "type") == Some(RawBsonRef::String("Point"));
        let has_others = point
            .iter()
            .flatten()
            .any(|(name, _)| !matches!(name.as_str(), "type" | "coordinates"));
        let coordinates = get(point, "coordinates")?.as_array()?;
        Self::of(coordinates.into_iter().flatten()).filter(|_| is_point && !has_others)
    }

    /// A legacy coordinate pair: an array or a document of two numbers.
    fn of_legacy(value: RawBsonRef<'_>) -> Option<Self> {
        match value {
            RawBsonRef::Array(pair) => Self::of(pair.into_iter().flatten()),
            RawBsonRef::Document(pair) => Self::of(pair.iter().flatten().map(|(_, value)| value)),
            _ => None,
        }
    }

    fn of<'a>(numbers: impl Iterator<Item = RawBsonRef<'a>>) -> Option<Self> {
        let numbers: Option<Vec<f64>> = numbers.map(condition::number).collect();
        match numbers?.as_slice() {
            [x, y] if x.is_finite() && y.is_finite() => Some(Self { x: *x, y: *y }),
            _ => None,
        }
    }
}

/// Whether a plain collection answers a query by distance.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NearAccess {
    /// By an index.
    Index,
    /// There is no index that mongod would use: it reports an error.
    None,
    /// mongod's planner decides whether it uses an index.
    Undecided,
}

/// A query by distance.
#[derive(Clone, Copy, Debug)]
pub struct Near<'a> {
    /// The path of the locations in items.
    path: &'a str,
    center: Center,
    metric: Metric,
    /// Whether the client gives the point as GeoJSON.
    is_geo_json: bool,
    /// The least distance, in the units of the metric.
    min: Option<f64>,
    /// The greatest distance, in the units of the metric.
    max: Option<f64>,
}

impl Near<'_> {
    /// Whether the point exists: on a sphere, longitude and latitude are bounded.
    fn is_on_sphere(&self) -> bool {
        self.metric == Metric::Flat || (self.center.x.abs() <= 180.0 && self.center.y.abs() <= 90.0)
    }

    /// The indexes on the locations that have the metric.
    fn indexes<'i>(&self, indexes: &'i ReadableIndexes) -> impl Iterator<Item = &'i GeoIndex> {
        let is_possible = |kind| match self.metric {
            Metric::Flat => kind == GeoKind::Flat,
            Metric::Meters => kind == GeoKind::Sphere,
            Metric::Radians => true,
        };
        let on_path = indexes.on_locations.iter().filter(|index| index.path == self.path);
        on_path.filter(move |index| is_possible(index.kind))
    }

    /// Whether mongod may read an index on a plane for a query on a sphere.
    fn reads_flat_index(&self, indexes: &ReadableIndexes) -> bool {
        let mut possible = self.indexes(indexes);
        self.metric == Metric::Radians && possible.any(|index| index.kind == GeoKind::Flat)
    }

    /// Whether an index of the plain collection answers the query. `others`: the conditions that are not on
    /// the distance.
    #[must_use]
    pub fn access(&self, indexes: &ReadableIndexes, others: Option<&RawDocument>) -> NearAccess {
        let condition = |path: &str| others.and_then(|others| get(others, path));
        let is_equality = |value| match value {
            RawBsonRef::Document(document) => first_field(document).is_none_or(|(name, _)| !name.starts_with('$')),
            RawBsonRef::RegularExpression(_) | RawBsonRef::Array(_) => false,
            _ => true,
        };
        let mut access = NearAccess::None;
        for index in self.indexes(indexes) {
            let mut leading = index.leading.iter();
            if leading.clone().all(|path| condition(path).is_some_and(is_equality)) {
                return NearAccess::Index;
            }
            if leading.any(|path| condition(path).is_some()) || condition("$and").is_some() {
                access = NearAccess::Undecided;
            }
        }
        access
    }

    /// Whether a circle on the sphere with the greatest distance as its radius neither crosses the 180th
    /// meridian nor comes near a pole.
    fn is_within_plane(&self) -> bool {
        let Some(radius) = self.max.map(f64::to_degrees) else {
            return false;
        };
        let Center { x, y } = self.center;
        let farthest = y.abs() + radius;
        farthest < 89.0 && x.abs() + radius / farthest.to_radians().cos() < 180.0
    }

    /// The stage that reads pages in the order of their nearest item.
    fn pages(&self, shape: &BucketShape, query: &BucketPredicate) -> RawDocumentBuf {
        let Center { x, y } = self.center;
        let near = if self.is_geo_json {
            rawbson!({ "type": "Point", "coordinates": [x, y] })
        } else {
            rawbson!([x, y])
        };
        let mut clauses = vec![is_page(), has_items(shape)];
        clauses.extend_from_slice(query.clauses());
        let mut stage = single("near", near);
        stage.append(cstr!("distanceField"), "mongoshape_distance");
        stage.append(cstr!("spherical"), self.metric != Metric::Flat);
        stage.append(cstr!("key"), stored_path(shape, self.path));
        stage.append(cstr!("query"), single("$and", array_of(&clauses)));
        if let Some(max) = self.max {
            stage.append(cstr!("maxDistance"), max);
        }
        single("$geoNear", stage)
    }

    /// The stages to documents `{item, near: {d, at}}` of the items within the distance.
    fn items(
        &self,
        shape: &BucketShape,
        query: Option<&RawDocument>,
        limit: Option<u64>,
        indexes: &ReadableIndexes,
    ) -> Vec<RawDocumentBuf> {
        let narrowing = BucketPredicate::of(shape, query);
        let by_flat_index = self.reads_flat_index(indexes);
        let mut stages = Vec::new();
        if by_flat_index && !self.is_within_plane() {
            // mongod may not find a page whose nearest item is outside of the area that it searches.
            stages.push(narrowing.bucket_match());
        } else {
            stages.push(self.pages(shape, &narrowing));
            let is_limited = narrowing.is_of_key_alone() && self.min.is_none();
            stages.extend(
                limit
                    .filter(|_| is_limited)
                    .and_then(|limit| number_stage("$limit", limit)),
            );
        }
        stages.extend(unpack_matching(shape, FieldOrder::Stored, &narrowing));
        stages.extend(query.filter(|query| !query.is_empty()).map(match_query));
        let nearest = Nearest {
            path: self.path,
            center: self.center,
            metric: self.metric,
            by_flat_index,
        };
        stages.push(rawdoc! { "$replaceWith": { "item": "$$ROOT", "near": nearest.expression() } });
        let bound = |distance: f64| match self.metric {
            Metric::Radians => distance * EARTH_RADIUS,
            Metric::Flat | Metric::Meters => distance,
        };
        let mut bounds = single("$gte", self.min.map_or(0.0, bound));
        if let Some(max) = self.max {
            bounds.append(cstr!("$lte"), bound(max));
        }
        stages.push(rawdoc! { "$match": { "near.d": bounds } });
        stages
    }

    /// The expression for the distance in the units of the metric.
    fn distance(&self) -> RawBson {
        match self.metric {
            Metric::Radians => rawbson!({ "$divide": ["$near.d", EARTH_RADIUS] }),
            Metric::Flat | Metric::Meters => "$near.d".into(),
        }
    }
}

fn by_distance() -> RawDocumentBuf {
    single("$sort", single("near.d", 1))
}

/// The stages that answer a `find` by distance. `find.filter` is the rest of the filter.
///
/// # Errors
/// The part of the query that is not supported, for an error message.
pub fn of_find(
    shape: &BucketShape,
    near: &Near<'_>,
    find: &Find<'_>,
    indexes: &ReadableIndexes,
) -> Result<Vec<RawDocumentBuf>, Unsupported> {
    let parts = [find.projection, find.sort];
    if parts
        .iter()
        .flatten()
        .any(|part| names_distance(RawBsonRef::Document(part)))
    {
        return Err("$meta of a distance".into());
    }
    let limit = (find.sort.is_none() && find.limit > 0).then(|| find.skip.saturating_add(find.limit));
    let mut stages = near.items(shape, find.filter, limit, indexes);
    let mut rest = find.clone();
    rest.filter = None;
    if find.sort.is_none() {
        stages.push(by_distance());
        stages.extend(number_stage("$skip", find.skip));
        stages.extend(number_stage("$limit", find.limit));
        (rest.skip, rest.limit) = (0, 0);
    }
    stages.push(single("$replaceWith", "$item"));
    let is_no_array = |field: &str| shape.key().iter().any(|key| key == field);
    let others = unwound::of_find(&rest, is_no_array).map_err(|form| format!("{form} in a projection"))?;
    stages.extend(others);
    Ok(stages)
}

/// Whether the first stage of a pipeline is `$geoNear`.
#[must_use]
pub fn begins_with_distance(pipeline: &[impl AsRef<RawDocument>]) -> bool {
    let first = pipeline.first().and_then(|stage| first_field(stage.as_ref()));
    first.is_some_and(|(name, _)| name == "$geoNear")
}

/// Checks the stages behind `$geoNear`.
///
/// # Errors
/// The stage that is not supported, for an error message.
pub fn check_behind(stages: &[impl AsRef<RawDocument>]) -> Result<(), Unsupported> {
    unwound::check(stages)?;
    let mut documents = stages.iter().map(AsRef::as_ref);
    if documents.any(|stage| names_distance(RawBsonRef::Document(stage))) {
        return Err("$meta of a distance".into());
    }
    Ok(())
}

/// The stages that answer a pipeline whose first stage is `$geoNear`. `path` is that of the locations. The
/// caller has [checked](check_behind) the stages behind it.
#[must_use]
pub fn of_aggregate(
    shape: &BucketShape,
    stage: &GeoNear<'_>,
    path: &str,
    behind: &[impl AsRef<RawDocument>],
    indexes: &ReadableIndexes,
) -> Vec<RawDocumentBuf> {
    let near = stage.near(path);
    let next = behind.first().and_then(|stage| first_field(stage.as_ref()));
    let limit = next.filter(|(name, _)| *name == "$limit");
    let limit = limit.and_then(|(_, limit)| u64::try_from(as_whole_number(limit)?).ok());
    let mut stages = near.items(shape, stage.query, limit, indexes);
    stages.push(by_distance());
    let mut distance = near.distance();
    if let Some(multiplier) = &stage.multiplier {
        distance = rawbson!({ "$multiply": [distance, multiplier.clone()] });
    }
    stages.extend(written(&format!("item.{}", stage.distance_field), distance));
    let location_field = stage.location_field.map(|field| format!("item.{field}"));
    stages.extend(
        location_field
            .into_iter()
            .flat_map(|field| written(&field, "$near.at".into())),
    );
    stages.push(single("$replaceWith", "$item"));
    stages.extend(unwound::behind(behind));
    stages
}

/// The stages that write a value to a path. As in mongod's `$geoNear`, an array within the path is replaced
/// by a document.
fn written(path: &str, value: RawBson) -> Vec<RawDocumentBuf> {
    let ends = path.match_indices('.').skip(1);
    let prefixes = ends.filter_map(|(end, _)| path.get(..end));
    let stage = |path: &str, value: RawBson| single("$set", single(path, value));
    let mut stages: Vec<_> = prefixes
        .map(|prefix| {
            let there = format!("${prefix}");
            let is_array = rawdoc! { "$isArray": there.as_str() };
            stage(prefix, rawbson!({ "$cond": [is_array, { "$literal": {} }, there] }))
        })
        .collect();
    stages.push(stage(path, value));
    stages
}

/// The path of the locations that `$geoNear` reads without a `key`.
///
/// # Errors
/// mongod's error if there is no geospatial index, or several.
pub fn only_location<'a>(indexes: &'a ReadableIndexes, namespace: Namespace<'_>) -> Result<&'a str, CommandError> {
    for (kind, name) in [(GeoKind::Flat, "2d"), (GeoKind::Sphere, "2dsphere")] {
        let mut locations = indexes.on_locations.iter().filter(|location| location.kind == kind);
        match (locations.next(), locations.next()) {
            (Some(only), None) => return Ok(&only.path),
            (Some(_), Some(_)) => {
                let message =
                    format!("There is more than one {name} index on {namespace}; unsure which to use for $geoNear");
                return Err(CommandError::new(ErrorCode::IndexNotFound, message));
            }
            (None, _) => {}
        }
    }
    let message = "$geoNear requires a 2d or 2dsphere index, but none were found";
    Err(CommandError::new(ErrorCode::IndexNotFound, message))
}

/// Whether a part of a command reads the distance that mongod records with a document: that of a page.
fn names_distance(value: RawBsonRef<'_>) -> bool {
    match value {
        RawBsonRef::Document(document) => document.iter().flatten().any(|(name, value)| {
            let is_distance = matches!(value, RawBsonRef::String("geoNearDistance" | "geoNearPoint"));
            (name.as_str() == "$meta" && is_distance) || names_distance(value)
        }),
        RawBsonRef::Array(array) => array.into_iter().flatten().any(names_distance),
        _ => false,
    }
}

/// The reason why a distance cannot be computed, if mongod reports that.
#[must_use]
pub fn uncomputed(message: &str) -> Option<&'static str> {
    if message.contains(NO_POINT) {
        Some("a query by the distance of items whose location is not a point")
    } else if message.contains(WRAPS) {
        Some("a query on a sphere by a 2d index, across the 180th meridian or near a pole,")
    } else {
        None
    }
}
