//! `createIndexes`: mongod validates the client's indexes and creates the stored ones.

mod options;
mod transaction;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::uniqueness::{build_failed, enforce, withdraw};
use super::{given_up, there, without_others};
use crate::command::arguments::{InheritedOptions, is_generic, with_replaced};
use crate::command::document::{first_field, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::indexes;
use crate::command::reply::convert_of_server;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_index::{
    self, Conflict, Indexes, conflict, is_id_key, is_own, is_unique, key, name, ttl_marker_name, ttl_marker_of,
};
use crate::pattern::bucket::unique_index::{UniqueIndex, Violation, violation};
use crate::session::backoff::MAX_ATTEMPTS;
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

pub(in crate::session::bucket) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let Some(wanted) = indexes::wanted(body) else {
        // No valid list of indexes: mongod reports the error.
        return run.context.link.run(body).await;
    };
    match run.context.link.run(&validation(run)).await {
        Err(RunError::Command(error)) if indexes::is_sound(&error) => {}
        // A dry run: the command was relayed, so mongod has validated it.
        Err(RunError::Link(_)) if run.context.link.is_dry_run() => {}
        // mongod reports the same error for the client's command, which also aborts the transaction.
        Err(RunError::Command(_)) if run.context.head.in_transaction() => {
            run.context.link.run(body).await?;
            return Err(run.unsupported("createIndexes of this server version").into());
        }
        Err(error) => return Err(error),
        Ok(_) => return Err(run.unsupported("createIndexes of this server version").into()),
    }
    // Before mongod checks the options: a refused index costs no round trips.
    stored(run, &wanted)?;
    let completed = options::complete(run, &wanted).await?;
    let wanted: Vec<&RawDocument> = completed.iter().map(|spec| &**spec).collect();
    let stored = stored(run, &wanted)?;
    if run.context.head.in_transaction() {
        if stored.iter().any(|spec| is_unique(spec)) {
            let what = "a unique index that is created in a transaction";
            return Err(run.unsupported(what).into());
        }
        if wanted.iter().any(|spec| ttl_marker_of(spec).is_some()) {
            let what = "an index with expireAfterSeconds that is created in a transaction";
            return Err(run.unsupported(what).into());
        }
        run.refuse_behind_mongos("createIndexes in a transaction")?;
        return transaction::run(run, &wanted, &stored).await;
    }
    let mut before = None;
    for _ in 0..MAX_ATTEMPTS {
        let there = existing(run, &wanted).await?;
        match attempt(run, &wanted, &stored, there.as_ref()).await {
            // Otherwise nothing has changed, and another attempt would fail, too.
            Err(RunError::Command(error)) if is_lost_race(&error) && (there.is_none() || there != before) => {
                before = there;
            }
            Err(error) => return Err(error.map_command(|error| in_items_terms(run, &stored, error))),
            reply => {
                super::forget(run);
                return reply;
            }
        }
    }
    Err(given_up(run))
}

/// The command that has mongod validate the client's indexes. It is sent outside of the client's transaction,
/// which an error would abort.
fn validation(run: &BucketCommand<'_>) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    let validation = indexes::validation(run.context.head.body());
    if !run.context.head.in_transaction() {
        return validation;
    }
    for (name, value) in validation
        .iter()
        .flatten()
        .filter(|(name, _)| !is_generic(name.as_str()))
    {
        command.append(name, value);
    }
    InheritedOptions::of(run.context.head.body()).append_identity(&mut command);
    command
}

/// The specifications of the stored indexes.
///
/// # Errors
/// The name is empty or reserved for the shape, or the bucket pattern does not support the index.
fn stored(run: &BucketCommand<'_>, wanted: &[&RawDocument]) -> Result<Vec<RawDocumentBuf>, CommandError> {
    if let Some(spec) = wanted.iter().find(|spec| is_own(name(spec))) {
        return Err(name_is_kept(run, name(spec)));
    }
    if let Some(spec) = wanted.iter().find(|spec| name(spec).is_empty()) {
        return Err(indexes::empty_name(spec));
    }
    if let Some(error) = wanted.iter().find_map(|spec| indexes::invalid_expiry(spec)) {
        return Err(error);
    }
    let stored = wanted.iter().map(|spec| item_index::stored(run.shape, spec));
    stored.collect::<Result<_, _>>().map_err(|what| run.unsupported(&what))
}

/// The error for a name with the prefix of the shape's own indexes.
pub(in crate::session::bucket) fn name_is_kept(run: &BucketCommand<'_>, name: &str) -> CommandError {
    let namespace = run.namespace;
    let message = format!(
        "mongoshape stores {namespace} in the bucket pattern: the index name '{name}' is reserved for the shape's own indexes"
    );
    run.refused(CommandError::new(ErrorCode::CannotCreateIndex, message))
}

/// The existing indexes, after the collection has been prepared for writing. `None` if it does not exist.
async fn existing(run: &mut BucketCommand<'_>, wanted: &[&RawDocument]) -> Result<Option<Indexes>, RunError> {
    let catalog = &run.context.settings.catalog;
    if catalog.for_reading(&mut run.catalog_session()).await?.is_some() {
        let ready = catalog.for_writing(&mut run.catalog_session()).await?;
        let first_of_key = run.shape.key().first().map(String::as_str);
        let begins_with_key = |spec: &RawDocument| first_field(key(spec)).map(|(field, _)| field) == first_of_key;
        // A mongos refuses those that do not begin with the whole shard key.
        if ready.is_sharded && wanted.iter().any(|spec| is_unique(spec) && !begins_with_key(spec)) {
            let what = "a unique index of a sharded collection that does not begin with the shard key";
            return Err(run.unsupported(what).into());
        }
    }
    let found = there(run).await?;
    let stale: Vec<String> = found.iter().flat_map(|there| stale_markers(there, wanted)).collect();
    if stale.is_empty() {
        return Ok(found);
    }
    for marker in &stale {
        let mut command = single("dropIndexes", run.namespace.collection);
        put(&mut command, "index", marker.as_str());
        InheritedOptions::of(run.context.head.body()).append_identity(&mut command);
        match run.context.link.run(&command).await {
            // Another client has dropped it.
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            reply => reply.map(drop)?,
        }
    }
    there(run).await
}

/// The TTL markers of indexes that do not exist. A `collMod` leaves one if another client drops its index
/// meanwhile. A new index of that name would expire items.
fn stale_markers(there: &Indexes, wanted: &[&RawDocument]) -> Vec<String> {
    let missing = wanted.iter().filter(|spec| there.named(name(spec)).is_none());
    let markers = missing.map(|spec| ttl_marker_name(name(spec)));
    markers.filter(|marker| there.others.contains(marker)).collect()
}

async fn attempt(
    run: &mut BucketCommand<'_>,
    wanted: &[&RawDocument],
    stored: &[RawDocumentBuf],
    there: Option<&Indexes>,
) -> Result<RawDocumentBuf, RunError> {
    let is_new = there.is_none();
    let none = Indexes::default();
    let there = there.unwrap_or(&none);
    let mut specs = Vec::new();
    if is_new {
        // One command creates the collection with all indexes, or none of them.
        run.context.settings.catalog.forget(run.namespace);
        specs = index::specs(run.shape);
    }
    let others = if is_new { specs.len() } else { there.others.len() };
    let conflict = conflict(there, wanted);
    // mongod's error for two identical indexes depends on whether the collection is empty.
    let are_twins = !is_new && matches!(conflict, Some(Conflict::Identical(_)));
    if let Some(conflict) = &conflict
        && !are_twins
    {
        return Err(error_of(run, conflict).into());
    }
    specs.extend(stored.iter().map(|spec| there.as_there(spec)));
    let markers: Vec<RawDocumentBuf> = wanted.iter().filter_map(|spec| ttl_marker_of(spec)).collect();
    let is_there = |marker: &&RawDocumentBuf| there.others.iter().any(|other| other == name(marker));
    let new_markers = markers.iter().filter(|marker| !is_there(marker)).count();
    specs.extend(markers);
    let unique = UniqueIndex::all(run.shape, stored);
    let reply = match (create(run, &unique, is_new, &specs).await, conflict) {
        (Err(RunError::Command(error)), Some(conflict)) if error.is(ErrorCode::IndexAlreadyExists) => {
            return Err(error_of(run, &conflict).into());
        }
        (reply, _) => reply?,
    };
    // A new collection has the index on `_id`, which mongod counts as existing before the command.
    let least = i32::from(is_new);
    Ok(convert_of_server(&reply, |reply| {
        let number = |field, others| Some(RawBsonRef::Int32(without_others(reply, field, others).max(least)));
        let mut replaced = vec![
            ("numIndexesBefore", number("numIndexesBefore", others)),
            (
                "numIndexesAfter",
                number("numIndexesAfter", others.saturating_add(new_markers)),
            ),
        ];
        if is_new {
            replaced.push(("note", note(wanted).map(RawBsonRef::String)));
        }
        with_replaced(reply, &replaced)
    }))
}

/// Creates the indexes, and the conditions of the unique ones. `is_new`: the collection does not exist.
async fn create(
    run: &mut BucketCommand<'_>,
    unique: &[UniqueIndex],
    is_new: bool,
    specs: &[RawDocumentBuf],
) -> Result<RawDocumentBuf, RunError> {
    let command = indexes::create(run.context.head.body(), specs);
    if unique.is_empty() {
        return run.context.link.run(&command).await;
    }
    let created = async {
        if !is_new {
            enforce(run, unique).await?;
        }
        let reply = run.context.link.run(&command).await?;
        enforce(run, unique).await.map(|()| reply)
    };
    let created = created.await;
    if let Err(RunError::Command(_)) = &created {
        let names: Vec<&str> = unique.iter().map(UniqueIndex::name).collect();
        withdraw(run, Some(&names)).await?;
    }
    created
}

/// The `note` of the reply for a new collection, whose index on `_id` already exists.
fn note(wanted: &[&RawDocument]) -> Option<&'static str> {
    let existing = wanted.iter().filter(|spec| is_id_key(key(spec))).count();
    match existing {
        0 => None,
        all if all == wanted.len() => Some("all indexes already exist"),
        _ => Some("index already exists"),
    }
}

fn error_of(run: &BucketCommand<'_>, conflict: &Conflict) -> CommandError {
    match conflict {
        Conflict::Identical(name) => indexes::identical(name),
        Conflict::OtherName(name) => indexes::other_name(name),
        Conflict::OtherKey(specs) => indexes::other_key(specs),
        Conflict::OtherOptions(specs) => indexes::other_options(specs),
        Conflict::Clustered(specs) => {
            let [wanted, there] = &**specs;
            indexes::name_of_clustered(wanted, there)
        }
        Conflict::TooMany => CommandError::new(ErrorCode::CannotCreateIndex, too_many(run)),
        Conflict::Taken(name) => {
            let message = format!(
                "mongoshape stores {} in the bucket pattern: an index on its buckets, not created through mongoshape, has the name \
                 '{name}'",
                run.namespace
            );
            run.refused(CommandError::new(ErrorCode::IndexKeySpecsConflict, message))
        }
    }
}

/// mongod's message for a collection with too many indexes, with the number of those of the shape.
fn too_many(run: &BucketCommand<'_>) -> String {
    let own = index::specs(run.shape).len();
    format!(
        "add index fails, too many indexes for {}: {own} of its 64 indexes belong to the bucket pattern",
        run.namespace
    )
}

/// Whether another client created a conflicting index meanwhile. The caller reads the indexes again, to
/// report the conflict with the application's field names.
fn is_lost_race(error: &CommandError) -> bool {
    use ErrorCode::{IndexAlreadyExists, IndexKeySpecsConflict, IndexOptionsConflict};
    let codes = [IndexAlreadyExists, IndexKeySpecsConflict, IndexOptionsConflict];
    matches!(error, CommandError::Upstream(_)) && codes.into_iter().any(|code| error.is(code))
}

/// mongod's error for two items on different pages with an equal key in a unique index.
fn duplicate(run: &BucketCommand<'_>, wanted: &[RawDocumentBuf], reply: &RawDocument) -> Option<CommandError> {
    let violation = violation(reply)?;
    let unique = UniqueIndex::all(run.shape, wanted);
    let index = violation.index(&unique)?;
    let Violation::OtherPage { values, .. } = &violation else {
        return None;
    };
    let key = index.key_of_values(values);
    Some(build_failed(run, index.duplicate(run.namespace, &key)))
}

/// mongod's error for a stored index, with the field names of items and without stored ones.
fn in_items_terms(run: &BucketCommand<'_>, wanted: &[RawDocumentBuf], error: CommandError) -> CommandError {
    const CANNOT_INDEX_PARALLEL_ARRAYS: i32 = 171;
    let CommandError::Upstream(reply) = &error else {
        return error;
    };
    if let Some(error) = duplicate(run, wanted, reply) {
        return error;
    }
    let text = reply.get_str("errmsg").unwrap_or_default();
    let code = reply.get_i32("code").unwrap_or_default();
    let stored_root = format!("{}.", run.shape.items());
    let message = if code == CANNOT_INDEX_PARALLEL_ARRAYS {
        match text.rfind("cannot index parallel arrays") {
            Some(begin) => {
                let names = text.get(begin..).unwrap_or_default();
                format!("Index build failed: {}", item_index::in_item_names(run.shape, names))
            }
            None => return error,
        }
    } else if let Some(location) = item_index::location_error(text) {
        format!("Index build failed: {}", location.message)
    } else if text.contains("too many indexes") {
        too_many(run)
    } else if text.contains(&stored_root) {
        let reason = text.rsplit(" :: caused by :: ").next().unwrap_or_default();
        let reason = if reason.contains(&stored_root) { "" } else { reason };
        format!(
            "mongoshape stores {} in the bucket pattern, where mongod cannot create this index: {reason}",
            run.namespace
        )
    } else {
        return error;
    };
    let replaced = [("errmsg", Some(RawBsonRef::String(&message)))];
    // These fields of the error may have stored field names.
    let detail = ["keyPattern", "keyValue"].map(|name| (name, None));
    CommandError::Upstream(with_replaced(reply, &[&replaced[..], &detail[..]].concat()))
}
