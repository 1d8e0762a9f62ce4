//! `createIndexes`: mongod validates the client's indexes and creates the stored ones.

mod transaction;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf};

use super::{given_up, there, without_others};
use crate::command::arguments::{InheritedOptions, is_generic, with_replaced};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::indexes;
use crate::pattern::bucket::index;
use crate::pattern::bucket::item_index::{self, Conflict, conflict, is_id_key, is_own, key, name};
use crate::session::backoff::MAX_ATTEMPTS;
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

pub(in crate::session::bucket) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let Some(wanted) = indexes::wanted(body) else {
        // Nothing that mongod could make: it says why.
        return run.context.link.run(body).await;
    };
    match run.context.link.run(&judged(run)).await {
        Err(RunError::Command(error)) if indexes::is_sound(&error) => {}
        // What is observed was relayed: mongod has judged it already.
        Err(RunError::Link(_)) if run.context.link.is_dry_run() => {}
        // It says the same of the client's own, which ends the transaction.
        Err(RunError::Command(_)) if run.context.head.in_transaction() => {
            run.context.link.run(body).await?;
            return Err(run.unsupported("createIndexes as this server has it").into());
        }
        Err(error) => return Err(error),
        Ok(_) => return Err(run.unsupported("createIndexes as this server has it").into()),
    }
    let stored = stored(run, &wanted)?;
    if run.context.head.in_transaction() {
        return transaction::run(run, &wanted, &stored).await;
    }
    for _ in 0..MAX_ATTEMPTS {
        match attempt(run, &wanted, &stored).await {
            Err(RunError::Command(error)) if is_lost_race(&error) => {}
            Err(error) => return Err(error.map_command(|error| in_items_terms(run, error))),
            reply => {
                super::forget(run);
                return reply;
            }
        }
    }
    Err(given_up(run))
}

/// What has mongod judge the client's command: in no transaction, since its error would end that.
fn judged(run: &BucketCommand<'_>) -> RawDocumentBuf {
    let mut command = RawDocumentBuf::new();
    let judged = indexes::judged(run.context.head.body());
    if !run.context.head.in_transaction() {
        return judged;
    }
    for (name, value) in judged.iter().flatten().filter(|(name, _)| !is_generic(name.as_str())) {
        command.append(name, value);
    }
    InheritedOptions::of(run.context.head.body()).append_identity(&mut command);
    command
}

/// What is to be stored, of indexes that can be.
fn stored(run: &BucketCommand<'_>, wanted: &[&RawDocument]) -> Result<Vec<RawDocumentBuf>, CommandError> {
    if let Some(spec) = wanted.iter().find(|spec| is_own(name(spec))) {
        return Err(name_is_kept(run, name(spec)));
    }
    if let Some(spec) = wanted.iter().find(|spec| name(spec).is_empty()) {
        return Err(indexes::empty_name(spec));
    }
    let stored = wanted.iter().map(|spec| item_index::stored(run.shape, spec));
    stored.collect::<Result<_, _>>().map_err(|what| run.unsupported(&what))
}

/// The error for a name that begins as those of the shape's own indexes do.
pub(in crate::session::bucket) fn name_is_kept(run: &BucketCommand<'_>, name: &str) -> CommandError {
    let namespace = run.namespace;
    let message = format!(
        "mongoshape stores {namespace} in the bucket pattern: the index name '{name}' is kept for indexes of its own"
    );
    CommandError::new(ErrorCode::CannotCreateIndex, message)
}

async fn attempt(
    run: &mut BucketCommand<'_>,
    wanted: &[&RawDocument],
    stored: &[RawDocumentBuf],
) -> Result<RawDocumentBuf, RunError> {
    let settings = run.context.settings;
    if settings
        .catalog
        .for_reading(&mut run.catalog_session())
        .await?
        .is_some()
    {
        settings.catalog.for_writing(&mut run.catalog_session()).await?;
    }
    let there = there(run).await?;
    let is_new = there.is_none();
    let there = there.unwrap_or_default();
    let mut specs = Vec::new();
    if is_new {
        // One command makes the collection with all its indexes, or nothing.
        settings.catalog.forget(run.namespace);
        specs = index::specs(run.shape);
    }
    let others = if is_new { specs.len() } else { there.others.len() };
    let conflict = conflict(&there, wanted);
    // What mongod says of two that are the same depends on whether the collection is empty.
    let are_twins = !is_new && matches!(conflict, Some(Conflict::Identical(_)));
    if let Some(conflict) = &conflict
        && !are_twins
    {
        return Err(error_of(run, conflict).into());
    }
    specs.extend(stored.iter().map(|spec| there.as_there(spec)));
    let reply = match (
        run.context
            .link
            .run(&indexes::create(run.context.head.body(), &specs))
            .await,
        conflict,
    ) {
        (Err(RunError::Command(error)), Some(conflict)) if error.is(ErrorCode::IndexAlreadyExists) => {
            return Err(error_of(run, &conflict).into());
        }
        (reply, _) => reply?,
    };
    // A new one has its index on `_id`, which mongod counts before the others of the command.
    let least = i32::from(is_new);
    let number = |field| Some(RawBsonRef::Int32(without_others(&reply, field, others).max(least)));
    let mut replaced = vec![
        ("numIndexesBefore", number("numIndexesBefore")),
        ("numIndexesAfter", number("numIndexesAfter")),
    ];
    if is_new {
        replaced.push(("note", note(wanted).map(RawBsonRef::String)));
    }
    Ok(with_replaced(&reply, &replaced))
}

/// What mongod notes of indexes on a new collection, which has one on `_id` from the beginning.
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
        Conflict::Clustered(specs) => {
            let [wanted, there] = &**specs;
            indexes::name_of_clustered(wanted, there)
        }
        Conflict::Taken(name) => {
            let message = format!(
                "mongoshape stores {} in the bucket pattern: the index name '{name}' is taken by an index on its buckets, \
                 which was not made through mongoshape",
                run.namespace
            );
            CommandError::new(ErrorCode::IndexKeySpecsConflict, message)
        }
    }
}

/// Whether somebody has made an index meanwhile that is in the way: how is told in the application's terms.
fn is_lost_race(error: &CommandError) -> bool {
    use ErrorCode::{IndexAlreadyExists, IndexKeySpecsConflict, IndexOptionsConflict};
    let codes = [IndexAlreadyExists, IndexKeySpecsConflict, IndexOptionsConflict];
    matches!(error, CommandError::Upstream(_)) && codes.into_iter().any(|code| error.is(code))
}

/// mongod's error for what is stored, without what only the stored form has.
fn in_items_terms(run: &BucketCommand<'_>, error: CommandError) -> CommandError {
    const CANNOT_INDEX_PARALLEL_ARRAYS: i32 = 171;
    let CommandError::Upstream(reply) = &error else {
        return error;
    };
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
    } else if text.contains("too many indexes") {
        let own = index::specs(run.shape).len();
        format!(
            "add index fails, too many indexes for {}: {own} of its 64 are those of the bucket pattern",
            run.namespace
        )
    } else if text.contains(&stored_root) {
        let reason = text.rsplit(" :: caused by :: ").next().unwrap_or_default();
        let reason = if reason.contains(&stored_root) { "" } else { reason };
        format!(
            "mongoshape stores {} in the bucket pattern, where mongod cannot make this index: {reason}",
            run.namespace
        )
    } else {
        return error;
    };
    let replaced = [("errmsg", Some(RawBsonRef::String(&message)))];
    // What goes with it may show the stored key.
    let detail = ["keyPattern", "keyValue"].map(|name| (name, None));
    CommandError::Upstream(with_replaced(reply, &[&replaced[..], &detail[..]].concat()))
}
