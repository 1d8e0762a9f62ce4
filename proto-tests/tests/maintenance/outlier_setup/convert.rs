//! `convert` of an outlier collection to plain documents, and back.

use std::process::{Command, Output, Stdio};

use anyhow::{Context as _, Result, ensure};
use bson::oid::ObjectId;
use bson::{Bson, Document, doc};
use proto_tests::books::{BUYERS, COLLECTION, CONTROL, EXTRA_BUYERS, EXTRAS};
use proto_tests::measure::is_full;
use proto_tests::proxy::find_binary;

use crate::outlier_setup::fixture::{Fixture, book, buyers, expect_output};

const TO_PLAIN: &[&str] = &["--to", "plain"];
const BACK: &[&str] = &["--back"];
const FINISH: &[&str] = &["--finish"];
/// The lengths of the arrays. A base document has five elements.
const COUNTS: [i32; 8] = [0, 1, 5, 6, 12, 13, 500, 3_000];
/// The number of outliers. A run is killed while it joins them.
const MANY: i32 = 150;

fn books() -> Vec<Document> {
    (0..).zip(COUNTS).map(|(id, count)| book(id, count)).collect()
}

impl Fixture {
    fn verb(&self, verb: &str, options: &[&str]) -> Result<Output> {
        let namespace = format!("{}.{COLLECTION}", self.books.database);
        let arguments = [&["--namespace", namespace.as_str()], options].concat();
        self.proxy.run_with(verb, &arguments)
    }

    fn convert(&self, options: &[&str], parts: &[&str]) -> Result<()> {
        expect_output(&self.verb("convert", options)?, 0, parts).map(|_| ())
    }

    fn stored(&mut self) -> Result<Vec<Document>> {
        let find = doc! { "find": COLLECTION, "sort": { "_id": 1 }, "$db": &self.books.database };
        self.direct.all(&find)
    }

    fn extras(&mut self) -> Result<Vec<Document>> {
        self.direct.find(&self.books.database.clone(), EXTRAS, doc! {})
    }

    /// The options of the collection as `listCollections` returns them to applications.
    fn options(&mut self) -> Result<Document> {
        let list = doc! { "listCollections": 1, "filter": { "name": COLLECTION }, "$db": &self.books.database };
        let listed = self.shaped.all(&list)?;
        let options = listed.first().context("it is not listed")?.get_document("options")?;
        Ok(options.clone())
    }

    /// Fails unless all documents are stored as the application wrote them.
    fn is_plain(&mut self) -> Result<()> {
        let (stored, read) = (self.stored()?, self.read()?);
        ensure!(stored == read, "{} are stored otherwise than read", stored.len());
        let extras = self.extras()?;
        ensure!(extras.is_empty(), "{} extras are left", extras.len());
        Ok(())
    }

    fn run(&mut self, mut command: Document) -> Result<Document> {
        command.insert("$db", &self.books.database);
        self.shaped.command(&command)
    }
}

#[test]
fn outliers_are_joined_and_split_again() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let mut before = books();
    fixture.write(COLLECTION, &before)?;
    fixture.convert(&["--dry-run"], &["5 documents have more elements than 5"])?;
    ensure!(fixture.stored()? == before, "a dry run has changed documents");
    fixture.convert(&[], &["5 documents split", "converted"])?;
    for id in [0, 3, 7] {
        fixture.push(id, "new")?;
        before[usize::try_from(id)?] = fixture.read()?.swap_remove(usize::try_from(id)?);
    }
    let stored = fixture.stored()?;
    fixture.convert(&["--to", "plain", "--dry-run"], &["contains 5 outliers"])?;
    ensure!(fixture.stored()? == stored, "a dry run has changed documents");
    fixture.convert(TO_PLAIN, &["5 outliers were joined", "--finish"])?;
    ensure!(fixture.read()? == before, "they read otherwise");
    fixture.is_plain()?;
    fixture.convert(TO_PLAIN, &["0 outliers were joined"])?;
    expect_output(&fixture.proxy.run("check")?, 0, &["`--finish` ends it"])?;
    expect_output(
        &fixture.proxy.run_with("setup", &["--split"])?,
        1,
        &["mongoshape convert --back"],
    )?;
    fixture.convert(BACK, &["5 documents split"])?;
    ensure!(fixture.read()? == before, "they read otherwise");
    fixture.is_clean()?;
    expect_output(&fixture.verb("verify", &[])?, 0, &["no orphans"])?;
    fixture.convert(BACK, &["5 outliers were joined"])?;
    fixture.convert(FINISH, &["extra_sales was dropped"])?;
    fixture.is_plain()?;
    let refused = fixture.verb("convert", FINISH)?;
    expect_output(&refused, 1, &["no conversion to finish"]).map(|_| ())
}

#[test]
fn documents_of_a_plain_collection_are_not_split() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write(COLLECTION, &books())?;
    let options = fixture.options()?;
    fixture.convert(&[], &["converted"])?;
    fixture.convert(TO_PLAIN, &["converted"])?;
    ensure!(fixture.options()? == options, "the fence is visible");
    for number in 0..9 {
        for id in 0..8 {
            fixture.push(id, &format!("new{number}"))?;
        }
    }
    let long: Vec<Bson> = buyers(0..40).into_iter().map(Bson::from).collect();
    let set = doc! { "$set": { BUYERS: &long, "title": "new" } };
    let statement = |id: i32, upsert: bool| doc! { "q": { "_id": id }, "u": &set, "upsert": upsert };
    let push = doc! { "$push": { BUYERS: { "$each": &long, "$position": 0 } } };
    let commands = [
        doc! { "insert": COLLECTION, "documents": [book(20, 2), book(21, 30), book(22, 3), book(23, 31)] },
        doc! { "update": COLLECTION, "updates": [statement(1, false), statement(30, true)] },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": { "$in": [2, 3] } }, "u": &push, "multi": true }] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 4 }, "update": &push },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 31 }, "update": &set, "upsert": true },
        doc! { "update": COLLECTION, "updates": [{ "q": { "_id": 21 }, "u": [{ "$set": { BUYERS: { "$concatArrays": [format!("${BUYERS}"), &long] } } }] }] },
    ];
    for command in commands {
        let reply = fixture.run(command.clone())?;
        let is_done = reply.get_f64("ok")? > 0.0 && !reply.contains_key("writeErrors");
        ensure!(is_done, "{command}: {reply}");
    }
    fixture.is_plain()?;
    let lengths = [
        (1, 40),
        (2, 54),
        (3, 55),
        (4, 61),
        (7, 3_009),
        (21, 70),
        (23, 31),
        (30, 40),
        (31, 40),
    ];
    let read = fixture.read()?;
    for (id, length) in lengths {
        let book = read
            .iter()
            .find(|book| book.get_i32("_id").is_ok_and(|found| found == id))
            .context("no book")?;
        ensure!(
            book.get_array(BUYERS)?.len() == length,
            "{id} has {} buyers",
            book.get_array(BUYERS)?.len()
        );
    }
    // The validator is the fence.
    let refused = fixture.run(doc! { "collMod": COLLECTION, "validator": { "title": { "$type": "string" } } })?;
    ensure!(refused.get_i32("code")? == 115, "{refused}");
    // A proxy that has not read the fence.
    let split = doc! { "q": { "_id": 7 }, "u": { "$set": { "has_extras": true } } };
    let update = doc! { "update": COLLECTION, "updates": [split], "$db": &fixture.books.database };
    let refused = fixture.direct.command(&update)?;
    ensure!(refused.to_string().contains("121"), "{refused}");
    Ok(())
}

#[test]
fn outliers_are_joined_while_clients_push() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let last = if is_full("MONGOSHAPE_CRASHES") { 120 } else { 106 };
    let more: Vec<Document> = (100..last).map(|id| book(id, 200)).collect();
    fixture.write(COLLECTION, &books())?;
    fixture.write(COLLECTION, &more)?;
    fixture.convert(&[], &["converted"])?;
    fixture.while_clients_push(&COUNTS, |fixture| {
        fixture.convert(TO_PLAIN, &["converted"])?;
        fixture.convert(BACK, &["converted"])?;
        fixture.convert(TO_PLAIN, &["converted"])
    })?;
    fixture.is_plain()
}

#[test]
fn hand_written_outliers_are_joined() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let mut base = book(1, 5);
    base.insert("has_extras", true);
    fixture.write(COLLECTION, &[base, book(2, 3)])?;
    fixture.write(EXTRAS, &[doc! { "book_id": 1, EXTRA_BUYERS: buyers(5..40) }])?;
    fixture.convert(TO_PLAIN, &["1 outliers were joined"])?;
    ensure!(
        fixture.stored()? == [book(1, 40), book(2, 3)],
        "{:?}",
        fixture.stored()?
    );
    fixture.convert(FINISH, &["extra_sales was dropped"])
}

#[test]
fn document_that_is_too_large_is_named_before_anything_is_changed() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write(COLLECTION, &books())?;
    fixture.convert(&[], &["converted"])?;
    let buyer = "x".repeat(1 << 20);
    for _ in 0..17 {
        fixture.push(6, &buyer)?;
    }
    fixture.is_clean()?;
    let before = fixture.stored()?;
    let refused = fixture.verb("convert", TO_PLAIN)?;
    expect_output(&refused, 1, &["_id 6 cannot be joined: it exceeds 16 MiB"])?;
    ensure!(fixture.stored()? == before, "documents were changed");
    fixture.push(7, "new")?;
    fixture.is_clean()
}

#[test]
fn own_validator_is_refused() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write(COLLECTION, &books())?;
    fixture.convert(&[], &["converted"])?;
    let own = doc! { "title": { "$type": "string" } };
    let reply = fixture.run(doc! { "collMod": COLLECTION, "validator": &own })?;
    ensure!(reply.get_f64("ok")? > 0.0, "{reply}");
    let refused = fixture.verb("convert", TO_PLAIN)?;
    expect_output(&refused, 1, &["has a validator; remove it by `collMod`"])?;
    ensure!(fixture.options()?.get_document("validator")? == &own, "it was removed");
    fixture.is_clean()
}

#[test]
fn killed_run_is_continued_or_ended() -> Result<()> {
    let mut fixture = Fixture::new()?;
    let many: Vec<Document> = (0..MANY).map(|id| book(id, 30)).collect();
    let all_split = format!("{MANY} documents split");
    fixture.write(COLLECTION, &many)?;
    fixture.convert(&[], &[&all_split])?;
    for options in [TO_PLAIN, BACK] {
        fixture.kill_while_joining()?;
        ensure!(fixture.read()? == many, "they read otherwise");
        expect_output(
            &fixture.proxy.run("check")?,
            0,
            &["`mongoshape convert --to plain` continues"],
        )?;
        fixture.convert(options, &["converted"])?;
        ensure!(fixture.read()? == many, "they read otherwise");
        if options == TO_PLAIN {
            ensure!(fixture.stored()? == many, "they are stored otherwise");
            fixture.convert(BACK, &[&all_split])?;
        }
    }
    // A kill may leave the pages of one document, which nothing references.
    let found = fixture.books.look_at_rest(&mut fixture.direct)?;
    ensure!(found.wrong.is_empty(), "{found:?}");
    Ok(())
}

#[test]
fn finish_keeps_the_pages_of_a_split_in_progress() -> Result<()> {
    let mut fixture = Fixture::new()?;
    fixture.write(COLLECTION, &[book(1, 5)])?;
    // The state after a run to plain documents that was killed in the first two seconds.
    let announced = doc! {
        "collMod": COLLECTION, "$db": &fixture.books.database, "validationLevel": "moderate", "validationAction": "warn",
        "validator": { CONTROL: { "$exists": false }, "has_extras": { "$ne": true } },
    };
    fixture.direct.command_ok(&announced)?;
    // A proxy that read no fence has stored the page, and now stores the base document.
    let generation = ObjectId::new();
    let page = doc! {
        "_id": format!("{generation}_0"), "book_id": 1, EXTRA_BUYERS: ["new"], "count": 1,
        "control": { "v": 1, "generation": generation, "from": 0_i64 },
    };
    fixture.write(EXTRAS, std::slice::from_ref(&page))?;
    expect_output(&fixture.verb("convert", FINISH)?, 1, &["run again later"])?;
    ensure!(fixture.extras()? == [page], "the page was dropped");
    let control = doc! { "v": 1, "generation": generation, "count": 1_i64, "tail": [] };
    let split = doc! { "q": { "_id": 1 }, "u": { "$set": { "has_extras": true, CONTROL: control } } };
    let update = doc! { "update": COLLECTION, "updates": [split], "$db": &fixture.books.database };
    let refused = fixture.direct.command(&update)?;
    ensure!(refused.to_string().contains("121"), "{refused}");
    // The proxy removes the pages of a split that mongod has refused.
    let delete = doc! { "delete": EXTRAS, "deletes": [{ "q": {}, "limit": 0 }], "$db": &fixture.books.database };
    fixture.direct.command_ok(&delete)?;
    fixture.convert(FINISH, &["extra_sales was dropped"])?;
    fixture.is_plain()
}

impl Fixture {
    /// Kills a conversion to plain documents when some outliers are joined.
    fn kill_while_joining(&mut self) -> Result<()> {
        let namespace = format!("{}.{COLLECTION}", self.books.database);
        let mut command = Command::new(find_binary()?);
        command.args(["convert", "--namespace", &namespace, "--config"]);
        command.arg(self.proxy.config_file()).args(TO_PLAIN);
        let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
        let left = doc! { "count": COLLECTION, "query": { "has_extras": true }, "$db": &self.books.database };
        loop {
            let left = self.direct.command_ok(&left)?.get_i32("n")?;
            if left < MANY {
                child.kill()?;
                child.wait()?;
                ensure!(left > 0, "the run was too fast");
                return Ok(());
            }
            ensure!(child.try_wait()?.is_none(), "the run has ended");
        }
    }
}
