//! A misspelt namespace creates nothing.

use anyhow::{Result, ensure};
use bson::doc;
use proto_tests::{Level, Proxy};

use super::fixture::{Fixture, expect, proxy};

fn outlier(database: &str, collection: &str, extras: &str) -> String {
    format!(
        "[[outlier]]\nnamespace = \"{database}.{collection}\"\narray = \"buyers\"\nthreshold = 3\nextras = {{ {extras}ref = \
         \"item\" }}\n"
    )
}

/// A proxy with a misspelt namespace, which it logs.
fn misspelt(tables: &str) -> Result<Proxy> {
    let proxy = proxy(tables)?;
    proxy.expect_log(Level::Warn, "a namespace is probably misspelt");
    Ok(proxy)
}

/// No path of `setup`, and not `check`, creates a collection or an index; each names the one that is meant.
fn check(fixture: &mut Fixture, tables: &str, words: &[&str]) -> Result<()> {
    let proxy = misspelt(tables)?;
    let before = fixture.state()?;
    for options in [&[][..], &["--pack"], &["--split"], &["--allow-missing-key"]] {
        expect(&proxy.run_with("setup", options)?, 1, words)?;
        ensure!(fixture.state()? == before, "setup {options:?} has changed something");
    }
    Ok(())
}

#[test]
fn a_misspelt_collection() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write("user_messages", &[doc! { "_id": 1, "k": 1, "buyers": [1] }])?;
    fixture.write("unrelated", &[doc! { "_id": 1 }])?;
    for name in ["userMessages", "user_mesages", "USER_MESSAGES", "user-messages"] {
        let tables = fixture.bucket(name, "key = \"k\"");
        let words = [
            "error: ",
            "does not exist, but 'user_messages' does: correct `namespace`",
        ];
        check(&mut fixture, &tables, &words)?;
        expect(&misspelt(&tables)?.run("check")?, 1, &words)?;
        let tables = outlier(&fixture.database, name, "");
        check(&mut fixture, &tables, &words)?;
    }
    // A new name is a new collection.
    let tables = fixture.bucket("orders", "key = \"k\"");
    expect(&proxy(&tables)?.run("setup")?, 0, &["indexes created"])?;
    Ok(())
}

#[test]
fn a_misspelt_database() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write("items", &[doc! { "_id": 1, "k": 1 }])?;
    let right = fixture.database.clone();
    let mut wrong = Fixture::new()?;
    wrong.database = right.replace("test", "tset");
    let meant = format!("does not exist, but '{right}.items' does: correct `namespace`");
    let tables = wrong.bucket("items", "key = \"k\"");
    check(&mut wrong, &tables, &[&meant])?;
    let tables = outlier(&wrong.database, "items", "");
    check(&mut wrong, &tables, &[&meant])?;
    let list = doc! { "listDatabases": 1, "nameOnly": true, "filter": { "name": &wrong.database }, "$db": "admin" };
    let databases = wrong.direct.command_ok(&list)?;
    ensure!(databases.get_array("databases")?.is_empty(), "{databases}");
    Ok(())
}

#[test]
fn a_misspelt_collection_of_extras() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write("sales", &[doc! { "_id": 1, "buyers": [1] }])?;
    fixture.write("sales_extras", &[doc! { "_id": 1, "item": 1, "extra": [2] }])?;
    let tables = outlier(&fixture.database, "sales", "collection = \"sales_extra\", ");
    let words =
        ["its collection of extras, sales_extra, does not exist, but 'sales_extras' does: correct `extras.collection`"];
    check(&mut fixture, &tables, &words)?;
    let tables = outlier(&fixture.database, "sales", "");
    expect(
        &proxy(&tables)?.run("setup")?,
        0,
        &["the indexes of extra_sales are created"],
    )?;
    Ok(())
}

#[test]
fn a_misspelt_argument() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let proxy = proxy(&fixture.bucket("items", "key = \"k\""))?;
    let before = fixture.state()?;
    let (wrong, right) = (
        format!("{}.itmes", fixture.database),
        format!("{}.items", fixture.database),
    );
    let words = [
        &format!("error: {wrong}: there is no such collection with a shape"),
        &format!("did you mean \"{right}\"?"),
    ];
    expect(
        &proxy.run_with("setup", &["--namespace", &wrong])?,
        1,
        &words.map(String::as_str),
    )?;
    ensure!(fixture.state()? == before, "something was changed");
    Ok(())
}
