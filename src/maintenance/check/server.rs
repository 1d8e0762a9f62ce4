//! Checks which kind of server the upstream is, and whether this version supports it.

use bson::{Document, doc};
use mongodb::Client;

use crate::config::{Config, Listeners};
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::{as_integer, explain};
use crate::pattern::shapes::Shape;

/// `maxWireVersion` of MongoDB 6.0, the oldest version on which the bucket pattern is tested.
const WIRE_VERSION_6_0: i64 = 17;

/// Checks the upstream's `hello` and `buildInfo`, which require no privileges.
///
/// # Errors
/// If the upstream does not reply, or refuses the configured credentials.
pub(crate) async fn check(client: &Client, config: &Config) -> anyhow::Result<Vec<Finding>> {
    let admin = client.database("admin");
    let address = config.upstream.hosts.join(", ");
    let unanswered = |error| anyhow::anyhow!("{address}: {}", explain(&error));
    let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(unanswered)?;
    let build = admin.run_command(doc! { "buildInfo": 1 }).await.map_err(unanswered)?;
    let version = build.get_str("version").unwrap_or("of unknown version");
    let reached = Finding::fine("upstream", format!("{address} is MongoDB {version}"));
    let has_bucket = config.shapes.iter().any(|shape| matches!(**shape, Shape::Bucket(_)));
    let too_old = if has_bucket { too_old(&hello, version) } else { None };
    Ok([Some(reached), too_old, topology(&hello, config)]
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

/// The finding about a server other than a standalone, with the consequences for shapes and
/// clients.
fn topology(hello: &Document, config: &Config) -> Option<Finding> {
    if hello.get_bool("isreplicaset").unwrap_or(false) {
        let text = "it was started as a member of a replica set, but the set is not initiated; run rs.initiate() on it";
        return Some(Finding::error("upstream", text));
    }
    if hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid") {
        let text =
            "it is a mongos, and shapes on a sharded cluster are not supported; name a replica set or a standalone";
        let shaped = config.shapes.iter().next().is_some();
        return shaped.then(|| Finding::error("upstream", text));
    }
    let set = hello.get_str("setName").ok()?;
    let Listeners::Members(members) = &config.listen.listeners else {
        return Some(Finding::fine("upstream", format!("it is the replica set {set}")));
    };
    let with_listener = |host: &str| members.iter().any(|member| member.upstream == host.to_lowercase());
    let hosts = ["hosts", "passives"]
        .into_iter()
        .filter_map(|list| hello.get_array(list).ok());
    let hosts: Vec<&str> = hosts.flatten().filter_map(|host| host.as_str()).collect();
    let missing: Vec<&str> = hosts.iter().copied().filter(|host| !with_listener(host)).collect();
    let unknown = members
        .iter()
        .find(|member| !hosts.iter().any(|host| host.to_lowercase() == member.upstream));
    Some(if let Some(member) = unknown {
        let text = format!(
            "{} is not a member of {set}; write the hosts as in rs.conf(): {}",
            member.upstream,
            hosts.join(", ")
        );
        Finding::error("upstream", text)
    } else if missing.is_empty() {
        Finding::fine(
            "upstream",
            format!("it is the replica set {set}; each member has a listener"),
        )
    } else {
        let text = format!(
            "no [[listen.member]] for {}: clients will not see it",
            missing.join(", ")
        );
        Finding::error("upstream", text)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(listen: &str, hello: &Document, expected: Option<&str>) {
        let bucket = "[[bucket]]\nnamespace = \"a.b\"\nkey = \"c\"\n";
        let text = format!("upstream.uri = \"mongodb://a:1\"\n{bucket}{listen}");
        let config = Config::parse(&text, "m.toml", &|_| None).unwrap();
        let found = topology(hello, &config).map(|finding| finding.to_string());
        match expected {
            Some(part) => assert!(found.as_ref().is_some_and(|found| found.contains(part)), "{found:?}"),
            None => assert!(found.is_none(), "{found:?}"),
        }
    }

    #[test]
    fn unsupported_topology_is_named() {
        let one = "[listen]\naddress = \"127.0.0.1:1\"\n";
        let members = "[[listen.member]]\naddress = \"127.0.0.1:1\"\nupstream = \"A:1\"\n";
        let set = |hosts: &[&str]| doc! { "setName": "rs0", "hosts": hosts };
        check(one, &doc! { "isWritablePrimary": true }, None);
        check(one, &set(&["a:1"]), Some("it is the replica set rs0"));
        check(one, &doc! { "isreplicaset": true }, Some("not initiated"));
        check(one, &doc! { "msg": "isdbgrid" }, Some("a mongos"));
        check(members, &set(&["a:1"]), Some("each member has a listener"));
        check(members, &set(&["a:1", "b:2"]), Some("no [[listen.member]] for b:2"));
        check(members, &set(&["b:2"]), Some("a:1 is not a member of rs0"));
    }

    #[test]
    fn a_server_before_6_0_is_too_old() {
        assert!(too_old(&doc! { "maxWireVersion": 16 }, "5.3.0").is_some());
        assert!(too_old(&doc! { "maxWireVersion": 17 }, "6.0.5").is_none());
        assert!(too_old(&doc! {}, "2.0").is_some());
    }
}
