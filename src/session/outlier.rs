//! Commands on outlier collections, and the helpers that they share. A command that does not touch
//! the array is passed on. Any other is planned by `pattern::outlier`. See
//! `docs/decisions/0017-the-base-document-determines-the-array.md`.

mod add_to_set;
mod base_document;
mod collation_check;
mod collection;
pub(super) mod command;
mod deferred_spill;
mod delete;
mod drop;
mod find;
mod find_and_modify;
pub(super) mod hot_documents;
mod id_cursor;
mod insert;
mod internal_write;
mod leftover_cursor;
pub(super) mod leftover_documents;
pub(super) mod limited_cursors;
pub(super) mod merged_read;
mod overlong;
mod page_store;
mod push;
mod read;
mod reassemble;
pub(super) mod reply_inspection;
mod route;
pub(super) mod scratch_collection;
mod server_side_eval;
mod spill;
mod split_fence;
mod statements;
mod unmanaged;
mod update;
mod write;

use bson::raw::RawDocumentBuf;

pub(super) use self::deferred_spill::{DeferredSpills, Tail};
pub(super) use self::route::{OutlierRoute, passage};
use super::error::RunError;
use super::metrics::RefusalReason;
use super::upstream::UpstreamKind;
use crate::command::error::CommandError;
use crate::command::registry::Command;
use crate::command::reply::succeeded;

pub(super) use self::command::{CommandState, OutlierCommand};

impl OutlierCommand<'_> {
    /// Executes a command that is not relayed (see [`passage`]) and returns its reply. Not cancel
    /// safe: after a cancellation the upstream connection is unusable.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        if self.context.upstream == UpstreamKind::Mongos {
            return Err(self.refuse(RefusalReason::Cluster, "a mongos").into());
        }
        self.context.check_server_is_known()?;
        self.context.head.check_options()?;
        let is_write = self.context.head.is_write();
        let answer = self.dispatch().await.and_then(|reply| Ok(succeeded(reply)?));
        answer.map_err(|error| {
            if is_write {
                error.map_command(CommandError::of_write)
            } else {
                error
            }
        })
    }

    async fn dispatch(&mut self) -> Result<RawDocumentBuf, RunError> {
        match self.context.head.command {
            Command::Insert => insert::run(self).await,
            Command::Update => update::run(self).await,
            Command::Delete => delete::run(self).await,
            Command::FindAndModify => find_and_modify::run(self).await,
            Command::Find => find::run(self).await,
            Command::GetMore => find::get_more(self).await,
            Command::Count => read::count(self).await,
            Command::Distinct => read::distinct(self).await,
            Command::Aggregate => read::aggregate(self).await,
            Command::Explain => read::explain(self).await,
            Command::Drop => drop::run(self).await,
            Command::Create => collection::create(self).await,
            Command::CollMod => collection::coll_mod(self).await,
            Command::CreateIndexes => collection::create_indexes(self).await,
            // Cursors with leftovers have ids that mongod does not know.
            Command::KillCursors => leftover_cursor::kill(self).await,
            Command::ListIndexes
            | Command::DropIndexes
            | Command::CollStats
            | Command::DataSize
            | Command::Validate
            | Command::PlanCacheClear
            | Command::Compact => self.as_it_is().await,
            _ => Err(self
                .unsupported(&format!("the command {}", self.context.head.name))
                .into()),
        }
    }
}
