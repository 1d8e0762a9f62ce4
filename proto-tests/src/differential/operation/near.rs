//! Geospatial indexes: writes of locations, and queries by distance, by area and by code.

use anyhow::{Context as _, Result, ensure};
use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};
use bson::{Bson, Document, bson, doc};

use super::scene::documents;
use super::step::Creation;
use super::{Operation, Outcome};
use crate::differential::compare::{self, Canon, Order};
use crate::differential::grammar::{
    GeoCreation, GeoIndex, GeoLocation, GeoPath, GeoWrite, NEAR, NearBounds, NearEnd, NearForm, NearPoint, NearRest,
};
use crate::differential::sides::{COLLECTION, field, first_batch, show};
use crate::differential::{Generator, Sides, contents};

/// A coordinate is a multiple of 1/1000, so equal distances are rare.
const PRECISION: f64 = 1000.0;
/// mongod's error for a location that an index on a sphere cannot contain.
const NO_LOCATION: i32 = 16755;
/// Parts of the messages with which the proxy may refuse a query.
const REFUSALS: [&str; 2] = ["whose location is not a point", "on a sphere by a 2d index"];

#[derive(Debug)]
struct Near {
    documents: Vec<Document>,
    create: Document,
    creation: Creation,
    steps: Vec<Document>,
    /// Whether a document may have a null or empty location, which the index of a page does not contain beside
    /// others.
    has_empty: bool,
    canon: Canon,
}

/// What the parts of an operation have in common.
#[derive(Clone, Copy)]
struct Place {
    index: GeoIndex,
    path: GeoPath,
}

impl Place {
    fn is_flat(self) -> bool {
        matches!(self.index, GeoIndex::Flat | GeoIndex::FlatAndField)
    }

    fn path(self) -> &'static str {
        match self.path {
            GeoPath::Top => "place",
            GeoPath::Nested => "nested.place",
            GeoPath::InArray => "stops.place",
        }
    }
}

pub(super) fn generate(generator: &mut Generator) -> Box<dyn Operation> {
    let place = Place {
        index: generator.take::<GeoIndex>(),
        path: generator.take::<GeoPath>(),
    };
    let creation = match generator.take::<GeoCreation>() {
        GeoCreation::Early => Creation::BeforeDocuments,
        GeoCreation::Late => Creation::AfterDocuments,
    };
    let mut has_empty = false;
    let mut documents = documents(generator, 25, &[]);
    for document in &mut documents {
        for key in &generator.shape.key.clone() {
            document.insert(key, generator.between(1, 3));
        }
        has_empty |= put_location(generator, place, document);
    }
    let steps = (0..14)
        .map(|number| {
            if number % 3 == 1 {
                write(generator, place, 100 + number, &mut has_empty)
            } else {
                generator.group(&NEAR, |generator| query(generator, place))
            }
        })
        .collect();
    let kind = if place.is_flat() { "2d" } else { "2dsphere" };
    let mut key = doc! { place.path(): kind };
    match place.index {
        GeoIndex::FlatAndField | GeoIndex::SphereAndField => {
            key.insert("n", 1);
        }
        GeoIndex::KeyAndSphere => key = doc! { &generator.shape.key[0]: 1, place.path(): kind },
        GeoIndex::Flat | GeoIndex::Sphere => {}
    }
    Box::new(Near {
        documents,
        create: doc! { "createIndexes": COLLECTION, "indexes": [{ "key": key, "name": "geo" }] },
        creation,
        steps,
        has_empty,
        canon: generator.canon(),
    })
}

fn coordinate(generator: &mut Generator, most: i32) -> f64 {
    let most = if generator.chance(60) { most / 6 } else { most };
    f64::from(generator.between(-most * 1000, most * 1000 - 1)) / PRECISION
}

fn coordinates(generator: &mut Generator) -> [f64; 2] {
    [coordinate(generator, 180), coordinate(generator, 90)]
}

/// A location. `None`: no field.
fn location(generator: &mut Generator, place: Place) -> Option<Bson> {
    let is_flat = place.is_flat();
    let in_array = place.path == GeoPath::InArray;
    let [x, y] = coordinates(generator);
    Some(
        match generator.take_where(|form: GeoLocation| match form {
            GeoLocation::Point | GeoLocation::Line => !is_flat,
            GeoLocation::Several => is_flat && !in_array,
            _ => true,
        }) {
            GeoLocation::Pair => bson!([x, y]),
            GeoLocation::Fields => bson!({ "lng": x, "lat": y }),
            GeoLocation::Point => bson!({ "type": "Point", "coordinates": [x, y] }),
            GeoLocation::Line => bson!({ "type": "LineString", "coordinates": [[x, y], [x / 2.0, y / 2.0]] }),
            GeoLocation::Several => {
                let [other, another] = coordinates(generator);
                bson!([[x, y], [other, another]])
            }
            GeoLocation::Missing => return None,
            GeoLocation::Null => Bson::Null,
            GeoLocation::Empty => generator.pick(&[bson!([]), bson!({})]),
            GeoLocation::Invalid => {
                generator.pick(&[bson!([x]), bson!([200, y]), bson!([x, "a"]), bson!({ "a": "b" })])
            }
        },
    )
}

/// Gives a document a location. Returns whether it is null or empty.
fn put_location(generator: &mut Generator, place: Place, document: &mut Document) -> bool {
    let mut is_empty = false;
    let mut one = |generator: &mut Generator| {
        let location = location(generator, place);
        let is_empty_one = match &location {
            Some(Bson::Array(values)) => values.is_empty(),
            Some(Bson::Document(fields)) => fields.is_empty(),
            location => *location == Some(Bson::Null),
        };
        is_empty |= is_empty_one;
        let field = location.map(|location| ("place".to_owned(), location));
        field.into_iter().collect::<Document>()
    };
    match place.path {
        GeoPath::Top => document.extend(one(generator)),
        GeoPath::Nested => {
            document.insert("nested", one(generator));
        }
        GeoPath::InArray => {
            let stops: Vec<Bson> = (0..generator.below(3)).map(|_| one(generator).into()).collect();
            document.insert("stops", stops);
        }
    }
    is_empty
}

fn write(generator: &mut Generator, place: Place, number: i32, has_empty: &mut bool) -> Document {
    let mut document = documents(generator, 1, &[]).remove(0);
    document.extend(doc! { "_id": number, "n": number });
    *has_empty |= put_location(generator, place, &mut document);
    let target = doc! { "n": generator.between(1, 25) };
    match generator.take::<GeoWrite>() {
        GeoWrite::Insert => doc! { "insert": COLLECTION, "documents": [document] },
        GeoWrite::Update => {
            let root = place.path().split('.').next().unwrap_or_default();
            let unset = doc! { "$unset": { root: 1 } };
            let change = document
                .get(root)
                .map_or(unset, |value| doc! { "$set": { root: value } });
            doc! { "update": COLLECTION, "updates": [{ "q": target, "u": change }] }
        }
        GeoWrite::Delete => doc! { "delete": COLLECTION, "deletes": [{ "q": target, "limit": 1 }] },
    }
}

/// A point and the bounds of the distance from it.
struct Circle {
    form: NearForm,
    point: NearPoint,
    x: f64,
    y: f64,
    /// With the names that `$geoNear` has.
    bounds: Document,
}

impl Circle {
    fn generate(generator: &mut Generator) -> Self {
        let [x, y] = coordinates(generator);
        let form = generator.take::<NearForm>();
        let point = generator.take::<NearPoint>();
        // Degrees on a plane, radians or meters on a sphere.
        let unit = match (point, form) {
            (NearPoint::GeoJson, _) => 100_000.0,
            (_, NearForm::NearSphere | NearForm::GeoNearSphere) => 0.02,
            _ => 1.0,
        };
        let mut bounds = doc! {};
        let of_form = generator.take::<NearBounds>();
        if matches!(of_form, NearBounds::Least | NearBounds::Both) {
            bounds.insert("minDistance", f64::from(generator.between(1, 20)) * unit);
        }
        if matches!(of_form, NearBounds::Most | NearBounds::Both) {
            bounds.insert("maxDistance", f64::from(generator.between(1, 60)) * unit);
        }
        Self {
            form,
            point,
            x,
            y,
            bounds,
        }
    }

    fn point(&self) -> Bson {
        match self.point {
            NearPoint::Pair => bson!([self.x, self.y]),
            NearPoint::Fields => bson!({ "x": self.x, "y": self.y }),
            NearPoint::GeoJson => bson!({ "type": "Point", "coordinates": [self.x, self.y] }),
        }
    }

    /// The condition on a location in a filter.
    fn condition(&self) -> Document {
        let Self { x, y, .. } = *self;
        let operator = match self.form {
            NearForm::NearSphere => "$nearSphere",
            NearForm::Within => return doc! { "$geoWithin": { "$center": [[x, y], 40] } },
            NearForm::Intersects => {
                let corners = [[x, y], [x / 2.0, 0.0], [0.0, y / 2.0], [x, y]];
                let triangle = corners.map(|corner| bson!(corner.to_vec())).to_vec();
                return doc! { "$geoIntersects": { "$geometry": { "type": "Polygon", "coordinates": [triangle] } } };
            }
            _ => "$near",
        };
        let bounds = self.bounds.iter();
        let bounds = bounds.map(|(name, value)| (format!("${name}"), value.clone()));
        if self.point == NearPoint::GeoJson {
            let mut inside = doc! { "$geometry": self.point() };
            inside.extend(bounds);
            doc! { operator: inside }
        } else {
            let mut condition = doc! { operator: self.point() };
            condition.extend(bounds);
            condition
        }
    }
}

/// The conditions of a query that are not on the location.
fn rest(generator: &mut Generator) -> Document {
    match generator.take::<NearRest>() {
        NearRest::Nothing => doc! {},
        NearRest::Key => {
            let keys = generator.shape.key.clone().into_iter();
            keys.map(|key| (key, bson!(generator.between(1, 3)))).collect()
        }
        NearRest::Field => doc! { "n": { "$gt": generator.between(1, 20) } },
        NearRest::Code => {
            let code = ["this.n % 2 == 1", "function() { return obj.n > 5 }"];
            doc! { "$where": generator.example("near.code", &code) }
        }
    }
}

/// A query by distance or by area.
fn query(generator: &mut Generator, place: Place) -> Document {
    let circle = Circle::generate(generator);
    let mut rest = rest(generator);
    if matches!(circle.form, NearForm::GeoNear | NearForm::GeoNearSphere) {
        rest.remove("$where");
        return geo_near(generator, place, circle, rest);
    }
    let mut filter = rest;
    filter.insert(place.path(), circle.condition());
    let mut command = doc! { "find": COLLECTION, "filter": filter };
    match generator.take::<NearEnd>() {
        NearEnd::Nothing => {}
        NearEnd::Limit => {
            command.insert("limit", generator.between(1, 8));
        }
        NearEnd::SkipAndLimit => command.extend(doc! { "skip": 2, "limit": generator.between(1, 8) }),
        NearEnd::Sort => {
            command.insert("sort", doc! { "n": -1 });
        }
        NearEnd::Projection => {
            command.insert("projection", doc! { "n": 1 });
        }
    }
    if matches!(circle.form, NearForm::Within | NearForm::Intersects) {
        command.insert("sort", doc! { "n": 1 });
    }
    command
}

fn geo_near(generator: &mut Generator, place: Place, circle: Circle, rest: Document) -> Document {
    let fields = ["far", "far.away", "nested", "tags.x"];
    let mut stage = doc! {
        "near": circle.point(),
        "spherical": circle.form == NearForm::GeoNearSphere,
        "distanceField": generator.example("near.distanceField", &fields),
    };
    stage.extend(circle.bounds);
    if generator.chance(50) {
        stage.insert("key", place.path());
    }
    if generator.chance(30) {
        stage.insert("includeLocs", "at");
    }
    if generator.chance(30) {
        stage.insert("distanceMultiplier", 2.5);
    }
    if !rest.is_empty() {
        stage.insert("query", rest);
    }
    let mut pipeline = vec![bson!({ "$geoNear": stage })];
    match generator.take::<NearEnd>() {
        NearEnd::Nothing => {}
        NearEnd::Limit => pipeline.push(bson!({ "$limit": generator.between(1, 8) })),
        NearEnd::SkipAndLimit => pipeline.extend([bson!({ "$skip": 2 }), bson!({ "$limit": 5 })]),
        NearEnd::Sort => pipeline.push(bson!({ "$sort": { "n": -1 } })),
        NearEnd::Projection => pipeline.push(bson!({ "$project": { "n": 1, "far": 1 } })),
    }
    doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} }
}

impl Operation for Near {
    fn commands(&self) -> Vec<Document> {
        [self.create.clone()].into_iter().chain(self.steps.clone()).collect()
    }

    fn run(&self, sides: &mut Sides) -> Result<Outcome> {
        sides.elsewhere(|sides| {
            let insert = doc! { "insert": COLLECTION, "documents": self.documents.clone(), "ordered": false };
            for command in self.creation.in_order(&self.create, &insert) {
                if self.step(sides, command)? == Outcome::Refused {
                    return Ok(Outcome::Refused);
                }
            }
            let mut outcome = Outcome::Done;
            for command in &self.steps {
                let of_step = self.step(sides, command).with_context(|| command.to_string())?;
                if of_step != Outcome::Done {
                    outcome = of_step;
                }
                contents::unchanged(sides, self.canon).with_context(|| command.to_string())?;
            }
            Ok(outcome)
        })
    }
}

impl Near {
    /// Runs a command on the shaped side, then on the plain one, unless it was refused.
    fn step(&self, sides: &mut Sides, command: &Document) -> Result<Outcome> {
        let shaped = sides.shaped.run(command)?;
        if let Some(reason) = self.refusal(command, &shaped) {
            sides.refused(reason);
            return Ok(Outcome::Refused);
        }
        let plain = sides.plain.run(command)?;
        let is_build = command.contains_key("createIndexes");
        if is_build && [&plain, &shaped].into_iter().all(|reply| !compare::succeeded(reply)) {
            // Which of several invalid locations mongod reports is not defined.
            return Ok(Outcome::Failed);
        }
        if !command.contains_key("delete") && !compare::outcomes(&plain, &shaped)? {
            return Ok(Outcome::Failed);
        }
        ensure!(field(&plain, "n") == field(&shaped, "n"), "{}", show(&shaped));
        let codes = [&plain, &shaped].map(|reply| codes(reply));
        ensure!(codes[0] == codes[1], "{} instead of {}", show(&shaped), show(&plain));
        let [plain, shaped] = [&plain, &shaped].map(|reply| returned(reply));
        compare::documents(self.canon, &Order::Defined, &plain, &shaped, &[])?;
        Ok(if codes[0].is_empty() {
            Outcome::Done
        } else {
            Outcome::Failed
        })
    }

    /// The reason, if the reply is a refusal that is allowed.
    fn refusal(&self, command: &Document, reply: &RawDocument) -> Option<&'static str> {
        let text = show(reply);
        if let Some(reason) = REFUSALS.into_iter().find(|reason| text.contains(reason)) {
            return Some(reason);
        }
        let is_update_or_build = command.contains_key("update") || command.contains_key("createIndexes");
        let is_refused = is_update_or_build && self.has_empty && text.contains(&NO_LOCATION.to_string());
        is_refused.then_some("a null or empty location beside others")
    }
}

/// The index and code of each write error.
fn codes(reply: &RawDocument) -> Vec<(i32, i32)> {
    let errors = field(reply, "writeErrors").and_then(RawBsonRef::as_array);
    let errors = errors
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    let number = |error: &RawDocument, name| field(error, name).and_then(RawBsonRef::as_i32).unwrap_or_default();
    errors
        .map(|error| (number(error, "index"), number(error, "code")))
        .collect()
}

/// The documents of the first batch, which has all of them.
fn returned(reply: &RawDocument) -> Vec<RawDocumentBuf> {
    first_batch(reply).into_iter().map(RawDocument::to_owned).collect()
}
