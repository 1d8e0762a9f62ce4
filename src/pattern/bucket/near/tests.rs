use bson::rawdoc;

use super::*;
use crate::pattern::bucket::item_index::GeoIndex;

fn near(filter: &RawDocument) -> Option<Near<'_>> {
    NearFilter::of(filter)?.near
}

#[test]
fn condition_is_taken_out_of_the_filter() {
    let filter = rawdoc! { "$and": [{ "at": { "$near": [1, 2], "$maxDistance": 3 } }, { "n": 1 }], "k": 2 };
    let parsed = NearFilter::of(&filter).unwrap();
    assert_eq!(parsed.rest, rawdoc! { "$and": [{ "n": 1 }], "k": 2 });
    let near = parsed.near.unwrap();
    assert_eq!((near.path, near.metric, near.max), ("at", Metric::Flat, Some(3.0)));
    assert!(NearFilter::of(&rawdoc! { "n": 1, "at": { "$geoWithin": {} } }).is_none());
}

#[test]
fn metric_follows_from_operator_and_point() {
    let point = rawdoc! { "type": "Point", "coordinates": [1.5, 2] };
    let metric = |condition: RawDocumentBuf| near(&rawdoc! { "at": condition }).map(|near| near.metric);
    assert_eq!(metric(rawdoc! { "$near": { "x": 1, "y": 2 } }), Some(Metric::Flat));
    assert_eq!(metric(rawdoc! { "$nearSphere": [1, 2] }), Some(Metric::Radians));
    assert_eq!(
        metric(rawdoc! { "$near": { "$geometry": point.clone() } }),
        Some(Metric::Meters)
    );
    assert_eq!(metric(rawdoc! { "$near": point }), Some(Metric::Meters));
}

#[test]
fn mongod_reports_mistakes() {
    let mistakes = [
        rawdoc! { "at": { "$near": [1] } },
        rawdoc! { "at": { "$near": [1, 2], "$maxDistance": -1 } },
        rawdoc! { "at": { "$nearSphere": [1, 91] } },
        rawdoc! { "at": { "$near": [1, 2], "$exists": true } },
        rawdoc! { "at": { "$near": [1, 2] }, "$and": [{ "at": { "$near": [1, 2] } }] },
        rawdoc! { "$or": [{ "at": { "$near": [1, 2] } }] },
    ];
    for mistake in mistakes {
        let parsed = NearFilter::of(&mistake).unwrap();
        assert!(parsed.near.is_none(), "{mistake:?}");
    }
    let stage = rawdoc! { "near": [1, 2], "distanceField": "far", "unknown": 1 };
    assert!(GeoNear::parse(&stage).is_none());
}

#[test]
fn circle_is_within_the_plane_unless_it_crosses_a_border() {
    let is_within = |x: f64, y: f64, radians: f64| {
        let filter = rawdoc! { "at": { "$nearSphere": [x, y], "$maxDistance": radians } };
        near(&filter).unwrap().is_within_plane()
    };
    assert!(is_within(0.0, 0.0, 0.5));
    assert!(!is_within(170.0, 0.0, 0.5));
    assert!(!is_within(0.0, 80.0, 0.5));
}

#[test]
fn leading_fields_of_an_index_need_equalities() {
    let indexes = ReadableIndexes {
        on_locations: vec![GeoIndex {
            path: "at".to_owned(),
            kind: GeoKind::Sphere,
            leading: vec!["k".to_owned()],
        }],
        ..ReadableIndexes::default()
    };
    let filter = rawdoc! { "at": { "$nearSphere": [1, 2] } };
    let access = |query: RawDocumentBuf| near(&filter).unwrap().access(&indexes, Some(&query));
    assert_eq!(access(rawdoc! { "k": 1 }), NearAccess::Index);
    assert_eq!(access(rawdoc! { "k": { "$gt": 1 } }), NearAccess::Undecided);
    assert_eq!(access(rawdoc! {}), NearAccess::None);
    assert_eq!(
        near(&rawdoc! { "at": { "$near": [1, 2] } })
            .unwrap()
            .access(&indexes, None),
        NearAccess::None
    );
}

#[test]
fn array_within_a_written_path_is_replaced() {
    let stages = written("item.far.away", "$near.d".into());
    let replaced = rawdoc! { "$cond": [{ "$isArray": "$item.far" }, { "$literal": {} }, "$item.far"] };
    assert_eq!(
        stages,
        [
            rawdoc! { "$set": { "item.far": replaced } },
            rawdoc! { "$set": { "item.far.away": "$near.d" } },
        ]
    );
}
