//! `$merge` into a bucket collection, from any source.
//!
//! The pipeline without its last stage is executed as a client's `aggregate` would be. Its documents are
//! collected to batches of 16 MB or 100,000 documents, as in mongod. Each batch is written by the code that
//! executes `insert` and `update`. So an error of the pipeline before the first batch changes nothing, and an
//! error of a write leaves the other documents of its batch written
//! (`docs/decisions/0039-merge-is-executed-by-the-proxy.md`).

mod source;
mod write;

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use self::source::Source;
use self::write::MergeWriter;
use super::aggregate_validation::explain_of;
use super::bucket::{BucketCommand, indexes};
use super::command_context::CommandContext;
use super::cross_collection::collection_lookup;
use super::error::RunError;
use super::metrics::RefusalReason;
use super::refusal::RefusedCollection;
use super::route::ShapedTarget;
use super::upstream::UpstreamKind;
use crate::command::aggregate::Aggregate;
use crate::command::arguments::with_replaced;
use crate::command::change_stream;
use crate::command::document::{as_whole_number, first_field, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::header::CommandHeader;
use crate::command::merge::MergeStage;
use crate::command::namespace::Namespace;
use crate::command::reply::exhausted_cursor;
use crate::pattern::bucket::item_index::{Indexes, is_id_key, is_partial, is_simple, is_unique, key};
use crate::pattern::bucket::merge::{MergeStrategy, NO_INDEX, no_index, with_variables};
use crate::pattern::shapes::{BucketShape, ItemIds, Shape};

/// An `aggregate` whose last stage merges into a bucket collection.
struct MergeCommand<'a> {
    context: CommandContext<'a>,
    into: &'a ShapedTarget<'a>,
    shape: &'a BucketShape,
}

/// Executes an `aggregate` whose last stage merges into a shaped collection, and returns its reply. Not
/// cancel safe: after a cancellation the upstream connection is unusable.
pub(super) async fn run(context: CommandContext<'_>, into: &ShapedTarget<'_>) -> Result<RawDocumentBuf, RunError> {
    match into.shape() {
        Shape::Bucket(shape) => MergeCommand { context, into, shape }.run().await,
        Shape::Outlier(_) => Err(refuse(&context, into, "$merge into it").into()),
    }
}

fn refuse(context: &CommandContext<'_>, into: &ShapedTarget<'_>, what: &str) -> CommandError {
    let collection = RefusedCollection {
        namespace: into.namespace,
        configured: into.shape().namespace(),
        pattern: into.shape().pattern(),
    };
    collection.refuse(context.refusals(), RefusalReason::Mention, what)
}

impl MergeCommand<'_> {
    async fn run(mut self) -> Result<RawDocumentBuf, RunError> {
        let head = self.context.head;
        head.validate()?;
        if self.context.upstream == UpstreamKind::Mongos {
            return Err(self.unsupported("$merge into it behind a mongos").into());
        }
        self.context.check_server_is_known()?;
        self.context.check_transaction()?;
        self.check_options().await?;
        let aggregate = Aggregate::parse(head.body())?;
        let Some((stage, stages)) = aggregate.pipeline.split_last() else {
            return Err(self.unsupported("this form of $merge into it").into());
        };
        let parsed = MergeStage::parse(stage);
        let collation = aggregate
            .collation
            .filter(|collation| !is_simple(RawBsonRef::Document(collation)));
        self.check_stages(stages, stage).await?;
        self.validate(stage, parsed.as_ref(), collation).await?;
        if self.option("readConcern", "level").and_then(RawBsonRef::as_str) == Some("linearizable") {
            let message = "$merge cannot be used with a 'linearizable' read concern level";
            return Err(CommandError::new(ErrorCode::InvalidOptions, message).into());
        }
        let Some(merge) = parsed else {
            return Err(self.unsupported("this form of $merge into it").into());
        };
        if self.shape.item_ids() != ItemIds::Unique {
            let what = "$merge into it, without item_ids = \"unique\",";
            return Err(self.unsupported(what).into());
        }
        let has_unique_index = self.check_index(&merge, collation).await?;
        let strategy = MergeStrategy::of(&merge, has_unique_index, collation.is_some());
        let mut source = Source::open(&mut self, &self::source_command(head.body(), stages, &merge)).await?;
        let mut writer = MergeWriter::new(merge, strategy, collation);
        loop {
            let batch = match source.batch(&mut self, &writer).await {
                Ok(batch) if batch.is_empty() => break,
                Ok(batch) => batch,
                Err(error) => return source.abandon(&mut self, error).await,
            };
            if let Err(error) = writer.write(&mut self, &batch).await {
                return source.abandon(&mut self, error).await;
            }
        }
        Ok(self.reply(&source, &writer))
    }

    fn unsupported(&self, what: &str) -> CommandError {
        refuse(&self.context, self.into, what)
    }

    /// An option within a field of the client's command.
    fn option(&self, field: &str, name: &str) -> Option<RawBsonRef<'_>> {
        get(get(self.context.head.body(), field)?.as_document()?, name)
    }

    /// Checks the options that a `$merge` restricts.
    async fn check_options(&mut self) -> Result<(), RunError> {
        let head = self.context.head;
        if head.in_transaction() {
            let collection = head.target.unwrap_or("$cmd.aggregate");
            self.context.fail_transaction(collection).await?;
            let message = "$merge cannot be used in a transaction";
            return Err(CommandError::new(ErrorCode::OperationNotSupportedInTransaction, message).into());
        }
        head.check_options()?;
        // mongod executes the pipeline at the first `getMore`.
        if self.option("cursor", "batchSize").and_then(as_whole_number) == Some(0) {
            return Err(self.unsupported("$merge into it with a batchSize of 0").into());
        }
        Ok(())
    }

    /// Has mongod refuse a change stream, and a pipeline with a stage that writes before the last one.
    /// Without the last one, the pipeline would be valid: the source would have no end, or write.
    async fn check_stages(&mut self, stages: &[&RawDocument], last: &RawDocument) -> Result<(), RunError> {
        let writes =
            |stage: &&RawDocument| first_field(stage).is_some_and(|(name, _)| matches!(name, "$out" | "$merge"));
        let is_stream = change_stream::options(self.context.head.body()).is_some();
        if !is_stream && !stages.iter().any(writes) {
            return Ok(());
        }
        let mut all: Vec<RawDocumentBuf> = stages.iter().map(|stage| (*stage).to_owned()).collect();
        all.push(stage_on(last, false));
        self.explain(&all).await?;
        Err(self.unsupported("this form of $merge into it").into())
    }

    /// Has mongod check the last stage and the command's options: it explains the stage on the command's
    /// source.
    async fn validate(
        &mut self,
        stage: &RawDocument,
        merge: Option<&MergeStage<'_>>,
        collation: Option<&RawDocument>,
    ) -> Result<(), RunError> {
        let Some(merge) = merge else {
            return self.explain_alone(stage.to_owned()).await;
        };
        match self.explain_alone(stage_on(stage, merge.is_by_id())).await {
            Err(RunError::Command(error)) if merge.is_by_id() && is_no_index(&error) => {
                if collation.is_none() {
                    return Err(self.collated_source());
                }
                self.explain_alone(stage_on(stage, false)).await
            }
            explained => explained,
        }
    }

    async fn explain_alone(&mut self, stage: RawDocumentBuf) -> Result<(), RunError> {
        if self.context.head.target.is_some() {
            return self.explain(&[stage]).await;
        }
        self.explain(&[single("$documents", RawArrayBuf::new()), stage]).await
    }

    /// Has mongod explain a pipeline with the command's options, which writes nothing.
    async fn explain(&mut self, stages: &[RawDocumentBuf]) -> Result<(), RunError> {
        // The hint is that of the source, which mongod checks when it reads.
        let body = with_replaced(self.context.head.body(), &[("hint", None)]);
        let command = explain_of(&body, stages);
        self.context.link.run(&command).await.map(drop)
    }

    /// Fails if no unique index has the fields of `on`. Returns whether the collection has a unique index
    /// besides that of `_id`.
    async fn check_index(&mut self, merge: &MergeStage<'_>, collation: Option<&RawDocument>) -> Result<bool, RunError> {
        let database = RawBsonRef::String(self.into.namespace.database);
        let body = with_replaced(self.context.head.body(), &[("$db", Some(database))]);
        let head = CommandHeader::of_body(&body)?;
        let context = self.context.for_internal_command(&head, false);
        let mut target = BucketCommand::new(context, self.shape, self.into.namespace);
        let indexes = match indexes::there(&mut target).await? {
            Some(indexes) => indexes,
            None if merge.is_by_id() && collation.is_none() => {
                self.check_source_collation().await?;
                Indexes::default()
            }
            None => Indexes::default(),
        };
        let unique: Vec<&RawDocumentBuf> = indexes
            .known
            .iter()
            .filter(|index| is_unique(index) && !is_id_key(key(index)))
            .collect();
        let supports = |index: &&RawDocumentBuf| !is_partial(index) && merge.is_supported_by(index);
        let is_by_id = merge.is_by_id() && (collation.is_none() || !merge.is_on_given);
        if !is_by_id && (collation.is_some() || !unique.iter().any(supports)) {
            return Err(no_index().into());
        }
        Ok(!unique.is_empty())
    }

    /// Refuses a source with a collation. mongod reports it only if the target exists.
    async fn check_source_collation(&mut self) -> Result<(), RunError> {
        let name = self.context.head.target.unwrap_or_default();
        let asker = self.context.options();
        let options = collection_lookup::options(self.context.link, asker, name).await?;
        if options
            .as_deref()
            .is_some_and(|options| get(options, "collation").is_some())
        {
            return Err(self.collated_source());
        }
        Ok(())
    }

    fn collated_source(&self) -> RunError {
        self.unsupported("$merge into it from a collection with a collation")
            .into()
    }

    fn reply(&self, source: &Source, writer: &MergeWriter<'_>) -> RawDocumentBuf {
        let namespace = Namespace::parse(&source.namespace).unwrap_or(self.into.namespace);
        let mut reply = exhausted_cursor(namespace, &RawArrayBuf::new());
        if let (Some(time), Ok(cursor)) = (source.snapshot_time, reply.get_document("cursor")) {
            let mut cursor = cursor.to_owned();
            cursor.append(cstr!("atClusterTime"), time);
            reply = with_replaced(&reply, &[("cursor", Some(RawBsonRef::Document(&cursor)))]);
        }
        if let Some(error) = writer.write_concern_error() {
            put(&mut reply, "writeConcernError", error);
        }
        let answer = writer.last_answer().unwrap_or(&source.last_answer);
        for name in ["$clusterTime", "operationTime"] {
            if let Some(value) = get(answer, name) {
                put(&mut reply, name, value);
            }
        }
        reply
    }
}

/// The client's command without its last stage.
fn source_command(body: &RawDocument, stages: &[&RawDocument], merge: &MergeStage<'_>) -> RawDocumentBuf {
    let mut pipeline: RawArrayBuf = stages.iter().copied().collect();
    if let Some(stage) = with_variables(merge) {
        pipeline.push(stage);
    }
    let cursor = RawDocumentBuf::new();
    let replaced = [
        ("pipeline", Some(RawBsonRef::Array(&pipeline))),
        ("cursor", Some(RawBsonRef::Document(&cursor))),
        ("writeConcern", None),
        ("explain", None),
    ];
    with_replaced(body, &replaced)
}

/// The stage with `on: "_id"`, so that mongod checks the collation of the source, or without `on`.
fn stage_on(stage: &RawDocument, by_id: bool) -> RawDocumentBuf {
    let spec = match get(stage, "$merge") {
        Some(RawBsonRef::Document(spec)) => spec.to_owned(),
        Some(into) => single("into", into),
        None => return stage.to_owned(),
    };
    let mut spec = with_replaced(&spec, &[("on", None)]);
    if by_id {
        spec.append(cstr!("on"), "_id");
    }
    single("$merge", spec)
}

fn is_no_index(error: &CommandError) -> bool {
    matches!(error, CommandError::Upstream(reply) if reply.get_i32("code").is_ok_and(|code| code == NO_INDEX))
}
