//! Reads the documents to merge.

use bson::Timestamp;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::MergeCommand;
use super::write::MergeWriter;
use crate::command::arguments::InheritedOptions;
use crate::command::document::{put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::command::write_batch::MAX_WRITE_BATCH_SIZE;
use crate::pattern::bucket::merge::MergedDocument;
use crate::pattern::shapes::Shape;
use crate::session::bucket::BucketCommand;
use crate::session::cross_collection::CrossCollectionCommand;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;
use crate::session::memory::{LARGEST_REPLY, Reservation};
use crate::session::refusal::RefusalRecorder;
use crate::session::route::{self, Route};

/// Bytes of documents that mongod writes together (`BSONObjMaxUserSize`).
const BATCH_BYTES: usize = 16 << 20;
/// Bytes of documents for which no memory is reserved.
const SMALL_BATCH_BYTES: usize = 1 << 20;

/// The cursor of the client's pipeline without its last stage.
pub(super) struct Source {
    /// The namespace of the cursor.
    pub(super) namespace: String,
    pub(super) snapshot_time: Option<Timestamp>,
    /// mongod's or the proxy's last reply.
    pub(super) last_answer: RawDocumentBuf,
    /// 0 if all documents were received.
    id: i64,
    /// The documents of the last reply that are in no batch yet are those from this position.
    position: usize,
    memory: Option<Reservation>,
}

impl Source {
    pub(super) async fn open(run: &mut MergeCommand<'_>, command: &RawDocument) -> Result<Self, RunError> {
        let last_answer = execute(run, command).await?;
        let mut source = Self {
            namespace: String::new(),
            snapshot_time: None,
            last_answer,
            id: 0,
            position: 0,
            memory: None,
        };
        if let Some(cursor) = CursorReply::parse(&source.last_answer) {
            (source.id, source.snapshot_time) = (cursor.id, cursor.snapshot_time);
            let cursor = source.last_answer.get_document("cursor");
            source.namespace = cursor
                .and_then(|cursor| cursor.get_str("ns"))
                .unwrap_or_default()
                .to_owned();
        }
        Ok(source)
    }

    /// The documents that mongod would write next. Empty after the last one.
    ///
    /// # Errors
    /// An error of the pipeline, or a document without a value to identify it. The documents before it were
    /// not returned.
    pub(super) async fn batch(
        &mut self,
        run: &mut MergeCommand<'_>,
        writer: &MergeWriter<'_>,
    ) -> Result<Vec<MergedDocument>, RunError> {
        let mut batch = Vec::new();
        let mut bytes = 0_usize;
        loop {
            if let Some(cursor) = CursorReply::parse(&self.last_answer) {
                for result in cursor.documents().skip(self.position) {
                    let mut ids = SystemIdSource::new(&run.context.shared.timestamps);
                    let document = MergedDocument::of(&writer.merge, result, &mut ids)?;
                    bytes = bytes.saturating_add(document.size());
                    let is_full = bytes > BATCH_BYTES || batch.len() >= MAX_WRITE_BATCH_SIZE;
                    if is_full && !batch.is_empty() {
                        return Ok(batch);
                    }
                    batch.push(document);
                    self.position = self.position.saturating_add(1);
                }
            }
            if self.id == 0 {
                return Ok(batch);
            }
            if bytes > SMALL_BATCH_BYTES && self.memory.is_none() {
                let mut memory = Reservation::of(&run.context.shared.memory.replies);
                memory.reserve(LARGEST_REPLY).await?;
                self.memory = Some(memory);
            }
            self.receive(run).await?;
        }
    }

    async fn receive(&mut self, run: &mut MergeCommand<'_>) -> Result<(), RunError> {
        let mut command = single("getMore", self.id);
        self.append_collection(&mut command);
        InheritedOptions::of(run.context.head.body()).append_to_get_more(&mut command);
        self.last_answer = execute(run, &command).await?;
        self.position = 0;
        self.id = CursorReply::parse(&self.last_answer).map_or(0, |cursor| cursor.id);
        Ok(())
    }

    fn append_collection(&self, command: &mut RawDocumentBuf) {
        let namespace = Namespace::parse(&self.namespace);
        put(
            command,
            "collection",
            namespace.map_or("", |namespace| namespace.collection),
        );
    }

    /// Closes the cursor and returns the error.
    pub(super) async fn abandon(self, run: &mut MergeCommand<'_>, error: RunError) -> Result<RawDocumentBuf, RunError> {
        if self.id == 0 || !matches!(error, RunError::Command(_)) {
            return Err(error);
        }
        let namespace = Namespace::parse(&self.namespace);
        let mut command = single("killCursors", namespace.map_or("", |namespace| namespace.collection));
        let ids: RawArrayBuf = [RawBsonRef::Int64(self.id)].into_iter().collect();
        command.append(cstr!("cursors"), &ids);
        InheritedOptions::of(run.context.head.body()).append_to_get_more(&mut command);
        match execute(run, &command).await {
            // A failed pipeline has closed its cursor.
            Ok(_) | Err(RunError::Command(_)) => Err(error),
            Err(broken) => Err(broken),
        }
    }
}

/// Executes a command on the source, as if the client had sent it.
async fn execute(run: &mut MergeCommand<'_>, body: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    let head = CommandHeader::of_body(body)?;
    let route = route::decide(&run.into.settings, &head);
    let context = run.context.for_internal_command(&head, false);
    match route {
        Route::Shaped(to) => match to.shape() {
            Shape::Bucket(shape) => Box::pin(BucketCommand::new(context, shape, to.namespace).run()).await,
            Shape::Outlier(_) => Err(unexpected()),
        },
        Route::CrossCollection(_) => Box::pin(CrossCollectionCommand { context }.run()).await,
        Route::Reject(error, refused) => {
            if let Some((namespace, reason)) = &refused {
                let (metrics, command) = (&context.shared.metrics, head.command);
                RefusalRecorder { metrics, command }.record(namespace, *reason, error.message());
            }
            Err(error.into())
        }
        Route::Relay => context.link.run(body).await,
        Route::Handshake | Route::Merge(_) => Err(unexpected()),
    }
}

/// The error for a source that the route of the client's command excludes.
fn unexpected() -> RunError {
    let message = "mongoshape cannot read the source of this $merge";
    CommandError::new(ErrorCode::CommandNotSupported, message).into()
}
