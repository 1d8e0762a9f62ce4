//! A changed outlier shape on existing outliers.

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use proto_tests::books::{BUYERS, Books, COLLECTION, EXTRAS};
use proto_tests::mongod::Options;
use proto_tests::raw::Connection;
use proto_tests::{Proxy, ProxyOptions, client, mongod};

use crate::changed_shape::{INDEX, all_refused, failed};

/// A line of the shape, its changed text, and a part of the error.
const CHANGED: &[(&str, &str, &str)] = &[
    ("threshold = 5", "threshold = 4", "threshold is 5 in the shape marker"),
    ("threshold = 5", "threshold = 50", "threshold is 5 in the shape marker"),
    (
        "max_items = 7",
        "max_items = 70",
        "extras_max_items is 7 in the shape marker",
    ),
    (
        "\"book_id\"",
        "\"book\"",
        "extras_ref is \"book_id\" in the shape marker",
    ),
    (
        "ref =",
        "array = \"more\", ref =",
        "extras_array is \"customers_purchased_extra\" in the shape marker",
    ),
    (
        "array = \"customers_purchased\"",
        "array = \"readers\"",
        "array is \"customers_purchased\" in the shape marker",
    ),
    (
        "threshold =",
        "flag = \"is_long\"\nthreshold =",
        "flag is \"has_extras\" in the shape marker",
    ),
];

fn start(books: &Books, change: (&str, &str)) -> Result<Proxy> {
    Proxy::start(&changed(books, change)?)
}

fn changed(books: &Books, (from, to): (&str, &str)) -> Result<ProxyOptions> {
    let lines = books.toml();
    ensure!(lines.contains(from), "no {from} in {lines}");
    Ok(ProxyOptions::new(&mongod::shared().uri()).config(&lines.replacen(from, to, 1)))
}

fn book(id: i32, buyers: usize) -> Document {
    let buyers: Vec<_> = (0..buyers).map(|number| format!("user{number}")).collect();
    doc! { "_id": id, "title": format!("Amulet {id}"), BUYERS: buyers }
}

/// Commands that would be answered wrongly, or may write what others read wrongly; two that touch nothing of
/// the array.
fn commands(books: &Books) -> Vec<Document> {
    let statement = |change: Document| doc! { "q": { "_id": 1 }, "u": change };
    let commands = [
        doc! { "find": COLLECTION },
        doc! { "find": COLLECTION, "filter": { "_id": 1 }, "projection": { "title": 1 } },
        doc! { "count": COLLECTION },
        doc! { "distinct": COLLECTION, "key": BUYERS },
        doc! { "aggregate": COLLECTION, "pipeline": [{ "$unwind": format!("${BUYERS}") }], "cursor": {} },
        doc! { "aggregate": "none", "pipeline": [{ "$unionWith": COLLECTION }], "cursor": {} },
        doc! { "aggregate": 1, "pipeline": [{ "$documents": [{ "of": 1 }] },
        { "$lookup": { "from": COLLECTION, "localField": "of", "foreignField": "_id", "as": "book" } }], "cursor": {} },
        doc! { "insert": COLLECTION, "documents": [book(9, 2)] },
        doc! { "insert": COLLECTION, "documents": [book(10, 30)] },
        doc! { "update": COLLECTION, "updates": [statement(doc! { "$set": { "title": "" } })] },
        doc! { "update": COLLECTION, "updates": [statement(doc! { "$push": { BUYERS: "another" } })] },
        doc! { "findAndModify": COLLECTION, "query": { "_id": 1 }, "remove": true },
        doc! { "delete": COLLECTION, "deletes": [{ "q": { "_id": 1 }, "limit": 1 }] },
        doc! { "drop": COLLECTION },
    ];
    let on = |mut command: Document| {
        command.insert("$db", &books.database);
        command
    };
    commands.into_iter().map(on).collect()
}

fn stored(books: &Books, mongod: &mut Connection) -> Result<[Vec<Document>; 3]> {
    Ok([
        mongod.find(&books.database, COLLECTION, doc! {})?,
        mongod.find(&books.database, EXTRAS, doc! {})?,
        mongod.all(&doc! { "listIndexes": EXTRAS, "$db": &books.database })?,
    ])
}

#[test]
fn outliers_are_not_read_with_a_shape_that_differs_from_the_stored_one() -> Result<()> {
    let books = Books::new(5, 7);
    let proxy = books.proxy(&mongod::shared().uri())?;
    let mut application = Connection::open(proxy.address())?;
    let insert = doc! { "insert": COLLECTION, "documents": [book(0, 3), book(1, 40)], "$db": &books.database };
    application.command_ok(&insert)?;
    let mut direct = Connection::open(mongod::shared().address())?;
    let before = stored(&books, &mut direct)?;
    let names: Vec<_> = before[2]
        .iter()
        .filter_map(|index| index.get_str("name").ok())
        .collect();
    ensure!(names.contains(&INDEX), "{names:?}");
    for (from, to, error) in CHANGED {
        let mut another = Proxy::start_with_misfits(&changed(&books, (from, to))?)?;
        let mut application = Connection::open(another.address())?;
        all_refused(&mut application, &commands(&books), error).with_context(|| format!("with {to}"))?;
        for verb in ["check", "setup"] {
            failed(&another.run(verb)?, error)?;
        }
        ensure!(stored(&books, &mut direct)? == before, "with {to}");
        another.stop()?;
    }
    // What may be another.
    let another = start(&books, ("threshold =", "reads = \"base\"\nthreshold ="))?;
    let mut application = Connection::open(another.address())?;
    application.command_ok(&commands(&books)[1])?;
    Ok(())
}

#[test]
fn a_proxy_notices_the_first_outlier_that_is_stored_otherwise() -> Result<()> {
    let books = Books::new(5, 7);
    let [proxy, another] = [("", ""), ("max_items = 7", "max_items = 8")].map(|changed| start(&books, changed));
    let (proxy, another) = (proxy?, another?);
    let mut application = Connection::open(proxy.address())?;
    let mut other = Connection::open(another.address())?;
    // Nothing is stored by which they differ.
    let insert = |id, buyers| doc! { "insert": COLLECTION, "documents": [book(id, buyers)], "$db": &books.database };
    application.command_ok(&insert(0, 3))?;
    other.command_ok(&insert(1, 3))?;
    application.command_ok(&insert(2, 40))?;
    // The proxy's catalog may be a second old. mongod still refuses a page.
    let reply = other.command(&insert(3, 40))?;
    let failed = reply.get_array("writeErrors").is_ok() || reply.get_f64("ok")? < 1.0;
    ensure!(failed, "{reply}");
    std::thread::sleep(std::time::Duration::from_millis(1100));
    all_refused(
        &mut other,
        &commands(&books),
        "extras_max_items is 7 in the shape marker",
    )?;
    application.command_ok(&insert(4, 40))?;
    // A dropped collection has no outliers, so another shape is accepted.
    application.command_ok(&doc! { "drop": COLLECTION, "$db": &books.database })?;
    other.command_ok(&insert(3, 40))?;
    Ok(())
}

/// The shape marker is missing in the new extras collection. An outlier with pages elsewhere is not returned
/// without them.
#[test]
fn outlier_with_extras_in_another_collection_is_not_returned_incomplete() -> Result<()> {
    let books = Books::new(5, 7);
    let proxy = books.proxy(&mongod::shared().uri())?;
    let insert = doc! { "insert": COLLECTION, "documents": [book(0, 3), book(1, 40)], "$db": &books.database };
    Connection::open(proxy.address())?.command_ok(&insert)?;
    let another = start(&books, (EXTRAS, "others"))?;
    let mut application = Connection::open(another.address())?;
    let reads = commands(&books).into_iter().filter(|command| {
        let is_read = ["find", "distinct", "aggregate"]
            .iter()
            .any(|name| command.contains_key(name));
        is_read && !command.contains_key("projection")
    });
    for read in reads {
        all_refused(&mut application, &[read], "records extras that do not exist")?;
    }
    failed(
        &another.run("check")?,
        "extras are missing from others, so their documents cannot be read; the first has _id 1",
    )?;
    Ok(())
}

/// A user without the privilege `listIndexes` can read the collection. Other users' commands are checked.
#[tokio::test]
async fn missing_list_indexes_privilege_does_not_block_the_collection() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    let books = Books::new(5, 7);
    let through = |proxy: &Proxy, uri: String| uri.replace(&mongod.address().to_string(), &proxy.address().to_string());
    let admin = client(&mongod.uri()).await?.database("admin");
    let resource = doc! { "db": &books.database, "collection": COLLECTION };
    let privileges = vec![doc! { "resource": resource, "actions": ["find"] }];
    let role = doc! { "createRole": "reader", "privileges": privileges, "roles": [] };
    admin.run_command(role).await?;
    let user = doc! { "createUser": "other", "pwd": "word", "roles": ["reader"] };
    admin.run_command(user).await?;
    let options = ProxyOptions::new(&mongod.uri());
    let proxy = Proxy::start(&options.clone().config(&books.toml()))?;
    let all = client(&through(&proxy, mongod.uri())).await?.database(&books.database);
    all.run_command(doc! { "insert": COLLECTION, "documents": [book(0, 3), book(1, 40)] })
        .await?;
    let find = |id: i32| doc! { "find": COLLECTION, "filter": { "_id": id } };
    let otherwise = books.toml().replace("max_items = 7", "max_items = 8");
    for (shape, is_same) in [(books.toml(), true), (otherwise, false)] {
        let options = options.clone().config(&shape);
        let proxy = if is_same {
            Proxy::start(&options)?
        } else {
            Proxy::start_with_misfits(&options)?
        };
        let other = client(&through(&proxy, mongod.uri_as("other", "word"))).await?;
        let other = other.database(&books.database);
        other.run_command(find(0)).await?;
        ensure!(
            other.run_command(find(1)).await.is_err(),
            "extras are read without the right to"
        );
        let all = client(&through(&proxy, mongod.uri())).await?.database(&books.database);
        ensure!(all.run_command(find(0)).await.is_ok() == is_same, "{shape}");
    }
    Ok(())
}
