//! Executes inserts of one document in [groups](crate::session::insert_groups).
//!
//! A group is one unordered insert of all documents, without the session of its leader. Each client's reply has the
//! error of its own document. An insert with a transaction number is never grouped: mongod records it under its own
//! session, and a retry depends on that record.

use std::collections::HashMap;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::with_replaced;
use crate::command::document::{append_fields, array_of, fields, put, single};
use crate::command::error::{CommandError, WriteError};
use crate::command::header::CommandHeader;
use crate::command::insert::Insert;
use crate::session::bucket::command::BucketCommand;
use crate::session::bucket::retry_on_swap::write_errors;
use crate::session::error::RunError;
use crate::session::insert_groups::{
    Admission, GroupEvent, GroupMember, GroupOptions, GroupableInsert, GroupedCollection, InsertGroup,
};
use crate::session::upstream_connection::LinkError;
use crate::wire::{OpMsg, OpMsgBuilder};

/// The most bytes of a document that is grouped. mongod's cost of a larger one is not that of its command.
const MAX_DOCUMENT_BYTES: usize = 64 << 10;

/// The fields of a command that do not matter to its group. A session without a transaction number does not concern a
/// write.
const OWN: &[&str] = &[
    "insert",
    "documents",
    "ordered",
    "$db",
    "lsid",
    "$clusterTime",
    "$readPreference",
];

/// The fields in which the commands of a group are equal.
const SHARED: &[&str] = &["writeConcern", "apiVersion", "apiStrict", "apiDeprecationErrors"];

/// Executes an insert, alone or in a group. Not cancel safe.
pub(in crate::session::bucket) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let Some(document) = groupable(run) else {
        return run.execute().await;
    };
    let groups = &run.context.settings.insert_groups;
    let collection = GroupedCollection::new(run.context.term, run.namespace);
    if let Some(_permit) = groups.admit_at_once(&collection) {
        return run.execute().await;
    }
    if run.context.head.validate().is_err() {
        return run.execute().await;
    }
    let body = run.context.head.body();
    let insert = GroupableInsert {
        options: GroupOptions {
            users: run.context.link.users(body).await?,
            options: shared_options(body),
        },
        document: document.to_owned(),
    };
    match groups.admit(&collection, insert) {
        Admission::Now(_permit) => run.execute().await,
        Admission::Later(event) => match run.context.link.waiting_for(event).await {
            Ok(GroupEvent::Executed(reply)) => reply,
            Ok(GroupEvent::Leads(group)) => lead(run, document, group).await,
            // The leader's session has ended before the reply.
            Err(_) => Err(LinkError::GroupLost.into()),
        },
    }
}

/// The document of an insert that can be executed in a group. `None` if the command has several, or an option that
/// concerns it alone.
fn groupable<'a>(run: &mut BucketCommand<'a>) -> Option<&'a RawDocument> {
    let head = run.context.head;
    let is_fenced = run.context.link.fence_of(run.namespace).is_some();
    if is_fenced || head.expects_no_reply || run.context.link.is_dry_run() {
        return None;
    }
    let is_option_of_group = |field: Result<(&str, RawBsonRef<'_>), CommandError>| match field {
        Ok(("writeConcern", value)) => matches!(value, RawBsonRef::Document(_)),
        Ok((name, _)) => OWN.contains(&name) || SHARED.contains(&name),
        Err(_) => false,
    };
    if !fields(head.body()).all(is_option_of_group) {
        return None;
    }
    let command = Insert::parse(head).ok()?;
    match command.documents.as_slice() {
        [document] if document.as_bytes().len() <= MAX_DOCUMENT_BYTES && !command.unacknowledged => Some(document),
        _ => None,
    }
}

/// The options in which the commands of a group are equal.
fn shared_options(body: &RawDocument) -> RawDocumentBuf {
    let shared = fields(body).flatten().filter(|(name, _)| SHARED.contains(name));
    let mut options = RawDocumentBuf::new();
    shared.for_each(|(name, value)| put(&mut options, name, value));
    options
}

/// Executes a group, and gives each member its reply. Returns the leader's.
async fn lead(
    run: &mut BucketCommand<'_>,
    document: &RawDocument,
    group: InsertGroup,
) -> Result<RawDocumentBuf, RunError> {
    let InsertGroup { members, permit } = group;
    run.context
        .shared
        .metrics
        .inserts
        .group(members.len().saturating_add(1));
    if members.is_empty() {
        return run.execute().await;
    }
    let reply = GroupReply::new(execute(run, document, &members).await);
    drop(permit);
    for (position, member) in members.into_iter().enumerate() {
        member.reply(reply.at(position.saturating_add(1)));
    }
    reply.into_leaders()
}

/// Executes a group as one command.
async fn execute(
    run: &mut BucketCommand<'_>,
    document: &RawDocument,
    members: &[GroupMember],
) -> Result<RawDocumentBuf, RunError> {
    let mut body = single("insert", run.namespace.collection);
    body.append(cstr!("ordered"), false);
    append_fields(&mut body, &shared_options(run.context.head.body()));
    body.append(cstr!("$db"), run.namespace.database);
    let members = members.iter().map(|member| &*member.document);
    let documents = std::iter::once(document).chain(members);
    let message = OpMsgBuilder::new(0, 0).body(&body).sequence("documents", documents);
    let message = message.build().map_err(LinkError::from)?;
    let head = CommandHeader::of(OpMsg::parse(&message).map_err(LinkError::from)?)?;
    let context = run.context.for_internal_command(&head, false);
    let mut group = BucketCommand::new(context, run.shape, run.namespace);
    match Box::pin(group.execute()).await {
        // The error does not say which documents are stored.
        Err(RunError::Command(error)) if group.executed > 0 || error.is_of_server() => Err(LinkError::GroupLost.into()),
        reply => reply,
    }
}

/// The reply to a group.
struct GroupReply {
    reply: Result<RawDocumentBuf, RunError>,
    /// The errors of documents, by their positions in the group.
    errors: HashMap<usize, WriteError>,
}

impl GroupReply {
    fn new(reply: Result<RawDocumentBuf, RunError>) -> Self {
        let errors = reply.iter().flat_map(|reply| write_errors(reply)).collect();
        Self { reply, errors }
    }

    /// The reply to the client whose document is at this position.
    fn at(&self, position: usize) -> Result<RawDocumentBuf, RunError> {
        match &self.reply {
            Ok(reply) => Ok(self.for_document(reply, position)),
            Err(RunError::Command(error)) => Err(error.clone().into()),
            // The leader's connection is lost.
            Err(_) => Err(LinkError::GroupLost.into()),
        }
    }

    /// The reply to the leader, whose document is the first.
    fn into_leaders(self) -> Result<RawDocumentBuf, RunError> {
        match &self.reply {
            Ok(reply) => Ok(self.for_document(reply, 0)),
            Err(_) => self.reply,
        }
    }

    fn for_document(&self, reply: &RawDocument, position: usize) -> RawDocumentBuf {
        let error = self.errors.get(&position);
        let errors = error.map(|error| array_of(&[error.to_document(0)]));
        let n = RawBsonRef::Int32(i32::from(error.is_none()));
        let errors = errors.as_ref().map(|errors| RawBsonRef::Array(errors));
        with_replaced(reply, &[("n", Some(n)), ("writeErrors", errors)])
    }
}
