//! `listCollections`.

use anyhow::{Context as _, Result, ensure};
use bson::{Bson, doc};
use proto_tests::mongod;

use super::{Both, servers};

#[test]
fn listing_shows_only_application_collections() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        both.same(|_| doc! { "insert": "plain.mongoshape_items", "documents": [{ "_id": 1 }] })?;
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
        let check = |both: &mut Both| -> Result<()> {
            for listing in &listings {
                for size in [None, Some(0), Some(1), Some(2), Some(100)] {
                    both.listed(listing, size)?;
                }
            }
            Ok(())
        };
        check(&mut both)?;
        both.needs_view("plain", "items")?;
        ensure!(both.is_stored("items.mongoshape_items")?);
        check(&mut both).context("with the view of items")?;
        both.same(|_| doc! { "create": "seen", "viewOn": "items", "pipeline": [] })?;
        check(&mut both).context("with a view of the application's")?;
        let mistakes = [
            doc! { "filter": 5 },
            doc! { "filter": { "$nonsense": 1 } },
            doc! { "nameOnly": "yes" },
            doc! { "nonsense": 1 },
            doc! { "cursor": 5 },
            doc! { "cursor": { "batchSize": -1 } },
        ];
        for mistake in mistakes {
            both.same(|_| {
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
    let mut both = Both::filled(mongod::shared())?;
    both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
    both.same(|_| doc! { "create": "items.mongoshape_items", "viewOn": "plain", "pipeline": [] })?;
    both.listed(&doc! {}, None)?;
    both.listed(&doc! { "nameOnly": true }, Some(1))?;
    both.listed(
        &doc! { "filter": { "name": "items.mongoshape_items" }, "nameOnly": true },
        None,
    )
}
