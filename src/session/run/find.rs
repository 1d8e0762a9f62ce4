//! `find`: from the pages that hold the answer, or by a pipeline.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::Run;
use crate::command::document::{get, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find::{Find, check_hint};
use crate::command::reply::{CursorReply, carry, exhausted_cursor, succeeded, with_closed_cursor};
use crate::pattern::bucket::layout::PageFacts;
use crate::pattern::bucket::page::Exceptions;
use crate::pattern::bucket::read::{Order, PageRead, Progress};
use crate::pattern::bucket::{filter, pipeline};
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let find = Find::parse(run.head.body())?;
    check(run, &find)?;
    run.ready_to_read().await?;
    // In a transaction the first command upstream must be the one that begins it, so one command it is.
    if !run.head.in_transaction()
        && let Some(read) = PageRead::of(run.shape, &find)
        && let Some(reply) = by_page(run, &read).await?
    {
        run.shared.metrics.read(&run.label(), Strategy::Page);
        return Ok(reply);
    }
    run.shared.metrics.read(&run.label(), Strategy::Pipeline);
    by_pipeline(run, &find).await
}

fn check(run: &Run<'_>, find: &Find<'_>) -> Result<(), CommandError> {
    check_hint(find.hint)?;
    if find
        .beyond_aggregation
        .iter()
        .any(|option| matches!(*option, "tailable" | "awaitData"))
    {
        let message = "error processing query: tailable cursor requested on non capped collection";
        return Err(CommandError::new(ErrorCode::BadValue, message));
    }
    if let Some(option) = find.beyond_aggregation.first() {
        return Err(run.unsupported(&format!("find with '{option}'")));
    }
    if let Some(operator) = find.filter.and_then(filter::unsupported_operator) {
        return Err(run.unsupported(&format!("{operator} in a filter")));
    }
    if find.sort.is_some_and(|sort| get(sort, "$natural").is_some()) {
        return Err(run.unsupported("a sort by $natural"));
    }
    Ok(())
}

/// `None` where arithmetic does not give the answer: the pipeline will.
async fn by_page(run: &mut Run<'_>, read: &PageRead) -> Result<Option<RawDocumentBuf>, RunError> {
    let (shape, collection) = (run.shape, run.namespace.collection);
    // What is asked beside the exceptions, in the same round trip: from the front, the buckets where they are if there are
    // no exceptions; from the back, the highest page.
    let guess = match read.order {
        Order::TimeDescending => None,
        Order::Insertion | Order::TimeAscending => read.window(shape, &Exceptions::default(), None),
    };
    let beside = match &guess {
        Some(window) => read.buckets_query(shape, collection, window),
        None => read.highest_query(shape, collection),
    };
    let Some([exceptions, mut answer]) = ask(run, [read.exceptions_query(collection), beside]).await? else {
        return Ok(None);
    };
    let exceptions = Exceptions::parse(
        shape,
        CursorReply::parse(&exceptions).iter().flat_map(CursorReply::documents),
    );
    if exceptions.too_many || (exceptions.late && read.order != Order::Insertion) {
        return Ok(None);
    }
    let highest = match guess {
        Some(_) => None,
        None => buckets(&answer)
            .next()
            .and_then(|bucket| PageFacts::parse(shape, bucket)),
    };
    let mut window = read.window(shape, &exceptions, highest.as_ref());
    let mut answered = guess.is_some() && guess == window;
    let mut items = Vec::new();
    while let Some(wanted) = window {
        if !std::mem::take(&mut answered) {
            match ask(run, [read.buckets_query(shape, collection, &wanted)]).await? {
                Some([buckets]) => answer = buckets,
                None => return Ok(None),
            }
        }
        window = match wanted.take(shape, buckets(&answer), &mut items) {
            Progress::Done => None,
            Progress::More(rest) => Some(rest),
            Progress::TooLarge => return Ok(None),
        };
    }
    let items = read.finish(items);
    let batch: RawArrayBuf = items.iter().map(AsRef::<RawDocument>::as_ref).collect();
    let mut reply = exhausted_cursor(run.namespace, &batch);
    carry(&mut reply, &answer);
    Ok(Some(reply))
}

/// Runs queries back to back. `None` where one is refused, as for an index that is not there: a pipeline needs none.
async fn ask<const N: usize>(
    run: &mut Run<'_>,
    requests: [RawDocumentBuf; N],
) -> Result<Option<[RawDocumentBuf; N]>, RunError> {
    let requests = requests.map(|request| complete(run, request));
    let answers = run.link.call_all(&requests).await?;
    let answers: Result<Vec<_>, _> = answers.into_iter().map(succeeded).collect();
    Ok(answers.ok().and_then(|answers| answers.try_into().ok()))
}

fn buckets(answer: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let cursor = CursorReply::parse(answer);
    cursor
        .into_iter()
        .flat_map(|cursor| cursor.batch.into_iter().flatten().filter_map(RawBsonRef::as_document))
}

/// Adds what every command made from the client's carries.
fn complete(run: &Run<'_>, mut request: RawDocumentBuf) -> RawDocumentBuf {
    run.carried().append_to_read(&mut request);
    request
}

async fn by_pipeline(run: &mut Run<'_>, find: &Find<'_>) -> Result<RawDocumentBuf, RunError> {
    let stages =
        pipeline::of_find(run.shape, find).map_err(|form| run.unsupported(&format!("{form} in a projection")))?;
    let mut command = pipeline::aggregate(run.namespace.collection, &stages, find.batch_size);
    if let Some(collation) = find.collation {
        command.append(cstr!("collation"), collation);
    }
    if let Some(variables) = find.let_variables {
        command.append(cstr!("let"), variables);
    }
    if let Some(allowed) = find.allow_disk_use {
        command.append(cstr!("allowDiskUse"), allowed);
    }
    let command = complete(run, command);
    let reply = run.link.run(&command).await?;
    let Some(cursor) = CursorReply::parse(&reply) else {
        return Ok(reply);
    };
    let returned = u64::try_from(cursor.documents().count()).unwrap_or(u64::MAX);
    // As `find` does and an aggregation does not: the cursor is closed with the last document that was asked for.
    if cursor.id != 0 && (find.single_batch || (find.limit > 0 && returned >= find.limit)) {
        kill(run, cursor.id).await?;
        return Ok(with_closed_cursor(&reply));
    }
    run.shared.cursors.opened(cursor.id);
    Ok(reply)
}

async fn kill(run: &mut Run<'_>, id: i64) -> Result<(), RunError> {
    let mut command = single("killCursors", run.namespace.collection);
    let ids: RawArrayBuf = [RawBsonRef::Int64(id)].into_iter().collect();
    command.append(cstr!("cursors"), &ids);
    run.carried().append_identity(&mut command);
    run.link.run(&command).await.map(|_| ())
}
