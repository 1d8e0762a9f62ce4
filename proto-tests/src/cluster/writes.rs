//! `insert`, `update`, `delete` and `findAndModify` on a sharded collection.

mod batch;
mod outcome;

use anyhow::{Result, bail};
use bson::oid::ObjectId;
use bson::{Bson, Document};

use self::batch::Batch;
use self::outcome::Outcome;
use super::refusal::Refusal;
use super::retries::Place;
use super::routing::Sharded;
use super::shard_connections::ShardConnections;
use super::shard_key_change::{self, is_operators};
use super::statements::{document, is_ok, is_set, number};
use super::targeting::{Targets, has_exact_id, targets};

/// Documents of an `insert` that are sent together, by their positions in the client's batch.
struct Group {
    target: Result<usize, Refusal>,
    positions: Vec<usize>,
}

/// `insert`.
pub(super) fn insert(connections: &mut ShardConnections, sharded: &Sharded, command: &Document) -> Result<Document> {
    let mut batch = Batch::new(command, "documents");
    batch.statements.iter_mut().for_each(with_id);
    let mut outcome = Outcome::default();
    for group in grouped(connections, sharded, &batch) {
        let shard = match group.target {
            Ok(shard) => shard,
            Err(refusal) => {
                outcome.refuse(&refusal, &group.positions);
                if batch.is_ordered {
                    break;
                }
                continue;
            }
        };
        let reply = connections.send(shard, &batch.part(&group.positions))?;
        if is_ok(&reply) {
            let executed = outcome.add(&reply, &group.positions, batch.is_ordered);
            for position in executed {
                let document = batch.statements.get(position);
                let slot = document.and_then(|document| sharded.slot_of_document(document).ok());
                batch.record(connections, position, Place { shard, slot });
            }
        } else if outcome.is_empty() {
            return Ok(reply);
        } else {
            outcome.refuse(&Refusal::of(reply), &group.positions);
        }
        if batch.is_ordered && outcome.has_errors() {
            break;
        }
    }
    Ok(outcome.into_reply())
}

/// mongos makes the `_id`, because it may be in the shard key.
fn with_id(document: &mut Document) {
    if !document.contains_key("_id") {
        let rest = std::mem::take(document);
        document.insert("_id", ObjectId::new());
        document.extend(rest);
    }
}

/// The documents by shard: consecutive ones of an ordered batch, all of an unordered one.
fn grouped(connections: &ShardConnections, sharded: &Sharded, batch: &Batch<'_>) -> Vec<Group> {
    let mut groups: Vec<Group> = Vec::new();
    for (position, document) in batch.statements.iter().enumerate() {
        let target = sharded.slot_of_document(document).map(|slot| {
            let earlier = batch.earlier_shard(connections, position, Some(slot));
            earlier.unwrap_or_else(|| sharded.owner_of_slot(slot))
        });
        let candidates = if batch.is_ordered {
            let last = groups.len().saturating_sub(1);
            groups.get_mut(last..)
        } else {
            groups.get_mut(..)
        };
        let group = candidates
            .into_iter()
            .flatten()
            .find(|group| match (&group.target, &target) {
                (Ok(one), Ok(other)) => one == other,
                _ => false,
            });
        match group {
            Some(group) => group.positions.push(position),
            None => groups.push(Group {
                target,
                positions: vec![position],
            }),
        }
    }
    groups
}

/// `update`.
pub(super) fn update(connections: &mut ShardConnections, sharded: &Sharded, command: &Document) -> Result<Document> {
    one_by_one(connections, &Batch::new(command, "updates"), |statement| {
        update_targets(sharded, statement)
    })
}

/// `delete`.
pub(super) fn delete(connections: &mut ShardConnections, sharded: &Sharded, command: &Document) -> Result<Document> {
    one_by_one(connections, &Batch::new(command, "deletes"), |statement| {
        delete_targets(sharded, statement)
    })
}

/// Each statement is sent by itself: its reply then shows whether it took effect on the shard.
fn one_by_one(
    connections: &mut ShardConnections,
    batch: &Batch<'_>,
    targets: impl Fn(&Document) -> Result<Targets, Refusal>,
) -> Result<Document> {
    let mut outcome = Outcome::for_kind(batch.kind);
    for (position, statement) in batch.statements.iter().enumerate() {
        match targets(statement) {
            Err(refusal) => outcome.refuse(&refusal, &[position]),
            Ok(Targets { shards, slot }) => {
                let earlier = batch.earlier_shard(connections, position, slot);
                for shard in earlier.map_or(shards, |shard| vec![shard]) {
                    let reply = connections.send(shard, &batch.part(&[position]))?;
                    if !is_ok(&reply) {
                        if outcome.is_empty() {
                            return Ok(reply);
                        }
                        outcome.refuse(&Refusal::of(reply), &[position]);
                        continue;
                    }
                    let executed = outcome.add(&reply, &[position], batch.is_ordered);
                    if number(&reply, "n") > 0 && !executed.is_empty() {
                        batch.record(connections, position, Place { shard, slot });
                    }
                }
            }
        }
        if batch.is_ordered && outcome.has_errors() {
            break;
        }
    }
    Ok(outcome.into_reply())
}

/// The targets of an element of `updates`.
pub(super) fn update_targets(sharded: &Sharded, statement: &Document) -> Result<Targets, Refusal> {
    let filter = document(statement, "q");
    let found = targets(sharded, &filter, statement);
    let update = statement.get("u").cloned().unwrap_or(Bson::Null);
    let found = if is_set(statement, "upsert") {
        upsert_target(found)?
    } else if found.shards.len() == 1 {
        found
    } else {
        match update.as_document() {
            Some(replacement) if !is_operators(replacement) => {
                let slot = sharded.slot_of_document(replacement)?;
                Targets {
                    shards: vec![sharded.owner_of_slot(slot)],
                    slot: Some(slot),
                }
            }
            _ if is_set(statement, "multi") || has_exact_id(&filter, statement) => found,
            _ => return Err(untargeted_update(sharded, statement, found.shards.len())),
        }
    };
    shard_key_change::check(sharded, &filter, &update, &found.shards)?;
    Ok(found)
}

fn upsert_target(found: Targets) -> Result<Targets, Refusal> {
    if found.slot.is_some() {
        return Ok(found);
    }
    let message = "Failed to target upsert by query :: could not extract exact shard key";
    Err(Refusal::new(61, "ShardKeyNotFound", message))
}

/// The text of 6.0.
fn untargeted_update(sharded: &Sharded, statement: &Document, shards: usize) -> Refusal {
    let message = format!(
        "A {{multi:false}} update on a sharded collection must contain an exact match on _id (and have the collection \
         default collation) or target a single shard (and have the simple collation), but this update targeted \
         {shards} shards. Update request: {statement}, shard key pattern: {}",
        sharded.pattern
    );
    Refusal::new(72, "InvalidOptions", message)
}

/// The targets of an element of `deletes`.
pub(super) fn delete_targets(sharded: &Sharded, statement: &Document) -> Result<Targets, Refusal> {
    let filter = document(statement, "q");
    let found = targets(sharded, &filter, statement);
    let is_single = number(statement, "limit") == 1;
    if found.slot.is_some() || !is_single || has_exact_id(&filter, statement) {
        return Ok(found);
    }
    // Unlike that of an update, the code of 6.0 is that of a missing shard key.
    let message = format!(
        "A single delete on a sharded collection must contain an exact match on _id (and have the collection default \
         collation) or contain the shard key (and have the simple collation). Delete request: {statement}, shard key \
         pattern: {}",
        sharded.pattern
    );
    Err(Refusal::new(61, "ShardKeyNotFound", message))
}

/// `findAndModify`.
pub(super) fn find_and_modify(
    connections: &mut ShardConnections,
    sharded: &Sharded,
    command: &Document,
) -> Result<Document> {
    let statement = i32::try_from(number(command, "stmtId"))?;
    let state = connections.state();
    let Targets { shards, slot } = find_and_modify_target(sharded, command)?;
    if let Some(update) = command.get("update") {
        shard_key_change::check(sharded, &document(command, "query"), update, &shards)?;
    }
    let earlier = state.retries().shard_of(command, statement, slot);
    let [shard] = earlier.map_or(shards, |shard| vec![shard])[..] else {
        bail!("a slot has one owner");
    };
    let reply = connections.send(shard, command)?;
    if number(&document(&reply, "lastErrorObject"), "n") > 0 {
        state.retries().record(command, statement, Place { shard, slot });
    }
    Ok(reply)
}

/// The target of a `findAndModify`. 6.0 demands the shard key, even beside an exact `_id`.
pub(super) fn find_and_modify_target(sharded: &Sharded, command: &Document) -> Result<Targets, Refusal> {
    let found = targets(sharded, &document(command, "query"), command);
    if found.slot.is_some() {
        return Ok(found);
    }
    let message = "Query for sharded findAndModify must contain the shard key";
    Err(Refusal::new(61, "ShardKeyNotFound", message))
}
