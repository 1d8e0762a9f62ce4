//! `listCollections`.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, doc};
use proto_tests::mongod;

use super::{Comparison, servers};

#[test]
fn listing_shows_only_application_collections() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        comparison.same(|_| doc! { "insert": "plain.mongoshape_items", "documents": [{ "_id": 1 }] })?;
        // It is shown as the application has set it, in any batch.
        comparison.same(|_| doc! { "collMod": "items", "validator": { "k": { "$exists": true } } })?;
        let listings = [
            doc! {},
            doc! { "nameOnly": true },
            doc! { "nameOnly": true, "authorizedCollections": true },
            doc! { "filter": {} },
            doc! { "filter": Bson::Null },
            doc! { "filter": { "name": "items" } },
            doc! { "filter": { "name": "items.mongoshape_items" }, "nameOnly": true },
            doc! { "filter": { "name": "system.views" } },
            doc! { "filter": { "name": { "$regex": "items" } } },
            doc! { "filter": { "type": "view" }, "nameOnly": true },
            doc! { "filter": { "$or": [{ "type": "view" }, { "name": "plain" }] } },
            doc! { "filter": { "options.capped": { "$exists": false } } },
        ];
        let check = |comparison: &mut Comparison| -> Result<()> {
            for listing in &listings {
                for size in [None, Some(0), Some(1), Some(2), Some(100)] {
                    comparison.listed(listing, size)?;
                }
            }
            Ok(())
        };
        check(&mut comparison)?;
        comparison.needs_view("plain", "items")?;
        ensure!(comparison.is_stored("items.mongoshape_items")?);
        check(&mut comparison).context("with the view of items")?;
        comparison.same(|_| doc! { "create": "seen", "viewOn": "items", "pipeline": [] })?;
        check(&mut comparison).context("with a view of the application's")?;
        let mistakes = [
            doc! { "filter": 5 },
            doc! { "filter": { "$nonsense": 1 } },
            doc! { "nameOnly": "yes" },
            doc! { "nonsense": 1 },
            doc! { "cursor": 5 },
            doc! { "cursor": { "batchSize": -1 } },
        ];
        for mistake in mistakes {
            comparison.same(|_| {
                let mut command = doc! { "listCollections": 1 };
                command.extend(mistake.clone());
                command
            })?;
        }
    }
    Ok(())
}

#[test]
fn application_view_with_the_items_view_name_is_listed() -> Result<()> {
    let mut comparison = Comparison::filled(mongod::shared())?;
    comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
    comparison.same(|_| doc! { "create": "items.mongoshape_items", "viewOn": "plain", "pipeline": [] })?;
    comparison.listed(&doc! {}, None)?;
    comparison.listed(&doc! { "nameOnly": true }, Some(1))?;
    comparison.listed(
        &doc! { "filter": { "name": "items.mongoshape_items" }, "nameOnly": true },
        None,
    )
}
