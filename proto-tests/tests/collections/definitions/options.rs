//! `create` and `collMod`.

use anyhow::Result;
use bson::{Document, doc};

use super::{Comparison, NOT_SUPPORTED, servers};

#[test]
fn options_of_a_new_collection_hold_or_are_refused() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::start(mongod)?;
        let possible = [
            doc! {},
            doc! { "capped": false },
            doc! { "collation": { "locale": "simple" } },
            doc! { "clusteredIndex": false },
            doc! { "storageEngine": { "wiredTiger": { "configString": "block_compressor=zlib" } } },
            doc! { "indexOptionDefaults": { "storageEngine": { "wiredTiger": { "configString": "" } } } },
            doc! { "idIndex": { "key": { "_id": 1 }, "name": "_id_" } },
            doc! { "validationLevel": "moderate", "validationAction": "warn" },
            doc! { "validator": { "k": { "$exists": true } } },
            doc! { "validator": {} },
            doc! { "changeStreamPreAndPostImages": { "enabled": false } },
            doc! { "comment": "why", "writeConcern": { "w": 1 } },
        ];
        let with = |options: &Document| {
            let mut command = doc! { "create": "items" };
            command.extend(options.clone());
            command
        };
        for options in &possible {
            comparison.same(|_| with(options))?;
            comparison.listed(&doc! {}, None)?;
            // It is there now, alike or not.
            comparison.same(|_| with(options))?;
            comparison.same(|_| doc! { "create": "items" })?;
            comparison.same(|_| doc! { "create": "items", "validationLevel": "strict" })?;
            comparison.insert("items", 3)?;
            comparison.same(|_| doc! { "find": "items", "filter": { "k": 1 } })?;
            comparison.same(|_| doc! { "drop": "items" })?;
        }
        let mistakes = [
            doc! { "size": 4096 },
            doc! { "max": 4 },
            doc! { "nonsense": 1 },
            doc! { "collation": {} },
            doc! { "collation": { "locale": "simple", "strength": 1 } },
            doc! { "validationLevel": "nonsense" },
            doc! { "storageEngine": { "nonsense": {} } },
            doc! { "changeStreamPreAndPostImages": {} },
            doc! { "idIndex": { "key": { "x": 1 }, "name": "x" } },
        ];
        for options in &mistakes {
            comparison.same(|_| with(options))?;
        }
        for (options, code) in [
            (doc! { "expireAfterSeconds": 10 }, 72),
            (doc! { "capped": true }, 72),
            (doc! { "capped": "yes" }, 14),
            (doc! { "collation": 1 }, 14),
        ] {
            comparison.same_code(code, |_| with(&options))?;
        }
        let impossible = [
            doc! { "capped": true, "size": 4096 },
            doc! { "collation": { "locale": "de" } },
            doc! { "timeseries": { "timeField": "at" } },
            doc! { "viewOn": "plain", "pipeline": [] },
            doc! { "viewOn": "others" },
            doc! { "autoIndexId": false },
            doc! { "encryptedFields": { "fields": [] } },
        ];
        comparison.insert("others", 3)?;
        for options in &impossible {
            comparison.refused(72, |_| with(options))?;
        }
    }
    Ok(())
}

#[test]
fn collmod_changes_options_without_meaning_for_buckets() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        let with = |options: &Document| {
            let mut command = doc! { "collMod": "items" };
            command.extend(options.clone());
            command
        };
        let same = [
            doc! {},
            doc! { "validationLevel": "strict" },
            doc! { "validationAction": "error", "comment": "why", "writeConcern": { "w": 1 } },
            doc! { "validationLevel": "nonsense" },
            doc! { "validationLevel": "moderate" },
            doc! { "validationLevel": "off", "validationAction": "error" },
            doc! { "validationAction": "warn" },
            doc! { "validator": { "$jsonSchema": { "required": ["k"] } }, "validationAction": "warn" },
            doc! { "validator": { "k": { "$exists": true } } },
            doc! { "validator": { "$nonsense": 1 } },
            doc! { "validator": {} },
            doc! { "changeStreamPreAndPostImages": { "enabled": false } },
            doc! { "changeStreamPreAndPostImages": {} },
            doc! { "cappedSize": 8192 },
            doc! { "cappedMax": 5 },
            doc! { "nonsense": 1 },
            doc! { "index": { "name": "mongoshape_page", "hidden": true } },
            doc! { "index": { "keyPattern": { "at": 1 }, "expireAfterSeconds": 5 } },
        ];
        for options in &same {
            comparison.same(|_| with(options))?;
            comparison.listed(&doc! {}, None)?;
        }
        comparison.same(|_| doc! { "collMod": "others" })?;
        comparison.same(|_| doc! { "collMod": "others", "validationLevel": "off" })?;
        let refused = [
            doc! { "index": { "name": "_id_", "hidden": true, "expireAfterSeconds": 5 } },
            doc! { "viewOn": "plain", "pipeline": [] },
            doc! { "pipeline": [] },
            doc! { "expireAfterSeconds": 5 },
        ];
        for options in &refused {
            comparison.refused(NOT_SUPPORTED, |_| with(options))?;
        }
    }
    Ok(())
}
