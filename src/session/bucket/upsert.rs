//! Inserts the item of an upsert without a match, built as mongod builds it.
//!
//! The insert has its own `stmtId`, in addition to that of the client's statement, so that a retry finds it.

use bson::oid::ObjectId;
use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};
use bson::{DateTime, Timestamp};

use super::command::BucketCommand;
use super::item_update::{Evaluated, ItemUpdate};
use super::write_statement::{Origin, WriteCommand, is_remembered, send_one};
use super::{insert, invalid_item};
use crate::command::document::{array_of, get, put, single};
use crate::command::duplicate::duplicate_of;
use crate::command::error::WriteError;
use crate::command::header::CommandHeader;
use crate::command::reply::CursorReply;
use crate::pattern::bucket::item::IdSource;
use crate::pattern::bucket::predicate_pushdown::BucketPredicate;
use crate::pattern::bucket::upsert::{Built, UpsertError, after_stages, build, check_filter, simplified};
use crate::pattern::shapes::ItemIds;
use crate::session::error::RunError;
use crate::session::id_source::SystemIdSource;
use crate::session::metrics::RefusalReason;
use crate::session::upsert_race::is_of_filter;

/// Offset from a statement's `stmtId` to that of its insert. Larger than the number of statements
/// in a command.
const BESIDE: i32 = 1 << 17;
/// Seconds in which a client can retry a command. mongod deletes the session's records sooner.
const REMEMBERED: u32 = 3600;
/// Allowed clock difference of two proxies in seconds.
const SKEW: u32 = 60;

pub(super) enum Upserted {
    /// The inserted item, and mongod's last reply.
    Made(RawDocumentBuf, RawDocumentBuf),
    /// Another attempt of the command has inserted its item since the filter matched none: see [`before`].
    Before,
    /// Another writer inserted an item with the `_id` in the filter, so an item matches now.
    Overtaken,
    /// The insert failed with mongod's error.
    Failed(WriteError),
}

/// Builds the item and inserts it.
pub(super) async fn insert_missing(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>) -> Result<Upserted, RunError> {
    if let Some(Err(error)) = task.asked.filter.map(check_filter) {
        return Ok(Upserted::Failed(error));
    }
    let item = match built(run, task).await? {
        Evaluated::Value(item) => item,
        Evaluated::Failed(error) => return Ok(Upserted::Failed(error)),
    };
    if run.target.as_ref().is_some_and(|target| !target.has(run.shape, &item)) {
        let what = "an upsert of a sharded collection that inserts an item with another key than its filter names";
        return Err(run.refuse(RefusalReason::Cluster, what).into());
    }
    let body = insert_of(run, task, &item);
    let head = CommandHeader::of_body(&body)?;
    // The lookup of the item has begun the transaction.
    let mut inner = run.for_internal_command(&head, true);
    let reply = insert::run(&mut inner).await?;
    run.record_executed(&reply);
    let errors = get(&reply, "writeErrors").and_then(RawBsonRef::as_array);
    let error = errors.and_then(|errors| WriteError::parse(errors.into_iter().next()?.ok()?.as_document()?));
    Ok(match error {
        Some((_, error)) if is_overtaken(run, task, &error) => {
            if run.context.head.in_transaction() {
                return Err(error.into_command_error().into());
            }
            Upserted::Overtaken
        }
        Some((_, error)) => Upserted::Failed(error),
        None if get(&reply, "retriedStmtIds").is_some() => Upserted::Before,
        None => Upserted::Made(item, reply),
    })
}

/// Whether an earlier attempt of the client's statement inserted an item.
pub(super) async fn is_recorded(run: &mut BucketCommand<'_>, statement_id: i32) -> Result<bool, RunError> {
    let Some(id) = statement_id.checked_add(BESIDE) else {
        return Ok(false);
    };
    Ok(is_remembered(run, id).await?.is_some())
}

/// The insert of an earlier attempt of the client's statement: its `_id`, the item as it would be
/// built now, and mongod's reply.
pub(super) async fn before(
    run: &mut BucketCommand<'_>,
    task: &ItemUpdate<'_>,
) -> Result<Option<(RawBson, RawDocumentBuf, RawDocumentBuf)>, RunError> {
    let Some(id) = task.statement_id.and_then(|id| id.checked_add(BESIDE)) else {
        return Ok(None);
    };
    let result = send_one(run, WriteCommand::Update, &run.no_statement(), Origin::Client(Some(id))).await?;
    if !result.resent {
        return Ok(None);
    }
    let Evaluated::Value(item) = built(run, task).await? else {
        return Err(run.corrupt_bucket_error().into());
    };
    let id = get(&item, "_id")
        .map(RawBson::from)
        .ok_or_else(|| run.corrupt_bucket_error())?;
    Ok(Some((found_again(run, task, id).await?, item, result.answer)))
}

/// The `_id` that the first attempt generated. It differs from a new one only in its seconds.
async fn found_again(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>, made: RawBson) -> Result<RawBson, RunError> {
    let (Some(minted), RawBson::ObjectId(id)) = (minted(run, task, 0), &made) else {
        return Ok(made);
    };
    if minted.bytes()[4..] != id.bytes()[4..] || run.shape.item_ids() == ItemIds::Dropped {
        return Ok(made);
    }
    let now = seconds();
    let seconds = now.saturating_sub(REMEMBERED)..=now.saturating_add(SKEW);
    let ids: RawArrayBuf = seconds.filter_map(|seconds| self::minted(run, task, seconds)).collect();
    let path = format!("{}._id", run.shape.items());
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("filter"), single(&path, single("$in", &ids)));
    find.append(cstr!("projection"), single(&path, 1));
    find.append(cstr!("limit"), 1);
    find.append(cstr!("singleBatch"), true);
    run.context.inherited().append_to_read_of_write(&mut find);
    let answer = run.context.link.run(&find).await?;
    let bucket = CursorReply::parse(&answer).and_then(|cursor| cursor.documents().next());
    let items = bucket.and_then(|bucket| get(bucket, run.shape.items())?.as_array());
    let items = items
        .into_iter()
        .flatten()
        .flatten()
        .filter_map(RawBsonRef::as_document);
    let mut own = items.filter_map(|item| get(item, "_id")?.as_object_id());
    let own = own.find(|own| own.bytes()[4..] == id.bytes()[4..]);
    Ok(own.map_or(made, RawBson::ObjectId))
}

/// Builds the item that mongod would insert.
async fn built(run: &mut BucketCommand<'_>, task: &ItemUpdate<'_>) -> Result<Evaluated<RawDocumentBuf>, RunError> {
    if let Some(simplified) = task.asked.filter.and_then(simplified)
        && simplified.may_apply(run.context.link.server_version().await?)
    {
        return Err(run.unsupported(simplified.what).into());
    }
    let mut mint = UpsertMint {
        system: SystemIdSource::new(&run.context.shared.timestamps),
        id: minted(run, task, seconds()),
    };
    let item = match build(task.asked, &mut mint) {
        Ok(Built::Base(base)) => match task.make_one(run, &base).await? {
            Evaluated::Value(made) => after_stages(&base, &made, &mut mint),
            failed @ Evaluated::Failed(_) => return Ok(failed),
        },
        Ok(Built::Document(item)) => Ok(item),
        Err(error) => Err(error),
    };
    match item {
        Ok(item) => Ok(Evaluated::Value(item)),
        Err(UpsertError::Mongod(error)) => Ok(Evaluated::Failed(error)),
        Err(UpsertError::Unsupported(what)) => Err(run.unsupported(&what).into()),
    }
}

fn insert_of(run: &BucketCommand<'_>, task: &ItemUpdate<'_>, item: &RawDocument) -> RawDocumentBuf {
    let mut body = single("insert", run.namespace.collection);
    body.append(cstr!("documents"), array_of(&[item.to_owned()]));
    if let Some(id) = task.statement_id {
        put(&mut body, "stmtId", id.saturating_add(BESIDE));
    }
    invalid_item::append_bypass(run, &mut body);
    run.context.inherited().append_to_write(&mut body);
    body
}

/// Whether another writer inserted an item with the key that the filter demands, in a unique index.
fn is_overtaken(run: &BucketCommand<'_>, task: &ItemUpdate<'_>, error: &WriteError) -> bool {
    let is_of_id = duplicate_of(error).is_some() && names_only_id(run, task);
    is_of_id || task.asked.filter.is_some_and(|filter| is_of_filter(error, filter))
}

/// Whether the filter contains only `_id`. Then the unique index decides which of two upserts is
/// first, and mongod repeats the other one (`shouldRetryDuplicateKeyException`).
fn names_only_id(run: &BucketCommand<'_>, task: &ItemUpdate<'_>) -> bool {
    let narrowing = BucketPredicate::of(run.shape, task.asked.filter);
    narrowing.exactly_one_id().is_some() && task.asked.filter.is_some_and(|filter| filter.iter().count() == 1)
}

/// An `_id` that is the same in every attempt of a command, except for its seconds.
fn minted(run: &BucketCommand<'_>, task: &ItemUpdate<'_>, seconds: u32) -> Option<ObjectId> {
    let statement = u64::from(u32::try_from(task.statement_id?).ok()?);
    let body = run.context.head.body();
    let RawBsonRef::Binary(session) = get(get(body, "lsid")?.as_document()?, "id")? else {
        return None;
    };
    let session = u128::from_be_bytes(session.bytes.try_into().ok()?).to_be_bytes();
    let number = get(body, "txnNumber")?.as_i64()?.cast_unsigned();
    let (high, low) = session.split_at(8);
    let part = |half: &[u8]| half.try_into().map(u64::from_be_bytes).unwrap_or_default();
    // The session's bytes are random. `txnNumber` and `stmtId` distinguish statements of one
    // session.
    let mixed =
        part(high) ^ part(low).rotate_left(17) ^ number.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ statement.rotate_left(40);
    let mut bytes = [0; 12];
    bytes[..4].copy_from_slice(&seconds.to_be_bytes());
    bytes[4..].copy_from_slice(&mixed.to_be_bytes());
    Some(ObjectId::from_bytes(bytes))
}

fn seconds() -> u32 {
    u32::try_from(DateTime::now().timestamp_millis().div_euclid(1000)).unwrap_or_default()
}

/// Generates `id`, which is derived from the command. If it is `None`, generates random ids.
struct UpsertMint<'a> {
    system: SystemIdSource<'a>,
    id: Option<ObjectId>,
}

impl IdSource for UpsertMint<'_> {
    fn now(&self) -> DateTime {
        self.system.now()
    }

    fn object_id(&mut self) -> ObjectId {
        self.id.unwrap_or_else(|| self.system.object_id())
    }

    fn timestamp(&mut self) -> Timestamp {
        self.system.timestamp()
    }

    fn nonce(&self) -> i64 {
        self.system.nonce()
    }
}
