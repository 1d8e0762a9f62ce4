//! Logs, metrics and the operator's page contain no documents, keys, filters, passwords or tokens.
//!
//! The test sends marked words in commands that succeed and commands that fail, with trace logs of all
//! modules. Afterwards it searches for the words.

use anyhow::{Result, ensure};
use bson::{Document, doc};
use proto_tests::mongod::Options;
use proto_tests::raw::{self, Connection};
use proto_tests::{Level, Mongod, Proxy, ProxyOptions, client};

/// The marker in all secret values.
const MARK: &str = "Zq7Marked";
const TOKEN: &str = "Zq7Marked-token-of-the-page";
/// Of the configuration's own user.
const OWN_PASSWORD: &str = "Zq7MarkedOwn";
/// Of an application's user.
const PASSWORD: &str = "Zq7MarkedTheirs";
const SHAPES: &str = r#"
[[bucket]]
namespace = "shop.trades"
key = "customer"
time = "date"
max_items = 3

[[outlier]]
namespace = "shop.sales"
array = "buyers"
threshold = 3

[[bucket]]
namespace = "shop.seen"
key = "customer"
mode = "observe"
"#;

fn mark(name: &str) -> String {
    format!("{MARK}-{name}")
}

/// A field that is marked by its name.
fn field() -> String {
    format!("{MARK}Field")
}

/// Commands as an application sends them; whether they work or are refused, what they say stays between it
/// and mongod.
fn commands() -> Vec<Document> {
    let date = bson::DateTime::from_millis(1_700_000_000_000);
    let item = |id: &str| doc! { "_id": mark(id), "customer": mark("key"), "date": date, field(): mark("value") };
    let trade = doc! { "customer": mark("key") };
    let set = doc! { "$set": { field(): mark("set") } };
    let mut commands = Vec::new();
    for collection in ["trades", "seen", "plain", "sales"] {
        commands.extend([
            doc! { "insert": collection, "documents": [item("1"), item("2"), item("3"), item("4"), item("5")] },
            // Refused by mongod, or on its behalf: the _id is there.
            doc! { "insert": collection, "documents": [item("1")] },
            doc! { "insert": collection, "documents": [{ "_id": [mark("array")], "customer": [mark("array")] }] },
            doc! { "find": collection, "filter": trade.clone(), "sort": { "date": 1 }, "limit": 2 },
            doc! { "find": collection, "filter": { field(): mark("value") }, "projection": { field(): 1 } },
            doc! { "find": collection, "filter": { "$marked": mark("operator") } },
            doc! { "find": collection, "filter": { field(): { "$regex": format!("({MARK}") } } },
            doc! { "find": collection, "filter": {}, "comment": mark("comment"), "hint": mark("hint") },
            doc! { "find": collection, mark("option"): mark("value") },
            doc! { "aggregate": collection, "pipeline": [{ "$match": { field(): mark("value") } }], "cursor": {} },
            doc! { "aggregate": collection, "pipeline": [{ (format!("${MARK}Stage")): mark("stage") }], "cursor": {} },
            doc! { "aggregate": collection, "pipeline": [{ "$lookup": { "from": mark("from"), "as": field(), "pipeline": [] } }], "cursor": {} },
            doc! { "count": collection, "query": { field(): mark("value") } },
            doc! { "distinct": collection, "key": field() },
            doc! { "update": collection, "updates": [{ "q": { "_id": mark("1") }, "u": set.clone() }] },
            doc! { "update": collection, "updates": [{ "q": { field(): mark("set") }, "u": { (format!("${MARK}")): { "a": mark("b") } } }] },
            doc! { "update": collection, "updates": [{ "q": { "_id": mark("new") }, "u": set.clone(), "upsert": true }] },
            doc! { "update": collection, "updates": [{ "q": { "_id": mark("1") }, "u": { "$set": { "customer": mark("moved") } } }] },
            doc! { "update": collection, "updates": [{ "q": { "_id": mark("1") }, "u": { "$inc": { field(): 1 } } }] },
            doc! { "findAndModify": collection, "query": { "_id": mark("2") }, "update": set.clone() },
            doc! { "delete": collection, "deletes": [{ "q": { "_id": mark("3") }, "limit": 1 }] },
            doc! { "delete": collection, "deletes": [{ "q": { field(): mark("value") }, "limit": 0 }] },
            doc! { "explain": { "find": collection, "filter": { field(): mark("value") } } },
            doc! { "mapReduce": collection, "map": mark("map"), "reduce": mark("reduce"), "out": mark("out") },
            doc! { "createIndexes": collection, "indexes": [{ "key": { field(): 1 }, "name": mark("index"), "unique": true }] },
            doc! { "getMore": 4_711_i64, "collection": collection, "comment": mark("more") },
        ]);
    }
    commands.extend([
        doc! { "update": "sales", "updates": [{ "q": { "_id": mark("1") }, "u": { "$push": { "buyers": { "$each": [mark("a"), mark("b"), mark("c"), mark("d")] } } } }] },
        doc! { "find": "sales", "filter": { "buyers": mark("d") } },
        doc! { "update": "sales", "updates": [{ "q": { "_id": mark("1") }, "u": { "$pull": { "buyers": mark("a") } } }] },
        doc! { (mark("command")): mark("value") },
    ]);
    for command in &mut commands {
        command.insert("$db", "shop");
    }
    commands
}

async fn users(mongod: &Mongod) -> Result<()> {
    let admin = client(&mongod.uri()).await?;
    for (user, password) in [("own", OWN_PASSWORD), ("theirs", PASSWORD)] {
        let create = doc! { "createUser": user, "pwd": password, "roles": ["root"] };
        admin.database("admin").run_command(create).await?;
    }
    admin.shutdown().await;
    Ok(())
}

/// What an application does that is no command: marked bytes in messages that cannot be answered.
fn misspeak(proxy: &Proxy) -> Result<()> {
    let marked = raw::request(
        1,
        &doc! { "insert": "trades", "documents": [{ "customer": mark("cut") }], "$db": "shop" },
    )?;
    let broken = |place: usize, byte: u8| {
        let mut bytes = marked.clone();
        bytes[place] = byte;
        bytes
    };
    // The opcode, the flags, the kind of the section, the document's length, and an element's type.
    for (place, byte) in [(12, 0xff), (16, 0x80), (20, 9), (21, 3), (25, 0x63)] {
        let mut connection = Connection::open(proxy.address())?;
        connection.send(&broken(place, byte))?;
        let mut frame = Vec::new();
        let _ = connection.read_frame(&mut frame);
    }
    // HTTP and TLS, and half a message before the client goes.
    let http = |method: &str| format!("{method} /{MARK} HTTP/1.1\r\nAuthorization: {MARK}\r\n\r\n");
    let (get, post) = (http("GET"), http("POST"));
    for bytes in [get.as_bytes(), post.as_bytes(), b"\x16\x03\x01Zq7Marked"] {
        let mut connection = Connection::open(proxy.address())?;
        connection.send(bytes)?;
        let _ = connection.is_closed();
    }
    Connection::open(proxy.address())?.send(&marked[..40])?;
    Ok(())
}

#[tokio::test]
async fn logs_and_metrics_contain_no_documents_or_credentials() -> Result<()> {
    let mongod = Options::default().auth().standalone()?;
    users(&mongod).await?;
    let options = ProxyOptions::new(&mongod.uri_as("own", OWN_PASSWORD))
        .config(SHAPES)
        .filter("trace")
        .token(TOKEN);
    let mut proxy = Proxy::start(&options)?;
    proxy.expect_log(Level::Warn, "refused a connection");
    proxy.expect_log(Level::Warn, "closed a connection");
    let application = client(&proxy.uri_as("theirs", PASSWORD)).await?;
    let database = application.database("shop");
    let (mut worked, mut refused) = (0, 0);
    for command in commands() {
        let mut command = command;
        command.remove("$db");
        match database.run_command(command).await {
            Ok(_) => worked += 1,
            Err(_) => refused += 1,
        }
    }
    ensure!(worked >= 40 && refused >= 30, "{worked} worked, {refused} were refused");
    application.shutdown().await;
    let wrong = client(&format!(
        "{}&serverSelectionTimeoutMS=1000",
        proxy.uri_as("theirs", &mark("wrong"))
    ))
    .await?;
    ensure!(
        wrong
            .database("shop")
            .run_command(doc! { "count": "trades" })
            .await
            .is_err()
    );
    wrong.shutdown().await;
    misspeak(&proxy)?;
    ensure!(
        proxy
            .admin_get_as(Some(&mark("a-wrong-token-it-is")), "/metrics")?
            .status
            == 401
    );
    ensure!(proxy.admin_get(&format!("/{MARK}"))?.status == 404);
    let pages = [
        proxy.admin_get("/metrics")?.body,
        proxy.admin_get("/")?.body,
        proxy.admin_get("/readyz")?.body,
    ];
    ensure!(pages[0].contains("mongoshape_rejected_total") && pages[1].contains("shop.trades"));
    for page in &pages {
        ensure!(!page.contains(MARK), "{}", around(page));
    }
    verbs_keep_passwords(&mongod, &proxy)?;
    proxy.stop()?;
    let log: Vec<_> = proxy.log().into_iter().map(|line| line.text).collect();
    for words in [
        "\"DEBUG\"",
        "violates the protocol",
        "not between 16 and",
        "\"stopped\"",
    ] {
        ensure!(log.iter().any(|line| line.contains(words)), "no {words} in {log:#?}");
    }
    let leaking: Vec<_> = log.iter().filter(|line| leaks(line)).collect();
    ensure!(leaking.is_empty(), "{leaking:#?}");
    Ok(())
}

/// `check` and `setup` may report documents, but never show a password, right or wrong.
fn verbs_keep_passwords(mongod: &Mongod, proxy: &Proxy) -> Result<()> {
    let right = std::fs::read_to_string(proxy.config_file())?;
    let wrong = right.replace(OWN_PASSWORD, &mark("wrong"));
    ensure!(wrong != right && mongod.uri_as("own", OWN_PASSWORD).contains(OWN_PASSWORD));
    let malformed = right.replace("mongodb://", "mongodb:/").replace(TOKEN, &TOKEN[..10]);
    for (text, works) in [(&right, true), (&wrong, false), (&malformed, false)] {
        std::fs::write(proxy.config_file(), text)?;
        for verb in ["check", "setup"] {
            let ran = proxy.run(verb)?;
            let printed = format!("{}{}", String::from_utf8(ran.stdout)?, String::from_utf8(ran.stderr)?);
            ensure!(works || !ran.status.success(), "{verb}: {printed}");
            for secret in [OWN_PASSWORD, &TOKEN[..10], &mark("wrong")] {
                ensure!(!printed.contains(secret), "{verb}: {printed}");
            }
        }
    }
    Ok(())
}

/// Marked as text, or as the numbers of its bytes, as `Debug` writes them.
fn leaks(line: &str) -> bool {
    let bytes: Vec<_> = MARK.bytes().map(|byte| byte.to_string()).collect();
    line.contains(MARK) || line.contains(&bytes.join(", "))
}

fn around(text: &str) -> &str {
    let at = text.find(MARK).unwrap_or_default();
    let lines = text[..at].rfind('\n').map_or(0, |line| line + 1);
    text[lines..].lines().next().unwrap_or_default()
}
