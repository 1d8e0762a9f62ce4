//! `aggregate`. What concerns single documents runs on the shards, and the rest on the first shard, on the
//! documents themselves: `$documents` has them. They must fit into one command.

use anyhow::{Context as _, Result};
use bson::{Bson, Document, doc};

use super::cursors::without_batches;
use super::dispatch::Place;
use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, Routing, Sharded};
use super::shard_connections::ShardConnections;
use super::statements::{database, document, is_set, without};
use super::targeting::targets;

/// Stages that each shard runs on its own documents.
const ON_SHARDS: [&str; 11] = [
    "$match",
    "$project",
    "$addFields",
    "$set",
    "$unset",
    "$unwind",
    "$replaceRoot",
    "$replaceWith",
    "$redact",
    "$collStats",
    "$indexStats",
];
/// Stages that the model does not run on a sharded collection.
const NOT_MODELLED: [&str; 4] = ["$geoNear", "$search", "$searchMeta", "$planCacheStats"];

/// `aggregate` on a sharded collection.
pub(super) fn run(connections: &mut ShardConnections, place: Place<'_>, command: &Document) -> Result<Document> {
    let pipeline = command.get_array("pipeline").cloned().unwrap_or_default();
    if is_set(command, "explain") {
        return explain(connections, place.sharded, command, command);
    }
    if let Some(stage) = NOT_MODELLED.iter().find(|stage| begins_with(&pipeline, stage)) {
        return Err(Refusal::not_modelled(&format!("{stage} on sharded collections")).into());
    }
    check_references(place.routing, command)?;
    let sharded = place.sharded;
    let Split { shards, first, rest } = split(sharded, &pipeline, command);
    let mut on_shard = without_batches(command);
    on_shard.insert("pipeline", first.to_vec());
    let mut documents = Vec::new();
    for shard in shards {
        documents.extend(connections.drain(shard, &on_shard)?);
    }
    if !rest.is_empty() {
        documents = on_documents(connections, command, documents, rest)?;
    }
    connections
        .state()
        .cursors
        .first_batch(command, &sharded.namespace, documents)
}

/// The stages of a pipeline by the place of their execution.
struct Split<'a> {
    shards: Vec<usize>,
    /// On the shards.
    first: &'a [Bson],
    /// On all documents. Empty if the whole pipeline is passed on to one shard.
    rest: &'a [Bson],
}

fn split<'a>(sharded: &Sharded, pipeline: &'a [Bson], command: &Document) -> Split<'a> {
    let filter = pipeline.first().and_then(Bson::as_document);
    let filter = filter.map(|stage| document(stage, "$match")).unwrap_or_default();
    let shards = targets(sharded, &filter, command).shards;
    let is_passed_on = match shards[..] {
        [FIRST_SHARD] => true,
        [_] => references(command).is_empty(),
        _ => false,
    };
    let stages_on_shards = if is_passed_on {
        pipeline.len()
    } else {
        pipeline.iter().take_while(|stage| is_on_shards(stage)).count()
    };
    let (first, rest) = pipeline.split_at(stages_on_shards);
    Split { shards, first, rest }
}

/// Explains the aggregation `explained`, which `command` is or contains. Each shard explains the stages that
/// it executes.
pub(super) fn explain(
    connections: &mut ShardConnections,
    sharded: &Sharded,
    command: &Document,
    explained: &Document,
) -> Result<Document> {
    let pipeline = explained.get_array("pipeline").cloned().unwrap_or_default();
    if begins_with(&pipeline, "$changeStream") {
        return connections.send(FIRST_SHARD, command);
    }
    let Split { shards, first, rest } = split(sharded, &pipeline, explained);
    let mut on_shard = command.clone();
    match on_shard.get_document_mut("explain") {
        Ok(inner) => inner.insert("pipeline", first.to_vec()),
        Err(_) => on_shard.insert("pipeline", first.to_vec()),
    };
    let state = connections.state();
    let mut plans = Document::new();
    for shard in shards {
        let reply = connections.send_ok(shard, &on_shard)?;
        let shard = state.shards.get(shard).context("no such shard")?;
        let mut plan = doc! { "host": shard.host() };
        plan.extend(without(&reply, &["ok", "serverInfo", "$clusterTime", "operationTime"]));
        plans.insert(&shard.name, plan);
    }
    let mut explanation = if rest.is_empty() {
        doc! { "splitPipeline": null }
    } else {
        let parts = doc! { "shardsPart": first.to_vec(), "mergerPart": rest.to_vec() };
        doc! { "mergeType": "mongos", "splitPipeline": parts }
    };
    explanation.insert("shards", plans);
    explanation.insert("ok", 1.0);
    Ok(explanation)
}

/// Runs stages on documents, as an aggregation with the options of the command.
pub(super) fn on_documents(
    connections: &mut ShardConnections,
    command: &Document,
    documents: Vec<Document>,
    stages: &[Bson],
) -> Result<Vec<Document>> {
    // A literal, because strings in it may begin with a dollar.
    let source = doc! { "$documents": { "$literal": documents } };
    let mut pipeline = vec![Bson::Document(source)];
    pipeline.extend_from_slice(stages);
    let mut rest = doc! { "aggregate": 1, "pipeline": pipeline, "cursor": {} };
    let options = without(
        &without_batches(command),
        &["aggregate", "pipeline", "cursor", "hint", "collectionUUID"],
    );
    rest.extend(options);
    connections.drain(FIRST_SHARD, &rest)
}

fn begins_with(pipeline: &[Bson], name: &str) -> bool {
    let first = pipeline.first().and_then(Bson::as_document);
    first.is_some_and(|stage| stage.contains_key(name))
}

fn is_on_shards(stage: &Bson) -> bool {
    let name = stage.as_document().and_then(|stage| stage.keys().next());
    name.is_some_and(|name| ON_SHARDS.contains(&name.as_str()))
}

/// Fails if a stage reads or writes another sharded collection, or the same one again.
pub(super) fn check_references(routing: &Routing, command: &Document) -> Result<(), Refusal> {
    let referenced = references(command);
    let sharded = referenced.iter().find(|name| routing.collection(name).is_some());
    match sharded {
        Some(name) => Err(Refusal::not_modelled(&format!(
            "stages that name the sharded collection {name}"
        ))),
        None => Ok(()),
    }
}

/// The namespaces that stages of the command's pipeline name.
fn references(command: &Document) -> Vec<String> {
    let mut found = Vec::new();
    let pipeline = command.get_array("pipeline").map(Vec::as_slice).unwrap_or_default();
    collect(database(command), pipeline, &mut found);
    found
}

fn collect(database: &str, pipeline: &[Bson], found: &mut Vec<String>) {
    for (name, value) in pipeline.iter().filter_map(Bson::as_document).flatten() {
        if name == "$facet" {
            let pipelines = value.as_document().into_iter().flat_map(Document::values);
            for pipeline in pipelines.filter_map(Bson::as_array) {
                collect(database, pipeline, found);
            }
        }
        let field = match name.as_str() {
            "$lookup" | "$graphLookup" => "from",
            "$unionWith" | "$out" => "coll",
            "$merge" => "into",
            _ => continue,
        };
        let named = match value {
            Bson::Document(stage) => {
                if let Ok(inner) = stage.get_array("pipeline") {
                    collect(database, inner, found);
                }
                stage.get(field)
            }
            value => Some(value),
        };
        match named {
            Some(Bson::String(collection)) => {
                let outer = value.as_document().and_then(|stage| stage.get_str("db").ok());
                found.push(format!("{}.{collection}", outer.unwrap_or(database)));
            }
            Some(Bson::Document(named)) => {
                let database = named.get_str("db").unwrap_or(database);
                found.push(format!("{database}.{}", named.get_str("coll").unwrap_or_default()));
            }
            _ => {}
        }
    }
}
