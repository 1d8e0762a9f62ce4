//! The options of an index that is recorded: mongod checks and completes them, although it does not store
//! them.

use bson::raw::{RawBsonRef, RawDocument, RawDocumentBuf, cstr};

use crate::command::arguments::{InheritedOptions, with_replaced};
use crate::command::document::{get, single};
use crate::command::error::CommandError;
use crate::command::indexes;
use crate::pattern::bucket::item_index::{is_recorded, name};
use crate::session::bucket::command::BucketCommand;
use crate::session::error::RunError;

/// The client's specifications, with complete collations. Costs two round trips for each index that is
/// recorded, and three with a collation.
///
/// # Errors
/// mongod's error for options that it checks when it creates an index; and in a transaction, where that
/// would wait for the transaction itself.
pub(super) async fn complete(
    run: &mut BucketCommand<'_>,
    wanted: &[&RawDocument],
) -> Result<Vec<RawDocumentBuf>, RunError> {
    let mut completed = Vec::with_capacity(wanted.len());
    for spec in wanted {
        if !is_recorded(spec) || run.context.link.is_dry_run() {
            completed.push((*spec).to_owned());
            continue;
        }
        if run.context.head.in_transaction() {
            let what = "a sparse, partial or wildcard index, or one with a collation, that is created in a transaction";
            return Err(run.unsupported(what).into());
        }
        check(run, spec).await?;
        completed.push(match get(spec, "collation") {
            Some(collation) => with_complete_collation(run, spec, collation).await?,
            None => (*spec).to_owned(),
        });
    }
    Ok(completed)
}

/// Has mongod check the options, by a command whose last index is invalid.
async fn check(run: &mut BucketCommand<'_>, spec: &RawDocument) -> Result<(), RunError> {
    let own = indexes::NO_INDEX;
    // The client's name may be in use.
    let renamed = with_replaced(spec, &[("name", Some(RawBsonRef::String(own)))]);
    let command = indexes::create(run.context.head.body(), &[renamed, indexes::mixed_options()]);
    match run.context.link.run(&command).await {
        Err(RunError::Command(error)) if indexes::is_of_mixed_options(&error) => Ok(()),
        Err(error) => Err(error.map_command(|error| match &error {
            CommandError::Upstream(reply) => {
                let message = reply.get_str("errmsg").unwrap_or_default();
                let message = message.replace(
                    &format!("name: \"{own}\""),
                    &format!("name: {}", indexes::name_text(name(spec))),
                );
                let message = Some(RawBsonRef::String(&message));
                CommandError::Upstream(with_replaced(reply, &[("errmsg", message)]))
            }
            CommandError::Own { .. } => error,
        })),
        Ok(_) => Err(run.unsupported("createIndexes of this server version").into()),
    }
}

/// The collation in the plan of a mongos, which has a plan for each shard.
fn of_first_shard(planner: &RawDocument) -> Option<RawBsonRef<'_>> {
    let plan = get(planner, "winningPlan")?.as_document()?;
    let shards = get(plan, "shards")?.as_array()?;
    get(shards.into_iter().next()?.ok()?.as_document()?, "collation")
}

/// The specification with all fields of the collation, as mongod stores it. An `explain` returns them.
async fn with_complete_collation(
    run: &mut BucketCommand<'_>,
    spec: &RawDocument,
    collation: RawBsonRef<'_>,
) -> Result<RawDocumentBuf, RunError> {
    let mut find = single("find", run.namespace.collection);
    find.append(cstr!("collation"), collation);
    let mut command = single("explain", find);
    command.append(cstr!("verbosity"), "queryPlanner");
    InheritedOptions::of(run.context.head.body()).append_to_inspect(&mut command);
    let reply = run.context.link.run(&command).await?;
    let planner = get(&reply, "queryPlanner").and_then(RawBsonRef::as_document);
    let complete = planner.and_then(|planner| get(planner, "collation").or_else(|| of_first_shard(planner)));
    Ok(with_replaced(
        spec,
        &[("collation", Some(complete.unwrap_or(collation)))],
    ))
}
