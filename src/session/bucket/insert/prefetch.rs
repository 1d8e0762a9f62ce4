//! Reads head pages that are not cached, and which `_id`s are taken.

use std::collections::HashMap;

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use super::batch::InsertBatch;
use crate::command::document::{put, single};
use crate::command::duplicate::duplicate_id;
use crate::command::error::{CommandError, ErrorCode};
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, succeeded};
use crate::pattern::bucket::insert::{HeadLookup, Hits, KeyBatch, WriteGuarantee, append_facts_query, ids_query};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::shapes::{BucketShape, ItemIds};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;
use crate::session::shared::Shared;
use crate::session::upstream_connection::UpstreamRequest;

/// Keys or `_id`s in one query. Keeps the query short and its result usually within one batch.
const MAX_IN_QUERY: usize = 1000;
/// Documents in a batch. mongod ends a batch earlier if it reaches the maximum reply size.
const BATCH_SIZE: i32 = 100_000;

/// A query and the groups that its result is for.
enum Query {
    /// The head pages of several groups, by group number.
    Together(RawDocumentBuf, Vec<usize>),
    /// The head page of one group.
    Apart(RawDocumentBuf, usize),
    /// The `_id`s that exist already.
    Ids(RawDocumentBuf),
}

impl Query {
    fn command(&self) -> &RawDocument {
        match self {
            Self::Together(command, _) | Self::Apart(command, _) | Self::Ids(command) => command,
        }
    }
}

/// Items whose `_id` exists, possibly because an earlier attempt stored them: group number and
/// positions.
pub(super) type Suspects = Vec<(usize, Vec<usize>)>;

/// Reads head pages and existing `_id`s for the next statements, and refuses items whose `_id` exists. For an
/// exactly-once command, such items are only returned: an earlier attempt may have stored them.
pub(super) async fn look(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<Suspects, RunError> {
    let queries = queries(run, batch);
    let requests: Vec<UpstreamRequest<'_>> = queries
        .iter()
        .map(|query| UpstreamRequest::plain(query.command()))
        .collect();
    let answers = run.context.link.call_all(&requests).await?;
    let mut hits = Hits::default();
    for (query, answer) in queries.iter().zip(answers) {
        let answer = succeeded(answer)?;
        match query {
            Query::Together(_, groups) => together(run, batch, groups, answer).await?,
            Query::Apart(_, group) => apart(run, batch, *group, &answer)?,
            Query::Ids(_) => {
                let shape = run.shape;
                each(run, answer, |bucket| {
                    hits.add_of(shape, bucket);
                    Ok(())
                })
                .await?;
            }
        }
    }
    let mut suspects = Suspects::new();
    for (number, group) in batch.groups.iter_mut().enumerate() {
        let taken = taken(group, &hits);
        if !taken.is_empty() {
            suspects.push((number, taken));
        }
    }
    if batch.care != WriteGuarantee::ExactlyOnce {
        for (number, taken) in suspects.drain(..) {
            refuse(run, batch, number, &taken);
        }
    }
    Ok(suspects)
}

fn queries(run: &BucketCommand<'_>, batch: &InsertBatch<'_>) -> Vec<Query> {
    let groups = || batch.groups.iter().enumerate();
    let mut queries = Vec::new();
    let unique = run.shape.item_ids() == ItemIds::Unique;
    let suspects = groups().filter(|(_, group)| unique && group.ids_are_suspect());
    let ids: Vec<&RawBson> = suspects.flat_map(|(_, group)| pending_ids(group)).collect();
    for ids in ids.chunks(MAX_IN_QUERY) {
        let mut find = single("find", run.namespace.collection);
        ids_query(run.shape, ids.iter().copied(), &mut find);
        find.append(cstr!("batchSize"), BATCH_SIZE);
        run.context.inherited().append_to_internal_read(&mut find);
        queries.push(Query::Ids(find));
    }
    let lost: Vec<(usize, &Item)> = groups()
        .filter(|(_, group)| group.has_work() && group.is_lost())
        .filter_map(|(number, group)| Some((number, group.item(0)?)))
        .collect();
    for lost in lost.chunks(MAX_IN_QUERY) {
        let numbers = lost.iter().map(|(number, _)| *number);
        match HeadLookup::of(run.shape, lost.iter().map(|(_, item)| *item)) {
            HeadLookup::Together(pipeline) => {
                let mut aggregate = single("aggregate", run.namespace.collection);
                put(&mut aggregate, "pipeline", &pipeline);
                aggregate.append(cstr!("cursor"), single("batchSize", BATCH_SIZE));
                run.context.inherited().append_to_internal_read(&mut aggregate);
                queries.push(Query::Together(aggregate, numbers.collect()));
            }
            HeadLookup::Apart => queries.extend(lost.iter().map(|(number, item)| {
                let mut find = single("find", run.namespace.collection);
                append_facts_query(run.shape, item, &mut find);
                run.context.inherited().append_to_internal_read(&mut find);
                Query::Apart(find, *number)
            })),
        }
    }
    queries
}

fn pending_ids(group: &KeyBatch) -> impl Iterator<Item = &RawBson> {
    group.pending().filter_map(|position| group.item(position)?.id())
}

async fn together(
    run: &mut BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    groups: &[usize],
    answer: RawDocumentBuf,
) -> Result<(), RunError> {
    let mut found: HashMap<Vec<u8>, PageHeader> = HashMap::new();
    let shape = run.shape;
    let (shared, namespace) = (run.context.shared, run.namespace);
    each(run, answer, |page| {
        let (key, facts) = HeadLookup::parse(shape, page).ok_or_else(|| unreadable(shared, namespace, shape))?;
        found.insert(key, facts);
        Ok(())
    })
    .await?;
    for number in groups {
        if let Some(group) = batch.groups.get_mut(*number) {
            let highest = found.remove(group.identity());
            group.know(highest);
        }
    }
    Ok(())
}

fn apart(
    run: &BucketCommand<'_>,
    batch: &mut InsertBatch<'_>,
    group: usize,
    answer: &RawDocument,
) -> Result<(), CommandError> {
    let bucket = CursorReply::parse(answer).and_then(|cursor| cursor.documents().next());
    let facts = bucket.map(|bucket| {
        PageHeader::parse(run.shape, bucket).ok_or_else(|| unreadable(run.context.shared, run.namespace, run.shape))
    });
    let facts = facts.transpose()?;
    if let Some(group) = batch.groups.get_mut(group) {
        group.know(facts);
    }
    Ok(())
}

/// Calls `take` for each document of a reply and of the following batches.
async fn each(
    run: &mut BucketCommand<'_>,
    mut answer: RawDocumentBuf,
    mut take: impl FnMut(&RawDocument) -> Result<(), CommandError>,
) -> Result<(), RunError> {
    loop {
        let Some(cursor) = CursorReply::parse(&answer) else {
            return Ok(());
        };
        cursor.documents().try_for_each(&mut take)?;
        if cursor.id == 0 {
            return Ok(());
        }
        let mut more = single("getMore", cursor.id);
        put(&mut more, "collection", run.namespace.collection);
        run.context.inherited().append_to_internal_read(&mut more);
        answer = run.context.link.run(&more).await?;
    }
}

/// Positions of the group's items whose `_id` exists. Each group is looked up once.
fn taken(group: &mut KeyBatch, hits: &Hits) -> Vec<usize> {
    if !group.ids_are_suspect() {
        return Vec::new();
    }
    group.suspect_ids(false);
    let is_taken = |position: &usize| {
        let id = group.item(*position).and_then(Item::id);
        id.is_some_and(|id| hits.contains(id.as_raw_bson_ref()))
    };
    group.pending().filter(is_taken).collect()
}

/// Refuses the items at these positions as duplicates.
pub(super) fn refuse(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>, number: usize, taken: &[usize]) {
    let Some(group) = batch.groups.get_mut(number) else {
        return;
    };
    let mut refused = Vec::new();
    for position in taken {
        group.refuse(*position);
        let Some((index, id)) = group.item(*position).and_then(|item| Some((item.index(), item.id()?))) else {
            continue;
        };
        refused.push((index, duplicate_id(run.namespace, id.as_raw_bson_ref())));
    }
    batch.refuse(refused);
}

fn unreadable(shared: &Shared, namespace: Namespace<'_>, shape: &BucketShape) -> CommandError {
    shared.metrics.misfit(&shape.namespace().to_string());
    let message =
        format!("{namespace} contains a document that is not a bucket of layout version 1: run `mongoshape check`");
    CommandError::new(ErrorCode::InvalidOptions, message)
}
