//! The rights that each part of `setup` needs. They are compared with the user's before the part's first
//! write.

use super::SetupRun;
use crate::maintenance::finding::Finding;
use crate::maintenance::privileges::Need;
use crate::maintenance::upstream::ShapedCollection;
use crate::pattern::bucket::pack;
use crate::pattern::shapes::OutlierShape;

/// To see what exists.
const INSPECT: &[&str] = &["find", "listIndexes"];
const LIST: &[&str] = &["listCollections"];
/// To create the indexes of extras, to move elements to them, and to remove orphans.
const EXTRAS: &[&str] = &["find", "listIndexes", "createIndex", "insert", "update", "remove"];

impl SetupRun<'_> {
    /// Errors about rights that the inspection of a collection lacks.
    pub(super) fn may_inspect(&self, target: &ShapedCollection) -> Vec<Finding> {
        let needs = [on_database(target, LIST), on(target, &target.collection, INSPECT)];
        self.privileges.lacking(&needs)
    }

    /// Errors about rights to change the collection itself that are lacking.
    pub(super) fn may(&self, target: &ShapedCollection, actions: &'static [&'static str]) -> Vec<Finding> {
        self.privileges.lacking(&[on(target, &target.collection, actions)])
    }

    /// Errors about rights that packing lacks: on the collection, the copy, and the kept collection.
    pub(super) fn may_pack(&self, target: &ShapedCollection) -> Vec<Finding> {
        let name = &target.collection;
        let (copy, kept) = (pack::copy_name(name), pack::plain_name(name));
        let needs = [
            on(
                target,
                name,
                &["find", "listIndexes", "collMod", "createIndex", "dropIndex"],
            ),
            on(
                target,
                &copy,
                &[
                    "find",
                    "listIndexes",
                    "collMod",
                    "createIndex",
                    "createCollection",
                    "insert",
                    "dropCollection",
                ],
            ),
            on(
                target,
                &kept,
                &["find", "listIndexes", "dropIndex", "createCollection", "dropCollection"],
            ),
        ];
        let mut lacking = self.privileges.lacking(&needs);
        let may_rename = |from: &str, to: &str| self.privileges.may_rename(target.database.name(), from, to);
        if !may_rename(name, &kept) || !may_rename(&copy, name) {
            lacking.extend(
                self.privileges
                    .lacking(&[on_database(target, &["renameCollectionSameDB"])]),
            );
        }
        lacking
    }

    /// Errors about rights that the set-up of an outlier collection lacks. `scratch`: scratch collections
    /// that will be dropped.
    pub(super) fn may_set_up_outliers(
        &self,
        target: &ShapedCollection,
        shape: &OutlierShape,
        scratch: &[String],
    ) -> Vec<Finding> {
        let mut needs = vec![
            on(target, &target.collection, &["find", "update"]),
            on(target, shape.extras_collection(), EXTRAS),
        ];
        needs.extend(scratch.iter().map(|name| on(target, name, &["dropCollection"])));
        self.privileges.lacking(&needs)
    }
}

fn on<'a>(target: &'a ShapedCollection, collection: &str, actions: &'static [&'static str]) -> Need<'a> {
    Need {
        database: target.database.name(),
        collection: Some(collection.to_owned()),
        actions,
    }
}

fn on_database<'a>(target: &'a ShapedCollection, actions: &'static [&'static str]) -> Need<'a> {
    Need {
        database: target.database.name(),
        collection: None,
        actions,
    }
}
