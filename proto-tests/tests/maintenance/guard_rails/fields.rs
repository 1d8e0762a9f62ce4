//! Fields that the configuration names and no document has.

use anyhow::{Result, ensure};
use bson::{DateTime, Document, doc};

use super::fixture::{Fixture, expect, proxy};

const ALLOW: &str = "--allow-missing-key";

/// `setup` with these options stops with an error that has these words, and changes nothing. With
/// `--allow-missing-key` it goes on.
fn check(
    fixture: &mut Fixture,
    tables: &str,
    options: &[&str],
    documents: &[Document],
    words: &[&str],
) -> Result<String> {
    let proxy = proxy(tables)?;
    fixture.write("items", documents)?;
    let before = fixture.state()?;
    let printed = expect(&proxy.run_with("setup", options)?, 1, words)?;
    ensure!(fixture.state()? == before, "something was changed: {printed}");
    let allowed = expect(&proxy.run_with("setup", &[options, &[ALLOW]].concat())?, 0, &["note: "])?;
    ensure!(fixture.state()? != before, "nothing was done: {allowed}");
    Ok(allowed)
}

fn messages() -> Vec<Document> {
    let message = |n: i32| doc! { "_id": n, "conversationId": n % 3, "at": DateTime::from_millis(i64::from(n)) };
    (0..30).map(message).collect()
}

/// Buckets that an application has written by hand.
fn buckets() -> Vec<Document> {
    let item = |n: i32| doc! { "_id": n, "sentAt": DateTime::from_millis(i64::from(n)), "txt": "hello" };
    let bucket = |key: i32| {
        let items: Vec<Document> = (key * 5..key * 5 + 5).map(item).collect();
        doc! { "_id": format!("{key}_1"), "conversationId": key, "count": 5, "history": items }
    };
    (0..3).map(bucket).collect()
}

#[test]
fn packing_names_a_misspelt_key_time_and_rename() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let tables = fixture.bucket("items", "key = \"conversationID\"\ntime = \"at\"");
    let words = [
        "error: ",
        "no sampled document has the key field \"conversationID\"; did you mean \"conversationId\"?",
        ALLOW,
    ];
    let allowed = check(&mut fixture, &tables, &["--pack"], &messages(), &words)?;
    ensure!(allowed.contains("packed: 30 documents"), "{allowed}");

    let mut fixture = Fixture::new()?;
    let tables = fixture.bucket(
        "items",
        "key = \"conversation_id\"\ntime = \"AT\"\nrename = { att = \"a\" }",
    );
    let words = [
        "no sampled document has the key field \"conversation_id\"; did you mean \"conversationId\"?",
        "no sampled document has the time field \"AT\"; did you mean \"at\"?",
        "no sampled document has the renamed field \"att\"; did you mean \"at\"?",
    ];
    check(&mut fixture, &tables, &["--pack"], &messages(), &words)?;

    let mut fixture = Fixture::new()?;
    let tables = fixture.bucket("items", "key = [\"conversationId\", \"xyzzy\"]");
    let words = [
        "no sampled document has the key field \"xyzzy\"; the sampled documents have the fields \"at\", \"conversationId\"",
    ];
    check(&mut fixture, &tables, &["--pack"], &messages(), &words)?;
    Ok(())
}

#[test]
fn a_set_up_without_packing_names_them_too() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let proxy = proxy(&fixture.bucket("items", "key = \"conversationID\""))?;
    fixture.write("items", &messages())?;
    let sentence = "no sampled document has the key field \"conversationID\"; did you mean \"conversationId\"?";
    for verb in ["check", "setup"] {
        expect(&proxy.run(verb)?, 1, &[sentence, "contains 30 plain documents"])?;
    }
    Ok(())
}

#[test]
fn adoption_names_a_misspelt_time_and_rename() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let tables = fixture.bucket(
        "items",
        "key = \"conversationId\"\ntime = \"sent_at\"\nrename = { text = \"text_\" }",
    );
    let words = [
        "no sampled document has the time field \"sent_at\"; did you mean \"sentAt\"?",
        "no sampled document has the renamed field \"text_\"; did you mean \"txt\"?",
    ];
    let allowed = check(&mut fixture, &tables, &[], &buckets(), &words)?;
    ensure!(allowed.contains("buckets adopted: 3"), "{allowed}");
    Ok(())
}

#[test]
fn adoption_names_a_misspelt_key() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let proxy = proxy(&fixture.bucket("items", "key = \"conversationID\"\ntime = \"sentAt\""))?;
    fixture.write("items", &buckets())?;
    let before = fixture.state()?;
    let sentence = "no sampled document has the key field \"conversationID\"; did you mean \"conversationId\"?";
    for verb in ["check", "setup"] {
        expect(&proxy.run(verb)?, 1, &[sentence])?;
    }
    // The buckets have a field that is not part of the shape, so the name is wrong in any case.
    expect(
        &proxy.run_with("setup", &[ALLOW])?,
        1,
        &["it has the field 'conversationId'"],
    )?;
    ensure!(fixture.state()? == before, "something was changed");
    Ok(())
}

#[test]
fn outlier_set_up_names_a_misspelt_array() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let tables = format!(
        "[[outlier]]\nnamespace = \"{}.items\"\narray = \"Buyers\"\nthreshold = 3\nextras = {{ ref = \"item\" }}\n",
        fixture.database
    );
    let documents = [
        doc! { "_id": 1, "title": "a", "buyers": [1, 2] },
        doc! { "_id": 2, "title": "b" },
    ];
    let words = [
        "no sampled document has the array field \"Buyers\"; did you mean \"buyers\"?",
        ALLOW,
    ];
    check(&mut fixture, &tables, &[], &documents, &words)?;
    Ok(())
}

#[test]
fn a_field_of_few_documents_is_found() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let proxy = proxy(&fixture.bucket("items", "key = \"conversationId\"\nrename = { rare = \"r\" }"))?;
    let mut documents: Vec<Document> = (0..2_000).map(|n| doc! { "_id": n, "conversationId": n % 3 }).collect();
    documents[1_234].insert("rare", 1);
    fixture.write("items", &documents)?;
    expect(&proxy.run_with("setup", &["--pack"])?, 0, &["packed: 2000 documents"])?;
    Ok(())
}
