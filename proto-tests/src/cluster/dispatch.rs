//! Which part of the router answers a command.

use anyhow::{Error, Result};
use bson::{Bson, Document, doc};

use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, Routing, Sharded};
use super::shard_connections::ShardConnections;
use super::statements::{database, is_ok, is_set, name, namespace, number};
use super::transactions::{self, is_in_transaction};
use super::{aggregate, change_streams, config_database, cursors, ddl, explain, hello, reads, statistics, writes};

/// `InvalidOptions`, `ConflictingOperationInProgress` and `OperationNotSupportedInTransaction`.
const REFUSED: [i64; 3] = [72, 117, 263];
/// `FailedToParse`, `TypeMismatch`, `InvalidLength` of an empty batch, and a missing and an unknown field.
const UNPARSED: [i64; 5] = [9, 14, 16, 40414, 40415];

/// The commands that a transaction may have.
const IN_TRANSACTIONS: [&str; 12] = [
    "aggregate",
    "create",
    "createIndexes",
    "delete",
    "distinct",
    "find",
    "findAndModify",
    "findandmodify",
    "getMore",
    "insert",
    "killCursors",
    "update",
];

/// The commands with statements.
const WRITES: [&str; 3] = ["insert", "update", "delete"];

/// The levels of a read concern.
const LEVELS: [&str; 5] = ["local", "majority", "linearizable", "available", "snapshot"];

/// The reply to a command.
pub(super) fn answer(connections: &mut ShardConnections, command: &Document) -> Document {
    connections.take_times();
    let mut reply = run(connections, command).unwrap_or_else(error_reply);
    if is_in_transaction(command) && !is_end(command) {
        let is_refused = is_refused_before(command, &reply);
        if (!is_ok(&reply) && !is_refused) || reply.contains_key("writeErrors") {
            transactions::abort(connections, command);
        }
        transactions::append_token(connections, command, &mut reply);
    }
    for (name, value) in connections.take_times() {
        reply.insert(name, value);
    }
    reply
}

/// Whether mongos refuses a command before it goes on with the transaction: a command or an option that is not
/// allowed in one, and a write command that cannot be parsed. Errors of statements are in `writeErrors`.
fn is_refused_before(command: &Document, reply: &Document) -> bool {
    let code = number(reply, "code");
    let has_invalid_limit = command.get("maxTimeMS").is_some_and(|limit| !is_time_limit(limit));
    let is_write = WRITES.contains(&name(command));
    has_invalid_limit
        || has_invalid_concern(command)
        || REFUSED.contains(&code)
        || (is_write && UNPARSED.contains(&code))
}

fn has_invalid_concern(command: &Document) -> bool {
    command.contains_key("writeConcern") && command.get_document("writeConcern").is_err()
}

fn is_time_limit(value: &Bson) -> bool {
    match value {
        Bson::Int32(limit) => *limit >= 0,
        Bson::Int64(limit) => (0..=i64::from(i32::MAX)).contains(limit),
        Bson::Double(limit) => limit.fract() == 0.0 && (0.0..=f64::from(i32::MAX)).contains(limit),
        _ => false,
    }
}

/// Refuses commands and concerns that a transaction may not have, before it looks at the transaction.
fn check_statement(command: &Document) -> Result<(), Refusal> {
    if !is_in_transaction(command) || is_end(command) {
        return Ok(());
    }
    if has_invalid_concern(command) {
        let message = "\"writeConcern\" had the wrong type. Expected object";
        return Err(Refusal::new(14, "TypeMismatch", message));
    }
    let name = name(command);
    if !IN_TRANSACTIONS.contains(&name) {
        let message = format!("Cannot run '{name}' in a multi-document transaction.");
        return Err(Refusal::new(263, "OperationNotSupportedInTransaction", message));
    }
    let concern = command.get_document("readConcern").ok();
    let level = concern.and_then(|concern| concern.get_str("level").ok());
    if level.is_some_and(|level| !LEVELS.contains(&level)) {
        let message =
            "readConcern.level must be either 'local', 'majority', 'linearizable', 'available', or 'snapshot'";
        return Err(Refusal::new(9, "FailedToParse", message));
    }
    let message = if command.get_document("writeConcern").is_ok() {
        "writeConcern is not allowed within a multi-statement transaction"
    } else if command.contains_key("readConcern") && !is_set(command, "startTransaction") {
        "Only the first command in a transaction may specify a readConcern"
    } else {
        return Ok(());
    };
    Err(Refusal::new(72, "InvalidOptions", message))
}

fn is_end(command: &Document) -> bool {
    ["commitTransaction", "abortTransaction"].contains(&name(command))
}

fn error_reply(error: Error) -> Document {
    match error.downcast::<Refusal>() {
        Ok(refusal) => refusal.into_reply(),
        // mongos reports a shard that closes the connection so.
        Err(error) => Refusal::new(6, "HostUnreachable", format!("{error:#}")).into_reply(),
    }
}

fn run(connections: &mut ShardConnections, command: &Document) -> Result<Document> {
    if let Some(reply) = hello::answer(connections, command)? {
        return Ok(reply);
    }
    let state = connections.state();
    check_statement(command)?;
    state.transactions().enter(command)?;
    match name(command) {
        "commitTransaction" | "abortTransaction" => {
            let _routing = state.routing();
            return transactions::end(connections, command);
        }
        // A cursor may wait for new documents for long. It does not read the routing table.
        "getMore" => return cursors::get_more(connections, command),
        "killCursors" => return cursors::kill(connections, command),
        "shardCollection" => return ddl::shard_collection(connections, command),
        "drop" | "dropDatabase" | "renameCollection" => {
            let mut routing = state.routing_mut();
            return ddl::change_routing(connections, &mut routing, command);
        }
        _ => {}
    }
    let routing = state.routing();
    if matches!(command.get(name(command)), Some(Bson::Binary(_))) {
        // Unlike mongod, mongos does not find a collection by its UUID.
        let message = "collection name has invalid type binData";
        return Err(Refusal::new(73, "InvalidNamespace", message).into());
    }
    if database(command) == "config" {
        return config_database::answer(connections, &routing, command);
    }
    if change_streams::opens_stream(command) {
        return change_streams::open(connections, &routing, command);
    }
    match namespace(command).and_then(|namespace| routing.collection(&namespace)) {
        Some(sharded) => on_sharded(
            connections,
            Place {
                routing: &routing,
                sharded,
            },
            command,
        ),
        None => on_first_shard(connections, &routing, command),
    }
}

/// A sharded collection, among all others.
#[derive(Clone, Copy)]
pub(super) struct Place<'a> {
    pub(super) routing: &'a Routing,
    pub(super) sharded: &'a Sharded,
}

fn on_sharded(connections: &mut ShardConnections, place: Place<'_>, command: &Document) -> Result<Document> {
    let sharded = place.sharded;
    match name(command) {
        "insert" => writes::insert(connections, sharded, command),
        "update" => writes::update(connections, sharded, command),
        "delete" => writes::delete(connections, sharded, command),
        "findAndModify" | "findandmodify" => writes::find_and_modify(connections, sharded, command),
        "find" => reads::find(connections, sharded, command),
        "count" => reads::count(connections, sharded, command),
        "distinct" => reads::distinct(connections, sharded, command),
        "aggregate" => aggregate::run(connections, place, command),
        "create" | "listIndexes" => connections.send(FIRST_SHARD, command),
        "createIndexes" => ddl::create_indexes(connections, sharded, command),
        "dropIndexes" | "deleteIndexes" | "collMod" => {
            let shards = connections.all();
            ddl::broadcast(connections, &shards, command)
        }
        "collStats" => statistics::coll_stats(connections, Some(sharded), command),
        "validate" => statistics::validate(connections, Some(sharded), command),
        other => Err(Refusal::no_command(other, &sharded.namespace).into()),
    }
}

fn on_first_shard(connections: &mut ShardConnections, routing: &Routing, command: &Document) -> Result<Document> {
    match name(command) {
        "aggregate" => aggregate::check_references(routing, command)?,
        "create" | "collMod" => {
            // The view would be of the first shard's documents only.
            let namespace = |on: &str| format!("{}.{on}", database(command));
            let source = command.get_str("viewOn").ok().map(namespace);
            if source.is_some_and(|source| routing.collection(&source).is_some()) {
                return Err(Refusal::not_modelled("views on sharded collections").into());
            }
            aggregate::check_references(routing, command)?;
        }
        _ => {}
    }
    match name(command) {
        "createIndexes" | "dropIndexes" | "deleteIndexes" | "collMod" => {
            ddl::broadcast(connections, &[FIRST_SHARD], command)
        }
        "collStats" => statistics::coll_stats(connections, None, command),
        "dataSize" => {
            let named = command.get_str("dataSize").ok();
            let sharded = named.and_then(|namespace| routing.collection(namespace));
            statistics::data_size(connections, sharded, command)
        }
        "dbStats" => statistics::db_stats(connections, command),
        "validate" => statistics::validate(connections, None, command),
        "explain" => explain::explain(connections, routing, command),
        // Databases need not be enabled.
        "enableSharding" => Ok(doc! { "ok": 1.0 }),
        _ => connections.send(FIRST_SHARD, command),
    }
}
