//! `renameCollection`.

use anyhow::{Result, ensure};
use bson::{Document, doc};

use super::{Comparison, NOT_SUPPORTED, servers};

/// A rename within a database, or with `_2.` before the target into a second one.
fn rename(from: &'static str, to: &'static str, more: Document) -> impl Fn(&str) -> Document {
    move |database: &str| {
        let mut command = doc! { "renameCollection": format!("{database}.{from}"), "to": format!("{database}{to}") };
        command.extend(more.clone());
        command.insert("$db", "admin");
        command
    }
}

/// Both collections must hold the same on either side.
fn contents(comparison: &mut Comparison) -> Result<()> {
    for collection in ["items", "others"] {
        comparison.same(|_| doc! { "find": collection, "sort": { "_id": 1 } })?;
        comparison
            .same(|_| doc! { "find": collection, "filter": { "k": 1 }, "sort": { "at": 1 }, "skip": 5, "limit": 10 })?;
    }
    comparison.listed(&doc! {}, None)
}

fn insert(collection: &'static str, ids: [i32; 2]) -> impl Fn(&str) -> Document {
    move |_| doc! { "insert": collection, "documents": ids.map(|id| doc! { "_id": id, "k": 0 }).to_vec() }
}

#[test]
fn collection_can_be_renamed_to_an_identical_shape() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        comparison.needs_view("plain", "items")?;
        comparison.same(rename("items", ".others", doc! {}))?;
        ensure!(!comparison.is_stored("items.mongoshape_items")?);
        contents(&mut comparison)?;
        comparison.needs_view("plain", "others")?;
        comparison.insert("items", 5)?;
        comparison.same(rename("items", ".others", doc! {}))?;
        comparison.same(rename("items", ".others", doc! { "dropTarget": false }))?;
        comparison.same(rename("items", ".others", doc! { "dropTarget": true }))?;
        contents(&mut comparison)?;
        comparison.needs_view("plain", "others")?;
        // It is relayed unchanged, and the free name is a new collection's.
        comparison.same(insert("others", [1, 77]))?;
        comparison.insert("items", 4)?;
        contents(&mut comparison)?;
    }
    Ok(())
}

/// Another proxy has both in its catalog, and the head page of a key in its cache.
#[test]
fn second_proxy_finds_a_renamed_collection() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.insert("others", 3)?;
        comparison.through_second(|comparison| {
            comparison.same(insert("items", [100, 101]))?;
            comparison.same(insert("others", [100, 101]))
        })?;
        comparison.same(rename("items", ".others", doc! { "dropTarget": true }))?;
        comparison.through_second(|comparison| {
            contents(comparison)?;
            comparison.same(insert("others", [101, 102]))?;
            comparison.same(insert("others", [102, 103]))?;
            comparison.same(insert("items", [1, 2]))?;
            contents(comparison)
        })?;
        contents(&mut comparison)?;
    }
    Ok(())
}

#[test]
fn a_collection_is_renamed_into_another_database() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.same(rename("items", "_2.others", doc! {}))?;
        contents(&mut comparison)?;
        let on_second = |command: Document| {
            move |database: &str| {
                let mut command = command.clone();
                command.insert("$db", format!("{database}_2"));
                command
            }
        };
        let find = doc! { "find": "others", "sort": { "_id": 1 } };
        comparison.same(on_second(find.clone()))?;
        comparison.same(on_second(insert("others", [24, 25])("")))?;
        comparison.same(on_second(insert("others", [77, 78])("")))?;
        comparison.same(on_second(find))?;
        comparison.same(on_second(doc! { "dropDatabase": 1 }))?;
    }
    Ok(())
}

#[test]
fn a_rename_into_or_out_of_a_shape_is_refused() -> Result<()> {
    for mongod in servers() {
        let mut comparison = Comparison::filled(mongod)?;
        comparison.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        for mistake in [
            rename("nope", ".other", doc! {}),
            rename("others", ".items", doc! {}),
            rename("items", ".items", doc! {}),
            rename("items", ".others", doc! { "nonsense": 1 }),
            rename("items", ".others", doc! { "dropTarget": "yes" }),
            rename("items", "", doc! {}),
        ] {
            comparison.same(mistake)?;
        }
        comparison.same(
            |database| doc! { "renameCollection": format!("{database}.items"), "to": format!("{database}.others") },
        )?;
        comparison.same(|database| doc! { "renameCollection": format!("{database}.items"), "$db": "admin" })?;
        comparison.same(rename("plain", ".still_plain", doc! {}))?;
        for refused in [
            rename("items", ".short", doc! {}),
            rename("items", ".plain", doc! {}),
            rename("items", ".still_plain", doc! { "dropTarget": true }),
            rename("still_plain", ".items", doc! { "dropTarget": true }),
            rename("still_plain", ".short", doc! {}),
        ] {
            comparison.refused(NOT_SUPPORTED, refused)?;
        }
        let database = comparison.shaped_database();
        // No buckets: under a name that a proxy has found ready they would be taken for some.
        comparison
            .stored
            .command_ok(&doc! { "insert": "others", "documents": [{ "_id": 1 }], "$db": &database })?;
        comparison.refused(72, rename("others", ".items", doc! { "dropTarget": true }))?;
    }
    Ok(())
}
