//! What an earlier attempt at the same command has stored.

use bson::raw::{RawArrayBuf, RawBson, RawBsonRef, RawDocument, cstr};

use super::batch::Batch;
use super::flight::retried;
use super::look::{Suspects, refuse};
use crate::command::document::{as_whole_number, get, single};
use crate::command::reply::succeeded;
use crate::pattern::bucket::insert::{Group, Recorded, no_statement};
use crate::session::error::RunError;
use crate::session::link::Request;
use crate::session::run::Run;

/// Statements in one command.
const MAX_STATEMENTS: usize = 10_000;

/// Asks mongod which statements of the groups in question it has executed, and takes over what they stored. An item whose
/// `_id` is taken and that was not stored by them is refused: this was asked after that was looked up.
pub(super) async fn recover(run: &mut Run<'_>, batch: &mut Batch<'_>, suspects: Suspects) -> Result<(), RunError> {
    for (number, _) in &suspects {
        if let Some(group) = batch.groups.get_mut(*number) {
            group.suspect_resend();
        }
    }
    for number in 0..batch.groups.len() {
        if batch.groups.get(number).is_some_and(Group::is_resent) {
            recover_group(run, batch, number).await?;
        }
    }
    for (number, mut taken) in suspects {
        if let Some(group) = batch.groups.get(number) {
            let pending: Vec<usize> = group.pending().collect();
            taken.retain(|position| pending.binary_search(position).is_ok());
        }
        refuse(run, batch, number, &taken);
    }
    Ok(())
}

async fn recover_group(run: &mut Run<'_>, batch: &mut Batch<'_>, number: usize) -> Result<(), RunError> {
    let Some(group) = batch.groups.get(number) else {
        return Ok(());
    };
    let asked: Vec<(usize, i32)> = group.statement_ids().collect();
    let mut recorded = Vec::new();
    for asked in asked.chunks(MAX_STATEMENTS) {
        let ids: RawArrayBuf = asked.iter().map(|(_, id)| *id).collect();
        let mut body = single("update", run.namespace.collection);
        body.append(cstr!("ordered"), false);
        body.append(cstr!("stmtIds"), &ids);
        run.carried().at_once().append_to_write(&mut body);
        let nothing = no_statement();
        let nothing: Vec<&RawDocument> = vec![&nothing; asked.len()];
        let request = Request {
            body: &body,
            sequence: Some(("updates", &nothing)),
        };
        let answer = succeeded(run.link.call(request).await?)?;
        let executed = retried(&answer);
        for (place, (position, id)) in asked.iter().enumerate() {
            if executed.contains(id) {
                recorded.push((
                    *position,
                    inserted(&answer, place).map_or(Recorded::Update, Recorded::Insert),
                ));
            }
        }
    }
    if let Some(group) = batch.groups.get_mut(number) {
        let found = group.recover(run.shape, &recorded);
        let indexes = found.iter().filter_map(|position| Some(group.item(*position)?.index()));
        batch.resent.extend(indexes);
        run.shared
            .metrics
            .inserts
            .resent_items
            .inc_by(u64::try_from(found.len()).unwrap_or(u64::MAX));
        // It waits for what the earlier attempt may not have waited for.
        if !found.is_empty() {
            batch.concern.owe();
        }
    }
    Ok(())
}

/// The `_id` of the document that a statement inserted, if it was an insert.
fn inserted(answer: &RawDocument, place: usize) -> Option<RawBson> {
    let upserted = answer.get_array("upserted").ok()?;
    let mut elements = upserted.into_iter().flatten().filter_map(RawBsonRef::as_document);
    let place = i64::try_from(place).ok()?;
    let of_place = elements.find(|element| get(element, "index").and_then(as_whole_number) == Some(place))?;
    get(of_place, "_id").map(RawBson::from)
}
