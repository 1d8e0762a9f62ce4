//! Rewritten commands: one file each. A file asks `pattern` what to send and what to make of the answers, and sends it.

mod aggregate;
mod collection;
mod count;
mod cursor;
mod find;
mod insert;

use bson::raw::{RawBsonRef, RawDocumentBuf};

use super::Shared;
use super::error::RunError;
use super::link::Link;
use super::readiness::Asker;
use crate::command::arguments::Carried;
use crate::command::error::CommandError;
use crate::command::find::{check_hint, check_hint_form};
use crate::command::head::Head;
use crate::command::namespace::Namespace;
use crate::pattern::shapes::BucketShape;

/// One command on a shaped collection.
pub(super) struct Run<'a> {
    pub(super) shared: &'a Shared,
    pub(super) link: &'a mut Link,
    pub(super) head: &'a Head<'a>,
    pub(super) shape: &'a BucketShape,
    pub(super) namespace: Namespace<'a>,
}

impl<'a> Run<'a> {
    /// Runs it and gives the reply. Not cancel safe: the link is of no use after.
    pub(super) async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        self.head.validate()?;
        match self.head.name {
            "insert" => insert::run(&mut self).await,
            "find" => find::run(&mut self).await,
            "count" => count::run(&mut self).await,
            "aggregate" => aggregate::run(&mut self).await,
            "getMore" => cursor::get_more(&mut self).await,
            "killCursors" => cursor::kill(&mut self).await,
            "create" => collection::create(&mut self).await,
            "drop" => collection::drop(&mut self).await,
            name => Err(self.unsupported(&format!("the command {name}")).into()),
        }
    }

    /// Whether nobody misses its effect when the client is gone before it ended.
    pub(super) fn only_reads(name: &str) -> bool {
        matches!(name, "find" | "count" | "aggregate" | "getMore")
    }

    fn carried(&self) -> Carried<'a> {
        Carried::of(self.head.body())
    }

    fn asker(&mut self) -> Asker<'_> {
        let carried = self.carried();
        Asker {
            link: self.link,
            shape: self.shape,
            namespace: self.namespace,
            carried,
        }
    }

    /// Refuses a collection that holds what the shape cannot read.
    ///
    /// A hint is checked against a collection that is there: mongod gives none a thought on one that is not.
    async fn ready_to_read(&mut self, hint: Option<RawBsonRef<'_>>) -> Result<(), RunError> {
        let shared = self.shared;
        check_hint_form(hint)?;
        if shared.readiness.for_reading(&mut self.asker()).await? {
            check_hint(hint)?;
        }
        Ok(())
    }

    /// The error for what the shape cannot do, counted.
    fn unsupported(&self, what: &str) -> CommandError {
        self.shared.metrics.rejected(&self.label());
        CommandError::unsupported(self.namespace, what)
    }

    /// The namespace as metrics name it: as configured.
    fn label(&self) -> String {
        self.shape.namespace().to_string()
    }
}
