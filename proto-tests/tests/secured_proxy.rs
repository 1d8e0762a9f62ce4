//! TLS on both sides of the proxy, and logins through it.

use anyhow::Result;
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Certificates, Identity, Level, Proxy, ProxyOptions, client};

fn answers(proxy: &Proxy, certificates: &Certificates, identity: Identity) -> Result<bool> {
    let config = certificates.client_config(identity)?;
    let asked = Connection::open_tls(proxy.address(), &config)
        .and_then(|mut connection| connection.command_ok(&doc! { "ping": 1, "$db": "admin" }));
    Ok(asked.is_ok())
}

#[tokio::test]
async fn mutual_tls_on_both_sides_and_logins_of_both_mechanisms() -> Result<()> {
    let (theirs, ours) = (Certificates::new()?, Certificates::new()?);
    let mongod = Options::default().mutual_tls(&theirs).auth().standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).mutual_tls(&ours))?;
    for mechanism in ["SCRAM-SHA-1", "SCRAM-SHA-256"] {
        let uri = format!("{}&authMechanism={mechanism}", proxy.uri_as("admin", "secret"));
        let collection = client(&uri).await?.database("d").collection::<Document>("c");
        collection.insert_one(doc! { "m": mechanism }).await?;
        assert_eq!(collection.count_documents(doc! { "m": mechanism }).await?, 1);
    }
    let wrong = client(&proxy.uri_as("admin", "wrong")).await?;
    assert!(wrong.database("d").run_command(doc! { "count": "c" }).await.is_err());
    assert!(answers(&proxy, &ours, Identity::Client)?);
    proxy.expect_log(Level::Warn, "the TLS handshake failed");
    for identity in [Identity::Nobody, Identity::Stranger] {
        assert!(!answers(&proxy, &ours, identity)?, "{identity:?}");
    }
    Ok(())
}

#[test]
fn without_client_ca_no_certificate_is_asked_for() -> Result<()> {
    let certificates = Certificates::new()?;
    let mongod = Options::default().tls(&certificates).standalone()?;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).tls(&certificates))?;
    assert!(answers(&proxy, &certificates, Identity::Nobody)?);
    assert!(answers(&proxy, &certificates, Identity::Client)?);
    proxy.expect_log(Level::Warn, "refused a connection");
    let mut plain = Connection::open(proxy.address())?;
    assert!(plain.command(&doc! { "ping": 1, "$db": "admin" }).is_err());
    Ok(())
}
