//! Traces commands: the costs of each command, and spans of the command and of its statements upstream.
//!
//! Names and attributes of spans follow [OpenTelemetry's conventions for
//! databases](https://opentelemetry.io/docs/specs/semconv/db/). No span and no cost contains a value of a
//! document.

use std::collections::HashMap;
use std::fmt::{self, Debug, Formatter};
use std::sync::Arc;
use std::time::Duration;

use bson::raw::{RawBsonRef, RawDocument};
use opentelemetry::global::{BoxedSpan, BoxedTracer};
use opentelemetry::propagation::TextMapPropagator;
use opentelemetry::trace::{Span as _, SpanBuilder, SpanKind, Status, TraceContextExt as _, Tracer as _};
use opentelemetry::{Context, KeyValue};
use tracing::info;

use super::metrics::{CommandOutcome, Spent, Strategy};
use crate::command::document::{as_flag, as_whole_number, get};
use crate::command::header::CommandHeader;
use crate::command::registry::{Command, CommandClass};

/// Fields of a `comment` that name the parent of a span, as in the headers of the W3C's Trace Context.
const TRACE_PARENT: &str = "traceparent";
const TRACE_STATE: &str = "tracestate";
/// The longest text that is copied from a command: a client may send any bytes as a name.
const MAX_TEXT: usize = 512;

/// Creates the spans of commands.
pub struct CommandTracer {
    tracer: BoxedTracer,
    propagator: Box<dyn TextMapPropagator + Send + Sync>,
}

impl CommandTracer {
    /// `propagator`: reads the parent of a span from the `comment` of a command.
    #[must_use]
    pub fn new(tracer: BoxedTracer, propagator: Box<dyn TextMapPropagator + Send + Sync>) -> Self {
        Self { tracer, propagator }
    }
}

impl Debug for CommandTracer {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CommandTracer").finish_non_exhaustive()
    }
}

/// The trace of a running command.
#[derive(Debug)]
pub(super) struct CommandTrace {
    target: Target,
    /// Commands that were sent upstream.
    statements: u64,
    /// Documents in their replies: pages, or results of a pipeline. Those of a relayed command are not counted.
    documents: u64,
    /// The access path of a read on a shaped collection.
    strategy: Option<Strategy>,
    /// The code of the error that was returned to the client, if the proxy composed the reply.
    error_code: Option<i64>,
    span: Option<CommandSpan>,
}

/// The span of a command that is sampled.
struct CommandSpan {
    tracer: Arc<CommandTracer>,
    context: Context,
    /// The server upstream: `host:port`.
    server: String,
    /// The spans of statements whose replies were not read yet.
    pending: Vec<PendingSpan>,
}

struct PendingSpan {
    request_id: i32,
    span: BoxedSpan,
}

impl CommandTrace {
    /// Begins the trace of a command. `server`: the server upstream.
    pub(super) fn begin(tracer: Option<&Arc<CommandTracer>>, head: &CommandHeader<'_>, server: &str) -> Self {
        let target = Target::of(head);
        Self {
            span: tracer.and_then(|tracer| CommandSpan::begin(tracer, &target, head, server)),
            target,
            statements: 0,
            documents: 0,
            strategy: None,
            error_code: None,
        }
    }

    /// Whether the command has a span.
    pub(super) fn is_sampled(&self) -> bool {
        self.span.is_some()
    }

    /// Begins a statement. It is pending until its reply is read.
    pub(super) fn begin_statement(&mut self, request_id: i32, statement: &RawDocument) {
        self.statements = self.statements.saturating_add(1);
        if let Some(span) = &mut self.span
            && let Ok(head) = CommandHeader::of_body(statement)
        {
            let statement = span.statement(&Target::of(&head));
            span.pending.push(PendingSpan {
                request_id,
                span: statement,
            });
        }
    }

    /// Ends a statement. One whose reply is not read ends with the command.
    pub(super) fn end_statement(&mut self, request_id: i32, reply: &RawDocument) {
        let documents = returned_documents(reply);
        self.documents = self.documents.saturating_add(documents.unwrap_or_default());
        let Some(span) = &mut self.span else { return };
        let Some(position) = span.pending.iter().position(|pending| pending.request_id == request_id) else {
            return;
        };
        let mut span = span.pending.remove(position).span;
        if let Some(documents) = documents {
            let documents = i64::try_from(documents).unwrap_or(i64::MAX);
            span.set_attribute(KeyValue::new("db.response.returned_rows", documents));
        }
        if let Some(code) = error_code(reply) {
            span.set_attributes(of_error(code));
            span.set_status(Status::error(""));
        }
        span.end();
    }

    /// Begins the statement that relays the command. The span ends when the result is dropped.
    pub(super) fn relay(&mut self) -> Option<BoxedSpan> {
        self.statements = self.statements.saturating_add(1);
        self.span.as_ref().map(|span| span.statement(&self.target))
    }

    /// Records the access path of a read.
    pub(super) fn read(&mut self, strategy: Strategy) {
        self.strategy = Some(strategy);
    }

    /// Records the reply that the proxy composed.
    pub(super) fn reply(&mut self, reply: &RawDocument) {
        self.error_code = error_code(reply);
    }

    /// Ends the command. Logs it if it has taken at least as long as `slow`.
    pub(super) fn end(self, outcome: CommandOutcome, spent: Spent, slow: Option<Duration>) {
        if slow.is_some_and(|slow| spent.whole >= slow) {
            info!(
                command = self.target.operation,
                namespace = self.target.namespace(),
                outcome = outcome.label(),
                strategy = self.strategy.map(Strategy::label),
                ms = milliseconds(spent.whole),
                upstream_ms = milliseconds(spent.upstream),
                statements = self.statements,
                documents = self.documents,
                error_code = self.error_code,
                "slow command"
            );
        }
        let Some(CommandSpan { context, .. }) = self.span else {
            return;
        };
        let span = context.span();
        span.set_attribute(KeyValue::new("mongoshape.outcome", outcome.label()));
        if let Some(strategy) = self.strategy {
            span.set_attribute(KeyValue::new("mongoshape.strategy", strategy.label()));
        }
        if let Some(code) = self.error_code {
            for attribute in of_error(code) {
                span.set_attribute(attribute);
            }
        }
        if self.error_code.is_some() || outcome == CommandOutcome::Failed {
            span.set_status(Status::error(""));
        }
        span.end();
    }
}

impl CommandSpan {
    /// `None` if the command is not sampled.
    fn begin(tracer: &Arc<CommandTracer>, target: &Target, head: &CommandHeader<'_>, server: &str) -> Option<Self> {
        let parent = tracer
            .propagator
            .extract_with_context(&Context::new(), &parent_of(head));
        let span = tracer.tracer.build_with_context(target.span(SpanKind::Server), &parent);
        span.span_context().is_sampled().then(|| Self {
            tracer: Arc::clone(tracer),
            context: Context::new().with_span(span),
            server: server.to_owned(),
            pending: Vec::new(),
        })
    }

    fn statement(&self, target: &Target) -> BoxedSpan {
        let mut span = target.span(SpanKind::Client);
        let attributes = span.attributes.get_or_insert_default();
        if let Some((host, port)) = self.server.rsplit_once(':') {
            attributes.push(KeyValue::new("server.address", host.to_owned()));
            attributes.extend(port.parse::<i64>().ok().map(|port| KeyValue::new("server.port", port)));
        }
        self.tracer.tracer.build_with_context(span, &self.context)
    }
}

impl Debug for CommandSpan {
    fn fmt(&self, formatter: &mut Formatter<'_>) -> fmt::Result {
        formatter.debug_struct("CommandSpan").finish_non_exhaustive()
    }
}

/// The operation and the namespace of a command.
#[derive(Debug)]
struct Target {
    operation: String,
    database: String,
    collection: Option<String>,
}

impl Target {
    fn of(head: &CommandHeader<'_>) -> Self {
        // The first value of other commands may be any text: `{ getLog: "global" }`.
        let has_collection = head.command.class() != CommandClass::Other || head.command == Command::MapReduce;
        let namespace = head.namespace().filter(|_| has_collection);
        Self {
            operation: shortened(head.name),
            database: shortened(head.database),
            collection: namespace.map(|namespace| shortened(namespace.collection)),
        }
    }

    fn namespace(&self) -> String {
        let collection = self.collection.iter().map(String::as_str);
        let names: Vec<&str> = std::iter::once(self.database.as_str()).chain(collection).collect();
        names.join(".")
    }

    /// A span of this operation, without a parent.
    fn span(&self, kind: SpanKind) -> SpanBuilder {
        let target = self.collection.as_ref().unwrap_or(&self.database);
        let name = format!("{} {target}", self.operation);
        let mut attributes = vec![
            KeyValue::new("db.system.name", "mongodb"),
            KeyValue::new("db.namespace", self.database.clone()),
            KeyValue::new("db.operation.name", self.operation.clone()),
        ];
        let collection = self.collection.clone();
        attributes.extend(collection.map(|name| KeyValue::new("db.collection.name", name)));
        SpanBuilder::from_name(name).with_kind(kind).with_attributes(attributes)
    }
}

/// The fields that name the parent of a command's span: the `comment`, or fields of it.
fn parent_of(head: &CommandHeader<'_>) -> HashMap<String, String> {
    let comment = get(head.body(), "comment");
    let fields = match comment {
        Some(RawBsonRef::Document(comment)) => [TRACE_PARENT, TRACE_STATE].map(|name| get(comment, name)),
        comment => [comment, None],
    };
    let fields = [TRACE_PARENT, TRACE_STATE].into_iter().zip(fields);
    fields
        .filter_map(|(name, value)| Some((name, value?.as_str()?)))
        .filter(|(_, text)| text.len() <= MAX_TEXT)
        .map(|(name, text)| (name.to_owned(), text.to_owned()))
        .collect()
}

/// The number of documents in the batch of a reply. `None` if it has no batch.
fn returned_documents(reply: &RawDocument) -> Option<u64> {
    let cursor = get(reply, "cursor")?.as_document()?;
    let batch = get(cursor, "firstBatch").or_else(|| get(cursor, "nextBatch"))?;
    u64::try_from(batch.as_array()?.into_iter().count()).ok()
}

fn of_error(code: i64) -> [KeyValue; 2] {
    ["db.response.status_code", "error.type"].map(|name| KeyValue::new(name, code.to_string()))
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The code of an error. 0 if the error has none.
fn error_code(reply: &RawDocument) -> Option<i64> {
    let succeeded = get(reply, "ok").and_then(as_flag).unwrap_or(true);
    (!succeeded).then(|| get(reply, "code").and_then(as_whole_number).unwrap_or_default())
}

/// The beginning of a text.
fn shortened(text: &str) -> String {
    text.chars().take(MAX_TEXT).collect()
}
