//! `collMod` of an index: hides it, or changes when items expire.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{given_up, there};
use crate::command::arguments::{InheritedOptions, is_generic, with_replaced};
use crate::command::document::{array_of, as_whole_number, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::indexes::{self, NO_INDEX};
use crate::command::reply::convert_of_server;
use crate::command::value_text::value_text;
use crate::pattern::bucket::item_index::{
    EXPIRE_AFTER, Indexes, is_clustered, is_id_key, is_partial, key, may_expire, name, ttl_marker, ttl_marker_name,
};
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

/// The one option of an index that a `collMod` changes.
#[derive(Clone, Copy, PartialEq)]
enum Changed {
    Hidden,
    Expiry,
}

impl Changed {
    /// The name of the option.
    fn option(self) -> &'static str {
        match self {
            Self::Hidden => "hidden",
            Self::Expiry => EXPIRE_AFTER,
        }
    }

    /// The name of the stored index that has the option.
    fn holder(self, index: &RawDocument) -> String {
        match self {
            Self::Hidden => name(index).to_owned(),
            Self::Expiry => ttl_marker_name(name(index)),
        }
    }
}

/// Executes a `collMod` whose other options mongod may execute.
pub(in crate::session::bucket) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let Some(index) = get(body, "index").and_then(RawBsonRef::as_document) else {
        return run.context.link.run(body).await;
    };
    let options = index.iter().flatten().map(|(name, _)| name.as_str());
    let options: Vec<&str> = options
        .filter(|option| !["name", "keyPattern"].contains(option))
        .collect();
    let changed = match *options {
        ["hidden"] => Some(Changed::Hidden),
        [EXPIRE_AFTER] => Some(Changed::Expiry),
        [] => None,
        _ => {
            let what = "collMod of an index with other options than `hidden` or `expireAfterSeconds`";
            return Err(run.unsupported(what).into());
        }
    };
    let named = get(index, "name").and_then(RawBsonRef::as_str);
    let by_key = get(index, "keyPattern").and_then(RawBsonRef::as_document);
    let Some(changed) = changed else {
        // mongod reports the missing option.
        return run.context.link.run(body).await;
    };
    let there = existing(run, changed.option(), index).await?;
    let found = match (named, by_key) {
        (Some(named), None) => there.named(named).ok_or_else(|| named.to_owned()),
        (None, Some(key)) => match *there.with_key(key) {
            [] => Err(value_text(RawBsonRef::Document(key))),
            [found] => Ok(found),
            ref found => return Err(indexes::ambiguous_key_pattern(key, &Indexes::as_printed(found)).into()),
        },
        // mongod reports that exactly one of both is required.
        _ => return run.context.link.run(body).await,
    };
    let found = found.map_err(|wanted| indexes::cannot_find(&wanted, run.namespace))?;
    let value = get(index, changed.option()).unwrap_or(RawBsonRef::Null);
    if changed == Changed::Expiry {
        if is_id_key(key(found)) || is_clustered(found) {
            // Pages have the same index, and mongod reports that it cannot expire.
            return run.context.link.run(body).await;
        }
        // mongod reports a value that is not a number first.
        if !may_expire(found) && as_whole_number(value).is_some() {
            return Err(indexes::compound_expiry().into());
        }
        if is_partial(found) {
            return Err(run.unsupported("a partial index with expireAfterSeconds").into());
        }
    }
    let mut modified = single("name", changed.holder(found));
    put(&mut modified, changed.option(), value);
    let command = with_replaced(body, &[("index", Some(RawBsonRef::Document(&modified)))]);
    match run.context.link.run(&command).await {
        Err(RunError::Command(error)) if changed == Changed::Expiry && error.is(ErrorCode::IndexNotFound) => {
            begin_expiry(run, name(found), value).await
        }
        reply => reply,
    }
}

/// The indexes of the collection. mongod reports a missing collection. The client's own command is not sent,
/// because another client may create the collection with such an index in the meantime.
async fn existing(run: &mut BucketCommand<'_>, option: &str, index: &RawDocument) -> Result<Indexes, RunError> {
    let mut none = single("name", NO_INDEX);
    put(&mut none, option, get(index, option).unwrap_or(RawBsonRef::Null));
    let body = run.context.head.body();
    let command = with_replaced(body, &[("index", Some(RawBsonRef::Document(&none)))]);
    for round in 0..MAX_ATTEMPTS {
        pause(round).await;
        if let Some(there) = there(run).await? {
            return Ok(there);
        }
        match run.context.link.run(&command).await {
            Err(RunError::Command(error)) if error.is(ErrorCode::IndexNotFound) => {}
            reply => reply.map(drop)?,
        }
    }
    Err(given_up(run))
}

/// Makes an index a TTL index. Sets the other options of the command first: they can be set again if the
/// marker cannot be created.
async fn begin_expiry(
    run: &mut BucketCommand<'_>,
    index: &str,
    seconds: RawBsonRef<'_>,
) -> Result<RawDocumentBuf, RunError> {
    // mongod reduces a greater number, other than in `createIndexes`.
    let seconds = as_whole_number(seconds).unwrap_or(-1).min(i64::from(i32::MAX));
    if let Some(reason) = indexes::invalid_seconds(seconds) {
        return Err(CommandError::new(ErrorCode::InvalidOptions, reason).into());
    }
    let body = run.context.head.body();
    let others = with_replaced(body, &[("index", None)]);
    let mut options = others.iter().flatten().skip(1).map(|(name, _)| name.as_str());
    if options.any(|name| !is_generic(name)) {
        run.context.link.run(&others).await?;
    }
    let mut command = single("createIndexes", run.namespace.collection);
    command.append(
        cstr!("indexes"),
        array_of(&[ttl_marker(index, RawBsonRef::Int64(seconds))]),
    );
    if let Some(concern) = get(body, "writeConcern") {
        command.append(cstr!("writeConcern"), concern);
    }
    InheritedOptions::of(body).append_identity(&mut command);
    let created = run.context.link.run(&command).await?;
    Ok(convert_of_server(&created, |created| {
        let mut reply = single("expireAfterSeconds_new", seconds);
        for (name, value) in created.iter().flatten() {
            if name == "ok" || name.as_str().starts_with('$') || name == "operationTime" {
                reply.append(name, value);
            }
        }
        reply
    }))
}
