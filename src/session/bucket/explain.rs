//! `explain`: mongod's explanation of the internal command, and the access path.

use bson::raw::{RawBsonRef, RawDocumentBuf, cstr};

use super::{BucketCommand, aggregate, count, distinct, find};
use crate::command::aggregate::Aggregate;
use crate::command::count::Count;
use crate::command::distinct::Distinct;
use crate::command::document::{first_field, get, single};
use crate::command::error::CommandError;
use crate::command::find::Find;
use crate::session::error::RunError;
use crate::session::metrics::Strategy;

/// The field of an explanation that tells what the proxy does.
const FIELD: &str = "mongoshape";

/// What is sent for a client's command.
pub(super) struct Explained {
    /// Which way it goes.
    pub(super) strategy: Strategy,
    /// The command on buckets; where there are several, that which brings items.
    pub(super) command: RawDocumentBuf,
}

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
        "aggregate" => aggregate::explained(run, &Aggregate::parse_explained(inner)?).await?,
        name => return Err(run.unsupported(&format!("explain of {name}")).into()),
    };
    let mut command = single("explain", &explained.command);
    if let Some(verbosity) = get(body, "verbosity") {
        command.append(cstr!("verbosity"), verbosity);
    }
    run.context.inherited().append_to_read(&mut command);
    let reply = run.context.link.run(&command).await?;
    Ok(explained.told_in(reply))
}

impl Explained {
    /// mongod's explanation, and what the proxy does.
    pub(super) fn told_in(&self, mut reply: RawDocumentBuf) -> RawDocumentBuf {
        let mut told = single("strategy", self.strategy.label());
        told.append(cstr!("command"), &self.command);
        crate::command::document::put(&mut reply, FIELD, &told);
        reply
    }
}
