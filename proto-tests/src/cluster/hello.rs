//! The handshake, and commands on no collection.

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};

use super::routing::FIRST_SHARD;
use super::shard_connections::ShardConnections;
use super::statements::{is_set, name};

/// The wire version of 6.0.
const MAX_WIRE_VERSION: i32 = 17;

/// The reply to a command of this module. `None`: it is another command.
pub(super) fn answer(connections: &mut ShardConnections, command: &Document) -> Result<Option<Document>> {
    let reply = match name(command) {
        "hello" | "isMaster" | "ismaster" => hello(command),
        "ping" => doc! { "ok": 1.0 },
        "listShards" => list_shards(connections),
        "buildInfo" | "buildinfo" | "getParameter" => connections.send(FIRST_SHARD, command)?,
        "endSessions" | "killSessions" | "killAllSessions" | "killAllSessionsByPattern" | "refreshSessions" => {
            let mut reply = Document::new();
            for shard in connections.all() {
                reply = connections.send(shard, command)?;
            }
            reply
        }
        _ => return Ok(None),
    };
    Ok(Some(reply))
}

/// As mongos answers: no `setName`. There is no `topologyVersion` either, so drivers poll instead of waiting.
fn hello(command: &Document) -> Document {
    let writable = if name(command) == "hello" {
        "isWritablePrimary"
    } else {
        "ismaster"
    };
    let mut reply = doc! {
        writable: true,
        "msg": "isdbgrid",
        "maxBsonObjectSize": 16 << 20,
        "maxMessageSizeBytes": 48_000_000,
        "maxWriteBatchSize": 100_000,
        "localTime": DateTime::now(),
        "logicalSessionTimeoutMinutes": 30,
        "connectionId": 1,
        "maxWireVersion": MAX_WIRE_VERSION,
        "minWireVersion": 0,
        "ok": 1.0,
    };
    if is_set(command, "helloOk") {
        reply.insert("helloOk", true);
    }
    reply
}

fn list_shards(connections: &ShardConnections) -> Document {
    let state = connections.state();
    let shards = state.shards.iter();
    let shards: Vec<Bson> = shards.map(|shard| shard.entry().into()).collect();
    doc! { "shards": shards, "ok": 1.0 }
}
