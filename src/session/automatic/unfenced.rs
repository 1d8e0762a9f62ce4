//! A command on plain documents that cannot name the UUID of their collection.
//!
//! After the command, the proxy checks that the name still denotes the collection. If it does not, a read is
//! executed again. A write is not, because it may have exchanged the collection itself. So the collection is
//! checked before a write, too.

use bson::Binary;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::plain::{PlainCommand, PlainOutcome, whole_body};
use super::{Identity, identity, identity_checks, identity_in, listed_identity, merge_interrupted};
use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{as_flag, first_field, get, put, single};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::referenced_namespaces;
use crate::command::registry::Command;
use crate::command::reply::CursorReply;
use crate::pattern::bucket::fence::is_fence;
use crate::session::error::RunError;
use crate::session::fence::is_strict;
use crate::session::upstream_connection::UpstreamRequest;

/// The effect of such a command.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Effect {
    /// It reads, or a second execution changes nothing more.
    Repeatable,
    /// It writes its results into a collection, which stays the same one or is not the command's own.
    WritesResults,
    /// It may exchange the collection itself, like `convertToCapped`.
    MayExchange,
}

impl Effect {
    /// The effect of a command on the collection `own`.
    fn of(head: &CommandHeader<'_>, own: Namespace<'_>) -> Self {
        match head.command {
            _ if head.only_reads() => Self::Repeatable,
            Command::Create | Command::PlanCacheClear | Command::Validate => Self::Repeatable,
            Command::MapReduce if returns_results(head) => Self::Repeatable,
            Command::Aggregate | Command::MapReduce if !replaces(head, own) => Self::WritesResults,
            _ => Self::MayExchange,
        }
    }
}

/// Whether a `mapReduce` writes nothing.
fn returns_results(head: &CommandHeader<'_>) -> bool {
    let out = get(head.body(), "out").and_then(RawBsonRef::as_document);
    out.is_some_and(|out| get(out, "inline").is_some())
}

/// Whether a pipeline or a `mapReduce` replaces the collection `own` by its results.
fn replaces(head: &CommandHeader<'_>, own: Namespace<'_>) -> bool {
    let mut is_replaced = false;
    let mut visit = |into: Namespace<'_>| is_replaced |= into == own;
    match head.last_stage() {
        _ if head.command == Command::MapReduce => referenced_namespaces::for_each(head, &mut visit),
        Some(stage) if first_field(stage).is_some_and(|(name, _)| name == "$out") => {
            referenced_namespaces::in_stage(head.database, stage, &mut visit);
        }
        _ => {}
    }
    is_replaced
}

impl PlainCommand<'_, '_> {
    /// Executes the command, and checks the UUID.
    pub(super) async fn checked(&mut self, uuid: &Binary) -> Result<PlainOutcome, RunError> {
        let effect = Effect::of(self.head, self.namespace);
        if effect != Effect::Repeatable
            && !self.head.in_transaction()
            && identity(self.link, self.head, self.namespace, self.expected).await? == Identity::Changed
        {
            return Ok(PlainOutcome::Exchanged(None));
        }
        let (reply, now) = self.with_check(uuid).await?;
        if now == Identity::Same {
            let reply = match self.head.command {
                Command::ListIndexes => without_fences(reply),
                _ => reply,
            };
            return Ok(self.unless_exchanged(reply));
        }
        match effect {
            Effect::Repeatable => {
                self.close_cursor(&reply).await?;
                Ok(PlainOutcome::Exchanged(None))
            }
            Effect::WritesResults => Err(merge_interrupted(self.namespace).into()),
            Effect::MayExchange if get(&reply, "ok").and_then(as_flag) == Some(true) => {
                Ok(PlainOutcome::MayHaveExchanged(reply))
            }
            // It has failed, because a conversion exchanged the collection.
            Effect::MayExchange => Ok(PlainOutcome::Exchanged(None)),
        }
    }

    /// Sends the command, and checks the UUID after it, in one round trip.
    async fn with_check(&mut self, uuid: &Binary) -> Result<(RawDocumentBuf, Identity), RunError> {
        let body = whole_body(self.head);
        if is_strict(&body) && self.head.in_transaction() {
            let reply = self.call(&body).await?;
            let now = listed_identity(self.link, self.head, self.namespace, Some(uuid)).await?;
            return Ok((reply, now));
        }
        let checks = identity_checks(self.head, self.namespace, uuid);
        let mut requests = vec![UpstreamRequest::plain(&body)];
        requests.extend(checks.iter().map(|check| UpstreamRequest::plain(check)));
        let mut replies = self.link.call_all(&requests).await?.into_iter();
        let reply = replies.next().unwrap_or_default();
        Ok((reply, identity_in(replies, self.expected.swap_number)))
    }

    /// Closes the cursor of a reply that the client does not get.
    async fn close_cursor(&mut self, reply: &RawDocument) -> Result<(), RunError> {
        let Some(cursor) = CursorReply::parse(reply).filter(|cursor| cursor.id != 0) else {
            return Ok(());
        };
        let mut kill = single("killCursors", self.namespace.collection);
        let ids: RawArrayBuf = [RawBsonRef::Int64(cursor.id)].into_iter().collect();
        put(&mut kill, "cursors", &ids);
        InheritedOptions::of(self.head.body()).append_to_get_more(&mut kill);
        self.link.call(UpstreamRequest::plain(&kill)).await?;
        Ok(())
    }
}

/// The reply to `listIndexes` without the fence of a conversion.
fn without_fences(reply: RawDocumentBuf) -> RawDocumentBuf {
    let is_of_run = |index: &RawDocument| get(index, "name").and_then(RawBsonRef::as_str).is_some_and(is_fence);
    let Some(listed) = CursorReply::parse(&reply).filter(|listed| listed.documents().any(is_of_run)) else {
        return reply;
    };
    let batch: RawArrayBuf = listed.documents().filter(|index| !is_of_run(index)).collect();
    let cursor = get(&reply, "cursor").and_then(RawBsonRef::as_document);
    let cursor = cursor.map(|cursor| with_replaced(cursor, &[("firstBatch", Some(RawBsonRef::Array(&batch)))]));
    with_replaced(&reply, &[("cursor", cursor.as_deref().map(RawBsonRef::Document))])
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;

    #[test]
    fn only_what_may_exchange_the_collection_is_final() {
        let check = |body: &RawDocument, expected: Effect| {
            let head = CommandHeader::of_body(body).unwrap();
            let effect = Effect::of(&head, Namespace::new("d", "c"));
            assert_eq!(effect, expected, "{body:?}");
        };
        let aggregate = |stage: RawDocumentBuf| rawdoc! { "aggregate": "c", "pipeline": [stage], "$db": "d" };
        check(&rawdoc! { "count": "c", "$db": "d" }, Effect::Repeatable);
        check(&rawdoc! { "validate": "c", "$db": "d" }, Effect::Repeatable);
        check(&aggregate(rawdoc! { "$match": {} }), Effect::Repeatable);
        check(&aggregate(rawdoc! { "$out": "b" }), Effect::WritesResults);
        check(&aggregate(rawdoc! { "$merge": "c" }), Effect::WritesResults);
        check(&aggregate(rawdoc! { "$out": "c" }), Effect::MayExchange);
        check(
            &aggregate(rawdoc! { "$out": { "db": "d", "coll": "c" } }),
            Effect::MayExchange,
        );
        let map_reduce = |out: RawDocumentBuf| rawdoc! { "mapReduce": "c", "out": out, "$db": "d" };
        check(&map_reduce(rawdoc! { "inline": 1 }), Effect::Repeatable);
        check(&map_reduce(rawdoc! { "replace": "b" }), Effect::WritesResults);
        check(&map_reduce(rawdoc! { "replace": "c" }), Effect::MayExchange);
        let named = rawdoc! { "mapReduce": "c", "out": "c", "$db": "d" };
        check(&named, Effect::MayExchange);
        check(
            &rawdoc! { "convertToCapped": "c", "size": 1, "$db": "d" },
            Effect::MayExchange,
        );
        check(&rawdoc! { "drop": "c", "$db": "d" }, Effect::MayExchange);
    }
}
