//! Authentication through the proxy: the user is the client's, with TLS on either side.

use std::time::{Duration, Instant};

use anyhow::{Context as _, Result, ensure};
use bson::{DateTime, Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Certificates, Level, Mongod, Proxy, ProxyOptions, client};
use tokio::time::sleep;

use super::{SHAPE, works};

const MECHANISMS: [&str; 2] = ["SCRAM-SHA-1", "SCRAM-SHA-256"];

/// A user for each mechanism, with write privileges on the databases of these tests only, and one for both.
async fn create_users(mongod: &Mongod) -> Result<()> {
    let admin = client(&mongod.uri()).await?;
    let users = [
        ("one", &MECHANISMS[..1]),
        ("two", &MECHANISMS[1..]),
        ("both", &MECHANISMS[..]),
    ];
    for (user, mechanisms) in users {
        let create =
            doc! { "createUser": user, "pwd": "p@ss:/", "roles": ["readWriteAnyDatabase"], "mechanisms": mechanisms };
        admin.database("admin").run_command(create).await.context(user)?;
    }
    admin.shutdown().await;
    Ok(())
}

/// Each user by each mechanism: those that they have work, and nothing else.
async fn check_users(uri_as: &dyn Fn(&str, &str) -> String) -> Result<()> {
    let cases = [("one", [true, false]), ("two", [false, true]), ("both", [true, true])];
    for (user, may) in cases {
        for (mechanism, may) in MECHANISMS.into_iter().zip(may) {
            let uri = format!("{}&authMechanism={mechanism}", uri_as(user, "p@ss:/"));
            let worked = works(&uri).await;
            ensure!(worked.is_ok() == may, "{user} by {mechanism}: {worked:?}");
        }
    }
    // Without a mechanism the driver requests the user's in its first handshake.
    works(&uri_as("two", "p@ss:/")).await?;
    ensure!(works(&uri_as("both", "wrong")).await.is_err(), "a wrong password");
    Ok(())
}

#[tokio::test]
async fn users_of_a_standalone_log_in_through_tls_on_both_sides() -> Result<()> {
    let certificates = Certificates::new()?;
    let mongod = Options::default().mutual_tls(&certificates).auth().standalone()?;
    create_users(&mongod).await?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPE).tls(&certificates))?;
    check_users(&|user, password| proxy.uri_as(user, password)).await?;
    nobody_else_is_logged_in(&proxy).await
}

/// The proxy deletes expired items as the configuration's user, whose connection needs neither the TLS of clients nor
/// that of mongod.
#[tokio::test]
async fn expired_items_are_deleted_where_clients_log_in_through_tls() -> Result<()> {
    let certificates = Certificates::new()?;
    for mongod in [
        Options::default().mutual_tls(&certificates).auth().standalone()?,
        Options::default().tls(&certificates).auth().replica_set(1)?,
    ] {
        create_users(&mongod).await?;
        let options = ProxyOptions::new(&mongod.uri()).config(SHAPE).tls(&certificates);
        let proxy = Proxy::start(&options.expire_every(200))?;
        let uri = proxy.uri_as("both", "p@ss:/");
        let application = client(&uri).await?;
        let items = application.database("d").collection::<Document>("items");
        let old = DateTime::from_millis(DateTime::now().timestamp_millis() - 100_000);
        items.insert_one(doc! { "_id": 1, "k": 1, "at": old }).await?;
        items
            .insert_one(doc! { "_id": 2, "k": 1, "at": DateTime::now() })
            .await?;
        let index = doc! { "key": { "at": 1 }, "name": "at_1", "expireAfterSeconds": 50 };
        application
            .database("d")
            .run_command(doc! { "createIndexes": "items", "indexes": [index] })
            .await?;
        let deadline = Instant::now() + Duration::from_secs(20);
        while items.count_documents(doc! {}).await? > 1 {
            ensure!(Instant::now() < deadline, "nothing has expired");
            sleep(Duration::from_millis(50)).await;
        }
        application.shutdown().await;
    }
    Ok(())
}

/// The ports of 127.0.0.1 on which a process listens.
fn listening_ports(process: u32) -> Result<Vec<u16>> {
    let mut sockets = Vec::new();
    for open in std::fs::read_dir(format!("/proc/{process}/fd"))? {
        let target = std::fs::read_link(open?.path()).unwrap_or_default();
        let target = target.to_string_lossy().into_owned();
        sockets.extend(
            target
                .strip_prefix("socket:[")
                .and_then(|rest| rest.strip_suffix(']'))
                .map(str::to_owned),
        );
    }
    let table = std::fs::read_to_string(format!("/proc/{process}/net/tcp"))?;
    let ports = table.lines().skip(1).filter_map(|line| {
        let fields: Vec<&str> = line.split_whitespace().collect();
        let is_listening =
            fields.get(3) == Some(&"0A") && sockets.iter().any(|socket| fields.get(9) == Some(&&**socket));
        let port = fields.get(1)?.split(':').nth(1).filter(|_| is_listening)?;
        u16::from_str_radix(port, 16).ok()
    });
    Ok(ports.collect())
}

/// The proxy's listener for itself has no TLS, and takes no other client.
#[test]
fn the_listener_of_the_proxy_itself_takes_no_other_client() -> Result<()> {
    let certificates = Certificates::new()?;
    let mongod = Options::default().tls(&certificates).standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(SHAPE).mutual_tls(&certificates))?;
    let public = [proxy.address().port(), proxy.admin_address().port()];
    let own: Vec<u16> = listening_ports(proxy.id())?
        .into_iter()
        .filter(|port| !public.contains(port))
        .collect();
    ensure!(own.len() == 1, "{own:?}");
    let mut stranger = Connection::open(([127, 0, 0, 1], own[0]).into())?;
    let reply = stranger.command(&doc! { "ping": 1, "$db": "admin" });
    ensure!(reply.is_err(), "{reply:?}");
    proxy.expect_log(Level::Warn, "reserved for the proxy's own tasks");
    Ok(())
}

/// The configuration's own user is none of the clients'.
async fn nobody_else_is_logged_in(proxy: &Proxy) -> Result<()> {
    let nobody = client(&proxy.uri()).await?;
    let database = nobody.database("d");
    let status = database.run_command(doc! { "connectionStatus": 1 }).await?;
    let users = status.get_document("authInfo")?.get_array("authenticatedUsers")?;
    ensure!(users.is_empty(), "{status}");
    ensure!(
        database
            .collection::<Document>("plain")
            .count_documents(doc! {})
            .await
            .is_err()
    );
    ensure!(
        database
            .collection::<Document>("items")
            .count_documents(doc! {})
            .await
            .is_err()
    );
    nobody.shutdown().await;
    Ok(())
}

#[tokio::test]
async fn users_of_a_set_log_in_through_tls_on_both_sides() -> Result<()> {
    let certificates = Certificates::new()?;
    let set = Options::default().tls(&certificates).auth().replica_set(2)?;
    create_users(&set).await?;
    let options = ProxyOptions::new(&set.uri()).config(SHAPE).tls(&certificates);
    for options in [options.clone(), options.members(&set.addresses())] {
        let proxy = Proxy::start(&options)?;
        let found = proxy.discovery_uri();
        let rest = found.strip_prefix("mongodb://").context("no connection string")?;
        let escaped = |text: &str| text.replace('@', "%40").replace(':', "%3A").replace('/', "%2F");
        check_users(&|user, password| format!("mongodb://{user}:{}@{rest}&authSource=admin", escaped(password)))
            .await?;
    }
    Ok(())
}
