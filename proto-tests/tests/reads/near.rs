//! Queries by distance, of locations below several arrays.

use anyhow::Result;
use bson::{Bson, Document, bson, doc};
use proto_tests::Shape;
use proto_tests::sides::{COLLECTION, Sides};

/// Compares queries by the distance from a point, of items with these locations on pages of their own.
fn compare(path: &str, kind: &str, roots: Vec<Bson>, near: &Bson, condition: &Document) -> Result<()> {
    let mut sides = Sides::open(Shape::new(&["k"]))?;
    let root = path.split('.').next().unwrap_or(path);
    let numbered = (1..).zip(roots);
    let items: Vec<Document> = numbered
        .map(|(id, value)| doc! { "_id": id, "k": id, root: value })
        .collect();
    let index = doc! { "key": { path: kind }, "name": "places" };
    sides.alike(&doc! { "createIndexes": COLLECTION, "indexes": [index] })?;
    sides.alike(&doc! { "insert": COLLECTION, "documents": items })?;
    let find = doc! { "find": COLLECTION, "filter": { path: condition } };
    sides.pages_read(&find)?;
    for limit in 1..=3 {
        let mut find = find.clone();
        find.insert("limit", limit);
        sides.pages_read(&find)?;
    }
    let stage = doc! {
        "near": near, "key": path, "distanceField": "far", "includeLocs": "at", "spherical": kind == "2dsphere",
    };
    let pipeline = bson!([{ "$geoNear": stage }]);
    sides.pages_read(&doc! { "aggregate": COLLECTION, "pipeline": pipeline, "cursor": {} })?;
    Ok(())
}

/// Those in a list of lists were not found.
#[test]
fn points_below_two_arrays_are_found() -> Result<()> {
    let point = |x: f64, y: f64| bson!({ "type": "Point", "coordinates": [x, y] });
    let stop = |x: f64, y: f64| bson!({ "place": point(x, y) });
    let days = vec![
        bson!([{ "stops": [stop(50.0, 1.0), stop(1.0, 2.0)] }]),
        bson!([{ "stops": [stop(10.0, 10.0)] }, { "stops": stop(3.0, 3.0) }]),
        bson!({ "stops": [stop(2.0, 2.5)] }),
        bson!([{ "stops": [] }, { "stops": [stop(20.0, 20.0)] }]),
        bson!([5, { "stops": [7, stop(30.0, 30.0)] }]),
        bson!([]),
        // An array in an array has no fields.
        bson!([[{ "stops": stop(0.0, 0.0) }], { "stops": [[stop(0.0, 0.0)], stop(40.0, 40.0)] }]),
    ];
    let near = point(0.0, 0.0);
    let condition = doc! { "$nearSphere": { "$geometry": &near } };
    compare("days.stops.place", "2dsphere", days, &near, &condition)
}

/// Those in a list of pairs, in an array, were taken for a pair.
#[test]
fn lists_of_pairs_in_an_array_are_found() -> Result<()> {
    let stops = vec![
        bson!([{ "place": [[1, 2], [3, 4]] }]),
        bson!([{ "place": [5, 5] }, { "place": [[0.5, 0.5], [9, 9]] }]),
        bson!({ "place": [[7, 7], [8, 8]] }),
        bson!([{ "place": { "lng": 2, "lat": 2 } }, { "place": [{ "lng": 30, "lat": 30 }] }]),
        bson!([{}]),
    ];
    let near = bson!([0, 0]);
    compare("stops.place", "2d", stops, &near, &doc! { "$near": &near })
}
