//! `explain` of `update`, `delete` and `findAndModify`: the query that finds the items. mongod validates the
//! rest of the command.

use bson::raw::{RawBsonRef, RawDocument, cstr};

use super::command::BucketCommand;
use super::explanation::Explained;
use super::item_update::ItemUpdate;
use super::page_pruning::{self, FilterAndCollation};
use super::{indexes, item_lookup};
use crate::command::arguments::with_replaced;
use crate::command::delete::Delete;
use crate::command::document::{array_of, get, put, single};
use crate::command::error::{CommandError, ErrorCode};
use crate::command::find_and_modify::FindAndModify;
use crate::command::header::CommandHeader;
use crate::command::update::Update;
use crate::pattern::bucket::item_lookup::{ItemSelector, command};
use crate::pattern::bucket::update_by_id::UpdateRequest;
use crate::pattern::bucket::upsert::check_filter;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// The parts of an explained write.
struct ExplainedWrite<'a> {
    query: ItemSelector<'a>,
    hint: Option<RawBsonRef<'a>>,
    /// Whether the write of one item of a sharded collection must name the item's key, also beside an `_id`.
    needs_key: bool,
}

/// The query of a write. `name`: the command's canonical name.
pub(super) async fn explained(
    run: &mut BucketCommand<'_>,
    name: &str,
    write: &RawDocument,
) -> Result<Explained, RunError> {
    let mut body = with_replaced(write, &[("$db", None)]);
    put(&mut body, "$db", run.context.head.database);
    let head = CommandHeader::of_body(&body)?;
    let mut task;
    let explained = match name {
        "update" => {
            let update = Update::parse(&head)?;
            run.context.link.check_field(update.newer_field()).await?;
            let [statement] = &*update.statements else {
                return Err(several());
            };
            if let Some(error) = check_filter(statement.filter).err().filter(|_| statement.upsert) {
                return Err(error.into_named_error().into());
            }
            task = ItemUpdate::new(
                UpdateRequest::from(statement),
                update.let_variables,
                statement.constants,
            );
            task.sort = statement.order();
            let wanted = ItemSelector {
                limit: (!statement.multi).then_some(1),
                ..task.wanted()
            };
            ExplainedWrite {
                query: wanted,
                hint: statement.hint,
                needs_key: statement.upsert,
            }
        }
        "delete" => {
            let delete = Delete::parse(&head)?;
            let [statement] = &*delete.statements else {
                return Err(several());
            };
            let wanted = ItemSelector {
                filter: Some(statement.filter),
                collation: statement.collation,
                let_variables: delete.let_variables,
                limit: statement.one.then_some(1),
                ..ItemSelector::default()
            };
            ExplainedWrite {
                query: wanted,
                hint: statement.hint,
                needs_key: false,
            }
        }
        _ => {
            let modify = FindAndModify::parse(&body)?;
            let wanted = ItemSelector {
                filter: modify.filter,
                sort: modify.sort.filter(|sort| !sort.is_empty()),
                collation: modify.collation,
                let_variables: modify.let_variables,
                limit: Some(1),
                ..ItemSelector::default()
            };
            ExplainedWrite {
                query: wanted,
                hint: modify.hint,
                needs_key: true,
            }
        }
    };
    of_query(run, &body, explained).await
}

/// Checks the write, and explains its query. `body`: the whole write.
async fn of_query(
    run: &mut BucketCommand<'_>,
    body: &RawDocument,
    explained: ExplainedWrite<'_>,
) -> Result<Explained, RunError> {
    let ExplainedWrite { query, hint, needs_key } = explained;
    item_lookup::check(run, query.filter)?;
    let is_free = query.limit.is_none() || query.sort.is_some();
    indexes::check_hinted_order(run, hint.filter(|_| !is_free))?;
    run.ensure_readable(None).await?;
    match query.filter {
        _ if query.limit.is_none() => {}
        Some(filter) if !needs_key => drop(run.find_target(filter, query.collation, None).await?),
        filter => run.set_target(filter, query.collation)?,
    }
    validate(run, body).await?;
    indexes::check_hint(run, hint).await?;
    let lookup = command(run.shape, run.namespace.collection, query);
    let of_query = FilterAndCollation {
        filter: query.filter,
        collation: query.collation,
    };
    Ok(Explained {
        strategy: Strategy::Pipeline,
        command: page_pruning::pruned(run, lookup, of_query).await?,
    })
}

/// Has mongod explain the write with a filter that matches nothing.
async fn validate(run: &mut BucketCommand<'_>, write: &RawDocument) -> Result<(), RunError> {
    let id = single("_id", 1);
    let without_match = |document: &RawDocument, field: &str| {
        let filter = get(document, field).and_then(RawBsonRef::as_document);
        let nothing = run.without_match(filter);
        let replaced = [
            (field, Some(RawBsonRef::Document(&nothing))),
            ("hint", Some(RawBsonRef::Document(&id))),
        ];
        with_replaced(document, &replaced)
    };
    let mut changed = without_match(write, "query");
    for list in ["updates", "deletes"] {
        let statement = get(write, list).and_then(|list| list.as_array()?.into_iter().next()?.ok()?.as_document());
        if let Some(statement) = statement {
            let statement = array_of(&[without_match(statement, "q")]);
            changed = with_replaced(&changed, &[(list, Some(RawBsonRef::Array(&statement)))]);
        }
    }
    let mut explain = single("explain", with_replaced(&changed, &[("$db", None)]));
    explain.append(cstr!("verbosity"), "queryPlanner");
    run.context.inherited().append_to_read(&mut explain);
    run.context.link.run(&explain).await.map(drop)
}

fn several() -> RunError {
    CommandError::new(ErrorCode::InvalidLength, "explained write batches must be of size 1").into()
}
