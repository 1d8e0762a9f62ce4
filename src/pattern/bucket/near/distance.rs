//! The distance between an item's location and a point, as an expression of mongod.
//!
//! The expression does the arithmetic of mongod's `$geoNear`, operation by operation, so the result is equal
//! to the last bit (`S2Distance::distanceRad`, `shapes.cpp`). mongod adds more than two numbers with a higher
//! precision, also in nested sums. So the third number is subtracted, with the opposite sign.

use bson::raw::{BindRawBsonRef, RawArrayBuf, RawBson, RawDocument, RawDocumentBuf, cstr};
use bson::{rawbson, rawdoc};

use super::{Center, Metric};
use crate::command::document::single;
use crate::pattern::bucket::expression::call;

/// mongod's radius of the Earth in meters.
pub(super) const EARTH_RADIUS: f64 = 6_378_100.0;
/// Radians of a degree.
const RADIANS: f64 = std::f64::consts::PI / 180.0;
/// The GeoJSON types with more than one point.
const SHAPES: [&str; 6] = [
    "LineString",
    "Polygon",
    "MultiPoint",
    "MultiLineString",
    "MultiPolygon",
    "GeometryCollection",
];
/// The beginning of the text that mongod cannot convert, where an item has a geometry that is not a point.
pub(super) const NO_POINT: &str = "mongoshape_location_is_no_point";
/// The same where an item is beyond the area in which an index on a plane finds the points of a sphere.
pub(super) const WRAPS: &str = "mongoshape_distance_wraps_around";

/// The location of an item that is nearest to a point.
#[derive(Clone, Copy, Debug)]
pub(super) struct Nearest<'a> {
    /// The path of the locations in the item.
    pub(super) path: &'a str,
    /// The point.
    pub(super) center: Center,
    /// How distances are measured.
    pub(super) metric: Metric,
    /// Whether mongod reads an index on a plane (`2d`).
    pub(super) by_flat_index: bool,
}

impl Nearest<'_> {
    /// The expression for `{d: <distance>, at: <location>}`. The distance is in meters on a sphere, and in
    /// the units of the coordinates on a plane. Null if the item has no location. Fails with error 241
    /// (`ConversionFailure`) if the distance cannot be computed.
    pub(super) fn expression(&self) -> RawDocumentBuf {
        let found = rawdoc! { "d": self.distance(point("$$at")), "at": "$$at" };
        let is_nearer = rawdoc! { "$and": [
            { "$ne": ["$$found.d", RawBson::Null] },
            { "$or": [{ "$eq": ["$$nearest", RawBson::Null] }, { "$lt": ["$$found.d", "$$nearest.d"] }] },
        ] };
        let nearer = rawdoc! { "$cond": [is_nearer, "$$found", "$$nearest"] };
        let of_location = rawdoc! { "$let": { "vars": { "found": found }, "in": nearer } };
        // From the last field of the path to the first one: the loop over the values of a field is
        // inside that over the documents that have the field.
        let mut fields = self.path.rsplit('.');
        let mut field = fields.next().unwrap_or(self.path);
        let mut elements: fn(&str) -> RawDocumentBuf = locations;
        let mut inner = of_location;
        for parent in fields {
            inner = for_each(&elements(&format!("$$at.{field}")), "$$nearest", &inner);
            (elements, field) = (documents, parent);
        }
        for_each(&elements(&format!("${field}")), RawBson::Null, &inner)
    }

    /// The expression for the distance of a point, an array of coordinates. Null if it is none.
    fn distance(&self, point: RawDocumentBuf) -> RawDocumentBuf {
        let number = |at: i32| rawdoc! { "$arrayElemAt": ["$$point", at] };
        let mut is_point = vec![
            rawbson!({ "$isNumber": number(0) }),
            rawbson!({ "$isNumber": number(1) }),
        ];
        if self.metric != Metric::Flat {
            is_point.push(rawbson!({ "$lte": [{ "$abs": number(0) }, 180] }));
            is_point.push(rawbson!({ "$lte": [{ "$abs": number(1) }, 90] }));
        }
        let is_point: RawArrayBuf = is_point.into_iter().collect();
        let formula = match self.metric {
            Metric::Flat => self.on_plane(),
            Metric::Meters | Metric::Radians => self.on_sphere(),
        };
        let coordinates = rawdoc! { "x": { "$toDouble": number(0) }, "y": { "$toDouble": number(1) } };
        let computed = rawdoc! { "$let": { "vars": coordinates, "in": formula } };
        let of_point = rawdoc! { "$cond": [{ "$and": is_point }, computed, RawBson::Null] };
        rawdoc! { "$let": { "vars": { "point": point }, "in": of_point } }
    }

    fn on_plane(&self) -> RawDocumentBuf {
        let vars = rawdoc! {
            "dx": { "$subtract": ["$$x", self.center.x] },
            "dy": { "$subtract": ["$$y", self.center.y] },
        };
        let sum = call(
            "$add",
            call("$multiply", "$$dx", "$$dx"),
            call("$multiply", "$$dy", "$$dy"),
        );
        rawdoc! { "$let": { "vars": vars, "in": { "$sqrt": sum } } }
    }

    fn on_sphere(&self) -> RawDocumentBuf {
        let unit = |x: RawBson, y: RawBson| {
            let [x, y] = [x, y].map(|degrees| call("$multiply", degrees, RADIANS));
            let across = single("$cos", &y);
            [
                call("$multiply", single("$cos", &x), &across),
                call("$multiply", single("$sin", &x), &across),
                single("$sin", &y),
            ]
        };
        // mongod computes these once, when it parses the expression.
        let [cx, cy, cz] = unit(self.center.x.into(), self.center.y.into());
        let [x, y, z] = unit("$$x".into(), "$$y".into());
        let product = |center: &RawDocumentBuf, coordinate: &str| call("$multiply", center, coordinate);
        let difference = |one: RawDocumentBuf, other: RawDocumentBuf| call("$subtract", one, other);
        let cross = rawdoc! {
            "x": difference(product(&cy, "$$p.z"), product(&cz, "$$p.y")),
            "y": difference(product(&cz, "$$p.x"), product(&cx, "$$p.z")),
            "z": difference(product(&cx, "$$p.y"), product(&cy, "$$p.x")),
        };
        let dot = sum([product(&cx, "$$p.x"), product(&cy, "$$p.y"), product(&cz, "$$p.z")]);
        let squares = ["$$c.x", "$$c.y", "$$c.z"].map(|name| call("$multiply", name, name));
        let norm = rawdoc! { "$sqrt": sum(squares) };
        let angle = rawdoc! { "$let": { "vars": { "c": cross }, "in": call("$atan2", norm, dot) } };
        let radians = rawdoc! { "$let": { "vars": { "p": { "x": x, "y": y, "z": z } }, "in": angle } };
        let checked = if self.by_flat_index {
            self.within_box(radians)
        } else {
            radians
        };
        call("$multiply", checked, EARTH_RADIUS)
    }

    /// The distance in radians, if an index on a plane finds a point at this distance: the area that mongod
    /// searches ends at the 180th meridian, and is too narrow near a pole (`computeXScanDistance`). Fails for
    /// any other point.
    fn within_box(&self, radians: RawDocumentBuf) -> RawDocumentBuf {
        let degrees = call("$divide", "$$angle", RADIANS);
        let cosine = |latitude: RawDocumentBuf| rawdoc! { "$cos": call("$multiply", latitude, RADIANS) };
        let north = rawdoc! { "$min": [89.0, call("$add", self.center.y, "$$degrees")] };
        let south = rawdoc! { "$max": [-89.0, call("$subtract", self.center.y, "$$degrees")] };
        let narrowest = rawdoc! { "$min": [cosine(north), cosine(south)] };
        let across = rawdoc! { "$abs": call("$subtract", "$$x", self.center.x) };
        // Rounding must not exclude a point on the border.
        let widest = call("$add", 1e-9, call("$divide", "$$degrees", narrowest));
        let is_within = call("$lte", across, widest);
        let checked = rawdoc! { "$cond": [is_within, "$$angle", failure(WRAPS, "$$x")] };
        let with_degrees = rawdoc! { "$let": { "vars": { "degrees": degrees }, "in": checked } };
        rawdoc! { "$let": { "vars": { "angle": radians }, "in": with_degrees } }
    }
}

/// The expression that evaluates another one, `inner`, for each element `$$at` of an array. `$$nearest`
/// is the result for the former element, or `first`. Loops are nested instead of lists joined: the time
/// for joining grows with the square of the number of lists.
fn for_each(elements: &RawDocument, first: impl BindRawBsonRef, inner: &RawDocument) -> RawDocumentBuf {
    let mut reduce = single("input", elements);
    reduce.append(cstr!("initialValue"), first);
    let vars = rawdoc! { "nearest": "$$value", "at": "$$this" };
    let mut with_names = single("vars", vars);
    with_names.append(cstr!("in"), inner);
    reduce.append(cstr!("in"), single("$let", with_names));
    single("$reduce", reduce)
}

/// The expression for the array of the documents in which a path continues: those in the array at `value`, or
/// `value` itself. As in mongod, an array in the array has no fields.
fn documents(value: &str) -> RawDocumentBuf {
    let is_document = rawdoc! { "$eq": [{ "$type": "$$this" }, "object"] };
    let in_array = rawdoc! { "$filter": { "input": value, "cond": is_document } };
    rawdoc! { "$cond": [{ "$isArray": value }, in_array, [value]] }
}

/// The expression for the array of the locations at the end of a path: the elements of an array that is not a
/// point itself, or the value.
fn locations(value: &str) -> RawDocumentBuf {
    let is_number = rawdoc! { "$isNumber": { "$first": value } };
    let is_list = rawdoc! { "$cond": [{ "$isArray": value }, { "$not": is_number }, false] };
    rawdoc! { "$cond": [is_list, value, [value]] }
}

/// The expression for the sum of three numbers, added as in C++.
fn sum([one, two, three]: [RawDocumentBuf; 3]) -> RawDocumentBuf {
    call("$subtract", call("$add", one, two), call("$multiply", three, -1))
}

/// The expression for the coordinates of a location. Null if it is none.
fn point(location: &str) -> RawDocumentBuf {
    let values = |document: &str| rawdoc! { "$map": { "input": { "$objectToArray": document }, "in": "$$this.v" } };
    let coordinates = format!("{location}.coordinates");
    let kind = format!("{location}.type");
    let is_object = |value: &str| rawdoc! { "$eq": [{ "$type": value }, "object"] };
    let is_legacy = rawdoc! { "$isNumber": { "$first": values(location) } };
    let shapes: RawArrayBuf = SHAPES.into_iter().collect();
    let of_coordinates = rawdoc! { "$cond": [
        is_object(&coordinates),
        values(&coordinates),
        { "$cond": [{ "$isArray": coordinates.as_str() }, coordinates.as_str(), RawBson::Null] },
    ] };
    let branches = rawbson!([
        { "case": { "$isArray": location }, "then": location },
        { "case": { "$not": is_object(location) }, "then": RawBson::Null },
        { "case": is_legacy, "then": values(location) },
        { "case": { "$in": [kind.as_str(), shapes] }, "then": failure(NO_POINT, location) },
        { "case": { "$eq": [kind.as_str(), "Point"] }, "then": of_coordinates },
    ]);
    rawdoc! { "$switch": { "branches": branches, "default": RawBson::Null } }
}

/// An expression that fails with error 241 and this text. It reads a value because mongod would evaluate a
/// constant expression in advance.
fn failure(text: &str, value: &str) -> RawDocumentBuf {
    rawdoc! { "$toInt": { "$concat": [text, { "$type": value }] } }
}
