//! `getMore` and `killCursors` on cursors with leftovers.

use std::time::Instant;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::command::OutlierCommand;
use super::merged_read::{MissingPages, replaced_extras};
use super::reassemble::Merged;
use crate::command::arguments::with_replaced;
use crate::command::batch::BatchKind;
use crate::command::cursor::{GetMore, killed_ids};
use crate::command::error::CommandError;
use crate::command::reply::{CursorReply, copy_cluster_time};
use crate::session::error::RunError;

use super::leftover_documents::Leftover;

impl OutlierCommand<'_> {
    /// Keeps the documents that did not fit in a reply, and returns the id of the new cursor.
    /// `fitted`: number of documents in the reply.
    pub(super) async fn keep_leftover(
        &mut self,
        answer: &RawDocument,
        documents: &[&RawDocument],
        fitted: usize,
    ) -> Result<i64, RunError> {
        let upstream = CursorReply::parse(answer).map_or(0, |cursor| cursor.id);
        if documents.is_empty() {
            return Ok(upstream);
        }
        let owner = self.context.cursor_owner(self.namespace).await?;
        let mut cluster_time = RawDocumentBuf::new();
        copy_cluster_time(&mut cluster_time, answer);
        let id = rand::random_range(1..i64::MAX);
        let leftover = Leftover {
            owner,
            upstream,
            documents: documents.iter().map(|&document| document.to_owned()).collect(),
            fitted,
            cluster_time,
            snapshot_time: self.facts.snapshot_time,
            used: Instant::now(),
        };
        self.context.shared.leftovers.keep(id, Box::new(leftover));
        Ok(id)
    }
}

/// The next reply of a cursor with a leftover. `None`: the id is not such a cursor.
pub(super) async fn get_more(run: &mut OutlierCommand<'_>) -> Result<Option<RawDocumentBuf>, RunError> {
    let more = GetMore::parse(run.context.head.body())?;
    let shared = run.context.shared;
    let Some(taken) = shared.leftovers.take(more.id) else {
        return Ok(None);
    };
    let (cursor, mut leftover) = taken?;
    let client = run.context.cursor_owner(run.namespace).await;
    let checked = client.and_then(|client| Ok(leftover.owner.check(&client, &more)?));
    if let Err(error) = checked {
        cursor.give_back(leftover);
        return Err(error);
    }
    run.facts.snapshot_time = leftover.snapshot_time;
    // If an error follows, or the last batch, `cursor` is dropped and removes the cursor.
    let wanted = usize::try_from(more.batch_size.unwrap_or(u64::MAX)).unwrap_or(usize::MAX);
    if leftover.documents.is_empty() {
        run.ask_for_more(&mut leftover, wanted).await?;
    }
    let documents: Vec<&RawDocument> = leftover.documents.iter().take(wanted).map(AsRef::as_ref).collect();
    let (batch, count) = match run.merge(&documents, BatchKind::Next).await {
        Ok(Merged::Batch(batch, count)) => (batch, count),
        Err(error @ RunError::Link(_)) => return Err(error),
        failed => {
            if leftover.upstream != 0 {
                run.close_cursor(run.namespace.collection, leftover.upstream).await?;
            }
            return Err(failed.err().unwrap_or_else(|| run.other_extras().into()));
        }
    };
    leftover.documents.drain(..count);
    leftover.fitted = count;
    let is_over = leftover.documents.is_empty() && leftover.upstream == 0;
    let mut reply = batch.into_reply(run.namespace, if is_over { 0 } else { more.id });
    copy_cluster_time(&mut reply, &leftover.cluster_time);
    if !is_over {
        cursor.give_back(leftover);
    }
    Ok(Some(reply))
}

impl OutlierCommand<'_> {
    /// Reads the next documents of the upstream cursor, about as many as the last reply contained.
    async fn ask_for_more(&mut self, leftover: &mut Leftover, wanted: usize) -> Result<(), RunError> {
        let size = i64::try_from(leftover.fitted.saturating_add(1).min(wanted)).unwrap_or(i64::MAX);
        let body = self.context.head.body();
        let replaced = [
            ("getMore", Some(RawBsonRef::Int64(leftover.upstream))),
            ("batchSize", Some(RawBsonRef::Int64(size))),
        ];
        let command = with_replaced(body, &replaced);
        let answer = self.context.link.run_reserving(&command, self.reply_memory).await?;
        if let Some(cursor) = CursorReply::parse(&answer) {
            leftover.upstream = cursor.id;
            leftover.documents = cursor.documents().map(RawDocument::to_owned).collect();
        }
        leftover.cluster_time = RawDocumentBuf::new();
        copy_cluster_time(&mut leftover.cluster_time, &answer);
        Ok(())
    }

    /// The error for a document that cannot be reassembled because its extras were replaced.
    pub(super) fn other_extras(&self) -> CommandError {
        replaced_extras(&format!("a document of {}", self.namespace))
    }

    /// The error of a later batch: that of replaced extras if the batch missed pages.
    pub(super) fn of_later_batch(&self, error: RunError) -> RunError {
        match &error {
            RunError::Command(CommandError::Upstream(reply)) if MissingPages::of_reply(reply).is_some() => {
                self.other_extras().into()
            }
            _ => error,
        }
    }
}

/// `killCursors`: replaces the proxy's cursor ids by mongod's in the command, and back in the
/// reply.
pub(super) async fn kill(run: &mut OutlierCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    // mongod reports a malformed list.
    let ids = killed_ids(body).unwrap_or_default();
    if !ids.iter().any(|id| run.context.shared.leftovers.contains(*id)) {
        return run.as_it_is().await;
    }
    let users = run.context.link.users(body).await?;
    let known: Vec<(i64, i64)> = ids
        .iter()
        .filter_map(|id| Some((*id, run.context.shared.leftovers.upstream_of(*id, &users)?)))
        .collect();
    let upstream_of = |id: i64| {
        known
            .iter()
            .find(|(own, _)| *own == id)
            .map_or(id, |(_, upstream)| *upstream)
    };
    let upstream_ids: RawArrayBuf = ids
        .iter()
        .map(|id| upstream_of(*id))
        .filter(|id| *id != 0)
        .map(RawBsonRef::Int64)
        .collect();
    let reply = run
        .context
        .link
        .run(&with_replaced(
            body,
            &[("cursors", Some(RawBsonRef::Array(&upstream_ids)))],
        ))
        .await?;
    for (own, _) in &known {
        run.context.shared.leftovers.remove(*own);
    }
    let is_known = |id: i64| known.iter().any(|(_, upstream)| *upstream == id);
    let listed = |name: &str| {
        let ids = reply.get_array(name).ok().into_iter().flatten().flatten();
        ids.filter_map(RawBsonRef::as_i64)
            .filter(|id| !is_known(*id))
            .collect::<Vec<i64>>()
    };
    let killed = listed("cursorsKilled")
        .into_iter()
        .chain(known.iter().map(|(own, _)| *own));
    let killed: RawArrayBuf = killed.map(RawBsonRef::Int64).collect();
    let missing: RawArrayBuf = listed("cursorsNotFound").into_iter().map(RawBsonRef::Int64).collect();
    Ok(with_replaced(
        &reply,
        &[
            ("cursorsKilled", Some(RawBsonRef::Array(&killed))),
            ("cursorsNotFound", Some(RawBsonRef::Array(&missing))),
        ],
    ))
}
