//! `renameCollection`.

use anyhow::{Result, ensure};
use bson::{Document, doc};

use super::{Both, NOT_SUPPORTED, servers};

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
fn contents(both: &mut Both) -> Result<()> {
    for collection in ["items", "others"] {
        both.same(|_| doc! { "find": collection, "sort": { "_id": 1 } })?;
        both.same(|_| doc! { "find": collection, "filter": { "k": 1 }, "sort": { "at": 1 }, "skip": 5, "limit": 10 })?;
    }
    both.listed(&doc! {}, None)
}

fn insert(collection: &'static str, ids: [i32; 2]) -> impl Fn(&str) -> Document {
    move |_| doc! { "insert": collection, "documents": ids.map(|id| doc! { "_id": id, "k": 0 }).to_vec() }
}

#[test]
fn collection_can_be_renamed_to_an_identical_shape() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        both.needs_view("plain", "items")?;
        both.same(rename("items", ".others", doc! {}))?;
        ensure!(!both.is_stored("items.mongoshape_items")?);
        contents(&mut both)?;
        both.needs_view("plain", "others")?;
        both.insert("items", 5)?;
        both.same(rename("items", ".others", doc! {}))?;
        both.same(rename("items", ".others", doc! { "dropTarget": false }))?;
        both.same(rename("items", ".others", doc! { "dropTarget": true }))?;
        contents(&mut both)?;
        both.needs_view("plain", "others")?;
        // It goes on as it is, and the name that is free is a new collection's.
        both.same(insert("others", [1, 77]))?;
        both.insert("items", 4)?;
        contents(&mut both)?;
    }
    Ok(())
}

/// Another proxy has found both ready, and knows the last page of a key.
#[test]
fn second_proxy_finds_a_renamed_collection() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.insert("others", 3)?;
        both.through_second(|both| {
            both.same(insert("items", [100, 101]))?;
            both.same(insert("others", [100, 101]))
        })?;
        both.same(rename("items", ".others", doc! { "dropTarget": true }))?;
        both.through_second(|both| {
            contents(both)?;
            both.same(insert("others", [101, 102]))?;
            both.same(insert("others", [102, 103]))?;
            both.same(insert("items", [1, 2]))?;
            contents(both)
        })?;
        contents(&mut both)?;
    }
    Ok(())
}

#[test]
fn a_collection_is_renamed_into_another_database() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(rename("items", "_2.others", doc! {}))?;
        contents(&mut both)?;
        let on_second = |command: Document| {
            move |database: &str| {
                let mut command = command.clone();
                command.insert("$db", format!("{database}_2"));
                command
            }
        };
        let find = doc! { "find": "others", "sort": { "_id": 1 } };
        both.same(on_second(find.clone()))?;
        both.same(on_second(insert("others", [24, 25])("")))?;
        both.same(on_second(insert("others", [77, 78])("")))?;
        both.same(on_second(find))?;
        both.same(on_second(doc! { "dropDatabase": 1 }))?;
    }
    Ok(())
}

#[test]
fn a_rename_into_or_out_of_a_shape_is_refused() -> Result<()> {
    for mongod in servers() {
        let mut both = Both::filled(mongod)?;
        both.same(|_| doc! { "insert": "plain", "documents": [{ "_id": 1 }] })?;
        for mistake in [
            rename("nope", ".other", doc! {}),
            rename("others", ".items", doc! {}),
            rename("items", ".items", doc! {}),
            rename("items", ".others", doc! { "nonsense": 1 }),
            rename("items", ".others", doc! { "dropTarget": "yes" }),
            rename("items", "", doc! {}),
        ] {
            both.same(mistake)?;
        }
        both.same(
            |database| doc! { "renameCollection": format!("{database}.items"), "to": format!("{database}.others") },
        )?;
        both.same(|database| doc! { "renameCollection": format!("{database}.items"), "$db": "admin" })?;
        both.same(rename("plain", ".still_plain", doc! {}))?;
        for refused in [
            rename("items", ".short", doc! {}),
            rename("items", ".plain", doc! {}),
            rename("items", ".still_plain", doc! { "dropTarget": true }),
            rename("still_plain", ".items", doc! { "dropTarget": true }),
            rename("still_plain", ".short", doc! {}),
        ] {
            both.refused(NOT_SUPPORTED, refused)?;
        }
        let database = both.shaped_database();
        // No buckets: under a name that a proxy has found ready they would be taken for some.
        both.stored
            .command_ok(&doc! { "insert": "others", "documents": [{ "_id": 1 }], "$db": &database })?;
        both.refused(72, rename("others", ".items", doc! { "dropTarget": true }))?;
    }
    Ok(())
}
