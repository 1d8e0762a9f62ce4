//! Which commands on a bucket collection are executed behind a mongos.
//!
//! A collection that is not sharded is on one shard, and the mongos passes its commands on to that shard. So they
//! have the results that they would have on the shard's replica set.

use super::command::BucketCommand;
use crate::command::error::CommandError;
use crate::command::registry::Command;
use crate::session::metrics::RefusalReason;
use crate::session::upstream::UpstreamKind;

/// The commands that are executed behind a mongos. Replies of index commands are in `raw`, those with
/// statistics have an entry for each shard, and explanations have the plan of each shard.
const SUPPORTED: [Command; 20] = [
    Command::Insert,
    Command::Find,
    Command::Delete,
    Command::Update,
    Command::FindAndModify,
    Command::Count,
    Command::Distinct,
    Command::Aggregate,
    Command::GetMore,
    Command::KillCursors,
    Command::Create,
    Command::Drop,
    Command::CollMod,
    Command::CreateIndexes,
    Command::ListIndexes,
    Command::DropIndexes,
    Command::Explain,
    Command::CollStats,
    Command::DataSize,
    Command::Validate,
];

impl BucketCommand<'_> {
    /// Whether a mongos merges the results of shards.
    pub(super) fn is_behind_mongos(&self) -> bool {
        self.context.upstream == UpstreamKind::Mongos
    }

    /// Refuses a command that is not supported behind a mongos.
    pub(super) fn check_mongos(&mut self) -> Result<(), CommandError> {
        if !self.is_behind_mongos() {
            return Ok(());
        }
        let head = self.context.head;
        let what = if self.context.link.fence_of(self.namespace).is_some() {
            "an automatic shape behind a mongos".to_owned()
        } else if SUPPORTED.contains(&head.command) {
            return Ok(());
        } else {
            format!("the command {} behind a mongos", head.name)
        };
        Err(self.refuse(RefusalReason::Cluster, &what))
    }

    /// Refuses a part of a supported command. The reply of a mongos to it has another form.
    pub(super) fn refuse_behind_mongos(&self, what: &str) -> Result<(), CommandError> {
        if !self.is_behind_mongos() {
            return Ok(());
        }
        Err(self.refuse(RefusalReason::Cluster, &format!("{what} behind a mongos")))
    }
}
