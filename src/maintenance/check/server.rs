//! Checks which kind of server the upstream is, and whether this version supports it.

use bson::{Document, doc};
use mongodb::Client;

use crate::config::{Config, Listeners};
use crate::maintenance::finding::Finding;
use crate::maintenance::upstream::{as_integer, explain};
use crate::pattern::shapes::{Mode, Shape};

/// `maxWireVersion` of MongoDB 6.0, the oldest version on which the bucket pattern is tested.
const WIRE_VERSION_6_0: i64 = 17;

/// The use of the upstream by a command of the operator.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Purpose {
    /// The proxy serves collections in their shapes.
    Serve,
    /// The command exchanges a collection for a copy of it, or changes its documents.
    Exchange,
}

/// Checks the upstream's `hello` and `buildInfo`, which require no privileges.
///
/// # Errors
/// If the upstream does not reply, or refuses the configured credentials.
pub(crate) async fn check(client: &Client, config: &Config, purpose: Purpose) -> anyhow::Result<Vec<Finding>> {
    let admin = client.database("admin");
    let address = config.upstream.hosts.join(", ");
    let unanswered = |error| anyhow::anyhow!("{address}: {}", explain(&error));
    let hello = admin.run_command(doc! { "hello": 1 }).await.map_err(unanswered)?;
    let build = admin.run_command(doc! { "buildInfo": 1 }).await.map_err(unanswered)?;
    let version = build.get_str("version").unwrap_or("of unknown version");
    let reached = Finding::fine("upstream", format!("{address} is MongoDB {version}"));
    let has_bucket = config.shapes.iter().any(|shape| matches!(**shape, Shape::Bucket(_)));
    let too_old = if has_bucket { too_old(&hello, version) } else { None };
    Ok([Some(reached), too_old, topology(&hello, config, purpose)]
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
fn topology(hello: &Document, config: &Config, purpose: Purpose) -> Option<Finding> {
    if hello.get_bool("isreplicaset").unwrap_or(false) {
        let text = "it was started as a member of a replica set, but the set is not initiated; run rs.initiate() on it";
        return Some(Finding::error("upstream", text));
    }
    if is_mongos(hello) {
        return mongos(config, purpose);
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

/// Whether this is the `hello` of a mongos.
pub(crate) fn is_mongos(hello: &Document) -> bool {
    hello.get_str("msg").is_ok_and(|msg| msg == "isdbgrid")
}

/// The finding about a mongos, if there are shapes.
fn mongos(config: &Config, purpose: Purpose) -> Option<Finding> {
    let is_supported =
        |shape: &Shape| matches!(shape, Shape::Bucket(_)) && !matches!(shape.mode(), Mode::Auto | Mode::Shadow);
    let mut shapes = config.shapes.iter().peekable();
    shapes.peek()?;
    if purpose == Purpose::Exchange {
        let text = "it is a mongos, behind which this command is not supported";
        return Some(Finding::error("upstream", text));
    }
    Some(if shapes.all(|shape| is_supported(shape)) {
        let text = "it is a mongos: the shard key of a sharded collection must consist of key fields of its shape";
        Finding::note("upstream", text)
    } else {
        let text = "it is a mongos, behind which only [[bucket]] with mode = \"rewrite\", \"observe\" or \"off\" is supported; name a \
                    replica set or a standalone";
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
        let found = topology(hello, &config, Purpose::Serve).map(|finding| finding.to_string());
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
        check(one, &doc! { "msg": "isdbgrid" }, Some("the shard key of"));
        check(members, &set(&["a:1"]), Some("each member has a listener"));
        check(members, &set(&["a:1", "b:2"]), Some("no [[listen.member]] for b:2"));
        check(members, &set(&["b:2"]), Some("a:1 is not a member of rs0"));
    }

    #[test]
    fn unsupported_shapes_behind_a_mongos_are_errors() {
        let check = |shape: &str, purpose| {
            let text = format!("upstream.uri = \"mongodb://a:1\"\nlisten.address = \"127.0.0.1:1\"\n{shape}");
            let config = Config::parse(&text, "m.toml", &|_| None).unwrap();
            mongos(&config, purpose).map(|finding| finding.is_error())
        };
        let bucket = "[[bucket]]\nnamespace = \"a.b\"\nkey = \"c\"\n";
        assert_eq!(check("", Purpose::Exchange), None);
        assert_eq!(check(bucket, Purpose::Serve), Some(false));
        assert_eq!(check(bucket, Purpose::Exchange), Some(true));
        assert_eq!(check(&format!("{bucket}mode = \"auto\"\n"), Purpose::Serve), Some(true));
        let outlier = "[[outlier]]\nnamespace = \"a.d\"\narray = \"e\"\nthreshold = 50\n";
        assert_eq!(check(&format!("{bucket}{outlier}"), Purpose::Serve), Some(true));
    }

    #[test]
    fn a_server_before_6_0_is_too_old() {
        assert!(too_old(&doc! { "maxWireVersion": 16 }, "5.3.0").is_some());
        assert!(too_old(&doc! { "maxWireVersion": 17 }, "6.0.5").is_none());
        assert!(too_old(&doc! {}, "2.0").is_some());
    }
}
