//! `explain`, in the form of mongos.

use anyhow::{Context as _, Result};
use bson::{Document, doc};

use super::aggregate;
use super::refusal::Refusal;
use super::routing::{FIRST_SHARD, Routing, Sharded};
use super::shard_connections::ShardConnections;
use super::statements::{database, document, documents, name, namespace, number};
use super::targeting::targets;
use super::writes;

/// `explain` of any command.
pub(super) fn explain(connections: &mut ShardConnections, routing: &Routing, command: &Document) -> Result<Document> {
    let mut explained = document(command, "explain");
    explained.insert("$db", database(command));
    let namespace = namespace(&explained).unwrap_or_default();
    aggregate::check_references(routing, &explained)?;
    let sharded = routing.collection(&namespace);
    if name(&explained) == "aggregate" {
        return match sharded {
            Some(sharded) => aggregate::explain(connections, sharded, command, &explained),
            // mongos passes on an aggregation whose collections are not sharded.
            None => connections.send(FIRST_SHARD, command),
        };
    }
    let shards = match sharded {
        Some(sharded) => shards(sharded, &explained)?,
        None => vec![FIRST_SHARD],
    };
    let stage = match name(&explained) {
        "update" | "delete" => "SHARD_WRITE",
        _ if shards.len() == 1 => "SINGLE_SHARD",
        _ if explained.contains_key("sort") => "SHARD_MERGE_SORT",
        _ => "SHARD_MERGE",
    };
    merged(connections, &shards, stage, command)
}

/// The shards of an explained command.
fn shards(sharded: &Sharded, explained: &Document) -> Result<Vec<usize>> {
    let first = |list: &str| documents(explained, list).into_iter().next().unwrap_or_default();
    let found = match name(explained) {
        "find" => targets(sharded, &document(explained, "filter"), explained),
        "count" | "distinct" => targets(sharded, &document(explained, "query"), explained),
        "update" => writes::update_targets(sharded, &first("updates"))?,
        "delete" => writes::delete_targets(sharded, &first("deletes"))?,
        "findAndModify" | "findandmodify" => writes::find_and_modify_target(sharded, explained)?,
        other => return Err(Refusal::no_command(&format!("explain of {other}"), &sharded.namespace).into()),
    };
    Ok(found.shards)
}

/// The plans and statistics of the shards.
fn merged(connections: &mut ShardConnections, shards: &[usize], kind: &str, command: &Document) -> Result<Document> {
    let state = connections.state();
    let mut plans = Vec::new();
    let mut statistics = Vec::new();
    let totals = ["nReturned", "totalKeysExamined", "totalDocsExamined"];
    let mut sums = totals.map(|_| 0);
    for shard in shards {
        let reply = connections.send_ok(*shard, command)?;
        let name = &state.shards.get(*shard).context("no such shard")?.name;
        let mut plan = doc! { "shardName": name };
        plan.extend(document(&reply, "queryPlanner"));
        plans.push(plan);
        if let Ok(of_shard) = reply.get_document("executionStats") {
            for (total, sum) in totals.iter().zip(&mut sums) {
                *sum += number(of_shard, total);
            }
            let stages = document(of_shard, "executionStages");
            statistics.push(doc! { "shardName": name, "executionSuccess": true, "executionStages": stages });
        }
    }
    let winning = doc! { "stage": kind, "shards": plans };
    let mut explanation = doc! { "queryPlanner": { "mongosPlannerVersion": 1, "winningPlan": winning } };
    if !statistics.is_empty() {
        let mut of_all = Document::new();
        for (total, sum) in totals.iter().zip(sums) {
            of_all.insert(*total, sum);
        }
        of_all.insert("executionStages", doc! { "stage": kind, "shards": statistics });
        explanation.insert("executionStats", of_all);
    }
    explanation.insert("ok", 1.0);
    Ok(explanation)
}
