//! What kind of server the upstream is, and whether this version can stand before it.

use bson::{Document, doc};
use mongodb::Client;

use crate::cli::finding::Finding;
use crate::cli::upstream::{as_integer, explain};
use crate::config::Config;
use crate::pattern::shapes::Shape;

/// `maxWireVersion` of MongoDB 6.0, the oldest that the bucket pattern is tested on.
const WIRE_VERSION_6_0: i64 = 17;

/// Looks at the upstream's `hello` and `buildInfo`; neither needs a right.
///
/// # Errors
/// When it does not answer, or refuses the configuration's credentials.
pub(in crate::cli) async fn check(client: &Client, config: &Config) -> anyhow::Result<Vec<Finding>> {
    let admin = client.database("admin");
    let address = &config.upstream.address;
    let unanswered = |error| anyhow::anyhow!("{address}: {}", explain(&error));
    let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(unanswered)?;
    let build = admin.run_command(doc! { "buildInfo": 1 }).await.map_err(unanswered)?;
    let version = build.get_str("version").unwrap_or("of unknown version");
    let reached = Finding::fine("upstream", format!("{address} is MongoDB {version}"));
    let has_bucket = config.shapes.iter().any(|shape| matches!(**shape, Shape::Bucket(_)));
    let too_old = if has_bucket { too_old(&hello, version) } else { None };
    Ok([Some(reached), too_old, topology(&hello)]
        .into_iter()
        .flatten()
        .collect())
}

fn too_old(hello: &Document, version: &str) -> Option<Finding> {
    let wire_version = hello.get("maxWireVersion").and_then(as_integer).unwrap_or(0);
    (wire_version < WIRE_VERSION_6_0).then(|| {
        let text = format!("MongoDB {version} is too old for [[bucket]]; use 6.0 or later");
        Finding::error("upstream", text)
    })
}

fn topology(hello: &Document) -> Option<Finding> {
    let kind = if hello.contains_key("setName") || hello.get_bool("isreplicaset").unwrap_or(false) {
        "a member of a replica set"
    } else if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        "a mongos"
    } else {
        return None;
    };
    let text = format!("it is {kind}, which is not in this version; name a standalone server");
    Some(Finding::error("upstream", text))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_a_standalone_is_accepted() {
        let check = |hello: Document, accepted: bool| assert_eq!(topology(&hello).is_none(), accepted, "{hello}");
        check(doc! { "isWritablePrimary": true }, true);
        check(doc! { "setName": "rs0" }, false);
        check(doc! { "isreplicaset": true }, false);
        check(doc! { "msg": "isdbgrid" }, false);
    }

    #[test]
    fn a_server_before_6_0_is_too_old() {
        assert!(too_old(&doc! { "maxWireVersion": 16 }, "5.3.0").is_some());
        assert!(too_old(&doc! { "maxWireVersion": 17 }, "6.0.5").is_none());
        assert!(too_old(&doc! {}, "2.0").is_some());
    }
}
