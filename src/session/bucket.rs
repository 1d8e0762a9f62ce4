//! Commands on bucket collections, and the helpers that they share. A command gets a plan from
//! `pattern::bucket`, sends the planned statements, and passes mongod's replies back to the plan.

mod aggregate;
mod bucket_cursor;
mod change_stream;
mod collection;
pub(super) mod command;
mod count;
mod cursor;
pub(super) mod cursor_source;
mod delete;
mod distinct;
mod duplicate_key;
pub(super) mod earlier_attempt;
mod explain;
mod explain_write;
mod explanation;
mod failed_update;
pub(super) mod find;
mod find_and_delete;
mod find_and_modify;
pub(super) mod indexes;
mod insert;
mod internal_transaction;
mod invalid_item;
mod item_lookup;
mod item_update;
mod key_or_time_change;
mod mongos;
mod page_pruning;
mod page_validator;
mod readiness;
mod refused_page;
mod relocate;
mod retime;
pub(super) mod retry_on_swap;
mod room;
mod sharding;
mod statistics;
mod stored_ids;
mod update;
mod upsert;
mod upstream_query;
mod validation;
mod write_concern;
mod write_statement;

use bson::raw::RawDocumentBuf;

use super::error::RunError;
use super::kill_cursors;
use crate::command::registry::Command;

pub(super) use self::command::BucketCommand;

impl BucketCommand<'_> {
    /// Executes the command and returns its reply. Not cancel safe: after a cancellation the
    /// upstream connection is unusable.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        match self.context.head.command {
            Command::Insert => insert::group::run(&mut self).await,
            _ => self.execute().await,
        }
    }

    /// Like [`Self::run`], for a command whose state is read afterwards. Not cancel safe.
    pub(super) async fn execute(&mut self) -> Result<RawDocumentBuf, RunError> {
        self.context.head.validate()?;
        self.check_mongos()?;
        self.context.check_server_is_known()?;
        self.context.check_transaction()?;
        self.context.head.check_options()?;
        let answer = retry_on_swap::retry_on_swap(self).await;
        refused_page::in_own_words(self, answer)
    }

    async fn dispatch(&mut self) -> Result<RawDocumentBuf, RunError> {
        match self.context.head.command {
            Command::Insert => insert::run(self).await,
            Command::Find => find::run(self).await,
            Command::Delete => delete::run(self).await,
            Command::Update => update::run(self).await,
            Command::FindAndModify => find_and_modify::run(self).await,
            Command::Count => count::run(self).await,
            Command::Distinct => distinct::run(self).await,
            Command::Aggregate => aggregate::run(self).await,
            Command::Explain => explain::run(self).await,
            Command::GetMore => cursor::get_more(self).await,
            Command::KillCursors => kill_cursors::run(&mut self.context).await,
            Command::Create => collection::create(self).await,
            Command::Drop => collection::drop(self).await,
            Command::CollMod => collection::coll_mod(self).await,
            Command::CollStats => statistics::coll_stats(self).await,
            Command::DataSize => statistics::data_size(self).await,
            Command::Validate => statistics::validate(self).await,
            Command::PlanCacheClear => collection::plan_cache_clear(self).await,
            // `compact` means the same for stored pages, so the body is sent unchanged.
            Command::Compact => self.context.link.run(self.context.head.body()).await,
            Command::CreateIndexes => indexes::create::run(self).await,
            Command::ListIndexes => indexes::list::run(self).await,
            Command::DropIndexes => indexes::drop::run(self).await,
            _ => Err(self
                .unsupported(&format!("the command {}", self.context.head.name))
                .into()),
        }
    }
}
