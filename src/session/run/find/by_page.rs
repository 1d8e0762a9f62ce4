//! A stretch of one key's items, read from the pages that hold it.
//!
//! Several queries make one answer while writers go on, so their order matters. Before a page is begun, all pages before it
//! are closed and, if short, marked. So exceptions that are read *after* a page was seen tell of every short page before it,
//! and an answer is only given when the exceptions read after the buckets lead to those same buckets.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf};

use super::complete;
use crate::command::reply::{CursorReply, carry, exhausted_cursor, succeeded};
use crate::pattern::bucket::layout::PageFacts;
use crate::pattern::bucket::page::Exceptions;
use crate::pattern::bucket::read::{Order, PageRead, Progress, Window};
use crate::session::error::RunError;
use crate::session::link::Request;
use crate::session::run::Run;

/// Looks at the buckets before the pipeline is asked instead. A second is needed where pages are short; a third where one
/// was closed meanwhile.
const MAX_LOOKS: usize = 4;

/// Where to read, and the answer that holds it if that is there already.
struct Found {
    window: Option<Window>,
    answer: Option<RawDocumentBuf>,
}

/// `None` where arithmetic does not give the answer: the pipeline will.
pub(super) async fn run(run: &mut Run<'_>, read: &PageRead) -> Result<Option<RawDocumentBuf>, RunError> {
    let found = match read.order {
        Order::Insertion | Order::TimeAscending => from_the_front(run, read).await?,
        Order::TimeDescending => from_the_back(run, read).await?,
    };
    let Some(Found { mut window, mut answer }) = found else {
        return Ok(None);
    };
    let mut items = Vec::new();
    let mut last = RawDocumentBuf::new();
    while let Some(wanted) = window {
        let buckets = match answer.take() {
            Some(answer) => answer,
            None => match ask(run, [buckets_query(run, read, &wanted)]).await? {
                Some([buckets]) => buckets,
                None => return Ok(None),
            },
        };
        window = match wanted.take(run.shape, documents(&buckets), &mut items) {
            Progress::Done => None,
            Progress::More(rest) => Some(rest),
            Progress::TooLarge => return Ok(None),
        };
        last = buckets;
    }
    let items = read.finish(items);
    let batch: RawArrayBuf = items.iter().map(AsRef::<RawDocument>::as_ref).collect();
    let mut reply = exhausted_cursor(run.namespace, &batch);
    carry(&mut reply, &last);
    Ok(Some(reply))
}

/// Reads where the window is if no page is short, and the exceptions with it in one round trip; where they say otherwise,
/// once more.
async fn from_the_front(run: &mut Run<'_>, read: &PageRead) -> Result<Option<Found>, RunError> {
    let mut guess = read.window(run.shape, &Exceptions::default(), None);
    for _ in 0..MAX_LOOKS {
        let Some(window) = guess else {
            return Ok(Some(Found {
                window: None,
                answer: None,
            }));
        };
        let queries = [
            buckets_query(run, read, &window),
            read.exceptions_query(run.namespace.collection),
        ];
        let Some([buckets, exceptions]) = ask(run, queries).await? else {
            return Ok(None);
        };
        let Some(exceptions) = usable(run, read, &exceptions) else {
            return Ok(None);
        };
        let found = read.window(run.shape, &exceptions, None);
        if found == Some(window) {
            return Ok(Some(Found {
                window: found,
                answer: Some(buckets),
            }));
        }
        guess = found;
    }
    Ok(None)
}

/// Counts from the key's highest page, which is read before the exceptions; what is inserted from then on lies behind.
async fn from_the_back(run: &mut Run<'_>, read: &PageRead) -> Result<Option<Found>, RunError> {
    let collection = run.namespace.collection;
    let queries = [
        read.highest_query(run.shape, collection),
        read.exceptions_query(collection),
    ];
    let Some([highest, exceptions]) = ask(run, queries).await? else {
        return Ok(None);
    };
    let Some(exceptions) = usable(run, read, &exceptions) else {
        return Ok(None);
    };
    let highest = documents(&highest)
        .next()
        .and_then(|bucket| PageFacts::parse(run.shape, bucket));
    Ok(Some(Found {
        window: read.window(run.shape, &exceptions, highest.as_ref()),
        answer: None,
    }))
}

/// The exceptions, unless there are more than arithmetic deals with, or late pages where order by time is asked for.
fn usable(run: &Run<'_>, read: &PageRead, answer: &RawDocument) -> Option<Exceptions> {
    let exceptions = Exceptions::parse(run.shape, documents(answer));
    let in_the_way = exceptions.too_many || (exceptions.late && read.order != Order::Insertion);
    (!in_the_way).then_some(exceptions)
}

fn buckets_query(run: &Run<'_>, read: &PageRead, window: &Window) -> RawDocumentBuf {
    read.buckets_query(run.shape, run.namespace.collection, window)
}

/// Runs queries back to back, in order. `None` where one is refused, as for an index that is not there: a pipeline needs none.
async fn ask<const N: usize>(
    run: &mut Run<'_>,
    requests: [RawDocumentBuf; N],
) -> Result<Option<[RawDocumentBuf; N]>, RunError> {
    let requests = requests.map(|request| complete(run, request));
    let requests = requests.each_ref().map(|request| Request::plain(request));
    let answers = run.link.call_all(&requests).await?;
    let answers: Result<Vec<_>, _> = answers.into_iter().map(succeeded).collect();
    Ok(answers.ok().and_then(|answers| answers.try_into().ok()))
}

fn documents(answer: &RawDocument) -> impl Iterator<Item = &RawDocument> {
    let cursor = CursorReply::parse(answer);
    cursor
        .into_iter()
        .flat_map(|cursor| cursor.batch.into_iter().flatten().filter_map(RawBsonRef::as_document))
}
