//! `fullDocument: "updateLookup"`: the current versions of changed documents.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::read::{append_options, kill};
use super::watched::namespace_of;
use crate::command::arguments::with_replaced;
use crate::command::document::{get, get_path, single};
use crate::command::header::CommandHeader;
use crate::command::namespace::Namespace;
use crate::command::reply::CursorReply;
use crate::pattern::bucket::change_stream::ItemEvent;
use crate::pattern::bucket::key::{is_value_under_in, value_identity};
use crate::session::bucket::{BucketCommand, find};
use crate::session::command_context::CommandContext;
use crate::session::error::RunError;

/// The documents in one query.
const DOCUMENTS: usize = 100;

/// Completes the events that require the current version of their document. That of a deleted document is
/// `null`.
pub(super) async fn add_current_versions(
    context: &mut CommandContext<'_>,
    events: Vec<ItemEvent>,
) -> Result<Vec<RawDocumentBuf>, RunError> {
    let mut complete = Vec::with_capacity(events.len());
    for events in events.chunks(DOCUMENTS) {
        let mut current = CurrentVersions::default();
        for event in events.iter().filter(|event| event.needs_current_version) {
            current.add(&event.document);
        }
        current.read(context).await?;
        for event in events {
            let mut document = event.document.clone();
            if event.needs_current_version {
                let version = current.of(context, &document).await?;
                let version = version.as_deref().map_or(RawBsonRef::Null, RawBsonRef::Document);
                document = with_replaced(&document, &[("fullDocument", Some(version))]);
            }
            complete.push(document);
        }
    }
    Ok(complete)
}

/// The current versions of the documents of some events. A document whose `_id` cannot be listed under `$in`
/// is read alone.
#[derive(Default)]
struct CurrentVersions {
    collections: Vec<OfCollection>,
}

/// Documents of one collection.
struct OfCollection {
    database: String,
    collection: String,
    ids: RawArrayBuf,
    found: Vec<RawDocumentBuf>,
    /// Whether all documents fitted into one batch.
    is_complete: bool,
}

impl CurrentVersions {
    fn add(&mut self, event: &RawDocument) {
        let (Some(namespace), Some(key)) = (namespace_of(event), document_key(event)) else {
            return;
        };
        let Some(id) = get(key, "_id").filter(|id| is_value_under_in(*id)) else {
            return;
        };
        if let Some(known) = self.collections.iter_mut().find(|known| known.namespace() == namespace) {
            known.ids.push(id);
            return;
        }
        self.collections.push(OfCollection {
            database: namespace.database.to_owned(),
            collection: namespace.collection.to_owned(),
            ids: [id].into_iter().collect(),
            found: Vec::new(),
            is_complete: false,
        });
    }

    async fn read(&mut self, context: &mut CommandContext<'_>) -> Result<(), RunError> {
        for collection in &mut self.collections {
            let filter = single("_id", single("$in", &collection.ids));
            let reply = find(context, collection.namespace(), &filter).await?;
            if let Some(cursor) = CursorReply::parse(&reply) {
                collection.found = cursor.documents().map(RawDocument::to_owned).collect();
                collection.is_complete = cursor.id == 0;
            }
        }
        Ok(())
    }

    /// The current version of the document of an event.
    async fn of(
        &self,
        context: &mut CommandContext<'_>,
        event: &RawDocument,
    ) -> Result<Option<RawDocumentBuf>, RunError> {
        let (Some(namespace), Some(key)) = (namespace_of(event), document_key(event)) else {
            return Ok(None);
        };
        let is_listed = get(key, "_id").is_some_and(is_value_under_in);
        let mut collections = self.collections.iter();
        if let Some(collection) = collections.find(|known| is_listed && known.namespace() == namespace) {
            let found = collection.found.iter().find(|document| has_key(document, key));
            if found.is_some() || collection.is_complete {
                return Ok(found.cloned());
            }
        }
        let reply = find(context, namespace, &filter_of(key)).await?;
        let cursor = CursorReply::parse(&reply);
        Ok(cursor.and_then(|cursor| cursor.documents().next().map(RawDocument::to_owned)))
    }
}

impl OfCollection {
    fn namespace(&self) -> Namespace<'_> {
        Namespace::new(&self.database, &self.collection)
    }
}

/// The `_id`, and the values of the shard key in a sharded collection, where several shards may have the
/// `_id`.
fn document_key(event: &RawDocument) -> Option<&RawDocument> {
    get(event, "documentKey")?.as_document()
}

fn has_key(document: &RawDocument, key: &RawDocument) -> bool {
    let is_same = |one, other| value_identity(one) == value_identity(other);
    let mut fields = key.iter().flatten();
    fields.all(|(path, value)| get_path(document, path.as_str()).is_some_and(|found| is_same(found, value)))
}

fn filter_of(key: &RawDocument) -> RawDocumentBuf {
    let fields = key.iter().flatten();
    let equalities = fields.map(|(name, value)| (name, RawBson::Document(single("$eq", value))));
    equalities.collect()
}

/// mongod's or the proxy's reply to a `find` in one batch, as a majority of the members has the documents.
/// The cursor of the reply is closed, and its id shows whether documents are missing.
async fn find(
    context: &mut CommandContext<'_>,
    namespace: Namespace<'_>,
    filter: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    let mut body = single("find", namespace.collection);
    body.append(cstr!("filter"), filter);
    body.append(cstr!("batchSize"), i64::try_from(DOCUMENTS).unwrap_or(i64::MAX));
    body.append(cstr!("readConcern"), single("level", "majority"));
    append_options(context, namespace, &mut body);
    let reply = match context.settings.shapes.bucket(namespace) {
        Some(shape) => {
            let head = CommandHeader::of_body(&body)?;
            let inner = context.for_internal_command(&head, false);
            find::internal(&mut BucketCommand::new(inner, shape, namespace)).await?
        }
        None => context.link.run(&body).await?,
    };
    if let Some(cursor) = CursorReply::parse(&reply).filter(|cursor| cursor.id != 0) {
        context.shared.cursors.closed(cursor.id);
        kill(context, namespace, cursor.id).await?;
    }
    Ok(reply)
}
