//! Reads of the database `config`: the router makes the documents from its routing table.

use anyhow::Result;
use bson::{Bson, DateTime, Document, doc};

use super::aggregate::on_documents;
use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, Routing};
use super::shard_connections::ShardConnections;
use super::state::Shard;
use super::statements::{document, name, namespace, number};

/// The reply to a command on `config`.
pub(super) fn answer(connections: &mut ShardConnections, routing: &Routing, command: &Document) -> Result<Document> {
    let Some(namespace) = namespace(command) else {
        return connections.send(FIRST_SHARD, command);
    };
    let state = connections.state();
    let documents = match namespace.as_str() {
        "config.collections" => collections(routing),
        "config.shards" => state.shards.iter().map(Shard::entry).collect(),
        _ => return connections.send(FIRST_SHARD, command),
    };
    let stages = match name(command) {
        "find" => find_stages(command),
        "aggregate" => command.get_array("pipeline").cloned().unwrap_or_default(),
        other => return Err(Refusal::no_command(other, &namespace).into()),
    };
    let mut options = Document::new();
    for name in ["lsid", "let", "collation", "comment", "$db"] {
        if let Some(value) = command.get(name) {
            options.insert(name, value.clone());
        }
    }
    let found = on_documents(connections, &options, documents, &stages)?;
    state.cursors.first_batch(command, &namespace, found)
}

fn find_stages(command: &Document) -> Vec<Bson> {
    let mut stages = vec![doc! { "$match": document(command, "filter") }];
    let named = [("$sort", "sort"), ("$project", "projection")];
    let present = named.map(|(stage, name)| (stage, document(command, name)));
    let [sort, projection] = present.map(|(stage, value)| (!value.is_empty()).then(|| doc! { stage: value }));
    stages.extend(sort);
    for (stage, name) in [("$skip", "skip"), ("$limit", "limit")] {
        match number(command, name) {
            0 => {}
            value => stages.push(doc! { stage: value }),
        }
    }
    stages.extend(projection);
    stages.into_iter().map(Bson::Document).collect()
}

fn collections(routing: &Routing) -> Vec<Document> {
    let collections = routing.collections.values();
    let entry = collections.map(|sharded| {
        doc! {
            "_id": &sharded.namespace,
            "lastmod": DateTime::from_millis(i64::from(sharded.timestamp.time) * 1000),
            "timestamp": sharded.timestamp,
            "uuid": sharded.uuid.clone(),
            "key": sharded.pattern.clone(),
            "unique": false,
            "noBalance": false,
        }
    });
    entry.collect()
}
