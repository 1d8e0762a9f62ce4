//! Two proxies on one replica set.

use anyhow::Result;
use proto_tests::{Proxy, ProxyOptions, Shape, mongod};

/// Small pages of items with a time.
pub(crate) fn small_pages() -> Shape {
    Shape {
        time: Some("at".to_owned()),
        max_items: 3,
        ..Shape::new(&["k"])
    }
}

/// Starts two proxies that store this collection in the shape.
pub(crate) fn two_proxies(shape: &Shape, database: &str, collection: &str) -> Result<[Proxy; 2]> {
    let set = mongod::shared_replica_set();
    let config = shape.toml(&format!("{database}.{collection}"));
    let proxy = || Proxy::start(&ProxyOptions::new(&set.uri()).config(&config));
    Ok([proxy()?, proxy()?])
}
