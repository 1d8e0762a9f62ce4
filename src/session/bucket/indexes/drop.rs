//! `dropIndexes`: drops the application's indexes by name.

use std::collections::HashSet;

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::uniqueness::withdraw;
use super::{given_up, not_in_transaction, there, without_others};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::indexes::{self, Dropped};
use crate::command::reply::convert_of_server;
use crate::pattern::bucket::item_index::{ID, Indexes, is_clustered, is_unique, name, ttl_marker_name};
use crate::session::backoff::MAX_ATTEMPTS;
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

pub(in crate::session::bucket) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    not_in_transaction(run, "dropIndexes")?;
    let body = run.context.head.body();
    let dropped = Dropped::parse(body)?;
    let settings = run.context.settings;
    settings.catalog.for_reading(&mut run.catalog_session()).await?;
    for _ in 0..MAX_ATTEMPTS {
        let Some(there) = there(run).await? else {
            // mongod reports that the collection does not exist, unless it was created meanwhile.
            run.context.link.run(&indexes::drop(body, &[])).await?;
            continue;
        };
        let names = match names(&there, &dropped) {
            Ok(names) => names,
            Err(error) => {
                // mongod reports other errors of the command before this one.
                run.context.link.run(&indexes::drop(body, &[])).await?;
                withdraw_interrupted(run, &dropped).await?;
                return Err(error.into());
            }
        };
        let markers: Vec<String> = names.iter().map(|name| ttl_marker_name(name)).collect();
        let markers = markers.iter().filter(|marker| there.others.contains(marker));
        let with_markers: Vec<&str> = names.iter().copied().chain(markers.map(String::as_str)).collect();
        match run.context.link.run(&indexes::drop(body, &with_markers)).await {
            Ok(reply) => {
                let is_unique = |name: &&str| there.named(name).is_some_and(is_unique);
                if names.iter().any(is_unique) {
                    let withdrawn = (!matches!(dropped, Dropped::All)).then_some(&*names);
                    withdraw(run, withdrawn).await?;
                }
                super::forget(run);
                let convert = |reply: &RawDocument| converted(reply, &dropped, there.others.len());
                return Ok(convert_of_server(&reply, convert));
            }
            // Another client dropped one of the indexes meanwhile.
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            Err(error) => return Err(error),
        }
    }
    Err(given_up(run))
}

/// Removes the conditions of unique indexes whose creation was interrupted.
async fn withdraw_interrupted(run: &mut BucketCommand<'_>, dropped: &Dropped<'_>) -> Result<(), RunError> {
    let Dropped::Names(names) = dropped else {
        return Ok(());
    };
    match withdraw(run, Some(names)).await {
        // The client lacks the right, and mongod's error for the missing index is returned.
        Err(RunError::Command(_)) => Ok(()),
        withdrawn => withdrawn,
    }
}

/// The names of the indexes to drop.
///
/// # Errors
/// mongod's error for a missing index, or for the index on `_id`.
fn names<'a>(there: &'a Indexes, dropped: &Dropped<'a>) -> Result<Vec<&'a str>, CommandError> {
    match dropped {
        Dropped::All => {
            let others = there.known.iter().filter(|spec| of_id(spec).is_none());
            Ok(others.map(|spec| name(spec)).collect())
        }
        Dropped::Names(names) => {
            let mut found = names.iter().filter_map(|name| there.named(name));
            // mongod checks this before missing indexes.
            if found.any(is_clustered) {
                return Err(indexes::cannot_drop_clustered());
            }
            if let Some(wrong) = names.iter().find_map(|name| wrong(there, name)) {
                return Err(wrong);
            }
            let mut seen = HashSet::new();
            match names.iter().find(|name| !seen.insert(**name)) {
                Some(twice) => Err(indexes::not_found(twice)),
                None => Ok(names.clone()),
            }
        }
        Dropped::Key(key) => match *there.with_key(key) {
            [spec] => of_id(spec).map_or_else(|| Ok(vec![name(spec)]), Err),
            [] => Err(indexes::no_such_key(key)),
            ref found => Err(indexes::ambiguous_key(key, &Indexes::as_printed(found))),
        },
    }
}

fn wrong(there: &Indexes, name: &str) -> Option<CommandError> {
    match there.named(name) {
        Some(spec) => of_id(spec),
        None => Some(indexes::not_found(name)),
    }
}

/// mongod's error if this is the index on `_id`, which cannot be dropped.
fn of_id(spec: &RawDocument) -> Option<CommandError> {
    if is_clustered(spec) {
        Some(indexes::cannot_drop_clustered())
    } else {
        (name(spec) == ID).then(indexes::cannot_drop_id)
    }
}

/// The reply, counting only the application's indexes. `others` is the number of other indexes.
fn converted(reply: &RawDocument, dropped: &Dropped<'_>, others: usize) -> RawDocumentBuf {
    let was = without_others(reply, "nIndexesWas", others);
    let mut converted = RawDocumentBuf::new();
    for (name, value) in reply.iter().flatten() {
        if name.as_str() != "nIndexesWas" {
            converted.append(name, value);
            continue;
        }
        converted.append(name, RawBsonRef::Int32(was));
        if matches!(dropped, Dropped::All) {
            converted.append(cstr!("msg"), "non-_id indexes dropped for collection");
        }
    }
    converted
}
