//! `listCollections` of plain documents during and after a conversion.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod;
use proto_tests::raw::Connection;

use super::fixture::{COLLECTION, COPY, Fixture, KEPT, RECORD};

/// The replies to several listings, each sorted by name.
fn listings(connection: &mut Connection, database: &str) -> Result<Vec<Vec<Document>>> {
    let mut listings = Vec::new();
    for options in [
        doc! {},
        doc! { "nameOnly": true },
        doc! { "filter": { "name": COLLECTION } },
        doc! { "filter": { "name": RECORD }, "nameOnly": true },
        doc! { "filter": { "name": { "$regex": "^items" } }, "cursor": { "batchSize": 1 } },
    ] {
        let mut list = doc! { "listCollections": 1, "$db": database };
        list.extend(options);
        let mut listed = connection.all(&list)?;
        listed.sort_by_key(|listed| listed.get_str("name").unwrap_or_default().to_owned());
        listings.push(listed);
    }
    Ok(listings)
}

#[test]
fn a_conversion_of_plain_documents_is_not_listed() -> Result<()> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let validation =
        doc! { "validator": { "n": { "$gte": 0 } }, "validationLevel": "moderate", "validationAction": "warn" };
    let mut create = doc! { "create": COLLECTION };
    create.extend(validation.clone());
    fixture.past(create)?;
    fixture.past(doc! { "create": "other" })?;
    let expected = listings(&mut fixture.direct()?, &fixture.database)?;
    let check = |state: &str| -> Result<()> {
        let listed = listings(&mut fixture.application(0)?, &fixture.database)?;
        ensure!(listed == expected, "{state}: {listed:?}\ninstead of\n{expected:?}");
        Ok(())
    };
    check("before")?;
    for beside in [COPY, RECORD, KEPT] {
        fixture.past(doc! { "create": beside })?;
    }
    check("while it is copied")?;
    let record = doc! { "vars": { "mongoshape_validation": { "$literal": validation } }, "in": false };
    let frozen = doc! { "$and": [{ "mongoshape_pack": { "$exists": true } }, { "$expr": { "$let": record } }] };
    fixture.past(doc! {
        "collMod": COLLECTION, "validator": frozen, "validationLevel": "strict", "validationAction": "error",
    })?;
    check("while it is frozen")
}
