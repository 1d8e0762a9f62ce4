//! Commands on outlier collections, and what they share. A command that does not touch the array is passed
//! on; others are planned by `pattern::outlier`. See `docs/decisions/0017-an-outlier-says-all-of-itself.md`.

mod base_document;
mod collation;
mod collection;
mod deferred_spill;
mod delete;
mod find;
mod find_and_modify;
mod hot_documents;
mod id_cursor;
mod insert;
mod internal_write;
mod leftover;
mod marker_check;
mod page_store;
mod push;
mod read;
mod reassemble;
mod route;
mod scratch_collection;
mod server_side_eval;
mod spill;
mod statements;
mod unmanaged;
mod update;
mod write;

use bson::raw::RawDocumentBuf;
use bson::{Binary, Timestamp};

pub(super) use self::collation::WithoutCollation;
pub(super) use self::deferred_spill::{DeferredSpills, Tail};
pub(super) use self::hot_documents::KnownOutliers;
pub(super) use self::leftover::Leftovers;
pub(super) use self::marker_check::{StoredAsker, StoredShapes};
pub(super) use self::read::put_together;
pub(super) use self::route::{OutlierRoute, passage, shows_outliers};
pub(super) use self::scratch_collection::Scratches;
use super::command_context::CommandContext;
use super::error::RunError;
use super::memory::Reservation;
use super::metrics::RefusalReason;
use super::refusal::RefusedCollection;
use super::upstream::UpstreamKind;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::reply::succeeded;
use crate::pattern::shapes::OutlierShape;

/// One command on an outlier collection.
pub(super) struct OutlierCommand<'a> {
    pub(super) context: CommandContext<'a>,
    pub(super) shape: &'a OutlierShape,
    pub(super) namespace: Namespace<'a>,
    /// mongod's reply to a command that reads, as it came, where it shows outliers.
    pub(super) held: Option<RawDocumentBuf>,
    /// What is reserved for the reply, until that is sent.
    pub(super) reply_memory: &'a mut Reservation,
    /// The tails that the client's connection has left.
    pub(super) tails: &'a mut DeferredSpills,
    /// What is known of the collection and of the read so far.
    pub(super) facts: CommandState,
}

/// What a command has learned while it runs.
#[derive(Debug, Default)]
pub(super) struct CommandState {
    /// The time of the snapshot that the base documents were read from (`atClusterTime`), if they were.
    snapshot_time: Option<Timestamp>,
    /// The UUID of the collection, after its collation was looked at.
    collection: Option<Binary>,
}

impl OutlierCommand<'_> {
    /// Runs one that has its [`passage`] and gives the reply. Not cancel safe: the link is of no use after.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        if self.context.upstream == UpstreamKind::Mongos {
            return Err(self.refuse(RefusalReason::Cluster, "a sharded cluster").into());
        }
        self.context.check_server_is_known()?;
        self.context.head.check_options()?;
        Ok(succeeded(self.dispatch().await?)?)
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
            Command::Drop => collection::drop(self).await,
            Command::Create => collection::create(self).await,
            Command::CollMod => collection::coll_mod(self).await,
            Command::CreateIndexes => collection::create_indexes(self).await,
            // As they would be, but for extras.
            Command::KillCursors => leftover::kill(self).await,
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

    /// The error for what the shape cannot do, counted.
    fn unsupported(&self, what: &str) -> CommandError {
        self.refuse(RefusalReason::of(self.context.head), what)
    }

    fn refuse(&self, reason: RefusalReason, what: &str) -> CommandError {
        let collection = RefusedCollection {
            namespace: self.namespace,
            configured: self.shape.namespace(),
            pattern: OutlierShape::PATTERN,
        };
        collection.refuse(&self.context.shared.metrics, reason, what)
    }

    /// The namespace as metrics name it: as configured.
    fn label(&self) -> String {
        self.shape.namespace().to_string()
    }

    /// The error for a document whose extras cannot be read, counted.
    fn misfit(&self) -> CommandError {
        self.context.shared.metrics.misfit(&self.label());
        let message = format!(
            "mongoshape is configured to store {} in the outlier pattern, but what a document of it says of its extras is not of \
             layout version 1",
            self.namespace
        );
        CommandError::new(ErrorCode::InvalidOptions, message)
    }

    /// The error for documents whose extras were not there each time they were read, counted.
    fn missing_extras(&self) -> CommandError {
        self.context.shared.metrics.misfit(&self.label());
        missing_extras(&format!("{} says", self.namespace))
    }

    /// What is to be done behind a change can be done by others, too: that it failed is no error of a command
    /// which has done what it was to do. A transaction has ended with it.
    fn left_to_others(&self, done: Result<(), RunError>) -> Result<(), RunError> {
        match done {
            Err(RunError::Command(_)) if !self.context.head.in_transaction() => Ok(()),
            done => done,
        }
    }

    /// The error for a document that was another one each time it was looked at.
    fn lost_too_often(&self) -> CommandError {
        let message = "mongoshape lost the race for a document too often; nothing was changed of it";
        let error = CommandError::new(ErrorCode::WriteConflict, message);
        if self.context.head.in_transaction() {
            error.transient()
        } else {
            error
        }
    }
}

/// The error for documents whose extras were not there each time they were read. Somebody may have replaced
/// them each time, but hardly so often.
fn missing_extras(who_says: &str) -> CommandError {
    let message = format!(
        "mongoshape cannot put a document together: {who_says} that it has extras, and they are missing; `mongoshape check` names it"
    );
    CommandError::new(ErrorCode::InvalidOptions, message)
}
