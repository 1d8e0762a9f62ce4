//! TLS with clients, with mongod, and on both sides; authentication through it; and X.509, which the proxy
//! cannot relay.

mod clients;
mod logins;
mod upstream;
mod x509;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::raw::Connection;
use proto_tests::{Certificates, Identity, Proxy, client, database_name};

const FAILED: &str = "the TLS handshake failed";
/// A collection of any database, for the shape of every proxy here.
const SHAPE: &str = "[[bucket]]\nnamespace = \"*.items\"\nkey = \"k\"\n";

fn ping() -> Document {
    doc! { "ping": 1, "$db": "admin" }
}

/// Whether a client that is this one gets an answer.
fn answers(proxy: &Proxy, certificates: &Certificates, identity: Identity) -> Result<bool> {
    let config = certificates.client_config(identity)?;
    let reply =
        Connection::open_tls(proxy.address(), &config).and_then(|mut connection| connection.command_ok(&ping()));
    Ok(reply.is_ok())
}

/// How many lines contain this.
fn lines(proxy: &Proxy, part: &str) -> usize {
    proxy.log().iter().filter(|line| line.text.contains(part)).count()
}

/// A driver's application writes to a plain and to a shaped collection and reads its own writes.
async fn works(uri: &str) -> Result<()> {
    let and = if uri.contains('?') { '&' } else { '?' };
    let application = client(&format!("{uri}{and}retryWrites=false&serverSelectionTimeoutMS=20000")).await?;
    let database = application.database(&database_name());
    for name in ["plain", "items"] {
        let collection = database.collection::<Document>(name);
        let documents: Vec<_> = (0..25).map(|number| doc! { "_id": number, "k": number % 2 }).collect();
        collection
            .insert_many(documents)
            .await
            .with_context(|| name.to_owned())?;
        let found = collection.count_documents(doc! { "k": 1 }).await?;
        ensure!(found == 12, "{found} in {name}");
    }
    database.drop().await.ok();
    application.shutdown().await;
    Ok(())
}
