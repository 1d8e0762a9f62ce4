use std::time::Duration;

use super::*;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::{ShadowShare, Shape};
use crate::server::tls::TlsFiles;
use crate::server::tls::TlsTable;
use crate::telemetry::log::LogFormat;

const MINIMAL: &str = "[listen]\naddress = \"127.0.0.1:27018\"\n[upstream]\nuri = \"mongodb://db\"\n";

fn parse(text: &str, variables: &[(&str, &str)]) -> Result<Config, ConfigErrors> {
    let lookup = |name: &str| {
        let found = variables.iter().find(|(variable, _)| *variable == name);
        found.map(|(_, value)| (*value).to_owned())
    };
    Config::parse(text, "m.toml", &lookup)
}

fn report(text: &str) -> String {
    parse(text, &[]).unwrap_err().to_string()
}

fn report_of_uri(uri: &str) -> String {
    report(&MINIMAL.replace("mongodb://db", uri))
}

#[test]
fn the_examples_parse_and_show_the_defaults() {
    for entry in std::fs::read_dir(concat!(env!("CARGO_MANIFEST_DIR"), "/config")).unwrap() {
        let path = entry.unwrap().path();
        let config = Config::load(&path, &|_| None).unwrap_or_else(|errors| panic!("{errors}"));
        assert_eq!(config.listen.max_connections, 10_000);
        // With every commented option enabled the file is still valid, and has the same values.
        let text = std::fs::read_to_string(&path).unwrap();
        let switched_on: Vec<&str> = text
            .lines()
            .map(|line| {
                line.strip_prefix('#')
                    .filter(|rest| !rest.starts_with(' '))
                    .unwrap_or(line)
            })
            .collect();
        let mut explicit = parse(&switched_on.join("\n"), &[]).unwrap_or_else(|errors| panic!("{errors}"));
        // These are examples; by default there are no files.
        explicit.listen.tls = None;
        explicit.admin.tls = None;
        explicit.admin.token = None;
        assert_eq!(format!("{:?}", explicit.listen), format!("{:?}", config.listen));
        assert_eq!(format!("{:?}", explicit.upstream), format!("{:?}", config.upstream));
        assert_eq!(format!("{:?}", explicit.admin), format!("{:?}", config.admin));
        assert_eq!(
            (explicit.log.filter, explicit.log.format),
            (config.log.filter, config.log.format)
        );
    }
}

#[test]
fn missing_option_has_its_default() {
    let config = parse(MINIMAL, &[]).unwrap();
    let listeners = Listeners::One {
        address: "127.0.0.1:27018".parse().unwrap(),
        present_as: PresentAs::Mongos,
        advertise: None,
    };
    assert_eq!(config.listen.listeners, listeners);
    assert_eq!(config.listen.idle_timeout, None);
    assert_eq!(config.listen.frame_timeout, Duration::from_secs(30));
    assert_eq!(config.listen.drain_timeout, Duration::from_secs(10));
    assert_eq!(config.upstream.hosts, ["db:27017"]);
    assert_eq!(config.upstream.connect_timeout, Duration::from_secs(10));
    assert_eq!(config.admin.address.to_string(), "127.0.0.1:9216");
    assert_eq!(
        (config.log.filter.as_str(), config.log.format),
        ("info", LogFormat::Text)
    );
    assert!(config.shapes.is_empty());
}

#[test]
fn environment_overrides_the_file_and_is_sufficient_alone() {
    let variables = [
        ("MONGOSHAPE_LISTEN_ADDRESS", "0.0.0.0:1"),
        ("MONGOSHAPE_LISTEN_MAX_CONNECTIONS", "7"),
        ("MONGOSHAPE_UPSTREAM_URI", "mongodb://[::1]"),
        ("MONGOSHAPE_LOG_FORMAT", "json"),
        ("MONGOSHAPE_BUCKET_0_NAMESPACE", "shop.trades"),
        ("MONGOSHAPE_BUCKET_0_KEY", "customerId"),
        ("MONGOSHAPE_BUCKET_0_MAX_ITEMS", "99"),
    ];
    let bucket = format!("{MINIMAL}[[bucket]]\nmax_items = 5\n");
    for text in ["", MINIMAL, &bucket] {
        let config = parse(text, &variables).unwrap();
        assert_eq!(config.listen.addresses(), ["0.0.0.0:1".parse().unwrap()]);
        assert_eq!(config.listen.max_connections, 7);
        assert_eq!(config.upstream.hosts, ["[::1]:27017"]);
        assert_eq!(config.log.format, LogFormat::Json);
        match &**config.shapes.lookup(Namespace::new("shop", "trades")).unwrap() {
            Shape::Bucket(shape) => assert_eq!(shape.max_items(), 99),
            Shape::Outlier(_) => panic!("not an outlier"),
        }
    }
}

#[test]
fn tls_paths_are_relative_to_the_file_that_names_them() {
    let check = |text: &str, variables: &[(&str, &str)], expected: Option<[&str; 3]>| {
        let lookup = |name: &str| {
            let found = variables.iter().find(|(variable, _)| *variable == name);
            found.map(|(_, value)| (*value).to_owned())
        };
        let text = MINIMAL.replace("[upstream]", &format!("{text}\n[upstream]"));
        let config = Config::parse(&text, "/etc/shape/m.toml", &lookup).unwrap_or_else(|errors| panic!("{errors}"));
        let expected = expected.map(|[cert, key, client_ca]| TlsFiles {
            table: TlsTable::Listen,
            cert: cert.into(),
            key: key.into(),
            client_ca: (!client_ca.is_empty()).then(|| client_ca.into()),
        });
        assert_eq!(config.listen.tls, expected, "{text} {variables:?}");
    };
    check("", &[], None);
    check(
        "tls = { cert = \"own/proxy.pem\" }",
        &[],
        Some(["/etc/shape/own/proxy.pem", "/etc/shape/own/proxy.pem", ""]),
    );
    check(
        "[listen.tls]\ncert = \"p.pem\"\nkey = \"/run/p.key\"\nclient_ca = \"../ca.pem\"",
        &[],
        Some(["/etc/shape/p.pem", "/run/p.key", "/etc/shape/../ca.pem"]),
    );
    let variables = [
        ("MONGOSHAPE_LISTEN_TLS_CERT", "proxy.pem"),
        ("MONGOSHAPE_LISTEN_TLS_CLIENT_CA", "/ca.pem"),
    ];
    check("", &variables, Some(["proxy.pem", "proxy.pem", "/ca.pem"]));
    check(
        "tls = { cert = \"a\", key = \"b\" }",
        &variables,
        Some(["proxy.pem", "/etc/shape/b", "/ca.pem"]),
    );
}

#[test]
fn a_tls_table_is_whole_or_a_mistake() {
    let report_of = |tls: &str| report(&MINIMAL.replace("[upstream]", &format!("tls = {tls}\n[upstream]")));
    let reports = [
        "{}",
        "{ key = \"proxy.key\", client_ca = \"\" }",
        "true",
        "[\"proxy.pem\"]",
        "{ certificate = \"proxy.pem\", kei = \"proxy.key\" }",
    ]
    .map(report_of);
    insta::assert_snapshot!(reports.join("\n"), @r#"
    m.toml:3: `listen.tls.cert` is missing; write cert = "proxy.pem", or set MONGOSHAPE_LISTEN_TLS_CERT
    m.toml:3: `listen.tls.cert` is missing; write cert = "proxy.pem", or set MONGOSHAPE_LISTEN_TLS_CERT
    m.toml:3: `listen.tls.client_ca`: it is empty; name a PEM file
    m.toml:3: `listen.tls`: it is a boolean; write a table
    m.toml:3: `listen.tls`: it is a list; write a table
    m.toml:3: `listen.tls.cert` is missing; write cert = "proxy.pem", or set MONGOSHAPE_LISTEN_TLS_CERT
    m.toml:3: `listen.tls.certificate` is not known; the valid fields are cert, key, client_ca
    m.toml:3: `listen.tls.kei` is not known; did you mean `key`?
    "#);
    let lone = parse(MINIMAL, &[("MONGOSHAPE_LISTEN_TLS_CLIENT_CA", "ca.pem")]).unwrap_err();
    insta::assert_snapshot!(lone, @r#"m.toml:1: `listen.tls.cert` is missing; write cert = "proxy.pem", or set MONGOSHAPE_LISTEN_TLS_CERT"#);
}

#[test]
fn a_mistake_in_the_environment_names_the_variable() {
    let variables = [
        ("MONGOSHAPE_LISTEN_MAX_CONNECTIONS", "many"),
        ("MONGOSHAPE_LISTEN_TLS_KEY", ""),
        ("MONGOSHAPE_ADMIN_ADDRESS", "127.0.0.1:27018"),
        ("MONGOSHAPE_BUCKET_0_NAMESPACE", "trades"),
    ];
    insta::assert_snapshot!(parse(MINIMAL, &variables).unwrap_err(), @r#"
    m.toml:1: `listen.tls.cert` is missing; write cert = "proxy.pem", or set MONGOSHAPE_LISTEN_TLS_CERT
    MONGOSHAPE_BUCKET_0_NAMESPACE: `bucket.namespace`: "trades" is not a namespace; write "database.collection", or "*.collection" for every database
    MONGOSHAPE_BUCKET_0_NAMESPACE: `bucket.key` is missing; write key = "customerId", or set MONGOSHAPE_BUCKET_0_KEY
    MONGOSHAPE_LISTEN_MAX_CONNECTIONS: `listen.max_connections`: `many` is not a whole number; write only digits
    MONGOSHAPE_LISTEN_TLS_KEY: `listen.tls.key`: it is empty; name a PEM file
    MONGOSHAPE_ADMIN_ADDRESS: `admin.address`: `listen.address` already uses 127.0.0.1:27018 (127.0.0.1:27018); choose another port
    "#);
}

#[test]
fn every_mistake_is_reported_at_once() {
    let text = r#"
colour = "red"
[listen]
adress = "127.0.0.1:27018"
max_connections = "many"
present_as = "mongos"
frame_timeout_ms = 0
tls = { cert = "", keys = "proxy.key", client_ca = 1 }
[[listen.member]]
address = "127.0.0.1:1"
[upstream]
uri = 27017
connect_timeout_ms = -1
[admin]
address = "localhost:9216"
[log]
filter = "inof"
format = "xml"
slow_command_ms = 86400001
[traces]
endpoint = "https://127.0.0.1:4318"
sampled_percent = 0
[[bucket]]
namespace = "trades"
key = ["a", 1]
max_item = 10
max_items = 0
max_bytes = 99999999999
rename = { a = 1 }
item_ids = "none"
[[bucket]]
namespace = "shop.trades"
key = ["customerId", "_id"]
time = "customerId"
rename = { customerId = "c" }
count = "history"
"#;
    insta::assert_snapshot!(report(text), @r#"
    m.toml:2: `colour` is not known; the valid fields are listen, upstream, admin, log, traces, bucket, outlier
    m.toml:4: `listen.adress` is not known; did you mean `address`?
    m.toml:5: `listen.max_connections`: it is a string; write a whole number
    m.toml:6: `listen.present_as`: there are [[listen.member]] tables, which have their own addresses; remove it, or remove the [[listen.member]] tables
    m.toml:7: `listen.frame_timeout_ms`: 0 is out of range; write milliseconds from 1 to 3600000
    m.toml:8: `listen.tls.cert`: it is empty; name a PEM file
    m.toml:8: `listen.tls.client_ca`: it is a whole number; write a string
    m.toml:8: `listen.tls.keys` is not known; did you mean `key`?
    m.toml:9: `listen.member.upstream` is missing; write upstream = "db1:27017", or set MONGOSHAPE_LISTEN_MEMBER_0_UPSTREAM
    m.toml:12: `upstream.uri`: it is a whole number; write a string
    m.toml:13: `upstream.connect_timeout_ms`: -1 is out of range; write a positive number
    m.toml:15: `admin.address`: "localhost:9216" is not an IP address and port; write one such as "127.0.0.1:27018" or "[::1]:27018"
    m.toml:17: `log.filter`: `inof` is not a level (did you mean `info`?); write a level (error, warn, info, debug, trace, off) or module=level, separated by commas
    m.toml:18: `log.format`: "xml" is not known; write "text" or "json"
    m.toml:19: `log.slow_command_ms`: 86400001 is out of range; write milliseconds up to 86400000, or 0 to log none
    m.toml:21: `traces.endpoint`: `https://127.0.0.1:4318` is no such address; write a collector without TLS, as in "http://127.0.0.1:4318"
    m.toml:22: `traces.sampled_percent`: `0` is no such percentage; write a number from 0.01 to 100
    m.toml:24: `bucket.namespace`: "trades" is not a namespace; write "database.collection", or "*.collection" for every database
    m.toml:25: `bucket.key`: it is a whole number; write a list that contains only strings
    m.toml:26: `bucket.max_item` is not known; did you mean `max_items`?
    m.toml:27: `bucket.max_items`: 0 is out of range; write a number from 1 to 10000
    m.toml:28: `bucket.max_bytes`: 99999999999 is out of range; write a smaller number
    m.toml:29: `bucket.rename`: it is a whole number; write `a` stored as a string
    m.toml:30: `bucket.item_ids`: "none" is not known; write "unique" or "unique_in_key" or "stored" or "dropped"
    m.toml:33: `bucket.key`: every item has its own `_id`; group by a field that items share
    m.toml:34: `bucket.time`: `customerId` is `_id` or a key field; name the date field that orders the items
    m.toml:35: `bucket.rename`: `customerId` to `c` involves `customerId`, which is `_id` or a key field; rename only fields that are stored inside the items
    m.toml:36: `bucket.count`: `history` is also the name of `items`; choose another name
    "#);
}

#[test]
fn overlapping_shapes_are_refused() {
    let text = format!(
        r#"{MINIMAL}
[[bucket]]
namespace = "shop.trades"
key = "customerId"
[[bucket]]
namespace = "shop.trades"
key = "region"
max_items = 0
[[outlier]]
namespace = "shop.sales"
array = "buyers"
threshold = 50
mode = "auto"
extras = {{ collection = "trades" }}
[[outlier]]
namespace = "*.orders"
array = "lines"
threshold = 0
extras = {{ collection = "trades", ref = "a", array = "a", size = 1 }}
[[outlier]]
mode = "observe"
"#
    );
    insta::assert_snapshot!(report(&text), @r#"
    m.toml:10: shop.trades already has a shape (m.toml:7); give each namespace one shape
    m.toml:12: `bucket.max_items`: 0 is out of range; write a number from 1 to 10000
    m.toml:17: `outlier.mode`: "auto" is not known; write "rewrite" or "observe" or "off"
    m.toml:18: the collection of extras `trades` has a shape itself (m.toml:7); name a collection without a shape
    m.toml:22: `outlier.threshold`: 0 is out of range; write a number from 1 to 100000
    m.toml:23: `outlier.extras.ref`: `a` is also `extras.array`; choose another name
    m.toml:23: `outlier.extras.size` is not known; the valid fields are collection, ref, array, max_items
    m.toml:23: the collection of extras `trades` has a shape itself (m.toml:7); name a collection without a shape
    m.toml:23: `trades` already stores the extras of shop.sales; name another collection
    m.toml:24: `outlier.namespace` is missing; write namespace = "database.collection", or set MONGOSHAPE_OUTLIER_2_NAMESPACE
    m.toml:24: `outlier.array` is missing; write array = "customers_purchased", or set MONGOSHAPE_OUTLIER_2_ARRAY
    m.toml:24: `outlier.threshold` is missing; write threshold = 50, or set MONGOSHAPE_OUTLIER_2_THRESHOLD
    "#);
}

#[test]
fn syntax_mistakes_do_not_hide_the_others() {
    let text = "[listen]\naddress =\nmax_connections = 0\n[upstream]\nuri = \"mongodb://db\n[log]\nformat = \"xml\"\nformat = \"text\"\n";
    insta::assert_snapshot!(report(text), @r#"
    m.toml:2: string values must be quoted; TOML expects literal string here
    m.toml:3: `listen.max_connections`: 0 is out of range; write a number from 1 to 1000000
    m.toml:5: invalid basic string; TOML expects `"` here
    m.toml:7: `log.format`: "xml" is not known; write "text" or "json"
    m.toml:8: duplicate key; write valid TOML
    "#);
    let unclosed = "[[bucket]]\nkey = [\"a\"\nmode = \"off\"\ntime = \"t\"\n[listen]\naddress = \"x\"\n";
    insta::assert_snapshot!(report(unclosed), @r#"
    m.toml:3: missing comma between array elements; TOML expects `,` here
    "#);
}

#[test]
fn wrong_kinds_of_sections_are_mistakes() {
    insta::assert_snapshot!(report("listen = 1\nbucket = 2\n[log.filter]\n[outlier]\nmode = \"off\"\n"), @r#"
    m.toml:1: `listen`: it is a whole number; write a table
    m.toml:1: `listen.address` is missing; write address = "127.0.0.1:27018", or set MONGOSHAPE_LISTEN_ADDRESS
    m.toml:2: `bucket`: it is a whole number; write a list of tables, [[bucket]]
    m.toml:3: `log.filter`: it is a table; write a string
    m.toml:4: `outlier` is written as a single table; write [[outlier]]
    m.toml:4: `outlier.namespace` is missing; write namespace = "database.collection", or set MONGOSHAPE_OUTLIER_0_NAMESPACE
    m.toml:4: `outlier.array` is missing; write array = "customers_purchased", or set MONGOSHAPE_OUTLIER_0_ARRAY
    m.toml:4: `outlier.threshold` is missing; write threshold = 50, or set MONGOSHAPE_OUTLIER_0_THRESHOLD
    m.toml: `upstream.uri` is missing; write uri = "mongodb://127.0.0.1:27017", or set MONGOSHAPE_UPSTREAM_URI
    "#);
}

#[test]
fn invalid_upstream_is_a_mistake() {
    let reports = [
        "mongodb://db/?loadBalanced=true",
        "mongodb://a,127.0.0.1:27018/?replicaSet=rs0",
        "mongodb://db/?tls=true&tlsAllowInvalidHostnames=true",
        "mongodb://%2Ftmp%2Fmongodb-27017.sock",
        "mongodb://db:99999",
        "db:27017",
        "mongodb://db/?retryWrites=perhaps",
        "mongodb://127.0.0.1:27018",
        "mongodb://localhost:27018",
    ]
    .map(report_of_uri);
    insta::assert_snapshot!(reports.join("\n"), @r#"
    m.toml:4: `upstream.uri`: loadBalanced is not supported; remove it, and name the servers
    m.toml:4: `upstream.uri`: 127.0.0.1:27018 is the address of the proxy itself (`listen.address`); write the address of the MongoDB server
    m.toml:4: `upstream.uri`: tlsAllowInvalidHostnames is not supported; use a certificate that contains the server's name; use tlsInsecure=true only in tests
    m.toml:4: `upstream.uri`: it does not contain a host and port; write mongodb://host:port
    m.toml:4: `upstream.uri`: it is not a connection string (invalid server address db:99999: the port must be an integer between 1 and 65535, got 99999); write mongodb://host:port
    m.toml:4: `upstream.uri`: it is not a connection string (connection string contains no scheme); write mongodb://host:port
    m.toml:4: `upstream.uri`: it is not a connection string (connection string `retrywrites` option must be a boolean); write mongodb://host:port
    m.toml:4: `upstream.uri`: 127.0.0.1:27018 is the address of the proxy itself (`listen.address`); write the address of the MongoDB server
    m.toml:4: `upstream.uri`: localhost:27018 is the address of the proxy itself (`listen.address`); write the address of the MongoDB server
    "#);
}

#[test]
fn each_member_may_have_a_listener() {
    let text = r#"
        upstream.uri = "mongodb://a,b/?replicaSet=rs0"
        [[listen.member]]
        address = "127.0.0.1:1"
        upstream = "A:27017"
        [[listen.member]]
        address = "0.0.0.0:2"
        upstream = "b:27017"
        advertise = "proxy.example.com:2"
    "#;
    let config = parse(text, &[]).unwrap();
    let Listeners::Members(members) = config.listen.listeners else {
        panic!("{:?}", config.listen);
    };
    let [a, b] = &members[..] else {
        panic!("{members:?}");
    };
    assert_eq!((a.upstream.as_str(), &a.advertise), ("a:27017", &None));
    assert_eq!(b.advertise.as_deref(), Some("proxy.example.com:2"));
}

#[test]
fn invalid_member_listeners_are_mistakes() {
    let text = r#"
upstream.uri = "mongodb://a/?replicaSet=rs0"
[listen]
address = "127.0.0.1:1"
present_as = "replica-set"
[[listen.member]]
address = "127.0.0.1:2"
upstream = "a:27017"
[[listen.member]]
address = "0.0.0.0:2"
upstream = "A:27017"
[[listen.member]]
address = "127.0.0.1:3"
upstream = "b"
"#;
    insta::assert_snapshot!(report(text), @r#"
    m.toml:4: `listen.address`: there are [[listen.member]] tables, which have their own addresses; remove it, or remove the [[listen.member]] tables
    m.toml:5: `listen.present_as`: there are [[listen.member]] tables, which have their own addresses; remove it, or remove the [[listen.member]] tables
    m.toml:10: `listen.member.address`: another member has the address 0.0.0.0:2; choose another port
    m.toml:10: `listen.member.address`: clients cannot connect to this address; add advertise = "host:port" with the address at which clients reach this listener
    m.toml:11: `listen.member.upstream`: a:27017 already has a listener; name each member once
    m.toml:14: `listen.member.upstream`: "b" is not a host and port; write a host and port such as "db1.example.com:27017"
    "#);
}

#[test]
fn a_password_is_never_shown() {
    for uri in [
        "mongodb://u:hunter2/@db",
        "mongodb://u:hunter2?@db",
        "mongodb://u:hun%ter2@db",
        "mongodb://u:hunter2@db:x",
    ] {
        let report = report_of_uri(uri);
        assert!(
            report.contains("m.toml:4: `upstream.uri`: it is not a connection string;"),
            "{report}"
        );
        assert!(!report.contains("hunter2"), "{report}");
    }
    let config = parse(&MINIMAL.replace("mongodb://db", "mongodb://u:hunter2@db"), &[]).unwrap();
    assert!(!format!("{config:?}").contains("hunter2"), "{config:?}");
}

#[test]
fn a_file_that_cannot_be_read_is_a_mistake() {
    let errors = Config::load(Path::new("/nowhere/m.toml"), &|_| None).unwrap_err();
    insta::assert_snapshot!(errors, @r#"
    /nowhere/m.toml: cannot be read: No such file or directory (os error 2); name a configuration file that is readable for this user
    "#);
}

#[test]
fn a_shadow_share_may_have_decimal_places() {
    let with = |share: &str| {
        let bucket = "[[bucket]]\nnamespace = \"shop.trades\"\nkey = \"customerId\"\nmode = \"shadow\"\n";
        format!("{MINIMAL}\n{bucket}shadow_share = {share}\n")
    };
    for (share, percent) in [("0.5", 0.5), ("20", 20.0)] {
        let config = Config::parse(&with(share), "m.toml", &|_| None).unwrap();
        assert!(config.shapes.is_empty());
        let Some(Shape::Bucket(shape)) = config
            .shapes
            .shadow(Namespace::new("shop", "trades"))
            .map(AsRef::as_ref)
        else {
            panic!("no shape in shadow mode");
        };
        assert_eq!(Some(shape.options().shadow_share), ShadowShare::of_percent(percent));
    }
    insta::assert_snapshot!(report(&with("0")), @"m.toml:10: `bucket.shadow_share`: `0` is no such percentage; write a number from 0.01 to 100");
    insta::assert_snapshot!(report(&with("\"1\"")), @"m.toml:10: `bucket.shadow_share`: it is a string; write a number");
    let outlier = "[[outlier]]\nnamespace = \"shop.sales\"\narray = \"buyers\"\nthreshold = 5\nmode = \"shadow\"\n";
    insta::assert_snapshot!(report(&format!("{MINIMAL}{outlier}")), @r#"m.toml:9: `outlier.mode`: "shadow" is not known; write "rewrite" or "observe" or "off""#);
}
