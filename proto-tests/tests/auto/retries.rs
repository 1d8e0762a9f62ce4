//! A retryable write that is sent again, through another proxy, after the collection has got the other
//! layout.

use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, ensure};
use bson::{Bson, Document, doc};
use proto_tests::sessions::lsid;
use proto_tests::{Shape, mongod};

use super::fixture::{COLLECTION, CutOver, Fixture, KEPT, item, shape};

/// The identifiers of the items.
const IDS: &str = "abcdefghijklpqrst";

/// The writes on the items.
fn writes() -> Vec<Document> {
    let many: Vec<Document> = (0..12).map(|n| item(format!("m{n}"), n % 2, i64::from(n))).collect();
    let twice: Vec<Document> = ["u0", "u0", "u2", "u3"].iter().map(|id| item(*id, 1, 200)).collect();
    let add = || doc! { "$inc": { "n": 1 } };
    let upsert = doc! { "$inc": { "n": 1 }, "$set": { "at": item(0, 0, 300).get("at").cloned() } };
    let update = |updates: Vec<Document>| doc! { "update": COLLECTION, "updates": updates };
    // Another key: on pages the item moves.
    let moved = |id: &str| doc! { "q": { "_id": id }, "u": { "$set": { "k": 7 }, "$inc": { "n": 1 } } };
    vec![
        doc! { "insert": COLLECTION, "documents": many },
        doc! { "insert": COLLECTION, "documents": [item("o", 1, 99)] },
        doc! { "insert": COLLECTION, "documents": twice, "ordered": false },
        update(vec![
            doc! { "q": { "_id": "a" }, "u": add() },
            doc! { "q": { "_id": "b" }, "u": add() },
        ]),
        update(vec![doc! { "q": { "_id": "c", "n": 0 }, "u": add() }]),
        update(vec![moved("d")]),
        update(vec![moved("p"), moved("q")]),
        update(vec![moved("r"), doc! { "q": { "_id": "s" }, "u": add() }, moved("t")]),
        update(vec![
            doc! { "q": { "_id": "up", "k": 1 }, "u": &upsert, "upsert": true },
        ]),
        update(vec![doc! { "q": { "k": 1, "z": 5 }, "u": &upsert, "upsert": true }]),
        update(vec![
            doc! { "q": { "_id": "i" }, "u": add() },
            doc! { "q": { "_id": "up2", "k": 1 }, "u": &upsert, "upsert": true },
            doc! { "q": { "_id": "j" }, "u": add() },
        ]),
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": "e" }, "limit": 1 }] },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "k": 5 }, "limit": 1 }] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": "f" }, "update": add() },
        doc! { "findAndModify": COLLECTION, "query": { "_id": "g" }, "update": add(), "new": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": "h" }, "remove": true },
        doc! { "findAndModify": COLLECTION, "query": { "_id": "fu", "k": 1 }, "update": &upsert, "upsert": true, "new": true },
    ]
}

/// What a driver makes of a reply.
fn seen(reply: &Document) -> Document {
    let mut seen = Document::new();
    for name in ["ok", "n", "nModified", "upserted", "lastErrorObject", "value", "code"] {
        if let Some(value) = reply.get(name) {
            seen.insert(name, value.clone());
        }
    }
    let errors = reply.get_array("writeErrors").into_iter().flatten();
    let errors: Vec<Bson> = errors
        .filter_map(Bson::as_document)
        .map(|error| Bson::Document(doc! { "index": error.get("index"), "code": error.get("code") }))
        .collect();
    seen.insert("errors", errors);
    seen
}

fn sorted(fixture: &Fixture) -> Result<Vec<String>> {
    let mut items: Vec<String> = fixture
        .items()?
        .iter()
        .map(|item| {
            // A field of pages, which no plain document has.
            let control = item.contains_key("control");
            format!(
                "{:?} {:?} {:?} {control}",
                item.get("_id"),
                item.get("k"),
                item.get("n")
            )
        })
        .collect();
    items.sort();
    Ok(items)
}

/// The layouts in which a write is executed, and sent again.
#[derive(Clone, Copy, PartialEq)]
enum Direction {
    PlainToPages,
    PagesToPlain,
    PagesToOthers,
}

/// The time at which the writes are sent again.
#[derive(Clone, Copy, PartialEq)]
enum Again {
    AfterConversion,
    /// While `convert --back` makes the former collection equal.
    DuringWayBack,
    /// While `convert --back` swaps the names.
    DuringSwapBack,
}

/// A write, and what a driver made of its reply.
type Sent = (Document, Document);

/// Stores items `a` to `l` as plain documents.
fn seeded() -> Result<Fixture> {
    let fixture = Fixture::start(mongod::shared_replica_set())?;
    let seed: Vec<Document> = (1000..)
        .zip(IDS.chars())
        .map(|(second, id)| item(id.to_string(), if "kl".contains(id) { 5 } else { 1 }, second))
        .collect();
    fixture.store_plain(&seed)?;
    Ok(fixture)
}

/// Executes the writes through a proxy.
fn send_all(fixture: &Fixture, proxy: usize) -> Result<Vec<Sent>> {
    let mut sent = Vec::new();
    for (number, mut write) in writes().into_iter().enumerate() {
        write.insert("lsid", lsid(&format!("{} {number}", fixture.database)));
        write.insert("txnNumber", 1_i64);
        let reply = fixture.run(proxy, write.clone())?;
        sent.push((write, seen(&reply)));
    }
    Ok(sent)
}

/// Sends the writes again. `proxy`: the one for each number of a write.
fn send_again(fixture: &Fixture, sent: Vec<Sent>, proxy: impl Fn(usize) -> usize) -> Result<()> {
    let before = sorted(fixture)?;
    for (number, (write, first)) in sent.into_iter().enumerate() {
        let again = fixture.run(proxy(number), write.clone())?;
        ensure!(seen(&again) == first, "{write}\nfirst: {first}\nagain: {again}");
        ensure!(sorted(fixture)? == before, "executed twice: {write}");
    }
    Ok(())
}

fn check(direction: Direction, again: Again) -> Result<()> {
    let fixture = seeded()?;
    match direction {
        Direction::PlainToPages => {}
        Direction::PagesToPlain => fixture.convert(Duration::ZERO, CutOver::Done)?,
        Direction::PagesToOthers => fixture.convert_to(&shape(), &[])?,
    }
    let sent = send_all(&fixture, 0)?;
    let before = sorted(&fixture)?;
    if direction == Direction::PagesToOthers {
        let other = Shape {
            max_items: 3,
            items: "docs".to_owned(),
            ..Shape::new(&["k", "n"])
        };
        fixture.convert_to(&other, &[])?;
    } else {
        fixture.convert(Duration::ZERO, CutOver::Done)?;
    }
    ensure!(
        fixture.has_pages()? == (direction != Direction::PagesToPlain),
        "the layout is another one"
    );
    if again != Again::AfterConversion {
        // One of the proxies has listed the collections before, and the other one lists them now.
        fixture.run(0, doc! { "count": COLLECTION })?;
        fixture.begin_back()?;
    }
    if again == Again::DuringSwapBack {
        let placeholder = doc! { "mongoshape_placeholder": { "$exists": true } };
        fixture.past(doc! { "create": KEPT, "validator": placeholder })?;
    }
    ensure!(sorted(&fixture)? == before, "the items are others");
    let uses_both = again != Again::AfterConversion;
    send_again(&fixture, sent, |number| if uses_both { number % 2 } else { 1 })
}

fn check_both(direction: Direction) -> Result<()> {
    check(direction, Again::AfterConversion)?;
    check(direction, Again::DuringWayBack)
}

#[test]
fn a_write_on_plain_documents_is_not_executed_again_on_pages() -> Result<()> {
    check_both(Direction::PlainToPages)
}

#[test]
fn a_write_on_pages_is_not_executed_again_on_plain_documents() -> Result<()> {
    check_both(Direction::PagesToPlain)
}

#[test]
fn a_write_on_pages_is_not_executed_again_on_other_pages() -> Result<()> {
    check_both(Direction::PagesToOthers)
}

/// The name of the kept collection is that of an empty placeholder then.
#[test]
fn a_write_on_pages_is_not_executed_again_during_the_swap_back() -> Result<()> {
    check(Direction::PagesToPlain, Again::DuringSwapBack)
}

/// The collection has its former UUID again, which the first proxy knows from before the conversion.
#[test]
fn a_proxy_without_commands_during_a_conversion_finds_earlier_attempts() -> Result<()> {
    let fixture = seeded()?;
    fixture.run(0, doc! { "count": COLLECTION })?;
    fixture.convert_to(&shape(), &[])?;
    let sent = send_all(&fixture, 1)?;
    // It reads the record of the conversion in the background.
    let deadline = Instant::now() + Duration::from_mins(1);
    while !fixture.proxies[0].admin_get("/")?.body.contains("kept, ") {
        ensure!(
            Instant::now() < deadline,
            "the first proxy does not know of the conversion"
        );
        thread::sleep(Duration::from_millis(50));
    }
    fixture.convert_to(&shape(), &["--back"])?;
    ensure!(!fixture.has_pages()?, "not converted back");
    send_again(&fixture, sent, |_| 0)
}
