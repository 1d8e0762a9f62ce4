//! The rights that a conversion needs. They are compared with the user's before the first write.

use super::Request;
use super::outlier::OutlierConversion;
use super::subject::Subject;
use crate::maintenance::finding::Finding;
use crate::maintenance::privileges::{Need, Privileges};
use crate::maintenance::swap::Halt;
use crate::pattern::bucket::conversion::{copy_name, kept_name, record_name};

/// To freeze the collection, and to read it and its size.
const COLLECTION: &[&str] = &[
    "find",
    "listIndexes",
    "collStats",
    "collMod",
    "createIndex",
    "dropIndex",
];
const CHANGES: &[&str] = &["changeStream"];
/// To fill the copy, and to give it its definition. The fences of its validator are indexes.
const COPY: &[&str] = &[
    "find",
    "listIndexes",
    "collMod",
    "createCollection",
    "createIndex",
    "dropIndex",
    "insert",
    "update",
    "remove",
    "dropCollection",
];
/// To thaw the former collection under a fence, and to drop it later.
const KEPT: &[&str] = &[
    "find",
    "listIndexes",
    "collMod",
    "createIndex",
    "dropIndex",
    "createCollection",
    "dropCollection",
];
const RECORD: &[&str] = &["find", "insert", "update", "dropCollection"];
/// To join outliers.
const OUTLIERS: &[&str] = &["find", "update", "collMod"];
const EXTRAS: &[&str] = &["find", "remove", "dropCollection"];

impl Request<'_> {
    /// Errors about rights that the conversion of a bucket collection lacks.
    pub(super) async fn lacking_rights(self, subject: &Subject) -> Result<Vec<Finding>, Halt> {
        let privileges = Privileges::of(self.client).await?;
        let (database, name) = (subject.database.name(), &subject.collection);
        let (copy, kept) = (copy_name(name), kept_name(name));
        let on = |collection: &str, actions| Need {
            database,
            collection: Some(collection.to_owned()),
            actions,
        };
        let mut needs = vec![
            on(name, COLLECTION),
            on(&copy, COPY),
            on(&kept, KEPT),
            on(&record_name(name), RECORD),
        ];
        if !self.options.is_offline {
            needs.push(on(name, CHANGES));
        }
        let renames = [(name, &kept), (&kept, name), (&copy, name)];
        if !renames
            .iter()
            .all(|(from, to)| privileges.may_rename(database, from, to))
        {
            needs.push(Need {
                database,
                collection: None,
                actions: &["renameCollectionSameDB"],
            });
        }
        Ok(privileges.lacking(&needs))
    }
}

impl OutlierConversion<'_> {
    /// Errors about rights that joining lacks.
    pub(super) async fn lacking_rights(&self) -> Result<Vec<Finding>, Halt> {
        let privileges = Privileges::of(self.request.client).await?;
        let on = |collection: &str, actions| Need {
            database: self.target.database.name(),
            collection: Some(collection.to_owned()),
            actions,
        };
        let needs = [
            on(&self.target.collection, OUTLIERS),
            on(self.shape.extras_collection(), EXTRAS),
        ];
        Ok(privileges.lacking(&needs))
    }
}
