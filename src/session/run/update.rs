//! `update`: each statement on the bucket of the item that it is about.

use bson::raw::{RawArrayBuf, RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use super::{Run, indexes};
use crate::command::arguments::with_replaced;
use crate::command::document::{as_whole_number, get, single};
use crate::command::error::{CommandError, WriteError};
use crate::command::find::check_hint_form;
use crate::command::reply::{CursorReply, succeeded};
use crate::command::update::{Update, UpdateStatement};
use crate::pattern::bucket::change::{Asked, Change, in_terms_of_items};
use crate::pattern::bucket::index;
use crate::session::error::RunError;
use crate::session::link::Request;
use crate::session::mint::SystemMint;

pub(super) async fn run(run: &mut Run<'_>) -> Result<RawDocumentBuf, RunError> {
    let command = Update::parse(run.head)?;
    let changes = translate(run, &command)?;
    run.ready_to_read(None).await?;
    check_hints(run, &command.statements).await?;
    let body = body(run, &command);
    let statements: Vec<RawDocumentBuf> = command
        .statements
        .iter()
        .zip(&changes)
        .map(|(statement, change)| change.statement(statement.multi))
        .collect();
    let elements: Vec<&RawDocument> = statements.iter().map(RawDocumentBuf::as_ref).collect();
    let request = Request {
        body: &body,
        sequence: Some(("updates", &elements)),
    };
    let answer = succeeded(run.link.call(request).await?)?;
    if let ([statement], [change]) = (command.statements.as_slice(), changes.as_slice())
        && get(&answer, "n").and_then(as_whole_number) == Some(0)
        && get(&answer, "writeErrors").is_none()
    {
        nothing_matched(run, statement.upsert, change).await?;
    }
    if let [change] = changes.as_slice()
        && change.always_modifies
        && get(&answer, "n").and_then(as_whole_number) == Some(1)
    {
        return Ok(with_replaced(&answer, &[("nModified", Some(RawBsonRef::Int32(1)))]));
    }
    Ok(in_words_of_the_application(run, &answer, &changes))
}

/// All statements, before any is sent.
fn translate(run: &Run<'_>, command: &Update<'_>) -> Result<Vec<Change>, CommandError> {
    let mut mint = SystemMint::new(&run.shared.timestamps);
    let alone = command.statements.len() == 1;
    let changes = command.statements.iter().map(|statement| {
        let change = Change::of(run.shape, Asked::from(statement), &mut mint)?;
        // What became of one among others could not be told.
        if !alone && statement.upsert {
            return Err("an upsert among other updates".to_owned());
        }
        if !alone && change.wider.is_some() {
            return Err("a replacement, or $set of a key field or the time, among other updates".to_owned());
        }
        Ok(change)
    });
    let changes: Result<Vec<Change>, String> = changes.collect();
    changes.map_err(|what| run.unsupported(&what))
}

async fn check_hints(run: &mut Run<'_>, statements: &[UpdateStatement<'_>]) -> Result<(), RunError> {
    for statement in statements {
        check_hint_form(statement.hint)?;
        indexes::check_hint(run, statement.hint).await?;
    }
    Ok(())
}

fn body(run: &Run<'_>, command: &Update<'_>) -> RawDocumentBuf {
    let mut body = single("update", run.namespace.collection);
    body.append(cstr!("ordered"), command.ordered);
    if let Some(bypass) = command.bypass_document_validation {
        body.append(cstr!("bypassDocumentValidation"), bypass);
    }
    if run.head.is_retryable_write() {
        let ids = 0..command.statements.len();
        let ids: RawArrayBuf = ids.map(|index| command.statement_ids.of(index)).collect();
        body.append(cstr!("stmtIds"), &ids);
    }
    run.carried().append_to_write(&mut body);
    body
}

/// Where no bucket met the statement's conditions: whether that is all there is to tell.
pub(super) async fn nothing_matched(run: &mut Run<'_>, upsert: bool, change: &Change) -> Result<(), RunError> {
    if let Some(condition) = &change.wider {
        let mut find = single("find", run.namespace.collection);
        find.append(cstr!("filter"), condition);
        find.append(cstr!("hint"), index::ITEM_ID);
        find.append(cstr!("projection"), single("_id", 1));
        find.append(cstr!("limit"), 1);
        find.append(cstr!("singleBatch"), true);
        run.carried().append_to_look_up(&mut find);
        let answer = run.link.run(&find).await?;
        if CursorReply::parse(&answer).is_some_and(|cursor| cursor.documents().next().is_some()) {
            return Err(run.unsupported("an update of a key field or of the time").into());
        }
    }
    if upsert {
        return Err(run.unsupported("an upsert that inserts").into());
    }
    Ok(())
}

/// mongod's answer, its errors in terms of items.
fn in_words_of_the_application(run: &Run<'_>, answer: &RawDocument, changes: &[Change]) -> RawDocumentBuf {
    let Some(errors) = get(answer, "writeErrors").and_then(RawBsonRef::as_array) else {
        return answer.to_owned();
    };
    let errors = errors.into_iter().flatten().filter_map(RawBsonRef::as_document);
    let errors: RawArrayBuf = errors
        .filter_map(WriteError::parse)
        .map(|(index, mut error)| {
            if let Some(change) = changes.get(index) {
                error.message = in_terms_of_items(run.shape, &error.message, change.id.as_raw_bson_ref());
            }
            error.to_document(index)
        })
        .collect();
    let errors = RawBsonRef::Array(&errors);
    with_replaced(answer, &[("writeErrors", Some(errors))])
}
