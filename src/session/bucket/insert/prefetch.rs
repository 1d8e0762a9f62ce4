//! Reads head pages that are not cached, and which `_id`s and keys of unique indexes are taken.

use std::collections::HashMap;

use bson::raw::{RawBson, RawDocument, RawDocumentBuf, cstr};

use super::batch::{InsertBatch, Placed};
use super::unique_values::{self, EarlierKeys, KeysFound, UniqueKeyLookup, key_lookups};
use crate::command::document::{length_of, put, single};
use crate::command::duplicate::duplicate_id;
use crate::command::error::{CommandError, ErrorCode, WriteError};
use crate::command::namespace::Namespace;
use crate::command::reply::{CursorReply, succeeded};
use crate::command::write_batch::lookup_parts;
use crate::pattern::bucket::insert::{
    HeadLookup, HeaderFields, IdSet, KeyBatch, WriteGuarantee, append_facts_query, ids_query,
};
use crate::pattern::bucket::item::Item;
use crate::pattern::bucket::layout::PageHeader;
use crate::pattern::shapes::BucketShape;
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;
use crate::session::refusal::RefusalRecorder;
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
    /// The keys that exist already in the unique index at this position.
    Keys(RawDocumentBuf, usize),
}

impl Query {
    fn command(&self) -> &RawDocument {
        match self {
            Self::Together(command, _) | Self::Apart(command, _) | Self::Ids(command) | Self::Keys(command, _) => {
                command
            }
        }
    }
}

/// An item whose `_id` or key exists, possibly because an earlier attempt stored it.
pub(super) struct TakenItem {
    pub(super) placed: Placed,
    /// The error, unless an earlier attempt stored it.
    error: WriteError,
}

/// The items whose `_id` or key exists.
pub(super) type Suspects = Vec<TakenItem>;

/// Reads head pages, and existing `_id`s and keys for the next statements, and refuses items whose `_id` or
/// key exists. For an exactly-once command, such items are only returned: an earlier attempt may have stored
/// them.
pub(super) async fn look(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<Suspects, RunError> {
    let mut found = find_stored(run, batch).await?;
    let concerns_index = !found.keys.is_empty() || batch.unique.has_refusal();
    if concerns_index && unique_values::learn_again(run, batch).await? {
        found = find_stored(run, batch).await?;
    }
    let mut suspects = taken(run, batch, &found);
    if batch.care != WriteGuarantee::ExactlyOnce {
        refuse(batch, std::mem::take(&mut suspects));
    }
    Ok(suspects)
}

async fn find_stored(run: &mut BucketCommand<'_>, batch: &mut InsertBatch<'_>) -> Result<Found, RunError> {
    let queries = queries(run, batch);
    let requests: Vec<UpstreamRequest<'_>> = queries
        .iter()
        .map(|query| UpstreamRequest::plain(query.command()))
        .collect();
    let answers = run.context.link.call_all(&requests).await?;
    let mut found = Found::default();
    for (query, answer) in queries.iter().zip(answers) {
        let answer = succeeded(answer)?;
        match query {
            Query::Together(_, groups) => together(run, batch, groups, answer).await?,
            Query::Apart(_, group) => apart(run, batch, *group, &answer)?,
            Query::Ids(_) => {
                let shape = run.shape;
                each(run, answer, |bucket| {
                    found.ids.add_page(shape, bucket);
                    Ok(())
                })
                .await?;
            }
            Query::Keys(_, index) => {
                let shape = run.shape;
                each(run, answer, |page| {
                    found.keys.add(shape, &batch.unique, *index, page);
                    Ok(())
                })
                .await?;
            }
        }
    }
    Ok(found)
}

/// The `_id`s and keys of stored items.
#[derive(Default)]
struct Found {
    ids: IdSet,
    keys: KeysFound,
}

fn queries(run: &BucketCommand<'_>, batch: &InsertBatch<'_>) -> Vec<Query> {
    let groups = || batch.groups.iter().enumerate();
    let mut queries = Vec::new();
    // In a transaction, a statement that makes a page too large would end it.
    let fields = if batch.in_transaction() {
        HeaderFields::WithSize
    } else {
        HeaderFields::Stored
    };
    let lost: Vec<(usize, &Item)> = groups()
        .filter(|(_, group)| group.has_work() && group.is_lost())
        .filter_map(|(number, group)| Some((number, group.item(0)?)))
        .collect();
    for lost in lookup_parts(&lost, MAX_IN_QUERY, |(_, item)| item.identity().len()) {
        let numbers = lost.iter().map(|(number, _)| *number);
        match HeadLookup::of(run.shape, lost.iter().map(|(_, item)| *item), fields) {
            HeadLookup::Together(pipeline) => {
                let mut aggregate = single("aggregate", run.namespace.collection);
                put(&mut aggregate, "pipeline", &pipeline);
                aggregate.append(cstr!("cursor"), single("batchSize", BATCH_SIZE));
                run.context.inherited().append_to_read_of_write(&mut aggregate);
                queries.push(Query::Together(aggregate, numbers.collect()));
            }
            HeadLookup::Apart => queries.extend(lost.iter().map(|(number, item)| {
                let mut find = single("find", run.namespace.collection);
                append_facts_query(run.shape, item, fields, &mut find);
                run.context.inherited().append_to_read_of_write(&mut find);
                Query::Apart(find, *number)
            })),
        }
    }
    // After the head pages: see `KeyBatch::record_id_lookup`.
    let unique = run.shape.item_ids().are_indexed();
    let suspects = groups().filter(|(_, group)| unique && group.ids_are_suspect());
    let ids: Vec<&RawBson> = suspects.flat_map(|(_, group)| pending_ids(group)).collect();
    for ids in lookup_parts(&ids, MAX_IN_QUERY, |id| length_of(id.as_raw_bson_ref())) {
        let mut find = single("find", run.namespace.collection);
        ids_query(run.shape, ids.iter().copied(), &mut find);
        find.append(cstr!("batchSize"), BATCH_SIZE);
        run.context.inherited().append_to_read_of_write(&mut find);
        queries.push(Query::Ids(find));
    }
    for UniqueKeyLookup { index, lookup } in key_lookups(run.shape, batch) {
        let mut find = lookup.find(run.namespace.collection);
        find.append(cstr!("batchSize"), BATCH_SIZE);
        run.context.inherited().append_to_read_of_write(&mut find);
        queries.push(Query::Keys(find, index));
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
    let (refusals, namespace) = (run.context.refusals(), run.namespace);
    each(run, answer, |page| {
        let (key, facts) = HeadLookup::parse(shape, page).ok_or_else(|| unreadable(refusals, namespace, shape))?;
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
        PageHeader::parse(run.shape, bucket).ok_or_else(|| unreadable(run.context.refusals(), run.namespace, run.shape))
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

/// The items whose `_id` or key exists. Each group is looked up once.
fn taken(run: &BucketCommand<'_>, batch: &mut InsertBatch<'_>, found: &Found) -> Suspects {
    let mut taken = Suspects::new();
    if !batch.groups.iter().any(KeyBatch::ids_are_suspect) {
        return taken;
    }
    let mut earlier = EarlierKeys::default();
    for placed in batch.pending_in_order() {
        let group = batch.groups.get(placed.group).filter(|group| group.ids_are_suspect());
        let item = group.and_then(|group| group.item(placed.position));
        let stored = item.filter(|item| found.ids.contains_item(run.shape, item));
        let error = match stored.and_then(Item::id) {
            Some(id) => Some(duplicate_id(run.namespace, id.as_raw_bson_ref())),
            // With an earlier item of the same `_id` or key, the error depends on whether that one is stored.
            None if item.is_none() || earlier.contain(batch, placed) => None,
            None => found.keys.error(run, &batch.unique, placed),
        };
        match error {
            Some(error) => taken.push(TakenItem { placed, error }),
            None => earlier.add(batch, placed),
        }
    }
    batch.groups.iter_mut().for_each(KeyBatch::record_id_lookup);
    taken
}

/// Refuses the items as duplicates.
pub(super) fn refuse(batch: &mut InsertBatch<'_>, taken: Suspects) {
    let mut refused = Vec::new();
    for TakenItem { placed, error } in taken {
        let Some(group) = batch.groups.get_mut(placed.group) else {
            continue;
        };
        group.refuse(placed.position);
        refused.extend(group.item(placed.position).map(|item| (item.index(), error)));
    }
    batch.refuse(refused);
}

fn unreadable(refusals: RefusalRecorder<'_>, namespace: Namespace<'_>, shape: &BucketShape) -> CommandError {
    refusals.misfit(shape.namespace());
    let message =
        format!("{namespace} contains a document that is not a bucket of layout version 1: run `mongoshape check`");
    CommandError::new(ErrorCode::InvalidOptions, message)
}
