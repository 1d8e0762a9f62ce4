//! A client with rights on its own collection only, and none on those that a conversion puts beside it.

use anyhow::{Result, ensure};
use bson::{Document, bson, doc};
use mongodb::Database;
use proto_tests::mongod::Options;
use proto_tests::{Proxy, ProxyOptions, client};

use super::fixture::{COLLECTION, COPY, KEPT, automatic, item, shape};

const DATABASE: &str = "d";

async fn insert(database: &Database, collection: &str, documents: Vec<Document>) -> Result<()> {
    let reply = database
        .run_command(doc! { "insert": collection, "documents": documents })
        .await?;
    ensure!(!reply.contains_key("writeErrors"), "{reply}");
    Ok(())
}

async fn count(database: &Database) -> Result<usize> {
    let reply = database.run_command(doc! { "find": COLLECTION }).await?;
    Ok(reply.get_document("cursor")?.get_array("firstBatch")?.len())
}

async fn rename(admin: &Database, from: &str, to: &str) -> Result<()> {
    let full = |name: &str| format!("{DATABASE}.{name}");
    admin
        .run_command(doc! { "renameCollection": full(from), "to": full(to) })
        .await?;
    Ok(())
}

#[tokio::test]
async fn a_client_with_rights_on_its_own_collection_is_served() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let options = ProxyOptions::new(&mongod.uri());
    let table = automatic(&shape(), &format!("{DATABASE}.{COLLECTION}"));
    let proxy = Proxy::start(&options.clone().config(&table))?;
    let writer = Proxy::start(&options.config(&shape().toml(&format!("{DATABASE}.{COPY}"))))?;
    let direct = client(&mongod.uri()).await?;
    let (admin, stored) = (direct.database("admin"), direct.database(DATABASE));
    let own = ["find", "insert", "update", "remove", "listIndexes"].map(str::to_owned);
    let privileges = bson!([
        { "resource": { "db": DATABASE, "collection": COLLECTION }, "actions": own.to_vec() },
        { "resource": { "db": DATABASE, "collection": "" }, "actions": ["listCollections"] },
    ]);
    admin
        .run_command(doc! { "createRole": "own", "privileges": privileges, "roles": [] })
        .await?;
    admin
        .run_command(doc! { "createUser": "user", "pwd": "word", "roles": ["own"] })
        .await?;
    let through = |uri: String, proxy: &Proxy| uri.replace(&mongod.address().to_string(), &proxy.address().to_string());
    let user = client(&through(mongod.uri_as("user", "word"), &proxy)).await?;
    let user = user.database(DATABASE);
    let copied = client(&through(mongod.uri(), &writer)).await?.database(DATABASE);
    insert(&stored, COLLECTION, vec![item(1, 1, 1)]).await?;
    // During a conversion.
    insert(&copied, COPY, vec![item(1, 1, 1), item(2, 1, 2)]).await?;
    insert(&user, COLLECTION, vec![item(2, 1, 2)]).await?;
    ensure!(count(&user).await? == 2, "during the conversion");
    // After it.
    rename(&admin, COLLECTION, KEPT).await?;
    rename(&admin, COPY, COLLECTION).await?;
    ensure!(count(&user).await? == 2, "after the conversion");
    insert(&user, COLLECTION, vec![item(3, 1, 3)]).await?;
    ensure!(count(&user).await? == 3, "after an insert into pages");
    Ok(())
}
