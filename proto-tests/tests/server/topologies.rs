//! The presentations of a replica set, and that commands go to its primary.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, Document, doc};
use mongodb::Client;
use mongodb::options::{ClientOptions, ReadPreference, SelectionCriteria};
use proto_tests::frame::{self, EXHAUST_ALLOWED};
use proto_tests::measure::is_full;
use proto_tests::mongod::{self, Options};
use proto_tests::raw::{self, Connection};
use proto_tests::{Level, Mongod, Proxy, ProxyOptions};

fn hello(connection: &mut Connection) -> Result<Document> {
    connection.command_ok(&doc! { "hello": 1, "$db": "admin" })
}

/// A `hello` reply without what differs from one moment or connection to the next.
fn settled(mut hello: Document) -> Document {
    for volatile in [
        "localTime",
        "connectionId",
        "lastWrite",
        "$clusterTime",
        "operationTime",
        "topologyVersion",
    ] {
        hello.remove(volatile);
    }
    hello
}

fn strings(document: &Document, name: &str) -> Vec<String> {
    let list = document.get_array(name).cloned().unwrap_or_default();
    list.iter().filter_map(Bson::as_str).map(str::to_owned).collect()
}

const MEMBER_FIELDS: &[&str] = &[
    "setName",
    "hosts",
    "me",
    "primary",
    "setVersion",
    "electionId",
    "secondary",
    "lastWrite",
];

#[test]
fn a_replica_set_looks_like_a_mongos() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut connection = Connection::open(proxy.address())?;
    let shown = hello(&mut connection)?;
    assert_eq!(shown.get_str("msg")?, "isdbgrid");
    assert!(shown.get_bool("isWritablePrimary")?);
    for field in MEMBER_FIELDS {
        assert!(!shown.contains_key(field), "{field} in {shown}");
    }
    // As OP_QUERY, under the old name.
    let mut legacy = Connection::open(proxy.address())?;
    legacy.send(&frame::query(7, "admin", &doc! { "isMaster": 1, "helloOk": true })?)?;
    let shown = frame::reply_document(&legacy.receive()?)?;
    assert_eq!(shown.get_str("msg")?, "isdbgrid");
    assert!(shown.get_bool("ismaster")? && shown.get_bool("helloOk")?);
    assert!(
        !shown.contains_key("setName") && !shown.contains_key("hosts"),
        "{shown}"
    );
    Ok(())
}

#[test]
fn every_reply_of_a_streaming_hello_is_edited() -> Result<()> {
    let proxy = Proxy::start(&ProxyOptions::new(&mongod::shared_replica_set().uri()))?;
    let mut connection = Connection::open(proxy.address())?;
    let version = hello(&mut connection)?.get_document("topologyVersion")?.clone();
    let command = doc! { "hello": 1, "topologyVersion": version, "maxAwaitTimeMS": 50_i64, "$db": "admin" };
    connection.send(&frame::command(9, EXHAUST_ALLOWED, &command)?)?;
    for _ in 0..4 {
        let shown = raw::document(&connection.receive()?)?;
        assert_eq!(shown.get_str("msg")?, "isdbgrid");
        assert!(!shown.contains_key("setName"), "{shown}");
    }
    Ok(())
}

#[test]
fn a_replica_set_looks_like_a_set_of_one() -> Result<()> {
    let set = mongod::shared_replica_set();
    for (advertise, expected) in [("", None), ("advertise = \"Proxy.example:1\"", Some("proxy.example:1"))] {
        let listen = format!("present_as = \"replica-set\"\n{advertise}");
        let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).listen(&listen))?;
        let expected = expected.map_or_else(|| proxy.address().to_string(), str::to_owned);
        let shown = hello(&mut Connection::open(proxy.address())?)?;
        assert_eq!(strings(&shown, "hosts"), [expected.as_str()]);
        assert_eq!(shown.get_str("me")?, expected);
        assert_eq!(shown.get_str("primary")?, expected);
        assert_eq!(shown.get_str("setName")?, "rs0");
        assert!(!shown.contains_key("msg"));
        let direct = hello(&mut Connection::open(set.address())?)?;
        assert_eq!(shown.get("electionId"), direct.get("electionId"));
    }
    Ok(())
}

#[test]
fn standalone_hello_is_relayed_unchanged() -> Result<()> {
    let standalone = mongod::shared();
    for present_as in ["mongos", "replica-set"] {
        let listen = format!("present_as = \"{present_as}\"");
        let proxy = Proxy::start(&ProxyOptions::new(&standalone.uri()).listen(&listen))?;
        let shown = hello(&mut Connection::open(proxy.address())?)?;
        let direct = hello(&mut Connection::open(standalone.address())?)?;
        assert_eq!(settled(shown), settled(direct));
    }
    Ok(())
}

/// A client of the driver, as an application has one.
async fn client(uri: &str) -> Result<Client> {
    let mut options = ClientOptions::parse(uri).await?;
    options.server_selection_timeout = Some(std::time::Duration::from_secs(20));
    Ok(Client::with_options(options)?)
}

#[test]
fn after_a_stepdown_the_next_command_goes_to_the_new_primary() -> Result<()> {
    let set = Mongod::replica_set(3)?;
    // Every tenth write follows a stepdown.
    let writes: i32 = if is_full("MONGOSHAPE_CRASHES") { 30 } else { 10 };
    for present_as in ["mongos", "replica-set"] {
        let listen = format!("present_as = \"{present_as}\"");
        let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).listen(&listen))?;
        proxy.expect_log(Level::Warn, "the upstream's primary has stepped down");
        proxy.expect_log(Level::Warn, "the upstream is not available");
        let uri = match present_as {
            "mongos" => format!("mongodb://{}", proxy.address()),
            _ => format!("mongodb://{}/?replicaSet=rs0", proxy.address()),
        };
        let runtime = tokio::runtime::Runtime::new()?;
        runtime.block_on(async {
            let client = client(&uri).await?;
            let numbers = client.database("topologies").collection::<Document>(present_as);
            for number in 0..writes {
                if number % 10 == 5 {
                    let primary = set.primary()?;
                    let down = Connection::open(set.addresses()[primary])?.command(
                        &doc! { "replSetStepDown": 3, "secondaryCatchUpPeriodSecs": 2, "force": true, "$db": "admin" },
                    );
                    drop(down);
                }
                numbers.insert_one(doc! { "_id": number }).await.context(number)?;
            }
            let stored = numbers.count_documents(doc! {}).await?;
            ensure!(stored == u64::try_from(writes)?, "{stored} of {writes} writes");
            client.shutdown().await;
            Ok(())
        })?;
    }
    Ok(())
}

#[test]
fn connection_is_kept_if_the_primary_only_reports_not_primary() -> Result<()> {
    let set = Options::default().parameter("enableTestCommands=1").replica_set(1)?;
    let proxy = Proxy::start(&ProxyOptions::new(&set.uri()))?;
    let mut others = Connection::open(proxy.address())?;
    hello(&mut others)?;
    let mut connection = Connection::open(proxy.address())?;
    hello(&mut connection)?;
    for code in [10107, 13435, 91] {
        let data = doc! { "failCommands": ["ping"], "errorCode": code };
        let fail = doc! { "configureFailPoint": "failCommand", "mode": { "times": 1 }, "data": data, "$db": "admin" };
        others.command_ok(&fail)?;
        let ping = doc! { "ping": 1, "$db": "admin" };
        assert_eq!(connection.command(&ping)?.get_i32("code")?, code);
        connection.command_ok(&ping)?;
        others.command_ok(&ping)?;
    }
    Ok(())
}

#[test]
fn each_member_is_reached_through_its_own_listener() -> Result<()> {
    let set = Mongod::replica_set(3)?;
    let proxy = Proxy::start(&ProxyOptions::new(&set.uri()).members(&set.addresses()))?;
    let listeners = proxy.member_addresses();
    let mut names: Vec<_> = listeners.iter().map(ToString::to_string).collect();
    names.sort();
    for (listener, member) in listeners.iter().zip(set.addresses()) {
        let shown = hello(&mut Connection::open(*listener)?)?;
        let direct = hello(&mut Connection::open(member)?)?;
        let mut hosts = strings(&shown, "hosts");
        hosts.sort();
        assert_eq!(hosts, names);
        assert_eq!(shown.get_str("me")?, listener.to_string());
        for same in ["setName", "setVersion", "electionId", "isWritablePrimary", "secondary"] {
            assert_eq!(shown.get(same), direct.get(same), "{same}");
        }
    }
    // Reads go where the driver sends them.
    let uri = format!("mongodb://{}/?replicaSet=rs0&readPreference=secondary", names.join(","));
    tokio::runtime::Runtime::new()?.block_on(async {
        let client = client(&uri).await?;
        let admin = client.database("admin");
        let hello = admin.run_command(doc! { "hello": 1 });
        let secondary = SelectionCriteria::ReadPreference(ReadPreference::Secondary { options: None });
        let hello = hello.selection_criteria(secondary).await?;
        ensure!(hello.get_bool("secondary")?, "{hello}");
        client.shutdown().await;
        Ok(())
    })
}
