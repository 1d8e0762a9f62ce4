//! The parts of a command that ask for distances: a condition in the filter of a `find`, and the first stage
//! of an `aggregate`.
//!
//! Only well-formed parts are parsed. mongod reports the error of any other.

use bson::raw::{RawArray, RawBson, RawBsonRef, RawDocument, RawDocumentBuf};

use super::{Center, Metric, Near};
use crate::command::document::{array_of, as_flag, get, put};
use crate::pattern::unwound::{asks_for_nearness, has_nearness};

/// A filter and its condition on the distance.
#[derive(Clone, Debug)]
pub struct NearFilter<'a> {
    /// The condition on the distance. `None`: it is not well-formed, or not the only one, or not at the top
    /// level.
    pub near: Option<Near<'a>>,
    /// The other conditions.
    pub rest: RawDocumentBuf,
}

impl<'a> NearFilter<'a> {
    /// Parses a filter. `None` if it has no condition on the distance.
    #[must_use]
    pub fn of(filter: &'a RawDocument) -> Option<Self> {
        if !has_nearness(filter) {
            return None;
        }
        let mut conditions = Vec::new();
        let mut is_elsewhere = false;
        let rest = without_near(filter, &mut conditions, &mut is_elsewhere);
        let near = match conditions.as_slice() {
            [(path, condition)] if !is_elsewhere => near(path, condition),
            _ => None,
        };
        Some(Self { near, rest })
    }
}

/// The filter without its conditions on distances, which are added to `conditions` with their paths.
/// `is_elsewhere` is set if there is one where mongod refuses it.
fn without_near<'a>(
    filter: &'a RawDocument,
    conditions: &mut Vec<(&'a str, &'a RawDocument)>,
    is_elsewhere: &mut bool,
) -> RawDocumentBuf {
    let mut rest = RawDocumentBuf::new();
    for (name, value) in filter.iter().flatten() {
        let name = name.as_str();
        match (name, value) {
            (_, RawBsonRef::Document(condition)) if asks_for_nearness(value) => conditions.push((name, condition)),
            ("$and", RawBsonRef::Array(clauses)) if holds_near(clauses) => {
                let mut others = Vec::new();
                for clause in clauses.into_iter().flatten() {
                    match clause {
                        RawBsonRef::Document(clause) => others.push(without_near(clause, conditions, is_elsewhere)),
                        // mongod refuses any other clause.
                        _ => *is_elsewhere = true,
                    }
                }
                others.retain(|clause| !clause.is_empty());
                if !others.is_empty() {
                    put(&mut rest, name, array_of(&others));
                }
            }
            _ => {
                *is_elsewhere |= matches!(name, "$or" | "$nor") && value.as_array().is_some_and(holds_near);
                put(&mut rest, name, value);
            }
        }
    }
    rest
}

fn holds_near(branches: &RawArray) -> bool {
    let branches = branches.into_iter().flatten();
    branches.filter_map(RawBsonRef::as_document).any(has_nearness)
}

/// Parses `{$near: ...}` or `{$nearSphere: ...}` on the field at a path.
fn near<'a>(path: &'a str, condition: &'a RawDocument) -> Option<Near<'a>> {
    let mut fields = condition.iter().flatten();
    let (operator, point) = fields.next()?;
    let is_sphere = operator.as_str() == "$nearSphere";
    let geometry = point.as_document().and_then(|document| get(document, "$geometry"));
    let (center, metric, bounds) = if let Some(geometry) = geometry {
        // The bounds of a GeoJSON point are beside it.
        if condition.iter().count() != 1 {
            return None;
        }
        let inside = point.as_document()?.iter().flatten();
        let bounds: Vec<_> = inside.filter(|(name, _)| name.as_str() != "$geometry").collect();
        (Center::of_geo_json(geometry)?, Metric::Meters, bounds)
    } else if let Some(center) = Center::of_geo_json(point) {
        (center, Metric::Meters, fields.collect())
    } else {
        let metric = if is_sphere { Metric::Radians } else { Metric::Flat };
        (Center::of_legacy(point)?, metric, fields.collect())
    };
    let mut near = Near {
        path,
        center,
        metric,
        min: None,
        max: None,
        is_geo_json: metric == Metric::Meters,
    };
    for (name, value) in bounds {
        let bound = match name.as_str() {
            "$minDistance" => &mut near.min,
            "$maxDistance" => &mut near.max,
            _ => return None,
        };
        *bound = Some(distance(value)?);
    }
    near.is_on_sphere().then_some(near)
}

/// The stage `$geoNear`.
#[derive(Clone, Debug)]
pub struct GeoNear<'a> {
    /// The path of the locations. `None`: that of the only index.
    pub key: Option<&'a str>,
    /// The filter.
    pub query: Option<&'a RawDocument>,
    center: Center,
    metric: Metric,
    is_geo_json: bool,
    min: Option<f64>,
    max: Option<f64>,
    /// The field to which the distance is written.
    pub(super) distance_field: &'a str,
    /// The factor of the distance.
    pub(super) multiplier: Option<RawBson>,
    /// The field to which the location is written.
    pub(super) location_field: Option<&'a str>,
}

impl<'a> GeoNear<'a> {
    /// Parses the argument of the stage. `None` if it is not well-formed.
    #[must_use]
    pub fn parse(stage: &'a RawDocument) -> Option<Self> {
        let near = get(stage, "near")?;
        let is_sphere = get(stage, "spherical").is_some_and(|flag| as_flag(flag).unwrap_or(false));
        let geo_json = Center::of_geo_json(near);
        let center = geo_json.or_else(|| Center::of_legacy(near))?;
        let metric = match geo_json {
            Some(_) => Metric::Meters,
            None if is_sphere => Metric::Radians,
            None => Metric::Flat,
        };
        let mut parsed = Self {
            key: None,
            query: None,
            center,
            metric,
            is_geo_json: geo_json.is_some(),
            min: None,
            max: None,
            distance_field: "",
            multiplier: None,
            location_field: None,
        };
        for (name, value) in stage.iter().flatten() {
            match name.as_str() {
                "near" => {}
                "spherical" => as_flag(value).map(drop)?,
                "key" => parsed.key = Some(field(value)?),
                "query" => parsed.query = Some(value.as_document()?),
                "minDistance" => parsed.min = Some(distance(value)?),
                "maxDistance" => parsed.max = Some(distance(value)?),
                "distanceField" => parsed.distance_field = field(value)?,
                "includeLocs" => parsed.location_field = Some(field(value)?),
                "distanceMultiplier" => {
                    distance(value)?;
                    parsed.multiplier = Some(value.into());
                }
                _ => return None,
            }
        }
        let is_complete = !parsed.distance_field.is_empty() && parsed.near("").is_on_sphere();
        is_complete.then_some(parsed)
    }

    /// The query by distance from the locations at a path.
    #[must_use]
    pub fn near<'b>(&self, path: &'b str) -> Near<'b> {
        Near {
            path,
            center: self.center,
            metric: self.metric,
            is_geo_json: self.is_geo_json,
            min: self.min,
            max: self.max,
        }
    }
}

/// A path that no operator could be.
fn field(value: RawBsonRef<'_>) -> Option<&str> {
    let is_plain = |path: &&str| path.split('.').all(|part| !part.is_empty() && !part.starts_with('$'));
    value.as_str().filter(is_plain)
}

/// A distance that mongod accepts.
fn distance(value: RawBsonRef<'_>) -> Option<f64> {
    number(value).filter(|number| *number >= 0.0)
}

pub(super) fn number(value: RawBsonRef<'_>) -> Option<f64> {
    match value {
        RawBsonRef::Double(number) => Some(number),
        RawBsonRef::Int32(number) => Some(number.into()),
        #[expect(clippy::cast_precision_loss, reason = "mongod converts it, too")]
        RawBsonRef::Int64(number) => Some(number as f64),
        _ => None,
    }
}
