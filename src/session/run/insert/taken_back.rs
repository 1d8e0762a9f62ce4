//! Taking back what an ordered command stored behind an item that was refused; see [`take_back`].

use std::collections::BTreeMap;

use bson::raw::{RawArrayBuf, RawBson, RawDocumentBuf, cstr};

use super::batch::Batch;
use crate::command::document::{array_of, single};
use crate::command::reply::succeeded;
use crate::pattern::bucket::delete::take_back;
use crate::pattern::bucket::item::Item;
use crate::session::error::RunError;
use crate::session::link::Request;
use crate::session::run::delete::sweep;
use crate::session::run::{Run, replaced};

/// Sends them until none is left over since the collection is about to be replaced. Done twice they do no harm.
async fn send(run: &mut Run<'_>, statements: &[RawDocumentBuf]) -> Result<(), RunError> {
    loop {
        let mut body = single("update", run.namespace.collection);
        body.append(cstr!("updates"), array_of(statements));
        body.append(cstr!("ordered"), false);
        run.carried().unnumbered().append_to_write(&mut body);
        let answer = succeeded(run.link.call(Request::plain(&body)).await?)?;
        if !replaced::has_met_statement(&answer) {
            return Ok(());
        }
        run.settings.readiness.forget(run.namespace);
        run.settings.readiness.for_writing(&mut run.asker()).await?;
    }
}

pub(super) async fn take(run: &mut Run<'_>, batch: &mut Batch<'_>) -> Result<(), RunError> {
    let first = batch.failed.iter().map(|(index, _)| *index).min();
    let (true, false, Some(first)) = (batch.ordered, batch.in_transaction(), first) else {
        return Ok(());
    };
    let mut buckets: BTreeMap<String, (RawBson, RawArrayBuf)> = BTreeMap::new();
    let mut taken = Vec::new();
    for (bucket, group, position) in &batch.log {
        let item = batch.groups.get(*group).and_then(|group| group.item(*position));
        let behind = item.filter(|item| item.index() > first);
        if let (Some(id), Some(name)) = (behind.and_then(Item::id), bucket.as_str()) {
            let (_, ids) = buckets
                .entry(name.to_owned())
                .or_insert_with(|| (bucket.clone(), RawArrayBuf::new()));
            ids.push(id.as_raw_bson_ref());
            taken.push((*group, *position));
        }
    }
    if taken.is_empty() {
        return Ok(());
    }
    let statements: Vec<RawDocumentBuf> = buckets
        .values()
        .map(|(bucket, ids)| take_back(run.shape, bucket, ids))
        .collect();
    send(run, &statements).await?;
    let mut keys = BTreeMap::new();
    for (number, position) in taken {
        if let Some(group) = batch.groups.get_mut(number) {
            group.refuse(position);
            keys.entry(number)
                .or_insert_with(|| group.item(position).map(|item| item.key().clone()));
        }
    }
    for key in keys.into_values().flatten() {
        let mut condition = RawDocumentBuf::new();
        key.append_filter(run.shape, &mut condition);
        sweep::key(run, &condition).await?;
    }
    Ok(())
}
