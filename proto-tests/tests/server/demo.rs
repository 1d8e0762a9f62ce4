//! `mongoshape demo`, on servers of several kinds. It leaves nothing behind, and touches no database of others.

use std::process::{Command, Output};

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::mongod::Options;
use proto_tests::proxy::find_binary;
use proto_tests::{Mongod, client, database_name, mongod};

fn demo(uri: &str, database: &str) -> Result<Output> {
    let mut command = Command::new(find_binary()?);
    // An option of the user, which must not reach the demo's proxy.
    command
        .env("MONGOSHAPE_UPSTREAM_URI", uri)
        .env("MONGOSHAPE_LISTEN_ADDRESS", "192.0.2.1:1");
    Ok(command
        .args(["demo", "--trades", "200", "--database", database])
        .output()?)
}

async fn assert_shows_all(mongod: &Mongod) -> Result<()> {
    let name = database_name();
    let shown = demo(&mongod.uri(), &name)?;
    let (out, err) = (
        String::from_utf8_lossy(&shown.stdout),
        String::from_utf8_lossy(&shown.stderr),
    );
    ensure!(shown.status.success(), "{out}{err}");
    for part in [
        "quantity: 419",
        "history: [",
        "stored as plain",
        "stored as pages",
        "the databases are dropped",
    ] {
        ensure!(out.contains(part), "no {part:?} in:\n{out}");
    }
    let left = client(&mongod.uri()).await?.list_database_names().await?;
    ensure!(!left.iter().any(|database| database.starts_with(&name)), "{left:?}");
    Ok(())
}

#[tokio::test]
async fn demo_on_a_standalone() -> Result<()> {
    assert_shows_all(mongod::shared()).await
}

#[tokio::test]
async fn demo_on_a_replica_set() -> Result<()> {
    assert_shows_all(mongod::shared_replica_set()).await
}

#[tokio::test]
async fn demo_with_a_login() -> Result<()> {
    assert_shows_all(&Options::default().auth().standalone()?).await
}

#[tokio::test]
async fn an_existing_database_is_not_touched() -> Result<()> {
    let name = database_name();
    let existing = client(&mongod::shared().uri())
        .await?
        .database(&format!("{name}_plain"));
    let orders = existing.collection("orders");
    orders.insert_one(doc! { "_id": 1 }).await?;
    let refused = demo(&mongod::shared().uri(), &name)?;
    ensure!(!refused.status.success(), "the demo has used the database");
    let error = String::from_utf8_lossy(&refused.stderr);
    ensure!(error.contains(&format!("the database {name}_plain exists")), "{error}");
    assert_eq!(orders.count_documents(doc! {}).await?, 1);
    Ok(existing.drop().await?)
}

#[test]
fn an_unreachable_server_is_named() -> Result<()> {
    let refused = demo("mongodb://127.0.0.1:1/?serverSelectionTimeoutMS=100", "demo")?;
    ensure!(!refused.status.success(), "there is no server");
    let error = String::from_utf8_lossy(&refused.stderr);
    ensure!(
        error.contains("the server cannot be reached") && error.contains("127.0.0.1:1"),
        "{error}"
    );
    Ok(())
}
