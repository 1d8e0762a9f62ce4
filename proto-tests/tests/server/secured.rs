//! The harness's servers with TLS and authentication, used by the driver and by raw connections.

use std::net::SocketAddr;

use anyhow::Result;
use bson::{Document, doc};
use mongodb::Database;
use mongodb::error::ErrorKind;
use mongodb::options::{Acknowledgment, WriteConcern};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Certificates, Identity, Mongod, Proxy, ProxyOptions, client};

/// A whole round: written with the concern that a set of several members can only fulfil when they reach each
/// other.
async fn works(uri: &str) -> Result<()> {
    let collection = client(uri).await?.database("d").collection::<Document>("c");
    let majority = WriteConcern::builder()
        .w(Acknowledgment::Majority)
        .journal(true)
        .build();
    collection.insert_one(doc! { "n": 1 }).write_concern(majority).await?;
    assert_eq!(collection.count_documents(doc! {}).await?, 1);
    Ok(())
}

async fn is_refused(uri: &str) {
    let uri = format!("{uri}&serverSelectionTimeoutMS=1000");
    let client = client(&uri).await.expect("a connection string");
    let reply = client.database("d").run_command(doc! { "count": "c" }).await;
    assert!(reply.is_err(), "{reply:?}");
}

/// Whether a client that is this one gets an answer.
fn answers(mongod: &Mongod, certificates: &Certificates, identity: Identity) -> Result<bool> {
    let config = certificates.client_config(identity)?;
    let reply = Connection::open_tls(mongod.address(), &config)
        .and_then(|mut connection| connection.command_ok(&doc! { "ping": 1, "$db": "admin" }));
    Ok(reply.is_ok())
}

#[tokio::test]
async fn tls_takes_clients_with_and_without_a_certificate() -> Result<()> {
    let certificates = Certificates::new()?;
    let mongod = Options::default().tls(&certificates).standalone()?;
    works(&mongod.uri()).await?;
    is_refused(&format!("mongodb://{}/?directConnection=true", mongod.address())).await;
    assert!(
        Connection::open(mongod.address())?
            .command(&doc! { "ping": 1, "$db": "admin" })
            .is_err()
    );
    assert!(answers(&mongod, &certificates, Identity::Nobody)?);
    assert!(answers(&mongod, &certificates, Identity::Client)?);
    assert!(!answers(&mongod, &certificates, Identity::Stranger)?);
    // Another authority's client does not trust this server.
    assert!(!answers(&mongod, &Certificates::new()?, Identity::Nobody)?);
    Ok(())
}

#[tokio::test]
async fn mutual_tls_takes_only_clients_of_its_authority() -> Result<()> {
    let certificates = Certificates::new()?;
    let mut mongod = Options::default().mutual_tls(&certificates).replica_set(3)?;
    works(&mongod.uri()).await?;
    for identity in [Identity::Nobody, Identity::Stranger] {
        assert!(!answers(&mongod, &certificates, identity)?, "{identity:?}");
    }
    assert!(answers(&mongod, &certificates, Identity::Client)?);
    let primary = mongod.step_down(5)?;
    mongod.kill(primary)?;
    mongod.restart(primary)?;
    assert!(answers(&mongod, &certificates, Identity::Client)?);
    Ok(())
}

#[tokio::test]
async fn authentication_is_required_and_both_scram_mechanisms_work() -> Result<()> {
    let mut mongod = Options::default().auth().standalone()?;
    works(&mongod.uri()).await?;
    is_refused(&format!("mongodb://{}/?directConnection=true", mongod.address())).await;
    is_refused(&mongod.uri_as("admin", "wrong")).await;
    let create = doc! { "createUser": "a@b", "pwd": "p/w:", "roles": ["root"], "mechanisms": ["SCRAM-SHA-1"], "writeConcern": { "j": true } };
    client(&mongod.uri())
        .await?
        .database("admin")
        .run_command(create)
        .await?;
    // The server's files have the users, and starting again creates none.
    mongod.kill(0)?;
    mongod.restart(0)?;
    let users = [mongod.uri_as("a@b", "p/w:"), mongod.uri(), mongod.member_uri(0)];
    for (uri, mechanism) in users.iter().zip(["SCRAM-SHA-1", "SCRAM-SHA-1", "SCRAM-SHA-256"]) {
        let uri = format!("{uri}&authMechanism={mechanism}");
        let collection = client(&uri).await?.database("d").collection::<Document>("c");
        assert_eq!(collection.count_documents(doc! {}).await?, 1, "{uri}");
    }
    Ok(())
}

#[tokio::test]
async fn a_set_with_logins_and_tls_replicates() -> Result<()> {
    let certificates = Certificates::new()?;
    let mongod = Options::default().tls(&certificates).auth().replica_set(2)?;
    works(&mongod.uri()).await
}

#[tokio::test]
async fn cursor_can_be_read_only_by_its_user() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let shape = "[[bucket]]\nnamespace = \"d.items\"\nkey = \"k\"\n";
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(shape))?;
    let create = doc! { "createUser": "other", "pwd": "word", "roles": ["root"] };
    client(&mongod.uri())
        .await?
        .database("admin")
        .run_command(create)
        .await?;
    let through = |uri: String| uri.replace(&mongod.address().to_string(), &proxy.address().to_string());
    for (uri, other, collection) in [
        (mongod.uri(), mongod.uri_as("other", "word"), "plain"),
        (through(mongod.uri()), through(mongod.uri_as("other", "word")), "items"),
    ] {
        let (owner, stranger) = (client(&uri).await?.database("d"), client(&other).await?.database("d"));
        let items: Vec<Document> = (0..8).map(|number| doc! { "_id": number, "k": 1 }).collect();
        owner.collection::<Document>(collection).insert_many(items).await?;
        // Of the shaped collection, all that is left waits in the proxy.
        let find = doc! { "find": collection, "filter": { "k": 1 }, "batchSize": 1 };
        let opened = owner.run_command(find).await?;
        let id = opened.get_document("cursor")?.get_i64("id")?;
        let more = doc! { "getMore": id, "collection": collection, "batchSize": 1 };
        let refused = stranger
            .run_command(more.clone())
            .await
            .expect_err("somebody else's cursor");
        let code = match *refused.kind {
            ErrorKind::Command(ref error) => error.code,
            _ => return Err(refused.into()),
        };
        assert_eq!(code, 13, "{refused}");
    }
    Ok(())
}

/// The error code of a refused command.
async fn code(database: &Database, command: Document) -> Result<Option<i32>> {
    match database.run_command(command).await {
        Ok(_) => Ok(None),
        Err(error) => match *error.kind {
            ErrorKind::Command(ref error) => Ok(Some(error.code)),
            _ => Err(error.into()),
        },
    }
}

/// What comes of a cursor that others kill, or try to.
async fn kills(address: SocketAddr, [owner, stranger, keeper]: &[Database; 3], filter: Document) -> Result<String> {
    let mut codes = Vec::new();
    let collection = if owner.name() == "n" { "plain" } else { "items" };
    let find = doc! { "find": collection, "filter": filter, "batchSize": 1 };
    let opened = owner.run_command(find.clone()).await?;
    let id = opened.get_document("cursor")?.get_i64("id")?;
    let more = doc! { "getMore": id, "collection": collection, "batchSize": 1 };
    for named in [collection, "other"] {
        let kill = doc! { "killCursors": named, "cursors": [id, 77_i64] };
        let mut by_nobody = kill.clone();
        by_nobody.insert("$db", owner.name());
        let nobody = Connection::open(address)?.command(&by_nobody)?;
        codes.push(nobody.get_i32("code").ok());
        codes.push(code(stranger, kill).await?);
        codes.push(code(owner, more.clone()).await?);
    }
    let kill = doc! { "killCursors": collection, "cursors": [id, 77_i64] };
    let killed = owner.run_command(kill.clone()).await?;
    codes.push(code(owner, more.clone()).await?);
    let again = owner.run_command(kill).await?;
    let opened = owner.run_command(find).await?;
    let id = opened.get_document("cursor")?.get_i64("id")?;
    let by_keeper = keeper
        .run_command(doc! { "killCursors": "other", "cursors": [id] })
        .await?;
    codes.push(code(owner, doc! { "getMore": id, "collection": collection }).await?);
    let counts = [&killed, &again, &by_keeper].map(|reply| {
        let names = ["cursorsKilled", "cursorsNotFound", "cursorsAlive", "cursorsUnknown"];
        names.map(|name| reply.get_array(name).map(Vec::len).ok())
    });
    Ok(format!("{codes:?} {counts:?}"))
}

#[tokio::test]
async fn cursor_can_be_killed_by_its_user_or_with_the_kill_any_cursor_privilege() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let shape = "[[bucket]]\nnamespace = \"d.items\"\nkey = \"k\"\n";
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(shape))?;
    let admin = client(&mongod.uri()).await?.database("admin");
    for (user, role) in [
        ("stranger", "readWriteAnyDatabase"),
        ("owner", "readWriteAnyDatabase"),
        ("keeper", "hostManager"),
    ] {
        admin
            .run_command(doc! { "createUser": user, "pwd": "word", "roles": [role] })
            .await?;
    }
    // Of the shaped collection, all that is left of one key waits in the proxy, and all else is in mongod.
    for filter in [doc! { "k": 1 }, doc! {}] {
        let mut codes = Vec::new();
        for (address, name) in [(mongod.address(), "n"), (proxy.address(), "d")] {
            let mut databases = Vec::new();
            for user in ["owner", "stranger", "keeper"] {
                let uri = mongod.uri_as(user, "word");
                let uri = uri.replace(&mongod.address().to_string(), &address.to_string());
                databases.push(client(&uri).await?.database(name));
            }
            let databases: [Database; 3] = databases.try_into().expect("three of them");
            let items =
                (0..1000).map(|number| doc! { "_id": number, "k": i32::from(number < 8), "fill": "x".repeat(900) });
            let collection = if name == "n" { "plain" } else { "items" };
            let collection = databases[0].collection::<Document>(collection);
            if collection.count_documents(doc! {}).await? == 0 {
                collection.insert_many(items).await?;
            }
            codes.push(kills(address, &databases, filter.clone()).await?);
        }
        assert_eq!(codes[0], codes[1], "{filter}");
    }
    Ok(())
}
