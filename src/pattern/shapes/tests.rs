use std::collections::BTreeMap;

use super::*;

fn bucket(namespace: &str) -> BucketOptions {
    BucketOptions::new(
        NamespacePattern::parse(namespace).unwrap(),
        vec!["customerId".to_owned()],
    )
}

fn renamed(pairs: &[(&str, &str)]) -> BucketOptions {
    let rename: BTreeMap<String, String> = pairs
        .iter()
        .map(|(item, stored)| ((*item).into(), (*stored).into()))
        .collect();
    BucketOptions {
        rename,
        ..bucket("shop.trades")
    }
}

fn options_at_fault(options: BucketOptions) -> Vec<&'static str> {
    BucketShape::new(options)
        .unwrap_err()
        .iter()
        .map(|error| error.option)
        .collect()
}

#[test]
fn a_named_database_goes_before_the_wildcard() {
    let any = BucketOptions {
        max_items: 3,
        ..bucket("*.trades")
    };
    let shop = BucketOptions {
        max_items: 5,
        ..bucket("shop.trades")
    };
    let shapes = [any, shop].map(|options| Shape::Bucket(BucketShape::new(options).unwrap()));
    let shapes = Shapes::new(shapes.into()).unwrap();
    let max_items = |namespace| match &**shapes.lookup(Namespace::parse(namespace).unwrap()).unwrap() {
        Shape::Bucket(shape) => shape.max_items(),
        Shape::Outlier(_) => panic!("not an outlier"),
    };
    assert_eq!(max_items("shop.trades"), 5);
    assert_eq!(max_items("other.trades"), 3);
    assert!(shapes.lookup(Namespace::new("shop", "orders")).is_none());
}

#[test]
fn two_shapes_on_one_namespace_are_a_clash() {
    let shapes = [(); 2].map(|()| Shape::Bucket(BucketShape::new(bucket("shop.trades")).unwrap()));
    assert_eq!(Shapes::new(shapes.into()).unwrap_err(), [(0, 1)]);
}

#[test]
fn disabled_shape_is_absent() {
    let off = BucketOptions {
        mode: Mode::Off,
        ..bucket("shop.trades")
    };
    assert!(
        Shapes::new(vec![Shape::Bucket(BucketShape::new(off).unwrap())])
            .unwrap()
            .is_empty()
    );
}

#[test]
fn a_shape_that_only_relays_is_found_as_a_shadow_or_not_at_all() {
    for mode in [Mode::Shadow, Mode::Off] {
        let shop = BucketOptions {
            mode,
            ..bucket("shop.trades")
        };
        let only = Shapes::new(vec![Shape::Bucket(BucketShape::new(shop.clone()).unwrap())]).unwrap();
        let both = [bucket("*.trades"), shop].map(|options| Shape::Bucket(BucketShape::new(options).unwrap()));
        let both = Shapes::new(both.into()).unwrap();
        assert!(only.is_empty() && !both.is_empty());
        let (trades, other) = (Namespace::new("shop", "trades"), Namespace::new("other", "trades"));
        for shapes in [&only, &both] {
            assert!(shapes.lookup(trades).is_none() && shapes.bucket(trades).is_none());
            assert_eq!(shapes.shadow(trades).is_some(), mode == Mode::Shadow);
            assert_eq!(shapes.shadows().count(), usize::from(mode == Mode::Shadow));
            assert!(shapes.shadow(other).is_none());
        }
        assert!(both.bucket(other).is_some());
        assert_eq!((only.iter().count(), both.iter().count()), (0, 1));
        assert_eq!(both.buckets_in("shop").count(), 0);
    }
}

#[test]
fn an_observed_shape_is_active_in_a_dry_run() {
    let shape = |namespace, mode| {
        let options = BucketOptions {
            mode,
            ..bucket(namespace)
        };
        Shape::Bucket(BucketShape::new(options).unwrap())
    };
    let shapes = [
        shape("shop.b", Mode::Observe),
        shape("shop.a", Mode::Observe),
        shape("shop.c", Mode::Rewrite),
    ];
    let shapes = Shapes::new(shapes.into()).unwrap();
    let first = |shapes: &Shapes| shapes.first_rewritten_in("shop").unwrap().namespace().to_string();
    assert_eq!(first(&shapes), "shop.c");
    let active = shapes.for_dry_run();
    assert_eq!(first(&active), "shop.a");
    assert_eq!(active.first_rewritten().unwrap().namespace().to_string(), "shop.a");
    assert!(active.bucket(Namespace::new("shop", "b")).is_some());
    assert!(shapes.bucket(Namespace::new("shop", "b")).is_none());
}

#[test]
fn every_contradiction_is_reported() {
    let options = BucketOptions {
        key: vec!["_id".into(), "a.b".into()],
        time: Some("_id".into()),
        items: "control".into(),
        count: "control".into(),
        max_items: 0,
        max_bytes: 3,
        ..bucket("shop.trades")
    };
    let expected = [
        "key",
        "key",
        "time",
        "items",
        "count",
        "count",
        "max_items",
        "max_bytes",
    ];
    assert_eq!(options_at_fault(options), expected);
    assert_eq!(options_at_fault(renamed(&[("a", "customerId")])), ["rename"]);
    assert_eq!(options_at_fault(renamed(&[("a", "c"), ("b", "c")])), ["rename"]);
}

#[test]
fn names_that_only_close_a_chain_are_distinguished() {
    let check = |pairs: &[(&str, &str)], expected: &[&str]| {
        let shape = BucketShape::new(renamed(pairs)).unwrap();
        let closing: Vec<&str> = ["a", "b", "c", "d"]
            .into_iter()
            .filter(|name| shape.rename().only_closes_a_chain(name))
            .collect();
        assert_eq!(closing, expected, "{pairs:?}");
    };
    check(&[], &[]);
    check(&[("a", "b")], &["a"]);
    check(&[("a", "b"), ("b", "c")], &["a"]);
    check(&[("a", "b"), ("b", "a"), ("c", "d")], &["c"]);
}

#[test]
fn renames_are_closed_to_a_permutation() {
    for pairs in [
        &[("quantity", "qty")][..],
        &[("a", "b"), ("b", "c")],
        &[("a", "b"), ("b", "a")],
        &[("a", "a")],
        &[],
    ] {
        let shape = BucketShape::new(renamed(pairs)).unwrap();
        for (item, stored) in pairs {
            assert_eq!(shape.rename().stored(item), *stored);
        }
        for name in ["quantity", "qty", "a", "b", "c", "d"] {
            assert_eq!(shape.rename().item(shape.rename().stored(name)), name, "{pairs:?}");
        }
    }
}

#[test]
fn namespaces_that_mongodb_refuses_are_refused() {
    for text in [
        "trades",
        ".trades",
        "shop.",
        "sh op.trades",
        "shop.tra$des",
        "shop.system.views",
    ] {
        assert_eq!(NamespacePattern::parse(text), None, "{text}");
    }
    assert_eq!(NamespacePattern::parse("*.a.b").unwrap().to_string(), "*.a.b");
}
