//! Reads in which mongod reassembles outliers.
//!
//! mongod reads base documents some time before their pages. If another writer replaces an array in the
//! meantime, the read misses pages and fails. Beside a busy writer it could fail in the same way each time.
//! So it is executed again at one cluster time, at which base documents and their pages belong together.

use bson::Timestamp;
use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{first_field, get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::merge::MergeStage;
use crate::command::reply::succeeded;
use crate::pattern::outlier::pipeline::MISSING;
use crate::session::backoff::{MAX_ATTEMPTS, pause};
use crate::session::error::RunError;
use crate::session::upstream_connection::{UpstreamConnection, UpstreamRequest};

/// Successive attempts that miss the pages of one generation before they count as lost. `dropDatabase` may
/// remove pages before base documents.
const MAX_MISSES: u32 = 10;
/// Characters of a generation in mongod's error.
const GENERATION_LENGTH: usize = 24;
/// Maximum time in milliseconds until the majority has a state. While the majority is down, it never has it.
const MAX_COMMIT_TIME_MS: i32 = 1000;
/// mongod's codes for a read concern that it does not support, or not now: `InvalidOptions`,
/// `NotAReplicaSet`, `ReadConcernMajorityNotEnabled`, `SnapshotTooOld`, `SnapshotUnavailable`.
const NO_SNAPSHOT: [i32; 5] = [72, 123, 148, 239, 246];

/// mongod's error for pages that do not exist although a base document references them.
#[derive(Debug)]
pub(super) struct MissingPages<'a> {
    generation: &'a str,
    /// The cluster time of the error. `None` on a standalone.
    pub(super) time: Option<Timestamp>,
}

impl<'a> MissingPages<'a> {
    pub(super) fn of<T>(answer: &'a Result<T, RunError>) -> Option<Self> {
        match answer {
            Err(RunError::Command(CommandError::Upstream(reply))) => Self::of_reply(reply),
            _ => None,
        }
    }

    pub(super) fn of_reply(reply: &'a RawDocument) -> Option<Self> {
        let code = reply.get_i32("code").ok()?;
        if code != ErrorCode::ConversionFailure.number() {
            return None;
        }
        let (_, rest) = reply.get_str("errmsg").ok()?.split_once(MISSING)?;
        Some(Self {
            generation: rest.get(..GENERATION_LENGTH).unwrap_or(rest),
            time: reply.get_timestamp("operationTime").ok(),
        })
    }
}

/// Counts the attempts that missed the pages of one generation.
#[derive(Debug, Default)]
pub(super) struct Misses {
    generation: String,
    count: u32,
}

impl Misses {
    /// Counts an attempt. Returns true if the pages are lost: after a replacement, the next attempt finds
    /// another generation.
    pub(super) fn are_lost(&mut self, missing: &MissingPages<'_>) -> bool {
        if self.generation != missing.generation {
            missing.generation.clone_into(&mut self.generation);
            self.count = 0;
        }
        self.count = self.count.saturating_add(1);
        self.count >= MAX_MISSES
    }
}

/// Executes a pipeline that reassembles outliers. Executes it again if it missed pages, unless it may have
/// merged documents that would then be changed twice.
pub(in crate::session) async fn put_together(
    link: &mut UpstreamConnection,
    command: &RawDocument,
) -> Result<RawDocumentBuf, RunError> {
    put_together_since(link, command, None).await
}

/// Like [`put_together`], for a command whose former cursor missed pages at the time `since`.
pub(super) async fn put_together_since(
    link: &mut UpstreamConnection,
    command: &RawDocument,
    mut since: Option<Timestamp>,
) -> Result<RawDocumentBuf, RunError> {
    let mut misses = Misses::default();
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let answer = read(link, command, since).await;
        let Some(missing) = MissingPages::of(&answer) else {
            return answer;
        };
        if !may_be_repeated(command) {
            return Err(interrupted_merge().into());
        }
        if misses.are_lost(&missing) {
            return Err(missing_extras("a document of an outlier collection").into());
        }
        since = missing.time;
    }
    Err(replaced_extras("a document of an outlier collection").into())
}

/// Whether a command that failed has the same effect if it is executed again. mongod merges documents batch
/// after batch, so a `$merge` may have changed documents before. A `$out` replaces its target at its end.
fn may_be_repeated(command: &RawDocument) -> bool {
    let stages = get(command, "pipeline").and_then(RawBsonRef::as_array);
    let stages = stages.into_iter().flatten().flatten();
    let stages: Vec<&RawDocument> = stages.filter_map(RawBsonRef::as_document).collect();
    let Some((last, sources)) = stages.split_last() else {
        return true;
    };
    !matches!(first_field(last), Some(("$merge", _)))
        || (MergeStage::parse(last).is_some_and(|merge| merge.is_idempotent())
            && sources.iter().all(|stage| keeps_ids(stage)))
}

/// Whether a stage returns documents with the same `_id`s each time. A document without an `_id` gets another
/// one each time that it is merged.
fn keeps_ids(stage: &RawDocument) -> bool {
    let is_id = |path: &str| path.split('.').next() == Some("_id");
    let is_id_name = |name: RawBsonRef<'_>| name.as_str().is_none_or(is_id);
    match first_field(stage) {
        Some((
            "$match" | "$sort" | "$skip" | "$limit" | "$lookup" | "$graphLookup" | "$unwind" | "$group"
            | "$sortByCount" | "$bucket",
            _,
        )) => true,
        Some(("$set" | "$addFields" | "$project", RawBsonRef::Document(fields))) => {
            !fields.iter().flatten().any(|(name, _)| is_id(name.as_str()))
        }
        Some(("$unset", RawBsonRef::Array(names))) => !names.into_iter().flatten().any(is_id_name),
        Some(("$unset", name)) => !is_id_name(name),
        _ => false,
    }
}

/// Executes a command. `since`: at one cluster time, this one or later, if the command and the server allow
/// that.
async fn read(
    link: &mut UpstreamConnection,
    command: &RawDocument,
    since: Option<Timestamp>,
) -> Result<RawDocumentBuf, RunError> {
    if let Some(since) = since
        && let Some(at_one_time) = at_one_time(command, since)
        && is_committed(link, command, since).await?
    {
        let answer = link.run(&at_one_time).await;
        if !is_without_snapshot(&answer) {
            return answer.map(|reply| without_time(&reply));
        }
    }
    link.run(command).await
}

/// The command with the read concern `snapshot`. `None`: it writes, is part of a transaction, or has a read
/// concern with another meaning.
fn at_one_time(command: &RawDocument, since: Timestamp) -> Option<RawDocumentBuf> {
    let is_aggregate = matches!(first_field(command), Some(("aggregate", RawBsonRef::String(_))));
    let concern = get(command, "readConcern").and_then(RawBsonRef::as_document);
    let level = concern.and_then(|concern| get(concern, "level"));
    let is_weaker = level.is_none_or(|level| matches!(level.as_str(), Some("local" | "available" | "majority")));
    let stages = get(command, "pipeline").and_then(RawBsonRef::as_array)?;
    let last = stages.into_iter().flatten().last().and_then(RawBsonRef::as_document);
    let writes = last.is_some_and(|stage| matches!(first_field(stage), Some(("$out" | "$merge", _))));
    if !is_aggregate || !is_weaker || writes || get(command, "autocommit").is_some() {
        return None;
    }
    let mut concern = single("level", "snapshot");
    concern.append(cstr!("afterClusterTime"), since);
    let mut changed = with_replaced(command, &[("readConcern", None)]);
    changed.append(cstr!("readConcern"), &concern);
    Some(changed)
}

/// Waits until the majority has the state at this time. The read itself would wait for that without a limit.
/// Returns false after [`MAX_COMMIT_TIME_MS`].
async fn is_committed(link: &mut UpstreamConnection, command: &RawDocument, time: Timestamp) -> Result<bool, RunError> {
    let Some((_, RawBsonRef::String(collection))) = first_field(command) else {
        return Ok(false);
    };
    let mut concern = single("level", "majority");
    concern.append(cstr!("afterClusterTime"), time);
    let mut find = single("find", collection);
    find.append(cstr!("filter"), single("_id", single("$in", RawArrayBuf::new())));
    find.append(cstr!("readConcern"), &concern);
    find.append(cstr!("maxTimeMS"), MAX_COMMIT_TIME_MS);
    InheritedOptions::of(command).append_to_inspect(&mut find);
    let reply = link.call(UpstreamRequest::plain(&find)).await?;
    Ok(succeeded(reply).is_ok())
}

fn is_without_snapshot(answer: &Result<RawDocumentBuf, RunError>) -> bool {
    let Err(RunError::Command(CommandError::Upstream(reply))) = answer else {
        return false;
    };
    reply.get_i32("code").is_ok_and(|code| NO_SNAPSHOT.contains(&code))
}

/// The reply without the cluster time of the read, which the client did not request.
fn without_time(reply: &RawDocument) -> RawDocumentBuf {
    let Some(cursor) = get(reply, "cursor").and_then(RawBsonRef::as_document) else {
        return reply.to_owned();
    };
    let cursor = with_replaced(cursor, &[("atClusterTime", None)]);
    with_replaced(reply, &[("cursor", Some(RawBsonRef::Document(&cursor)))])
}

/// The error for documents whose extras do not exist.
pub(super) fn missing_extras(document: &str) -> CommandError {
    let message = format!(
        "missing extras: {document} records extras that do not exist; run `mongoshape check`, which names the document"
    );
    CommandError::new(ErrorCode::InvalidOptions, message)
}

/// The error for a `$merge` that read a document whose extras were replaced.
fn interrupted_merge() -> CommandError {
    let message = "write conflict: the extras of a document were replaced while it was read; \
                   the $merge may have written other documents";
    CommandError::new(ErrorCode::WriteConflict, message)
}

/// The error for a document whose extras were replaced while it was read.
pub(super) fn replaced_extras(document: &str) -> CommandError {
    let message = format!("the extras of {document} were replaced while it was read: run the query again");
    CommandError::new(ErrorCode::QueryPlanKilled, message)
}

#[cfg(test)]
mod tests {
    use bson::rawdoc;

    use super::*;
    use crate::command::document::array_of;

    #[test]
    fn generation_and_time_are_those_of_the_error() {
        let generation = "507f1f77bcf86cd799439011";
        let message = format!("Failed to parse number '{MISSING}{generation}' in $convert with no onError value");
        let time = Timestamp { time: 5, increment: 1 };
        let reply = rawdoc! { "ok": 0.0, "errmsg": message.as_str(), "code": 241, "operationTime": time };
        let missing = MissingPages::of_reply(&reply).expect("the error of missing pages");
        assert_eq!((missing.generation, missing.time), (generation, Some(time)));
        for other in [
            rawdoc! { "ok": 1.0, "cursor": {} },
            rawdoc! { "ok": 0.0, "errmsg": "Failed to parse number 'x'", "code": 241 },
            rawdoc! { "ok": 0.0, "errmsg": message.as_str(), "code": 2 },
        ] {
            assert!(MissingPages::of_reply(&other).is_none(), "{other:?}");
        }
    }

    #[test]
    fn pages_of_one_generation_are_lost_after_several_attempts() {
        let mut misses = Misses::default();
        let missing = |generation: &'static str| MissingPages { generation, time: None };
        for _ in 1..MAX_MISSES {
            assert!(!misses.are_lost(&missing("a")));
        }
        assert!(!misses.are_lost(&missing("b")));
        for _ in 1..MAX_MISSES {
            assert!(!misses.are_lost(&missing("a")));
        }
        assert!(misses.are_lost(&missing("a")));
    }

    #[test]
    fn only_a_merge_without_a_second_effect_is_executed_again() {
        let merge = |when_matched: &str| rawdoc! { "$merge": { "into": "x", "whenMatched": when_matched } };
        let by_pipeline = || rawdoc! { "$merge": { "into": "x", "whenMatched": [{ "$set": { "n": 1 } }] } };
        let check = |stages: &[RawDocumentBuf], expected: bool| {
            let command = rawdoc! { "aggregate": "sales", "pipeline": array_of(stages) };
            assert_eq!(may_be_repeated(&command), expected, "{command:?}");
        };
        check(&[], true);
        check(&[rawdoc! { "$sample": { "size": 1 } }], true);
        check(&[rawdoc! { "$out": "x" }], true);
        check(&[rawdoc! { "$merge": "x" }], true);
        check(&[by_pipeline()], false);
        check(&[merge("fail")], false);
        let sources = [
            (rawdoc! { "$match": { "_id": 1 } }, true),
            (rawdoc! { "$set": { "tags": 1 } }, true),
            (rawdoc! { "$unset": ["has_extras"] }, true),
            (rawdoc! { "$project": { "_id": 0 } }, false),
            (rawdoc! { "$unset": "_id" }, false),
            (rawdoc! { "$unset": ["a", "_id"] }, false),
            (rawdoc! { "$count": "n" }, false),
            (rawdoc! { "$sample": { "size": 1 } }, false),
        ];
        for (source, expected) in sources {
            for when_matched in ["merge", "replace", "keepExisting"] {
                check(&[source.clone(), merge(when_matched)], expected);
            }
            check(&[source, by_pipeline()], false);
        }
    }

    #[test]
    fn only_reads_of_the_present_state_are_executed_at_one_time() {
        let time = Timestamp { time: 5, increment: 1 };
        let snapshot = rawdoc! { "level": "snapshot", "afterClusterTime": time };
        let check = |command: RawDocumentBuf, expected: bool| {
            let changed = at_one_time(&command, time);
            let concern = changed.as_deref().and_then(|changed| get(changed, "readConcern"));
            let expected = expected.then_some(RawBsonRef::Document(&snapshot));
            assert_eq!(concern, expected, "{command:?}");
        };
        let none = || RawArrayBuf::new();
        check(rawdoc! { "aggregate": "sales", "pipeline": none() }, true);
        let majority = rawdoc! { "level": "majority", "afterClusterTime": time };
        check(
            rawdoc! { "aggregate": "sales", "pipeline": none(), "readConcern": majority },
            true,
        );
        let linearizable = rawdoc! { "level": "linearizable" };
        check(
            rawdoc! { "aggregate": "sales", "pipeline": none(), "readConcern": linearizable },
            false,
        );
        check(
            rawdoc! { "aggregate": "sales", "pipeline": none(), "readConcern": snapshot.clone() },
            false,
        );
        check(
            rawdoc! { "aggregate": "sales", "pipeline": none(), "autocommit": false },
            false,
        );
        check(rawdoc! { "aggregate": "sales", "pipeline": [{ "$out": "x" }] }, false);
        check(rawdoc! { "aggregate": 1, "pipeline": none() }, false);
        check(rawdoc! { "create": "view", "pipeline": none() }, false);
    }
}
