//! `findAndModify`: a typical document is changed and answered by mongod itself; of an outlier, mongod works out the change and its
//! answer on a copy.

use bson::oid::ObjectId;
use bson::raw::{RawBson, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::read::forgotten;
use super::send::Told;
use super::write::{Meant, has_expression, met_by_none};
use super::{MAX_ATTEMPTS, Outlier, pause};
use crate::command::arguments::with_replaced;
use crate::command::document::{as_whole_number, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find_and_modify::FindAndModify;
use crate::command::reply::succeeded;
use crate::pattern::outlier::layout::{State, split};
use crate::pattern::outlier::merge::merged;
use crate::pattern::outlier::statement::{inserting, replacing, typical_with_room};
use crate::pattern::outlier::touch::{Change, Growth, may_insert_long};
use crate::session::error::RunError;
use crate::session::link::Request;

/// mongod's code for a `findAndModify` that inserted a document when it was sent before, and says nothing of an upsert now.
const WAS_UPSERT: i32 = 40608;

pub(super) async fn run(run: &mut Outlier<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = match FindAndModify::parse(run.head.body()) {
        // What contradicts itself mongod finds within the transaction.
        Err(error) if error.is(ErrorCode::FailedToParse) && run.head.in_transaction() => {
            run.abort().await?;
            return Err(error.into());
        }
        command => command?,
    };
    run.is_retryable()?;
    let change = command.change.map_or(Change::Elsewhere, |change| {
        Change::of_upsert(run.shape, change, command.filter.filter(|_| command.upsert))
    });
    let growth = match change {
        Change::Own => {
            let what = format!("an update of `{}`, or of what is beside it,", run.shape.flag());
            return Err(run.unsupported(&what).into());
        }
        Change::Array(growth) => growth,
        Change::Elsewhere => Growth::None,
    };
    if command.upsert && command.filter.is_some_and(has_expression) {
        // mongod refuses it.
        return run.as_it_is().await;
    }
    let meant = Meant {
        filter: command.filter,
        sort: command.sort,
        collation: command.collation,
        hint: command.hint,
        variables: command.let_variables,
    };
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let id = match meant.id() {
            Some(id) => Some(RawBson::from(id)),
            None => match run.ids(meant, 1).await {
                Ok(ids) => ids.into_iter().next(),
                Err(RunError::Command(error @ CommandError::Upstream(_))) if !run.head.in_transaction() => {
                    // mongod may find something else wrong first.
                    met_by_nobody(run, &command).await?;
                    return Err(error.into());
                }
                Err(error) => return Err(error),
            },
        };
        let Some(id) = id else {
            return without_match(run, &command, growth).await;
        };
        let id = id.as_raw_bson_ref();
        let filter = meant.with_id(id);
        if let Some(typical) = typical_with_room(run.shape, &filter, growth) {
            let answer = typical_one(run, &command, &typical).await?;
            if let Some(answer) = answer {
                return Ok(answer);
            }
        }
        match of_outlier(run, &command, (&filter, id)).await? {
            Some(answer) => return Ok(answer),
            None if meant.id().is_some() => return without_match(run, &command, growth).await,
            None => {}
        }
    }
    Err(run.lost_too_often().into())
}

/// The client's command with another filter, and without these fields.
fn asking(run: &Outlier<'_>, filter: &RawDocument, without: &[&str]) -> RawDocumentBuf {
    let mut replaced: Vec<_> = without.iter().map(|name| (*name, None)).collect();
    replaced.push(("query", None));
    let mut body = with_replaced(run.head.body(), &replaced);
    put(&mut body, "query", filter);
    body
}

/// Of a document without extras, in the client's own words. `None` where there is none.
async fn typical_one(
    run: &mut Outlier<'_>,
    command: &FindAndModify<'_>,
    filter: &RawDocument,
) -> Result<Option<RawDocumentBuf>, RunError> {
    let answer = without_upsert(run, filter).await?;
    let n = get(&answer, "lastErrorObject").and_then(RawBsonRef::as_document);
    let n = n.and_then(|of| get(of, "n")).and_then(as_whole_number);
    if n.unwrap_or_default() == 0 {
        return Ok(None);
    }
    told_again(run, command, answer).await.map(Some)
}

/// The answer as the application has it: one to a command that was sent before may be of an outlier.
async fn told_again(
    run: &mut Outlier<'_>,
    command: &FindAndModify<'_>,
    answer: RawDocumentBuf,
) -> Result<RawDocumentBuf, RunError> {
    if get(&answer, "retriedStmtId").is_none() {
        return Ok(answer);
    }
    if command.projection.is_some_and(|fields| !fields.is_empty()) {
        return Err(forgotten().into());
    }
    let Some(RawBsonRef::Document(value)) = get(&answer, "value") else {
        return Ok(answer);
    };
    let State::Outlier(extras) = State::of(run.shape, value) else {
        return Ok(answer);
    };
    let Some(id) = get(value, "_id") else {
        return Err(forgotten().into());
    };
    let pages = run.pages(&[(id, extras.generation)]).await?;
    let Some(whole) = merged(run.shape, value, &extras, &pages.of(extras.generation)) else {
        return Err(forgotten().into());
    };
    Ok(with_replaced(&answer, &[("value", Some(RawBsonRef::Document(&whole)))]))
}

/// Of an outlier, or of a document that may become one. `None` where none of that `_id` is meant.
async fn of_outlier(
    run: &mut Outlier<'_>,
    command: &FindAndModify<'_>,
    (filter, id): (&RawDocument, RawBsonRef<'_>),
) -> Result<Option<RawDocumentBuf>, RunError> {
    if run.head.is_retryable_write() {
        // mongod tells whether it was done before: what it would do now is another question.
        let answer = met_by_nobody(run, command).await?;
        if get(&answer, "retriedStmtId").is_some() {
            return told_again(run, command, answer).await.map(Some);
        }
    }
    for attempt in 0..MAX_ATTEMPTS {
        pause(attempt).await;
        let Some(stored) = run.base(id).await? else {
            return Ok(None);
        };
        let Some(whole) = run.whole(&stored).await? else {
            continue;
        };
        let computed = run
            .compute(Some(&whole), |collection| on_copy(collection, command, Some(filter)))
            .await?;
        let answer = succeeded(computed.answer)?;
        let n = get(&answer, "lastErrorObject").and_then(RawBsonRef::as_document);
        let n = n.and_then(|of| get(of, "n")).and_then(as_whole_number);
        if n.unwrap_or_default() == 0 {
            return Ok(None);
        }
        let told = match computed.then {
            Some(then) if then.as_bytes() == whole.as_bytes() => {
                // Maybe since it was done when it was sent before.
                let remembered = if run.head.is_retryable_write() {
                    met_by_nobody(run, command).await?
                } else {
                    RawDocumentBuf::new()
                };
                if get(&remembered, "retriedStmtId").is_some() {
                    return told_again(run, command, remembered).await.map(Some);
                }
                return Ok(Some(answer));
            }
            Some(then) => run.replace(&stored, &then, ("findAndModify", 0)).await?,
            None => remove(run, &stored).await?,
        };
        let Some(told) = told else { continue };
        if told.resent {
            return told_again(run, command, told.answer).await.map(Some);
        }
        return Ok(Some(told_of(&answer, &told)));
    }
    Err(run.lost_too_often().into())
}

/// The client's command on a copy.
fn on_copy(collection: &str, command: &FindAndModify<'_>, filter: Option<&RawDocument>) -> RawDocumentBuf {
    let mut copy = single("findAndModify", collection);
    let documents = [
        ("query", filter.or(command.filter)),
        ("fields", command.projection),
        ("collation", command.collation),
        ("let", command.let_variables),
    ];
    for (name, document) in documents {
        if let Some(document) = document {
            put(&mut copy, name, document);
        }
    }
    match command.change {
        Some(change) => put(&mut copy, "update", change),
        None => put(&mut copy, "remove", true),
    }
    if let Some(filters) = command.array_filters {
        put(&mut copy, "arrayFilters", filters);
    }
    put(&mut copy, "new", command.new);
    put(&mut copy, "bypassDocumentValidation", true);
    copy
}

/// Removes a stored document, and its pages. `None` where it is not as it was found.
async fn remove(run: &mut Outlier<'_>, stored: &RawDocument) -> Result<Option<Told>, RunError> {
    let (filter, _) = replacing(stored, stored).map_err(|what| run.unsupported(&what))?;
    let mut command = single("findAndModify", run.namespace.collection);
    put(&mut command, "query", &filter);
    put(&mut command, "remove", true);
    put(&mut command, "collation", single("locale", "simple"));
    let told = run.find_and_modify(command).await?;
    if told.n == 0 {
        return Ok(None);
    }
    if let (Some(extras), Some(id)) = (run.extras_of(stored)?, get(stored, "_id")) {
        run.remove_pages(id, extras.generation).await?;
    }
    Ok(Some(told))
}

/// Where no document is meant: nothing, or what an earlier attempt has done, or an upsert.
async fn without_match(
    run: &mut Outlier<'_>,
    command: &FindAndModify<'_>,
    growth: Growth,
) -> Result<RawDocumentBuf, RunError> {
    let all = RawDocumentBuf::new();
    let filter = command.filter.unwrap_or(&all);
    if command.upsert {
        let growth = if may_insert_long(run.shape, filter) {
            Growth::Unknown
        } else {
            growth
        };
        let Some(typical) = typical_with_room(run.shape, filter, growth) else {
            return upsert_computed(run, command).await;
        };
        let body = asking(run, &typical, &[]);
        let answer = run.link.run(&run.next(&body)).await?;
        return told_again(run, command, answer).await;
    }
    let answer = met_by_nobody(run, command).await?;
    told_again(run, command, answer).await
}

/// mongod's answer to the client's words where no document meets them.
async fn met_by_nobody(run: &mut Outlier<'_>, command: &FindAndModify<'_>) -> Result<RawDocumentBuf, RunError> {
    let all = RawDocumentBuf::new();
    let nothing = met_by_none(command.filter.unwrap_or(&all));
    without_upsert(run, &nothing).await
}

/// mongod's answer to the client's command with another filter, where nothing may be inserted.
async fn without_upsert(run: &mut Outlier<'_>, filter: &RawDocument) -> Result<RawDocumentBuf, RunError> {
    let body = asking(run, filter, &["sort", "upsert"]);
    match run.link.run(&run.next(&body)).await {
        Err(RunError::Command(CommandError::Upstream(reply)))
            if reply.get_i32("code").is_ok_and(|code| code == WAS_UPSERT) =>
        {
            // It did when it was sent before: now mongod only says so.
            let body = asking(run, filter, &["sort"]);
            run.link.run(&run.next(&body)).await
        }
        answer => answer,
    }
}

/// An upsert that makes a document of which nobody knows how long its array is.
async fn upsert_computed(run: &mut Outlier<'_>, command: &FindAndModify<'_>) -> Result<RawDocumentBuf, RunError> {
    if run.head.is_retryable_write() {
        let answer = met_by_nobody(run, command).await?;
        if get(&answer, "retriedStmtId").is_some() {
            return told_again(run, command, answer).await;
        }
    }
    let computed = run
        .compute(None, |collection| {
            let mut copy = on_copy(collection, command, None);
            put(&mut copy, "upsert", true);
            copy
        })
        .await?;
    let answer = succeeded(computed.answer)?;
    let Some(made) = computed.then else {
        return Ok(answer);
    };
    let split = split(run.shape, &made, ObjectId::new());
    run.write_pages(&split.pages).await?;
    let (filter, change) = inserting(&split.base);
    let mut insert = single("findAndModify", run.namespace.collection);
    put(&mut insert, "query", &filter);
    put(&mut insert, "update", change);
    put(&mut insert, "upsert", true);
    put(&mut insert, "collation", single("locale", "simple"));
    match run.find_and_modify(insert).await {
        Ok(told) => Ok(told_of(&answer, &told)),
        Err(error) => {
            if !run.head.in_transaction()
                && let (Some(extras), Some(id)) = (run.extras_of(&split.base)?, get(&made, "_id"))
            {
                run.remove_pages(id, extras.generation).await?;
            }
            Err(error)
        }
    }
}

/// The answer that mongod gave of a copy, with what it told of the stored document.
fn told_of(answer: &RawDocument, told: &Told) -> RawDocumentBuf {
    let mut reply = RawDocumentBuf::new();
    for (name, value) in answer.iter().flatten() {
        if ["lastErrorObject", "value", "ok"].contains(&name.as_str()) {
            reply.append(name, value);
        }
    }
    if let Some(concern) = get(&told.answer, "writeConcernError") {
        reply.append(cstr!("writeConcernError"), concern);
    }
    crate::command::reply::carry(&mut reply, &told.answer);
    reply
}

impl Outlier<'_> {
    /// Sends a `findAndModify` of the proxy's own as the client's.
    pub(super) async fn find_and_modify(&mut self, mut command: RawDocumentBuf) -> Result<Told, RunError> {
        self.append_bypass(&mut command);
        self.carried().append_to_write(&mut command);
        let answer = succeeded(self.link.call(Request::plain(&command)).await?)?;
        let of = get(&answer, "lastErrorObject").and_then(RawBsonRef::as_document);
        let n = of
            .and_then(|of| get(of, "n"))
            .and_then(as_whole_number)
            .unwrap_or_default();
        Ok(Told {
            n,
            modified: n,
            resent: get(&answer, "retriedStmtId").is_some(),
            error: None,
            answer,
        })
    }
}
