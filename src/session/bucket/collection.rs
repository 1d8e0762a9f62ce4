//! `create`, `drop` and `collMod`, which also maintain the shape's indexes, and commands on the
//! stored collection.

use std::sync::atomic::Ordering;

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::{indexes, validation};
use crate::command::arguments::{CommandField, InheritedOptions, with_replaced};
use crate::command::collection::{
    CLUSTERED, IMAGES, clustered_index, enabled_images, has_validation, images, impossible_in_coll_mod,
    impossible_in_create, part_in_plan_cache_clear,
};
use crate::command::document::put;
use crate::command::error::{CommandError, ErrorCode};
use crate::pattern::bucket::{index, item_index};
use crate::pattern::shapes::ItemIds;
use crate::session::cross_collection::collection_lookup;
use crate::session::error::RunError;

pub(super) async fn create(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let option = impossible_in_create(run.context.head.body())?;
    if let Some(option) = option.or_else(|| index_on_no_ids(run)) {
        let namespace = run.namespace;
        let message =
            format!("mongoshape stores {namespace} in the bucket pattern: it cannot be created with '{option}'");
        let error = CommandError::new(ErrorCode::InvalidOptions, message);
        return Err(run.refused(error).into());
    }
    if let Some(index) = clustered_index(run.context.head.body())
        && item_index::is_own(item_index::name(index))
    {
        return Err(indexes::create::name_is_kept(run, item_index::name(index)).into());
    }
    if run.context.link.fence_of(run.namespace).is_some() && !run.context.head.in_transaction() {
        // Without its indexes, a new collection would be one of plain documents. So `create` is not sent.
        let settings = run.context.settings;
        settings.catalog.forget(run.namespace);
        let found = settings.catalog.for_reading(&mut run.catalog_session()).await?;
        if found.is_none() {
            return create_with_indexes(run).await;
        }
        let creation = validation::creation(run, &with_images(run)).await?;
        let error = validation::existing(run).await?;
        return validation::reply_for_existing(run, &creation, error).await;
    }
    let body = with_images(run);
    let creation = validation::creation(run, &body).await?;
    let reply = match run.context.link.run(&creation).await {
        Err(RunError::Command(error)) if error.is(ErrorCode::NamespaceExists) && !run.context.head.in_transaction() => {
            // Another proxy may have dropped and created the cached collection.
            run.context.settings.catalog.forget(run.namespace);
            return validation::reply_for_existing(run, &creation, error).await;
        }
        reply => reply?,
    };
    if run.context.head.in_transaction() {
        run.context.txn_started.store(true, Ordering::Relaxed);
        run.catalog_session().make_in_transaction().await?;
        return Ok(reply);
    }
    // If another proxy dropped the cached collection, the collection just created has another UUID.
    run.context.settings.catalog.forget(run.namespace);
    run.context
        .settings
        .catalog
        .for_writing(&mut run.catalog_session())
        .await?;
    Ok(reply)
}

/// Creates the collection of an automatic shape together with its indexes, by which other proxies recognise
/// it. A command that does that has no options of the collection.
async fn create_with_indexes(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let mut options = CommandField::all("create", run.context.head.body());
    if let Some(option) = options.find_map(|field| Some(field.ok()?.0)) {
        let what = format!("create with '{option}' while the mode of its shape is `auto`");
        return Err(run.unsupported(&what).into());
    }
    let settings = run.context.settings;
    settings.catalog.for_writing(&mut run.catalog_session()).await?;
    let mut reply = RawDocumentBuf::new();
    reply.append(cstr!("ok"), 1.0);
    Ok(reply)
}

/// The client's `create`, with images of pages if the shape has change streams.
fn with_images(run: &BucketCommand<'_>) -> RawDocumentBuf {
    let body = run.context.head.body();
    if !run.shape.change_streams() {
        return body.to_owned();
    }
    let mut body = with_replaced(body, &[(IMAGES, None)]);
    put(&mut body, IMAGES, enabled_images());
    body
}

/// The option of `create` that would make item `_id`s unique although the shape does not: a
/// clustered index.
fn index_on_no_ids(run: &BucketCommand<'_>) -> Option<&'static str> {
    let is_unique = run.shape.item_ids() == ItemIds::Unique;
    clustered_index(run.context.head.body())
        .filter(|_| !is_unique)
        .map(|_| CLUSTERED)
}

pub(super) async fn drop(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    run.context.settings.catalog.forget(run.namespace);
    let (others, least) = match indexes::there(run).await {
        Ok(there) => (there.unwrap_or_default().others.len(), 0),
        // A client with the right to drop the collection may lack `listIndexes`. Usually the collection
        // has one stored index.
        Err(RunError::Command(_)) => (index::specs(run.shape).len(), 1),
        Err(error) => return Err(error),
    };
    let reply = run.context.link.run(run.context.head.body()).await?;
    let asker = InheritedOptions::of(run.context.head.body());
    collection_lookup::drop_items_view(run.context.link, asker, run.shape, run.namespace).await?;
    let was = indexes::without_others(&reply, "nIndexesWas", others).max(least);
    Ok(with_replaced(&reply, &[("nIndexesWas", Some(RawBsonRef::Int32(was)))]))
}

pub(super) async fn coll_mod(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    if let Some(option) = impossible_in_coll_mod(run.context.head.body())? {
        return Err(run.unsupported(&format!("collMod with '{option}'")).into());
    }
    if run.shape.change_streams() && images(run.context.head.body()) == Some(false) {
        let what = "collMod without changeStreamPreAndPostImages while its shape has `change_streams = true`";
        return Err(run.unsupported(what).into());
    }
    run.ensure_readable(None).await?;
    if has_validation(run.context.head.body()) {
        return validation::coll_mod(run).await;
    }
    indexes::modify::run(run).await
}

pub(super) async fn plan_cache_clear(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    if let Some(part) = part_in_plan_cache_clear(run.context.head.body())? {
        return Err(run.unsupported(&format!("planCacheClear with '{part}'")).into());
    }
    run.context.link.run(run.context.head.body()).await
}
