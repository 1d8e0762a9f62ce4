//! `explain`: mongod's explanation of the internal command, and the access path.

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::command::BucketCommand;
use super::{aggregate, count, distinct, explain_write, find};
use crate::command::count::Count;
use crate::command::distinct::Distinct;
use crate::command::document::{first_field, get, single};
use crate::command::error::CommandError;
use crate::command::find::Find;
use crate::session::error::RunError;

pub(super) async fn run(run: &mut BucketCommand<'_>) -> Result<RawDocumentBuf, RunError> {
    let body = run.context.head.body();
    let explained = get(body, "explain").and_then(RawBsonRef::as_document);
    let Some((inner, (name, _))) = explained.and_then(|inner| Some((inner, first_field(inner)?))) else {
        return Err(CommandError::wrong_type("explain.explain", "other", "object").into());
    };
    let explained = match name {
        "find" => find::explained(run, &Find::parse(inner)?).await?,
        "count" => count::explained(run, &Count::parse(inner)?).await?,
        "distinct" => distinct::explained(run, &Distinct::parse(inner)?).await?,
        "aggregate" => aggregate::explained(run, inner).await?,
        "update" | "delete" => explain_write::explained(run, name, inner).await?,
        "findAndModify" | "findandmodify" => explain_write::explained(run, "findAndModify", inner).await?,
        name => return Err(run.unsupported(&format!("explain of {name}")).into()),
    };
    let mut command = single("explain", &explained.command);
    if let Some(verbosity) = get(body, "verbosity") {
        command.append(cstr!("verbosity"), verbosity);
    }
    run.context.inherited().append_to_read(&mut command);
    let reply = run.context.link.run(&command).await?;
    Ok(explained.added_to(reply))
}
