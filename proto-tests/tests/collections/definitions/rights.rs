//! mongod decides what a user may read and write, also where the proxy sends more commands than the client.

use anyhow::Result;
use bson::{Document, bson, doc};
use mongodb::Database;
use proto_tests::mongod::Options;
use proto_tests::{Proxy, ProxyOptions, client};

use super::{SHAPES, graph};

/// The names that a listing has, sorted.
async fn names(database: &Database, listing: Document) -> Result<Vec<String>> {
    let reply = database.run_command(listing).await?;
    let batch = reply.get_document("cursor")?.get_array("firstBatch")?;
    let names = batch
        .iter()
        .filter_map(|found| found.as_document()?.get_str("name").ok());
    let mut names: Vec<_> = names.map(str::to_owned).collect();
    names.sort();
    Ok(names)
}

/// Of the same collections one is shaped in the database `d`, and none in `n`, where it is called otherwise.
#[tokio::test]
async fn names_only_privilege_does_not_list_internal_collections() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let shape = SHAPES.replace("*.items", "d.items");
    let proxy = Proxy::start(&ProxyOptions::new(&mongod.uri()).config(&shape))?;
    let admin = client(&mongod.uri()).await?.database("admin");
    let privileges = bson!([
        { "resource": { "db": "d", "collection": "" }, "actions": ["find", "insert"] },
        { "resource": { "db": "n", "collection": "" }, "actions": ["find", "insert"] },
        { "resource": { "db": "d", "collection": "items" }, "actions": ["dropCollection"] },
        { "resource": { "db": "n", "collection": "items" }, "actions": ["dropCollection"] },
    ]);
    admin
        .run_command(doc! { "createRole": "reader", "privileges": privileges, "roles": [] })
        .await?;
    admin
        .run_command(doc! { "createUser": "other", "pwd": "word", "roles": ["reader"] })
        .await?;
    let through = |uri: String| uri.replace(&mongod.address().to_string(), &proxy.address().to_string());
    let all = client(&through(mongod.uri())).await?;
    let other = client(&through(mongod.uri_as("other", "word"))).await?;
    for database in ["d", "n"] {
        let database = all.database(database);
        for collection in ["items", "plain"] {
            let documents = [doc! { "_id": 1, "k": 1 }];
            database
                .run_command(doc! { "insert": collection, "documents": documents.to_vec() })
                .await?;
        }
        database
            .run_command(doc! { "aggregate": "plain", "pipeline": [graph("items")], "cursor": {} })
            .await?;
    }
    let ours = doc! { "listCollections": 1, "filter": { "name": "items.mongoshape_items" } };
    let stored = client(&mongod.uri()).await?.database("d");
    assert_eq!(names(&stored, ours.clone()).await?, ["items.mongoshape_items"]);
    let authorized = doc! { "listCollections": 1, "nameOnly": true, "authorizedCollections": true };
    for database in ["d", "n"] {
        assert_eq!(
            names(&other.database(database), authorized.clone()).await?,
            ["items", "plain"]
        );
        let refused = other
            .database(database)
            .run_command(doc! { "listCollections": 1 })
            .await;
        assert!(refused.is_err(), "{refused:?}");
        // The view is kept if the user may not drop it.
        other.database(database).run_command(doc! { "drop": "items" }).await?;
        assert_eq!(
            names(&all.database(database), doc! { "listCollections": 1 }).await?,
            ["plain"]
        );
    }
    assert_eq!(names(&stored, ours).await?, ["items.mongoshape_items"]);
    Ok(())
}
