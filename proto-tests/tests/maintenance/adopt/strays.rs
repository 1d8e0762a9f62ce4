//! Documents that are no pages and were written directly to mongod: no reply counts or returns them.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::measure::rows;
use proto_tests::shaped::COLLECTION;

use crate::adopt::hand_written::{BucketWriter, at, bare, bucket, trade};

/// A document of each kind, of the key 1.
fn strays() -> [(&'static str, Document); 3] {
    let mut other_version = bucket("1_other", 1, &[trade(77, 0)]);
    other_version.insert(
        "control",
        doc! { "v": 2, "page": 7, "bytes": 40, "from": at(0), "to": at(0) },
    );
    [
        ("plain", doc! { "_id": "odd", "k": 1, "quantity": 77, "at": at(0) }),
        ("by hand", bucket("1_odd", 1, &[trade(77, 0)])),
        ("of another version", other_version),
    ]
}

/// Commands that find no item to change.
fn readers() -> Vec<Document> {
    let of_key = doc! { "k": 1 };
    let of_value = doc! { "quantity": 77 };
    let aggregate = |stages: &[Document]| doc! { "aggregate": COLLECTION, "pipeline": stages, "cursor": {} };
    let sum = doc! { "$group": { "_id": null, "n": { "$sum": 1 }, "most": { "$max": "$quantity" } } };
    let change = doc! { "$set": { "seen": 1 } };
    vec![
        doc! { "find": COLLECTION, "filter": &of_key },
        doc! { "find": COLLECTION, "filter": &of_key, "sort": { "at": -1 }, "limit": 3 },
        doc! { "find": COLLECTION, "filter": &of_key, "skip": 20 },
        doc! { "find": COLLECTION, "filter": &of_value },
        doc! { "find": COLLECTION, "sort": { "quantity": -1 }, "limit": 1 },
        doc! { "count": COLLECTION, "query": &of_key },
        doc! { "count": COLLECTION, "query": &of_value },
        doc! { "count": COLLECTION, "query": { "k": { "$gte": 0 } } },
        doc! { "count": COLLECTION },
        aggregate(std::slice::from_ref(&sum)),
        aggregate(&[doc! { "$match": &of_key }, sum]),
        aggregate(&[doc! { "$count": "n" }]),
        doc! { "distinct": COLLECTION, "key": "quantity" },
        doc! { "distinct": COLLECTION, "key": "quantity", "query": &of_key },
        doc! { "findAndModify": COLLECTION, "query": &of_value, "update": &change },
        doc! { "findAndModify": COLLECTION, "query": &of_value, "remove": true },
        doc! { "update": COLLECTION, "updates": [{ "q": &of_value, "u": &change, "multi": true }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": &of_value, "limit": 0 }] },
    ]
}

/// Commands that change items, each for a collection of its own.
fn writers() -> Vec<Document> {
    let update = doc! { "q": { "k": 1 }, "u": { "$inc": { "seen": 1 } }, "multi": true };
    let delete = |filter: Document| doc! { "delete": COLLECTION, "deletes": [{ "q": filter, "limit": 0 }] };
    vec![
        doc! { "update": COLLECTION, "updates": [update] },
        delete(doc! { "k": 1 }),
        delete(doc! {}),
        doc! { "insert": COLLECTION, "documents": [{ "k": 1, "quantity": 1, "at": at(99) }] },
    ]
}

/// The fields of a reply that depend on items.
fn answer(reply: &Document) -> Document {
    let names = ["cursor", "n", "nModified", "values", "value", "writeErrors", "code"];
    let fields = names
        .iter()
        .filter_map(|name| Some(((*name).to_owned(), reply.get(name)?.clone())));
    fields.collect()
}

/// A collection of 25 items of the key 1 and 5 of the key 2.
fn start() -> Result<BucketWriter> {
    let writer = BucketWriter::start(bare())?;
    let item = |number: i32| doc! { "k": i32::from(number >= 25) + 1, "quantity": number, "at": at(i64::from(number)) };
    let items: Vec<Document> = (0..30).map(item).collect();
    writer.shaped.application()?.command_ok(&writer.shaped.insert(&items))?;
    Ok(writer)
}

fn ask(writer: &BucketWriter, command: &Document) -> Result<Document> {
    let mut command = command.clone();
    command.insert("$db", &writer.shaped.database);
    let mut reply = writer.shaped.application()?.command(&command)?;
    if let Ok(cursor) = reply.get_document_mut("cursor") {
        cursor.remove("ns");
    }
    Ok(reply)
}

/// A collection of pages alone, and one that holds a stray besides.
struct Pair {
    pages: BucketWriter,
    strayed: BucketWriter,
    stray: Document,
}

impl Pair {
    fn start(stray: &Document) -> Result<Self> {
        let (pages, mut strayed) = (start()?, start()?);
        strayed.write(std::slice::from_ref(stray))?;
        Ok(Self {
            pages,
            strayed,
            stray: stray.clone(),
        })
    }

    /// Both answer alike, or the stray is what the command is refused for; it is as it was.
    fn check(&self, command: &Document) -> Result<()> {
        let expected = answer(&ask(&self.pages, command)?);
        let before = self.strayed.shaped.stored()?;
        let reply = ask(&self.strayed, command)?;
        let after = self.strayed.shaped.stored()?;
        ensure!(
            after.contains(&self.stray),
            "{command} has changed the stray: {after:?}"
        );
        let error = reply
            .get_array("writeErrors")
            .ok()
            .and_then(|errors| errors.first()?.as_document());
        if error.unwrap_or(&reply).get_i32("code").is_ok_and(|code| code == 72) {
            ensure!(after == before, "{command} was refused, and has changed documents");
        } else {
            let found = answer(&reply);
            ensure!(
                found == expected,
                "{command}: {found}, and without the stray {expected}"
            );
        }
        Ok(())
    }
}

#[test]
fn a_document_that_is_no_page_is_passed_over_or_refused() -> Result<()> {
    for (number, (kind, stray)) in strays().into_iter().enumerate() {
        let pair = Pair::start(&stray)?;
        for command in readers() {
            pair.check(&command).context(kind)?;
        }
        // Each is run with one of the strays, or with all.
        for command in rows(writers(), 3, number) {
            Pair::start(&stray)?.check(&command).context(kind)?;
        }
    }
    Ok(())
}
