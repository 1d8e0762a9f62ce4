//! Spans as a collector receives them, and the log of slow commands.

mod collector;

use std::collections::BTreeMap;
use std::net::TcpListener;

use anyhow::{Context as _, Result, ensure};
use bson::{Document, doc};
use opentelemetry_proto::tonic::common::v1::{KeyValue, any_value::Value};
use opentelemetry_proto::tonic::trace::v1::span::SpanKind;
use opentelemetry_proto::tonic::trace::v1::{Span, Status, status::StatusCode};
use proto_tests::raw::Connection;
use proto_tests::{Level, Mongod, Outlier, Proxy, ProxyOptions, Shape, database_name, mongod};

use collector::Collector;

/// A parent's trace and span.
const TRACE: u128 = 0x4bf9_2f35_77b3_4da6_a3ce_929d_0e0e_4736;
const PARENT: u64 = 0x00f0_67aa_0ba9_02b7;

/// A bucket and an outlier collection behind a proxy with these sections.
struct Traced {
    mongod: &'static Mongod,
    database: String,
    proxy: Proxy,
}

impl Traced {
    /// `sections`: parts of the configuration.
    fn start(sections: &str) -> Result<Self> {
        Self::start_with(sections, 0)
    }

    fn start_with(sections: &str, slow_command_ms: u32) -> Result<Self> {
        let mongod = mongod::shared();
        let database = database_name();
        let bucket = Shape::new(&["k"]).toml(&format!("{database}.items"));
        let outlier = Outlier::new("buyers", (50, 1000)).toml(&format!("{database}.books"));
        let config = format!("{sections}\n{bucket}\n{outlier}");
        let options = ProxyOptions::new(&mongod.uri()).slow_command_ms(slow_command_ms);
        let proxy = Proxy::start(&options.config(&config))?;
        Ok(Self {
            mongod,
            database,
            proxy,
        })
    }

    /// Executes commands on one connection.
    fn execute(&self, commands: &[Document]) -> Result<()> {
        let mut connection = Connection::open(self.proxy.address())?;
        for command in commands {
            let mut command = command.clone();
            command.insert("$db", &self.database);
            connection.command(&command)?;
        }
        Ok(())
    }
}

fn inserts() -> [Document; 2] {
    let items: Vec<Document> = (0..25).map(|number| doc! { "_id": number, "k": 1 }).collect();
    let buyers: Vec<i32> = (0..60).collect();
    [
        doc! { "insert": "items", "documents": items },
        doc! { "insert": "books", "documents": [{ "_id": 1, "buyers": buyers }] },
    ]
}

/// Texts and numbers of a span's attributes.
fn attributes(span: &Span) -> BTreeMap<&str, String> {
    let text = |attribute: &KeyValue| match attribute.value.as_ref().and_then(|value| value.value.as_ref()) {
        Some(Value::StringValue(text)) => text.clone(),
        Some(Value::IntValue(number)) => number.to_string(),
        other => format!("{other:?}"),
    };
    let attributes = span.attributes.iter();
    attributes
        .map(|attribute| (attribute.key.as_str(), text(attribute)))
        .collect()
}

/// The `traceparent` of the parent.
fn trace_parent(is_sampled: bool) -> String {
    format!("00-{TRACE:032x}-{PARENT:016x}-{:02x}", u8::from(is_sampled))
}

fn is_child_of_parent(span: &Span) -> bool {
    span.trace_id == TRACE.to_be_bytes() && span.parent_span_id == PARENT.to_be_bytes()
}

/// The span of a command.
fn command<'a>(spans: &'a [Span], name: &str) -> Result<&'a Span> {
    let server = SpanKind::Server as i32;
    let mut named = spans.iter().filter(|span| span.name == name && span.kind == server);
    named.next().with_context(|| format!("no span {name} in {spans:?}"))
}

/// A command has statements, which are executed within its time on the server at this port.
fn check_statements(spans: &[Span], command: &Span, port: u16) -> Result<()> {
    let mut statements = spans
        .iter()
        .filter(|span| span.parent_span_id == command.span_id)
        .peekable();
    ensure!(statements.peek().is_some(), "{command:?} has no statements");
    for statement in statements {
        ensure!(statement.kind == SpanKind::Client as i32, "{statement:?}");
        ensure!(statement.trace_id == command.trace_id, "{statement:?}");
        ensure!(
            command.start_time_unix_nano <= statement.start_time_unix_nano
                && statement.end_time_unix_nano <= command.end_time_unix_nano,
            "{statement:?} is not within {command:?}"
        );
        let attributes = attributes(statement);
        ensure!(attributes["db.system.name"] == "mongodb", "{attributes:?}");
        ensure!(
            attributes["server.address"] == "127.0.0.1" && attributes["server.port"] == port.to_string(),
            "{attributes:?}"
        );
    }
    Ok(())
}

#[test]
fn commands_and_their_statements_are_spans() -> Result<()> {
    let collector = Collector::start()?;
    let mut traced = Traced::start(&collector.section())?;
    traced.execute(&inserts())?;
    let parent = trace_parent(true);
    traced.execute(&[
        doc! { "find": "items", "filter": { "k": 1 }, "sort": { "_id": 1 }, "comment": &parent },
        doc! { "update": "books", "updates": [{ "q": { "_id": 1 }, "u": { "$push": { "buyers": 60 } } }] },
        doc! { "find": "other", "filter": {}, "comment": { "traceparent": &parent } },
        doc! { "mapReduce": "items", "map": "", "reduce": "", "out": "o" },
        doc! { "getLog": "global" },
    ])?;
    // The proxy exports all spans before it ends.
    traced.proxy.stop()?;
    let spans = collector.spans()?;

    let find = command(&spans, "find items")?;
    ensure!(is_child_of_parent(find), "{find:?}");
    let of_find = attributes(find);
    for (name, value) in [
        ("db.system.name", "mongodb"),
        ("db.namespace", &traced.database),
        ("db.collection.name", "items"),
        ("db.operation.name", "find"),
        ("mongoshape.outcome", "rewritten"),
        ("mongoshape.strategy", "pipeline"),
    ] {
        ensure!(
            of_find.get(name).map(String::as_str) == Some(value),
            "{name}: {of_find:?}"
        );
    }
    let push = command(&spans, "update books")?;
    ensure!(push.parent_span_id.is_empty(), "{push:?}");
    let relayed = command(&spans, "find other")?;
    ensure!(is_child_of_parent(relayed), "{relayed:?}");
    ensure!(attributes(relayed)["mongoshape.outcome"] == "relayed", "{relayed:?}");
    for command in [find, push, relayed] {
        check_statements(&spans, command, traced.mongod.address().port())?;
    }
    let of_log = spans
        .iter()
        .find(|span| attributes(span)["db.operation.name"] == "getLog");
    let of_log = of_log.context("no span of getLog")?;
    ensure!(!attributes(of_log).contains_key("db.collection.name"), "{of_log:?}");
    let refused = command(&spans, "mapReduce items")?;
    ensure!(attributes(refused)["db.response.status_code"] == "115", "{refused:?}");
    let status = refused.status.as_ref().map(Status::code);
    ensure!(status == Some(StatusCode::Error), "{refused:?}");
    Ok(())
}

#[test]
fn an_unsampled_parent_has_no_spans() -> Result<()> {
    let collector = Collector::start()?;
    let mut traced = Traced::start(&collector.section())?;
    traced.execute(&[doc! { "find": "items", "comment": trace_parent(false) }])?;
    traced.proxy.stop()?;
    let spans = collector.spans()?;
    ensure!(
        spans.iter().all(|span| span.trace_id != TRACE.to_be_bytes()),
        "{spans:?}"
    );
    Ok(())
}

#[test]
fn commands_are_executed_without_a_collector() -> Result<()> {
    let refused = TcpListener::bind("127.0.0.1:0")?.local_addr()?;
    let sections = format!("[traces]\nendpoint = \"http://{refused}\"\nsampled_percent = 100");
    let mut traced = Traced::start(&sections)?;
    traced.proxy.expect_log(Level::Warn, "traces cannot be exported");
    traced.proxy.expect_log(Level::Warn, "the last spans were not exported");
    traced.execute(&inserts())?;
    traced.proxy.stop()?;
    traced.proxy.wait_for_log("traces cannot be exported")?;
    Ok(())
}

#[test]
fn slow_commands_are_logged_without_contents() -> Result<()> {
    let mut traced = Traced::start_with("", 1)?;
    traced.execute(&inserts())?;
    let slow = doc! { "find": "items", "filter": { "k": 1, "$where": "sleep(5) || true" }, "limit": 1 };
    traced.execute(&[slow])?;
    let line = traced.proxy.wait_for_log("find")?;
    let text = format!("{line:?}");
    for part in ["slow command", "pipeline", &traced.database] {
        ensure!(text.contains(part), "{text}");
    }
    ensure!(!text.contains("sleep"), "{text}");
    traced.proxy.stop()
}
