//! X.509 authentication: mongod would authenticate the proxy's certificate, so the proxy refuses it.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::frame;
use proto_tests::mongod::Options;
use proto_tests::raw::{self, Connection};
use proto_tests::{Certificates, Identity, Mongod, Proxy, ProxyOptions, client};

/// The subject of the certificate that the proxy shows to mongod, as a user's name.
const SUBJECT: &str = "CN=client,O=mongoshape tests";

fn authenticate() -> Document {
    doc! { "authenticate": 1, "mechanism": "MONGODB-X509" }
}

fn sasl_start() -> Document {
    doc! { "saslStart": 1, "mechanism": "MONGODB-X509", "payload": "" }
}

fn with(mut command: Document, name: &str, value: impl Into<bson::Bson>) -> Document {
    command.insert(name, value);
    command
}

/// A mongod whose user is the proxy's certificate, and a proxy before it.
async fn start() -> Result<(Certificates, Mongod, Proxy)> {
    let certificates = Certificates::new()?;
    // The certificates' organisation is the server's, which mongod would keep for members of a cluster.
    let options = Options::default().parameter("enforceUserClusterSeparation=false");
    let mongod = options.mutual_tls(&certificates).auth().standalone()?;
    let roles = vec![doc! { "role": "root", "db": "admin" }];
    let admin = client(&mongod.uri()).await?;
    let create = doc! { "createUser": SUBJECT, "roles": roles };
    admin.database("$external").run_command(create).await?;
    admin.shutdown().await;
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()))?;
    Ok((certificates, mongod, proxy))
}

fn is_logged_in(connection: &mut Connection) -> Result<bool> {
    let status = connection.command_ok(&doc! { "connectionStatus": 1, "$db": "admin" })?;
    Ok(!status
        .get_document("authInfo")?
        .get_array("authenticatedUsers")?
        .is_empty())
}

/// Sends an OP_QUERY and gives the answer's document.
fn query(connection: &mut Connection, body: &Document) -> Result<Document> {
    connection.send(&frame::query(3, "$external", body)?)?;
    let reply = connection.receive()?;
    ensure!(frame::header_field(&reply, 3) == frame::OP_REPLY, "not in kind");
    frame::reply_document(&reply)
}

fn check_refused(reply: &Document) -> Result<()> {
    ensure!(reply.get_i32("code").ok() == Some(18), "{reply}");
    ensure!(reply.get_str("codeName")? == "AuthenticationFailed", "{reply}");
    let message = reply.get_str("errmsg")?;
    ensure!(
        message.contains("MONGODB-X509 does not work through mongoshape"),
        "{reply}"
    );
    ensure!(message.contains("SCRAM-SHA-256"), "{reply}");
    Ok(())
}

#[tokio::test]
async fn x509_authentication_is_refused_with_a_message() -> Result<()> {
    let (certificates, mongod, proxy) = start().await?;
    // Directly on mongod it succeeds.
    let config = certificates.client_config(Identity::Client)?;
    let mut direct = Connection::open_tls(mongod.address(), &config)?;
    direct.command_ok(&with(authenticate(), "$db", "$external"))?;
    ensure!(is_logged_in(&mut direct)?, "the test proves nothing");
    let mut wrapped = Connection::open_tls(mongod.address(), &config)?;
    query(&mut wrapped, &doc! { "$query": authenticate() })?;
    ensure!(
        is_logged_in(&mut wrapped)?,
        "the test proves nothing of what is wrapped"
    );

    for command in [authenticate(), sasl_start()] {
        let mut application = Connection::open(proxy.address())?;
        check_refused(&application.command(&with(command.clone(), "$db", "$external"))?)?;
        check_refused(&query(&mut application, &command)?)?;
        for wrapper in ["$query", "query"] {
            check_refused(&query(&mut application, &doc! { wrapper: command.clone() })?)?;
            ensure!(!is_logged_in(&mut application)?, "{wrapper}: {command}");
        }
    }
    Ok(())
}

#[tokio::test]
async fn a_handshake_with_x509_succeeds_without_logging_in() -> Result<()> {
    let (certificates, mongod, proxy) = start().await?;
    let config = certificates.client_config(Identity::Client)?;
    for first in [
        with(authenticate(), "db", "$external"),
        with(sasl_start(), "db", "$external"),
    ] {
        let hello = |name: &str| doc! { name: 1, "helloOk": true, "speculativeAuthenticate": first.clone() };
        let mut direct = Connection::open_tls(mongod.address(), &config)?;
        direct.command_ok(&with(hello("hello"), "$db", "admin"))?;
        let would = is_logged_in(&mut direct)?;
        ensure!(would == first.contains_key("authenticate"), "the test proves nothing");

        for name in ["hello", "isMaster"] {
            let mut application = Connection::open(proxy.address())?;
            let reply = application.command_ok(&with(hello(name), "$db", "admin"))?;
            ensure!(!reply.contains_key("speculativeAuthenticate"), "{reply}");
            ensure!(reply.contains_key("maxWireVersion"), "{reply}");
            ensure!(!is_logged_in(&mut application)?, "{name}");

            for legacy in [
                hello(name),
                doc! { "$query": hello(name) },
                doc! { "query": hello(name) },
            ] {
                let mut application = Connection::open(proxy.address())?;
                let reply = query(&mut application, &legacy)?;
                ensure!(!reply.contains_key("speculativeAuthenticate"), "{legacy}: {reply}");
                ensure!(!is_logged_in(&mut application)?, "{legacy}: {reply}");
            }
        }
    }
    Ok(())
}

/// A speculative login by SCRAM is none of the proxy's affairs.
#[tokio::test]
async fn handshake_with_speculative_scram_is_relayed() -> Result<()> {
    let (_certificates, _mongod, proxy) = start().await?;
    let payload = bson::Binary {
        subtype: bson::spec::BinarySubtype::Generic,
        bytes: b"n,,n=admin,r=fyko+d2lbbFgONRv9qkxdawL".to_vec(),
    };
    let speculative = doc! { "saslStart": 1, "mechanism": "SCRAM-SHA-256", "payload": payload, "db": "admin" };
    let hello = doc! { "hello": 1, "speculativeAuthenticate": speculative, "$db": "admin" };
    let mut application = Connection::open(proxy.address())?;
    application.send(&frame::command(1, 0, &hello)?)?;
    let reply = raw::document(&application.receive()?)?;
    ensure!(reply.contains_key("speculativeAuthenticate"), "{reply}");
    Ok(())
}
