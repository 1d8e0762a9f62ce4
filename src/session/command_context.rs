//! The context in which every pattern executes a client's command on shaped collections.

use std::sync::atomic::{AtomicBool, Ordering};

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::collection_catalog::{CatalogSession, Transaction};
use super::cursor_owner::Owner;
use super::error::RunError;
use super::metrics::Strategy;
use super::outlier_shape_markers::MarkerCheck;
use super::refusal::RefusalRecorder;
use super::shared::{Settings, Shared};
use super::upstream::{Upstream, UpstreamKind};
use super::upstream_connection::{UpstreamConnection, UpstreamRequest};
use crate::command::arguments::InheritedOptions;
use crate::command::document::{get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::registry::Command;
use crate::command::reply::succeeded;
use crate::pattern::shapes::{BucketShape, NamespacePattern, OutlierShape};

/// A client's command under execution.
pub(super) struct CommandContext<'a> {
    pub(super) shared: &'a Shared,
    pub(super) settings: &'a Settings,
    pub(super) link: &'a mut UpstreamConnection,
    pub(super) upstream: UpstreamKind,
    /// The server's [term](Upstream::term).
    pub(super) term: u64,
    pub(super) head: &'a CommandHeader<'a>,
    /// The client's command, also in an internal command that replaces it.
    command: Command,
    /// Whether an internal command has begun the client's transaction.
    pub(super) txn_started: AtomicBool,
}

impl<'a> CommandContext<'a> {
    /// The context of a command from which nothing has been sent upstream.
    pub(super) fn new(
        shared: &'a Shared,
        settings: &'a Settings,
        link: &'a mut UpstreamConnection,
        upstream: &Upstream,
        head: &'a CommandHeader<'a>,
    ) -> Self {
        Self {
            shared,
            settings,
            link,
            upstream: upstream.kind(),
            term: upstream.term(),
            head,
            command: head.command,
            txn_started: false.into(),
        }
    }

    /// The context of an internal command that replaces the client's. `txn_started`: see the field.
    pub(super) fn for_internal_command<'b>(
        &'b mut self,
        head: &'b CommandHeader<'b>,
        txn_started: bool,
    ) -> CommandContext<'b> {
        CommandContext {
            shared: self.shared,
            settings: self.settings,
            link: self.link,
            upstream: self.upstream,
            term: self.term,
            head,
            command: self.command,
            txn_started: txn_started.into(),
        }
    }

    /// Records refusals of the client's command.
    pub(super) fn refusals(&self) -> RefusalRecorder<'a> {
        RefusalRecorder {
            metrics: &self.shared.metrics,
            command: self.command,
        }
    }

    /// Counts a read, and records its access path in the trace. `namespace`: as configured.
    pub(super) fn record_read(&mut self, namespace: &NamespacePattern, strategy: Strategy) {
        self.shared.metrics.read(&namespace.to_string(), strategy);
        if let Some(trace) = self.link.trace() {
            trace.read(strategy);
        }
    }

    /// The client's options that the next internal command inherits. The first one begins the transaction.
    pub(super) fn inherited(&self) -> InheritedOptions<'a> {
        self.options().begun(self.txn_started.swap(true, Ordering::Relaxed))
    }

    /// The client's options, for internal commands outside its transaction.
    pub(super) fn options(&self) -> InheritedOptions<'a> {
        InheritedOptions::of(self.head.body())
    }

    /// Whether the command is a retryable write.
    ///
    /// # Errors
    /// mongod's, on a standalone server.
    pub(super) fn is_retryable(&self) -> Result<bool, CommandError> {
        let is_retryable = self.head.is_retryable_write();
        if is_retryable && self.upstream == UpstreamKind::Standalone {
            return Err(no_transaction_numbers());
        }
        Ok(is_retryable)
    }

    /// Whether an item can be relocated in an internal transaction. A standalone has no transactions. A mongos
    /// does not report the outcome of a transaction that another connection began, so a retry could relocate
    /// the item a second time.
    pub(super) fn can_relocate(&self) -> bool {
        self.upstream == UpstreamKind::Member
    }

    /// Fails a transaction on a standalone server, as mongod does.
    pub(super) fn check_transaction(&self) -> Result<(), CommandError> {
        if self.head.in_transaction() && self.upstream == UpstreamKind::Standalone {
            return Err(no_transaction_numbers());
        }
        Ok(())
    }

    /// Fails while the kind of the server is unknown. Drivers retry the error.
    pub(super) fn check_server_is_known(&self) -> Result<(), CommandError> {
        if self.upstream != UpstreamKind::Unknown {
            return Ok(());
        }
        let message = "the proxy does not know the kind of the upstream server yet: try again";
        let error = CommandError::new(ErrorCode::NotWritablePrimary, message);
        Err(if self.head.is_retryable_write() {
            error.labelled()
        } else {
            error
        })
    }

    /// Access to the catalog entry of a bucket collection, with the client's rights and in its transaction.
    pub(super) fn catalog_session<'b>(
        &'b mut self,
        shape: &'b BucketShape,
        namespace: Namespace<'b>,
    ) -> CatalogSession<'b> {
        let transaction = self.head.in_transaction().then_some(Transaction {
            begun: &self.txn_started,
            begins: get(self.head.body(), "startTransaction").is_some(),
            makes_none: self.head.begins_with_read_concern(),
        });
        CatalogSession {
            refusals: Some(self.refusals()),
            link: self.link,
            upstream: self.upstream,
            thaws: self.settings.catalog.thaws(),
            shape,
            namespace,
            carried: InheritedOptions::of(self.head.body()),
            transaction,
        }
    }

    /// Fails for an outlier collection that is stored in another shape.
    pub(super) async fn check_stored_shape(
        &mut self,
        shape: &OutlierShape,
        namespace: Namespace<'_>,
    ) -> Result<(), RunError> {
        let check = MarkerCheck {
            refusals: self.refusals(),
            carried: self.options(),
            link: self.link,
            shape,
            namespace,
        };
        self.settings.outlier_shape_markers.check(check).await
    }

    /// The client as the owner of cursors on a collection.
    pub(super) async fn cursor_owner(&mut self, namespace: Namespace<'_>) -> Result<Owner, RunError> {
        let users = self.link.users(self.head.body()).await?;
        Ok(Owner::of(self.head, namespace, users))
    }

    /// Aborts the client's transaction, as mongod does after an error in it. mongod may have aborted it
    /// already.
    pub(super) async fn abort_transaction(&mut self) -> Result<(), RunError> {
        let mut command = single("abortTransaction", 1);
        self.options().append_to_abort(&mut command);
        command.append(cstr!("$db"), "admin");
        self.link.call(UpstreamRequest::plain(&command)).await?;
        Ok(())
    }

    /// Fails the client's transaction in mongod, by a malformed query on the collection. If nothing
    /// was sent in the transaction, the query begins it.
    ///
    /// # Errors
    /// `NoSuchTransaction` if the transaction has ended before.
    pub(super) async fn fail_transaction(&mut self, collection: &str) -> Result<(), RunError> {
        if !self.head.in_transaction() {
            return Ok(());
        }
        let mut find = single("find", collection);
        find.append(cstr!("filter"), single("$mongoshape", RawBsonRef::Null));
        self.inherited().append_to_internal_read(&mut find);
        let reply: RawDocumentBuf = self.link.call(UpstreamRequest::plain(&find)).await?;
        match succeeded(reply) {
            Err(error) if !error.is(ErrorCode::BadValue) => Err(error.into()),
            _ => Ok(()),
        }
    }
}

/// mongod's error for a transaction number on a standalone server.
fn no_transaction_numbers() -> CommandError {
    let message = "Transaction numbers are only allowed on a replica set member or mongos";
    CommandError::new(ErrorCode::IllegalOperation, message)
}
